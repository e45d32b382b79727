//! Aligned periods.

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use tenure_core::text::span;
use tenure_core::{Code, StoreError};

const MIN_PERIOD: Duration = Duration::from_secs(1);
const MAX_PERIOD: Duration = Duration::from_secs(366 * 24 * 60 * 60);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A period. In UTC periods are counted from 1970-01-01T00:00Z; in a time zone only whole days
/// are, from the local midnight of that day.
#[derive(Clone, Debug)]
pub(crate) struct AlignedPeriod {
    period: Duration,
    ms: u64,
}

impl AlignedPeriod {
    /// Checks the length of a period.
    pub(crate) fn new(period: Duration, is_utc: bool) -> Result<Self, StoreError> {
        let fail = |what: String| Err(StoreError::refused(Code::BadSchedule, what));
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) {
            let [period, least, most] = [period, MIN_PERIOD, MAX_PERIOD].map(span);
            return fail(format!("the period {period} is outside the limits: {least} to {most}"));
        }
        let ms = period.as_millis() as u64;
        if !is_utc && !ms.is_multiple_of(DAY_MS) {
            let period = span(period);
            return fail(format!(
                "the period {period} is not a whole number of days: leave --tz out"
            ));
        }
        Ok(Self { period, ms })
    }

    pub(crate) fn text(&self) -> String {
        format!("every {}", span(self.period))
    }

    /// Returns the begin of the first period after the one that contains a time.
    pub(crate) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let ms = i64::try_from(self.ms).ok()?;
        if *zone == TimeZone::UTC {
            let number = after.as_millisecond().div_euclid(ms).checked_add(1)?;
            return Timestamp::from_millisecond(number.checked_mul(ms)?).ok();
        }
        let days = ms / DAY_MS as i64;
        let epoch = Date::constant(1970, 1, 1);
        let today = zone.to_datetime(after).date();
        let since = i64::from(today.since(epoch).ok()?.get_days());
        let number = since.div_euclid(days).checked_add(1)?;
        let begin = epoch.checked_add(number.checked_mul(days)?.days()).ok()?;
        // The first instant of the day, also where clocks skip midnight.
        Some(begin.to_zoned(zone.clone()).ok()?.start_of_day().ok()?.timestamp())
    }
}
