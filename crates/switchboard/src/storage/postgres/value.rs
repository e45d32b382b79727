//! Values of rows.

use std::time::{Duration, SystemTime};

use crate::error::SwitchboardError;
use tenure_core::Code;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

/// A column by position, or an error instead of the driver's panic.
pub(super) fn column<'a, T: FromSql<'a>>(
    row: &'a Row,
    index: usize,
) -> Result<T, SwitchboardError> {
    row.try_get(index).map_err(|error| {
        SwitchboardError::refused(Code::Damaged, error.to_string()).caused_by(error)
    })
}

/// For a statement that always answers, when it did not.
pub(super) fn missing() -> SwitchboardError {
    SwitchboardError::unknown(Code::Damaged, "no answer row")
}

/// A number of rows.
pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A position that counts from 1, as an index.
pub(super) fn index(row: &Row) -> Result<usize, SwitchboardError> {
    let item: i64 = column(row, 0)?;
    let odd = |_| SwitchboardError::refused(Code::Damaged, format!("item {item}"));
    usize::try_from(item - 1).map_err(odd)
}

/// Unix microseconds as the driver wants times.
pub(super) fn from_micros(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    let at = if micros < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    // Seconds have 64 bits: all microseconds that fit into as many are within.
    at.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// And back.
pub(super) fn to_micros(at: SystemTime) -> i64 {
    let micros = |distance: Duration| i64::try_from(distance.as_micros()).unwrap_or(i64::MAX);
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => micros(after),
        Err(before) => -micros(before.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_were() {
        for micros in [0, 1, -1, 1_790_000_000_123_456, -62_135_596_800_000_000, i64::MAX] {
            assert_eq!(to_micros(from_micros(micros)), micros);
        }
    }
}
