//! The clock that a store on this machine judges expiry by.

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

/// Nanoseconds since boot, for names that must differ.
#[cfg(feature = "conformance")]
pub(crate) fn boot_nanos() -> u64 {
    BootClock.now().as_nanos()
}
