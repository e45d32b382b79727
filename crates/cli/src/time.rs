//! The wall clock, for people: nothing is decided by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 as `2026-02-15T10:00:00.123Z`.
pub(crate) fn shown(unix_ms: u64) -> String {
    let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(ms);
    time.map_or_else(|_| format!("{unix_ms} ms"), |time| format!("{time:.3}"))
}

/// The time of this machine after `later` has passed.
pub(crate) fn from_now(later: Duration) -> String {
    let now = now().duration_since(UNIX_EPOCH).unwrap_or_default();
    shown(u64::try_from((now + later).as_millis()).unwrap_or(u64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "shown to people; no expiry is judged by it")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_time_is_written_as_iso_8601() {
        assert_eq!(super::shown(1_771_149_600_123), "2026-02-15T10:00:00.123Z");
        assert_eq!(super::shown(u64::MAX), format!("{} ms", u64::MAX));
    }
}
