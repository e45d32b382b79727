//! Columns of a row as values.

use std::time::Duration;

use tenure_core::store::CurrentHolder;
use tenure_core::{Code, InstanceId, StoreError, StoreResult};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

pub(super) fn damaged(detail: impl Into<String>) -> StoreError {
    StoreError::refused(Code::Damaged, detail)
}

/// Reads a column by position; returns an error instead of the driver's panic.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> StoreResult<T> {
    row.try_get(index).map_err(|error| damaged(error.to_string()).with_source(error))
}

/// Reads a position that counts from 1, as an index.
pub(super) fn index(row: &Row) -> StoreResult<usize> {
    let item: i64 = column(row, 0)?;
    usize::try_from(item - 1).map_err(|_| damaged(format!("invalid item number {item}")))
}

pub(super) fn micros(remaining: i64) -> Duration {
    Duration::from_micros(u64::try_from(remaining).unwrap_or(0))
}

pub(super) fn current_holder(instance: String, remaining: Duration) -> StoreResult<CurrentHolder> {
    Ok(CurrentHolder { instance: InstanceId::new(instance)?, remaining })
}
