//! Tests of schedules: occurrences, decisions, and the comparison with other implementations.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers as well"
)]

mod decide;
mod errors;
mod occurrences;
mod python;

use jiff::Timestamp;

/// Number of cases: many more in a soak.
pub(crate) fn cases(few: u32) -> u32 {
    if std::env::var_os("TENURE_SOAK").is_some() { few * 50 } else { few }
}

/// Reads a time.
pub(crate) fn at(text: &str) -> u64 {
    u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
}
