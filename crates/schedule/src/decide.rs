//! Decision about a schedule: wait, run an occurrence, or settle some without running them.
//!
//! The record only goes forward. An occurrence that is not after the recorded one is never run
//! again, whatever a clock shows; the clock only says what is due.

use std::time::Duration;

use tenure_wire::schedule::{OccurrenceRecord, OccurrenceState, ScheduleRecord};

use crate::RunSchedule;

/// The most missed occurrences that are run, with [`MissedPolicy::All`].
pub const MAX_CATCH_UP: usize = 1_000;
/// Longest pause before an attempt, unless the first one is longer.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60 * 60);

/// Policy for an occurrence whose holder died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptedPolicy {
    /// Run it again.
    Rerun,
    /// Settle it as skipped.
    Skip,
}

/// Policy for occurrences that are due and were not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedPolicy {
    /// Run the newest.
    Newest,
    /// Run each, in order, at most [`MAX_CATCH_UP`].
    All,
}

/// Policies of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulePolicy {
    /// Interrupted occurrences.
    pub interrupted: InterruptedPolicy,
    /// Missed occurrences.
    pub missed: MissedPolicy,
    /// Time after the nominal time in which an attempt may begin.
    pub deadline: Option<Duration>,
    /// Attempts after a failed one.
    pub retries: u32,
    /// Pause before the first of them; it doubles with each.
    pub retry_delay: Duration,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleStep {
    /// Nothing is due before this time.
    Wait {
        /// Time at which to decide again.
        until: u64,
    },
    /// Run an occurrence.
    Run {
        /// Its nominal time.
        occurrence: u64,
        /// Number of the attempt.
        attempt: u32,
    },
    /// Record that occurrences are not run.
    Settle {
        /// Nominal time of the newest of them.
        occurrence: u64,
        /// Their state.
        state: OccurrenceState,
        /// The number of them, at most [`MAX_CATCH_UP`].
        count: usize,
    },
    /// The current period is settled, or the schedule has no further occurrence.
    Nothing,
}

/// Returns the record to decide with, and whether it has to be stored first.
///
/// The occurrences of a new or changed schedule count from now on. A changed schedule keeps the
/// recorded occurrence. A time in the future, from a clock that was ahead, is corrected.
pub fn anchor(
    stored: Option<ScheduleRecord>,
    schedule: &RunSchedule,
    now: u64,
) -> (ScheduleRecord, bool) {
    let (text, zone) = (schedule.text(), schedule.zone_name());
    let Some(mut record) = stored else {
        return (ScheduleRecord::new(text, zone.to_owned(), now), true);
    };
    let same = record.schedule == text && record.time_zone == zone;
    if !same {
        (record.schedule, record.time_zone) = (text, zone.to_owned());
    }
    let changed = !same || record.since_unix_ms > now;
    if changed {
        record.since_unix_ms = now;
    }
    (record, changed)
}

/// Decides about a schedule at a time. The record is from [`anchor`].
pub fn decide(
    schedule: &RunSchedule,
    record: &ScheduleRecord,
    policy: &SchedulePolicy,
    now: u64,
) -> ScheduleStep {
    if schedule.is_period() {
        return decide_period(schedule, record, policy, now);
    }
    let last = record.occurrence.as_ref();
    let settled = last.map_or(0, |last| last.scheduled_unix_ms);
    let after = settled.max(record.since_unix_ms.min(now));
    let due = schedule.latest(after, now);
    if let Some(last) = last
        && let Some(step) = unfinished(last, policy, now, due.is_some())
    {
        return match (step, schedule.next(after)) {
            (ScheduleStep::Wait { until }, Some(next)) => {
                ScheduleStep::Wait { until: until.min(next) }
            }
            (step, _) => step,
        };
    }
    let Some(newest) = due else {
        let next = schedule.next(after);
        return next.map_or(ScheduleStep::Nothing, |until| ScheduleStep::Wait { until });
    };
    let late = |from: u64, to: u64| {
        let count = schedule.count(from, to, MAX_CATCH_UP);
        ScheduleStep::Settle { occurrence: to, state: OccurrenceState::Missed, count }
    };
    // The newest occurrence that is not run.
    let earliest = policy.earliest(now);
    let cut = match policy.missed {
        _ if newest < earliest => Some(newest),
        MissedPolicy::Newest => schedule.latest(after, newest - 1),
        MissedPolicy::All => {
            let limit = beyond_limit(schedule, after, now);
            let too_late = schedule.latest(after, earliest.saturating_sub(1));
            limit.max(too_late)
        }
    };
    match (cut, schedule.next(after)) {
        (Some(cut), _) => late(after, cut),
        (None, Some(occurrence)) => ScheduleStep::Run { occurrence, attempt: 1 },
        (None, None) => ScheduleStep::Nothing,
    }
}

impl SchedulePolicy {
    /// Returns the earliest nominal time of which an attempt may begin now.
    fn earliest(&self, now: u64) -> u64 {
        self.deadline.map_or(0, |deadline| now.saturating_sub(millis(deadline)))
    }

    /// Returns the pause after a failed attempt.
    pub fn retry_delay(&self, attempt: u32) -> Duration {
        let doubled = self.retry_delay.saturating_mul(1 << attempt.saturating_sub(1).min(20));
        doubled.min(MAX_RETRY_DELAY.max(self.retry_delay))
    }
}

/// Decides about a period: only the one that contains `now` counts.
fn decide_period(
    schedule: &RunSchedule,
    record: &ScheduleRecord,
    policy: &SchedulePolicy,
    now: u64,
) -> ScheduleStep {
    let Some(current) = schedule.latest(0, now) else { return ScheduleStep::Nothing };
    match &record.occurrence {
        Some(last) if last.scheduled_unix_ms > current => ScheduleStep::Nothing,
        Some(last) if last.scheduled_unix_ms == current => {
            unfinished(last, policy, now, false).unwrap_or(ScheduleStep::Nothing)
        }
        _ => ScheduleStep::Run { occurrence: current, attempt: 1 },
    }
}

/// Decides about an occurrence that was interrupted or failed; `None` if nothing of it is left.
fn unfinished(
    last: &OccurrenceRecord,
    policy: &SchedulePolicy,
    now: u64,
    next_is_due: bool,
) -> Option<ScheduleStep> {
    let occurrence = last.scheduled_unix_ms;
    let again = ScheduleStep::Run { occurrence, attempt: last.attempt.saturating_add(1) };
    let too_late = occurrence < policy.earliest(now);
    match last.state {
        OccurrenceState::Started => Some(match policy.interrupted {
            InterruptedPolicy::Rerun if !too_late => again,
            _ => ScheduleStep::Settle { occurrence, state: OccurrenceState::Skipped, count: 1 },
        }),
        OccurrenceState::Failed if !too_late && !next_is_due && last.attempt <= policy.retries => {
            // A time in the future is from a clock that was ahead.
            let failed = last.finished_unix_ms.filter(|failed| *failed <= now);
            let pause = millis(policy.retry_delay(last.attempt));
            let until = failed.map_or(now, |failed| failed.saturating_add(pause));
            Some(if until <= now { again } else { ScheduleStep::Wait { until } })
        }
        _ => None,
    }
}

/// Returns the newest occurrence that has at least [`MAX_CATCH_UP`] due ones after it.
fn beyond_limit(schedule: &RunSchedule, after: u64, now: u64) -> Option<u64> {
    let many = |from: u64| schedule.count(from, now, MAX_CATCH_UP) == MAX_CATCH_UP;
    // Above `low`, and not above `high`.
    let (mut low, mut high) = (after, now);
    if !many(low) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if many(middle) { low = middle } else { high = middle }
    }
    schedule.latest(after, low)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
