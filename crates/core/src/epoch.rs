//! Monotonic counters.

use std::fmt;

use crate::{Code, StoreError};

/// The largest number that Lua and JSON represent exactly.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident, $word:literal, $zero:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            #[doc = $zero]
            pub const ZERO: Self = Self(0);
            /// The largest value: 2^53 - 1, which Lua and JSON represent exactly.
            pub const MAX_VALUE: Self = Self(MAX_SAFE_INTEGER);

            /// Reads a stored counter; rejects values that no store can grant.
            pub fn new(value: u64) -> Result<Self, StoreError> {
                if value > MAX_SAFE_INTEGER {
                    let largest = concat!("the largest ", $word);
                    let detail = format!("{value} is above {largest} ({MAX_SAFE_INTEGER})");
                    return Err(StoreError::refused(Code::BadInput, detail));
                }
                Ok(Self(value))
            }

            /// Reads a counter that a SQL store keeps in a signed column.
            pub fn from_i64(value: i64) -> Result<Self, StoreError> {
                let detail = concat!("a negative ", $word);
                let negative = |_| StoreError::refused(Code::Damaged, detail);
                Self::new(u64::try_from(value).map_err(negative)?)
            }

            /// Returns the number, for storing and displaying; never for arithmetic.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Returns the number for a signed column; it always fits, being at most 2^53 - 1.
            pub const fn as_i64(self) -> i64 {
                self.0 as i64
            }

            /// Returns the next value, or an error at the end of the range; it never wraps.
            pub fn next(self) -> Result<Self, StoreError> {
                if self.0 >= MAX_SAFE_INTEGER {
                    let detail = format!("no {} is left after {self}", $word);
                    return Err(StoreError::refused(Code::Exhausted, detail));
                }
                Ok(Self(self.0 + 1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// A counter per duty that grows with every grant and survives release, expiry, restarts and
    /// moves (R2). `(epoch, instance)` is the fence.
    Epoch,
    "epoch",
    "Before the first grant. No hold ever has it."
);

counter!(
    /// A counter per checkpoint or group document that grows by one with every write.
    Version,
    "version",
    "Before the first write."
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_stops_at_the_end_of_its_range() {
        assert_eq!(Epoch::ZERO.next().unwrap().get(), 1);
        assert_eq!(Epoch::MAX_VALUE.next().unwrap_err().code(), Code::Exhausted);
        assert_eq!(Epoch::new(1 << 53).unwrap_err().code(), Code::BadInput);
        assert_eq!(Epoch::from_i64(-1).unwrap_err().code(), Code::Damaged);
    }
}
