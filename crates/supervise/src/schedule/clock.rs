//! Clock of a schedule: the store's, or the wall clock of this host if the store has none.
//!
//! The clock is compared with `CLOCK_BOOTTIME`, which cannot be set. A time counts only if two
//! readings in a row agree with it, so that a single wrong reading neither runs nor settles
//! anything.

use std::time::Duration;

use tenure_core::{Clock as _, LocalInstant, LogLevel, StoreError};
use tenure_duty::{Guard, process};
use tenure_schedule::utc;
use tenure_store::BootClock;

use super::{OrEnd, STORE_RETRY, ScheduleHolder};

/// Time between two readings of a clock that is not confirmed yet.
const CONFIRM_PAUSE: Duration = Duration::from_millis(100);
/// Difference of two readings that agree, apart from their round trips and drift.
const MAX_DIFFERENCE: Duration = Duration::from_secs(1);
/// Part of the time between two readings that clocks may drift apart.
const DRIFT_PART: u32 = 500;

/// A reading of the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockSample {
    unix_ms: u64,
    at: LocalInstant,
    round_trip: Duration,
}

impl ClockSample {
    async fn read(hold: &Guard) -> Result<Self, StoreError> {
        let begin = BootClock.now();
        let unix_ms = hold.wall_clock().await?.unwrap_or_else(process::unix_ms);
        let round_trip = BootClock.now().since(begin);
        Ok(Self { unix_ms, at: begin.plus(round_trip / 2), round_trip })
    }

    /// Returns the time that the clock shows at an instant if nobody sets it.
    fn shown_at(&self, at: LocalInstant) -> u64 {
        let since = at.since(self.at).as_millis() as u64;
        let until = self.at.since(at).as_millis() as u64;
        self.unix_ms.saturating_add(since).saturating_sub(until)
    }

    fn agrees_with(&self, before: &Self) -> bool {
        let difference = Duration::from_millis(self.unix_ms.abs_diff(before.shown_at(self.at)));
        let drift = self.at.since(before.at) / DRIFT_PART;
        difference <= MAX_DIFFERENCE + self.round_trip + before.round_trip + drift
    }
}

/// The newest reading of a schedule's clock.
#[derive(Debug, Default)]
pub(super) struct ScheduleClock {
    last: Option<ClockSample>,
}

impl ScheduleClock {
    /// Takes a reading; returns the time if it agrees with the reading before, and otherwise the
    /// time that was expected.
    fn take(&mut self, sample: ClockSample) -> Result<u64, Option<u64>> {
        match self.last.replace(sample) {
            Some(before) if sample.agrees_with(&before) => Ok(sample.unix_ms),
            before => Err(before.map(|before| before.shown_at(sample.at))),
        }
    }

    /// Returns the time by the newest reading.
    pub(super) fn estimate(&self) -> u64 {
        self.last.map_or_else(process::unix_ms, |last| last.shown_at(BootClock.now()))
    }

    /// Returns the instant at which the clock shows a time.
    pub(super) fn instant_of(&self, unix_ms: u64) -> LocalInstant {
        let Some(last) = self.last else { return BootClock.now() };
        last.at.plus(Duration::from_millis(unix_ms.saturating_sub(last.unix_ms)))
    }
}

impl ScheduleHolder<'_, '_, '_> {
    /// Returns the time, once two readings agree.
    pub(super) async fn now(&mut self) -> OrEnd<u64> {
        let mut unread = false;
        loop {
            let sample = match ClockSample::read(self.assignment.hold()).await {
                Ok(sample) => sample,
                Err(error) => {
                    if !std::mem::replace(&mut unread, true) {
                        let reason = format!("{}; retrying", error.problem());
                        self.log(LogLevel::Warn, "clock_unread", reason);
                    }
                    self.idle(STORE_RETRY).await?;
                    continue;
                }
            };
            match self.clock.take(sample) {
                Ok(unix_ms) => return Ok(unix_ms),
                Err(Some(expected)) => {
                    let (shown, expected) = (utc(sample.unix_ms), utc(expected));
                    let reason = format!("the clock shows {shown} instead of {expected}");
                    self.log(LogLevel::Warn, "clock_jumped", reason);
                }
                Err(None) => {}
            }
            self.idle(CONFIRM_PAUSE).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(unix_ms: u64, seconds: u64) -> ClockSample {
        let at = LocalInstant::from_nanos(seconds * 1_000_000_000);
        ClockSample { unix_ms, at, round_trip: Duration::from_millis(10) }
    }

    #[test]
    fn two_readings_agree_unless_the_clock_was_set() {
        let before = sample(1_000_000, 100);
        for (unix_ms, seconds, agrees) in [
            (1_000_000, 100, true),
            (1_060_000, 160, true),
            (1_061_100, 160, true),
            (1_061_200, 160, false),
            (1_058_800, 160, false),
            (2_000_000, 160, false),
            (0, 160, false),
        ] {
            let next = sample(unix_ms, seconds);
            assert_eq!(next.agrees_with(&before), agrees, "{unix_ms}");
        }
        let clock = ScheduleClock { last: Some(before) };
        assert_eq!(clock.instant_of(1_060_000), sample(0, 160).at);
        assert_eq!(clock.instant_of(5), before.at);
        assert_eq!(before.shown_at(sample(0, 90).at), 990_000);
    }

    #[test]
    fn a_single_wrong_reading_does_not_count() {
        let mut clock = ScheduleClock::default();
        assert_eq!(clock.take(sample(1_000_000, 100)), Err(None));
        assert_eq!(clock.take(sample(1_001_000, 101)), Ok(1_001_000));
        assert_eq!(clock.take(sample(9_000_000, 102)), Err(Some(1_002_000)));
        assert_eq!(clock.take(sample(1_003_000, 103)), Err(Some(9_001_000)));
        assert_eq!(clock.take(sample(1_004_000, 104)), Ok(1_004_000));
        // A clock that was set stays set.
        assert_eq!(clock.take(sample(9_000_000, 105)), Err(Some(1_005_000)));
        assert_eq!(clock.take(sample(9_001_000, 106)), Ok(9_001_000));
    }
}
