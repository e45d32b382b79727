//! Limits of option values.

use std::time::Duration;

use tenure_core::text::span;

use crate::failure::Failure;

/// Longest time that most options accept.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// Refuses a time outside its limits.
pub(crate) fn check_time(
    option: &str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), Failure> {
    check(option, (least..=most).contains(&value), [value, least, most].map(span))
}

/// Refuses a number outside its limits.
pub(crate) fn check_count(
    option: &str,
    value: usize,
    least: usize,
    most: usize,
) -> Result<(), Failure> {
    let shown = [value, least, most].map(|number| number.to_string());
    check(option, (least..=most).contains(&value), shown)
}

fn check(option: &str, is_inside: bool, [value, least, most]: [String; 3]) -> Result<(), Failure> {
    if is_inside {
        return Ok(());
    }
    Err(Failure::Usage(format!("{option} {value} is outside the limits: {least} to {most}")))
}
