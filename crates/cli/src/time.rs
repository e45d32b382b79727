//! The wall clock, for people: nothing is decided by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use tenure_supervise::observe::timestamp as shown;

/// The time of this machine after `later` has passed.
pub(crate) fn from_now(later: Duration) -> String {
    let now = now().duration_since(UNIX_EPOCH).unwrap_or_default();
    shown(u64::try_from((now + later).as_millis()).unwrap_or(u64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "shown to people; no expiry is judged by it")]
fn now() -> SystemTime {
    SystemTime::now()
}
