//! Poll schedule of a target.

use std::time::Duration;

use tenure_core::LocalInstant;
use tenure_core::fnv::Fnv;

/// The instants at which a target is due: one per interval, at an offset derived from its name, so
/// that targets are spread over the interval.
#[derive(Debug)]
pub(super) struct PollSchedule {
    every: Duration,
    due: LocalInstant,
}

impl PollSchedule {
    /// Starts a schedule. The offset counts from the wall clock, which instances share, so that a
    /// target keeps its times when it moves. Later polls use only the local clock, so that a step
    /// of the wall clock repeats no poll.
    pub(super) fn new(target: &str, every: Duration, now: LocalInstant, unix_ms: u64) -> Self {
        let every_ns = every.as_nanos().max(1);
        let offset = (u128::from(Fnv::new().bytes(target.as_bytes()).mixed()) * every_ns) >> 64;
        let into = u128::from(unix_ms) * 1_000_000 % every_ns;
        let wait = (every_ns + offset - into) % every_ns;
        let wait = Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX));
        Self { every, due: now.plus(wait) }
    }

    pub(super) fn every(&self) -> Duration {
        self.every
    }

    pub(super) fn due(&self) -> LocalInstant {
        self.due
    }

    /// Sets the next poll after one that ended at `now`. Returns how many were missed.
    pub(super) fn done(&mut self, now: LocalInstant) -> u64 {
        let missed = now.since(self.due).as_nanos() / self.every.as_nanos().max(1);
        let missed = u64::try_from(missed).unwrap_or(u64::MAX);
        let intervals = u32::try_from(missed.saturating_add(1)).unwrap_or(u32::MAX);
        self.due = self.due.plus(self.every.saturating_mul(intervals));
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> LocalInstant {
        LocalInstant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn targets_are_spread_over_the_interval() {
        let mut tenths = [0; 10];
        for n in 0..10_000 {
            let due = PollSchedule::new(&format!("bot-{n}"), EVERY, at(0), 0).due();
            tenths[usize::try_from(due.as_nanos() / 1_000_000_000).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1150).contains(count)), "{tenths:?}");
    }

    #[test]
    fn another_instance_goes_on_at_the_same_beat() {
        let first = PollSchedule::new("bot-42", EVERY, at(0), 0);
        // A second instance, whose clock has another origin, 3 s later.
        let second = PollSchedule::new("bot-42", EVERY, at(500), 3_000);
        let apart =
            (second.due().as_nanos() - at(497).as_nanos()) as i64 - first.due().as_nanos() as i64;
        assert_eq!(apart.rem_euclid(10_000_000_000), 0);
    }

    #[test]
    fn what_takes_longer_than_the_interval_misses_beats() {
        let mut schedule = PollSchedule { every: EVERY, due: at(5) };
        assert_eq!(schedule.done(at(6)), 0);
        assert_eq!(schedule.due(), at(15));
        assert_eq!(schedule.done(at(36)), 2);
        assert_eq!(schedule.due(), at(45));
    }
}
