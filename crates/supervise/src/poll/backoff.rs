//! Backoff of an instance on which every poll fails, or the command cannot be started.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{DutyId, LocalInstant};

/// Failures in a row before the instance backs off.
const FAILURE_THRESHOLD: u32 = 3;
/// Length of the first backoff, in poll intervals.
const FIRST_BACKOFF_INTERVALS: u32 = 4;
/// The longest backoff, unless the first one is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(5 * 60);

/// Failures of this instance since a poll succeeded.
#[derive(Debug)]
pub(super) struct PollBackoff {
    every: Duration,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    held: usize,
    failed: BTreeSet<DutyId>,
    failures: u32,
    /// Of these, polls that could not be started.
    unstarted: u32,
    backoffs: u32,
    until: Option<LocalInstant>,
    /// Polls skipped in a row because too little time was left of the hold.
    skipped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollFailure {
    NotStarted,
    Failed,
    /// The poll was killed. A single target may just be slow.
    TimedOut,
}

/// A backoff that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BackoffPeriod {
    pub(super) duration: Duration,
    /// Failures that led to it.
    pub(super) failures: u32,
}

impl PollBackoff {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, failures: Mutex::default() }
    }

    pub(super) fn target_added(&self) {
        self.lock().held += 1;
    }

    pub(super) fn target_removed(&self, target: &DutyId) {
        let mut state = self.lock();
        state.held = state.held.saturating_sub(1);
        state.failed.remove(target);
    }

    pub(super) fn is_active(&self, now: LocalInstant) -> bool {
        self.lock().until.is_some_and(|until| now < until)
    }

    /// Resets the failures after a successful poll. Returns whether the instance had backed off.
    pub(super) fn succeeded(&self) -> bool {
        let mut state = self.lock();
        let Failures { held, backoffs, skipped, .. } = *state;
        *state = Failures { held, skipped, ..Failures::default() };
        backoffs > 0
    }

    /// Counts a failed poll. The instance backs off if all targets fail or the command cannot be
    /// started, but not for a single failing target. `random` spreads instances apart.
    pub(super) fn failed(
        &self,
        target: &DutyId,
        failure: PollFailure,
        now: LocalInstant,
        random: u128,
    ) -> Option<BackoffPeriod> {
        let mut state = self.lock();
        state.failed.insert(target.clone());
        state.failures += 1;
        state.unstarted += u32::from(failure == PollFailure::NotStarted);
        let least = if failure == PollFailure::TimedOut { 2 } else { 1 };
        let all = state.failed.len() >= state.held.max(least);
        if (state.failures < FAILURE_THRESHOLD || !all) && state.unstarted < FAILURE_THRESHOLD {
            return None;
        }
        // This poll was in progress when the backoff began.
        if state.until.is_some_and(|until| now < until) {
            return None;
        }
        let first = self.every * FIRST_BACKOFF_INTERVALS;
        let duration = first.saturating_mul(1 << state.backoffs.min(16));
        let duration = duration.min(MAX_BACKOFF.max(first));
        let duration = duration + duration.mul_f64((random % 256) as f64 / 1024.0);
        let failures = state.failures;
        state.failed.clear();
        (state.failures, state.unstarted) = (0, 0);
        state.backoffs += 1;
        state.until = Some(now.plus(duration));
        Some(BackoffPeriod { duration, failures })
    }

    /// Counts a poll skipped for lack of time. Returns whether it is the first in a row.
    pub(super) fn skipped(&self) -> bool {
        let mut state = self.lock();
        state.skipped += 1;
        state.skipped == 1
    }

    /// Returns how many polls were skipped before the one that begins now, if any.
    pub(super) fn poll_started(&self) -> Option<u64> {
        let skipped = std::mem::take(&mut self.lock().skipped);
        (skipped > 0).then_some(skipped)
    }

    fn lock(&self) -> MutexGuard<'_, Failures> {
        // Every change leaves it consistent, also after a panic.
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> LocalInstant {
        LocalInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn of(held: usize) -> (PollBackoff, impl Fn(&str) -> DutyId) {
        let backoff = PollBackoff::new(EVERY);
        (0..held).for_each(|_| backoff.target_added());
        (backoff, |name: &str| DutyId::new(name).unwrap())
    }

    #[test]
    fn one_target_that_fails_is_kept_and_all_that_fail_are_not() {
        let (backoff, id) = of(2);
        for n in 0..20 {
            assert_eq!(backoff.failed(&id("a"), PollFailure::Failed, at(n), 0), None);
        }
        assert!(!backoff.succeeded());
        assert_eq!(backoff.failed(&id("a"), PollFailure::Failed, at(20), 0), None);
        assert_eq!(backoff.failed(&id("b"), PollFailure::Failed, at(20), 0), None);
        let period = backoff.failed(&id("b"), PollFailure::Failed, at(20), 0).unwrap();
        assert_eq!(period, BackoffPeriod { duration: EVERY * 4, failures: 3 });
        assert!(backoff.is_active(at(59)) && !backoff.is_active(at(60)));
        assert!(backoff.succeeded() && !backoff.succeeded());
    }

    #[test]
    fn a_command_that_cannot_be_started_is_nobody_elses_fault() {
        let (backoff, id) = of(100);
        assert_eq!(backoff.failed(&id("a"), PollFailure::NotStarted, at(0), 0), None);
        assert_eq!(backoff.failed(&id("b"), PollFailure::NotStarted, at(0), 0), None);
        assert!(backoff.failed(&id("c"), PollFailure::NotStarted, at(0), 0).is_some());
    }

    #[test]
    fn a_single_target_that_takes_too_long_is_kept() {
        let (backoff, id) = of(1);
        for n in 0..20 {
            assert_eq!(backoff.failed(&id("a"), PollFailure::TimedOut, at(n), 0), None);
        }
        backoff.target_added();
        assert!(backoff.failed(&id("b"), PollFailure::TimedOut, at(20), 0).is_some());
    }

    #[test]
    fn rests_grow_up_to_a_limit() {
        let (backoff, id) = of(1);
        let (mut now, mut rests) = (0, Vec::new());
        while rests.len() < 6 {
            now += 1_000;
            rests.extend(
                backoff
                    .failed(&id("a"), PollFailure::Failed, at(now), 0)
                    .map(|r| r.duration.as_secs()),
            );
        }
        assert_eq!(rests, [40, 80, 160, 300, 300, 300]);
        for _ in 0..2 {
            assert_eq!(backoff.failed(&id("a"), PollFailure::Failed, at(now + 1_000), 0), None);
        }
        let longest =
            backoff.failed(&id("a"), PollFailure::Failed, at(now + 1_000), 255).unwrap().duration;
        assert!(longest > MAX_BACKOFF && longest < MAX_BACKOFF + MAX_BACKOFF / 4);
    }
}
