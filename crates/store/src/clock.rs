//! Clock by which a store on this machine judges expiry.

#[cfg(any(feature = "file", feature = "sqlite", feature = "etcd"))]
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tenure_core::{Clock, LocalInstant};

/// `CLOCK_BOOTTIME`: counts suspended time, cannot be set, and is the same for all processes of
/// one boot and time namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> LocalInstant {
        let time = clock_gettime(ClockId::Boottime);
        // Time since boot is never negative, and its nanoseconds fit 64 bits for 584 years.
        LocalInstant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// Reads the wall clock, for times shown to people. etcd does not report its time. A store that
/// replaces a lost one in etcd also uses this as its first floor.
#[cfg(any(feature = "file", feature = "sqlite", feature = "etcd"))]
#[expect(clippy::disallowed_methods, reason = "no expiry is judged by it")]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // 64 bits hold the milliseconds of 584 million years.
    since.as_millis() as u64
}

/// Nanoseconds since boot, for names that must differ.
#[cfg(feature = "conformance")]
pub(crate) fn boot_nanos() -> u64 {
    BootClock.now().as_nanos()
}
