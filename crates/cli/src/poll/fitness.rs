//! Whether the fault is here: polls that fail whatever the target, or a command that cannot be
//! started.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{DutyId, LocalInstant};

/// So many failures in a row are no accident.
const FEW: u32 = 3;
/// How many intervals the first rest takes.
const INTERVALS: u32 = 4;
/// The longest rest, unless that many intervals are longer.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// What became of polls since one went well.
#[derive(Debug)]
pub(super) struct Fitness {
    every: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The targets that are here.
    held: usize,
    /// Those that failed.
    failed: BTreeSet<DutyId>,
    failures: u32,
    /// Of these, how many could not even be started.
    unstarted: u32,
    /// How often in a row this instance has taken a rest.
    rests: u32,
    until: Option<LocalInstant>,
    /// Polls that were skipped in a row because too little was left of the hold.
    skipped: u64,
}

/// How a poll failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    NotStarted,
    Failed,
    /// It was ended: one target may be slow by itself.
    TooLong,
}

/// What follows from a poll that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resting {
    /// How long nothing is polled here.
    pub(super) rest: Duration,
    pub(super) failures: u32,
}

impl Fitness {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, state: Mutex::default() }
    }

    pub(super) fn came(&self) {
        self.lock().held += 1;
    }

    pub(super) fn went(&self, target: &DutyId) {
        let mut state = self.lock();
        state.held = state.held.saturating_sub(1);
        state.failed.remove(target);
    }

    pub(super) fn rests(&self, now: LocalInstant) -> bool {
        self.lock().until.is_some_and(|until| now < until)
    }

    /// A poll went well. Whether this instance had taken a rest before.
    pub(super) fn succeeded(&self) -> bool {
        let mut state = self.lock();
        let State { held, rests, skipped, .. } = *state;
        *state = State { held, skipped, ..State::default() };
        rests > 0
    }

    /// A poll failed. One target that fails is the target's fault; all of them, or a command that
    /// cannot be started, is the fault of this instance. `random` keeps instances apart.
    pub(super) fn failed(
        &self,
        target: &DutyId,
        fault: Fault,
        now: LocalInstant,
        random: u128,
    ) -> Option<Resting> {
        let mut state = self.lock();
        state.failed.insert(target.clone());
        state.failures += 1;
        state.unstarted += u32::from(fault == Fault::NotStarted);
        let least = if fault == Fault::TooLong { 2 } else { 1 };
        let all = state.failed.len() >= state.held.max(least);
        if (state.failures < FEW || !all) && state.unstarted < FEW {
            return None;
        }
        // Polls that were under way when it began to rest.
        if state.until.is_some_and(|until| now < until) {
            return None;
        }
        let first = self.every * INTERVALS;
        let rest = first.saturating_mul(1 << state.rests.min(16)).min(LONGEST.max(first));
        let rest = rest + rest.mul_f64((random % 256) as f64 / 1024.0);
        let failures = state.failures;
        state.failed.clear();
        (state.failures, state.unstarted) = (0, 0);
        state.rests += 1;
        state.until = Some(now.plus(rest));
        Some(Resting { rest, failures })
    }

    /// A poll was skipped because too little was left of the hold; whether it is the first.
    pub(super) fn skipped(&self) -> bool {
        let mut state = self.lock();
        state.skipped += 1;
        state.skipped == 1
    }

    /// A poll begins: how many were skipped before, if any.
    pub(super) fn begins(&self) -> Option<u64> {
        let skipped = std::mem::take(&mut self.lock().skipped);
        (skipped > 0).then_some(skipped)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of it is whole, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> LocalInstant {
        LocalInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn of(held: usize) -> (Fitness, impl Fn(&str) -> DutyId) {
        let fitness = Fitness::new(EVERY);
        (0..held).for_each(|_| fitness.came());
        (fitness, |name: &str| DutyId::new(name).unwrap())
    }

    #[test]
    fn one_target_that_fails_is_kept_and_all_that_fail_are_not() {
        let (fitness, id) = of(2);
        for n in 0..20 {
            assert_eq!(fitness.failed(&id("a"), Fault::Failed, at(n), 0), None);
        }
        assert!(!fitness.succeeded());
        assert_eq!(fitness.failed(&id("a"), Fault::Failed, at(20), 0), None);
        assert_eq!(fitness.failed(&id("b"), Fault::Failed, at(20), 0), None);
        let resting = fitness.failed(&id("b"), Fault::Failed, at(20), 0).unwrap();
        assert_eq!(resting, Resting { rest: EVERY * 4, failures: 3 });
        assert!(fitness.rests(at(59)) && !fitness.rests(at(60)));
        assert!(fitness.succeeded() && !fitness.succeeded());
    }

    #[test]
    fn a_command_that_cannot_be_started_is_nobody_elses_fault() {
        let (fitness, id) = of(100);
        assert_eq!(fitness.failed(&id("a"), Fault::NotStarted, at(0), 0), None);
        assert_eq!(fitness.failed(&id("b"), Fault::NotStarted, at(0), 0), None);
        assert!(fitness.failed(&id("c"), Fault::NotStarted, at(0), 0).is_some());
    }

    #[test]
    fn a_single_target_that_takes_too_long_is_kept() {
        let (fitness, id) = of(1);
        for n in 0..20 {
            assert_eq!(fitness.failed(&id("a"), Fault::TooLong, at(n), 0), None);
        }
        fitness.came();
        assert!(fitness.failed(&id("b"), Fault::TooLong, at(20), 0).is_some());
    }

    #[test]
    fn rests_grow_up_to_a_limit() {
        let (fitness, id) = of(1);
        let (mut now, mut rests) = (0, Vec::new());
        while rests.len() < 6 {
            now += 1_000;
            rests.extend(
                fitness.failed(&id("a"), Fault::Failed, at(now), 0).map(|r| r.rest.as_secs()),
            );
        }
        assert_eq!(rests, [40, 80, 160, 300, 300, 300]);
        for _ in 0..2 {
            assert_eq!(fitness.failed(&id("a"), Fault::Failed, at(now + 1_000), 0), None);
        }
        let longest = fitness.failed(&id("a"), Fault::Failed, at(now + 1_000), 255).unwrap().rest;
        assert!(longest > LONGEST && longest < LONGEST + LONGEST / 4);
    }
}
