//! Local time as an argument.

use std::fmt;
use std::time::Duration;

/// An instant on a local clock that counts suspended time (`CLOCK_BOOTTIME` on Linux), in
/// nanoseconds since an origin that only that clock knows. It never leaves the machine (R4, R5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalInstant(u64);

impl LocalInstant {
    /// Returns the instant `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Adds `by`; saturates at the end of the clock's range.
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the time since `earlier`; zero when this instant is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Source of local time. Only the composition root picks one; other code gets it as an argument.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current instant, on a clock that counts suspended time.
    fn now(&self) -> LocalInstant;
}
