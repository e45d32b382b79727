//! Values of rows.

use std::time::{Duration, SystemTime};

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use tenure_core::{Code, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use crate::error::{StorageResult, SwitchboardError};
use crate::storage::registry::row::{ColumnName, StoredRow};
use crate::storage::row::{DatabaseRow, FromRow, RowReader, StoredField};
use crate::view;

/// Reads a column by position; returns an error where the driver would panic.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> StorageResult<T> {
    row.try_get(index).map_err(|error| {
        SwitchboardError::refused(Code::Damaged, error.to_string()).caused_by(error)
    })
}

/// Reads a record from the column `first` on.
pub(super) fn from_row<T: FromRow>(row: &Row, first: usize) -> StorageResult<T> {
    T::from_row(&mut RowReader::from(row, first))
}

impl DatabaseRow for Row {
    type Error = SwitchboardError;

    fn text(&self, index: usize) -> StorageResult<Option<String>> {
        column(self, index)
    }

    fn number(&self, index: usize) -> StorageResult<Option<i64>> {
        match self.columns().get(index).map(tokio_postgres::Column::type_) {
            Some(&Type::TIMESTAMPTZ) => {
                Ok(column::<Option<SystemTime>>(self, index)?.map(to_micros))
            }
            _ => column(self, index),
        }
    }

    fn flag(&self, index: usize) -> StorageResult<Option<bool>> {
        column(self, index)
    }

    fn uuid(&self, index: usize) -> StorageResult<Option<Uuid>> {
        column(self, index)
    }

    fn digest(&self, index: usize) -> StorageResult<Option<[u8; 32]>> {
        let Some(bytes) = column::<Option<&[u8]>>(self, index)? else { return Ok(None) };
        let odd = |error| {
            let detail = format!("column {index} has {} bytes, not 32", bytes.len());
            SwitchboardError::refused(Code::Damaged, detail).caused_by(error)
        };
        <[u8; 32]>::try_from(bytes).map(Some).map_err(odd)
    }

    fn invalid(&self, _: usize, error: StoreError) -> SwitchboardError {
        error.into()
    }

    fn unexpected_null(&self, index: usize) -> SwitchboardError {
        SwitchboardError::refused(Code::Damaged, format!("column {index} is null"))
    }
}

impl Serialize for ColumnName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for StoredRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        self.each(|name, field| match field {
            StoredField::Text(text) => object.serialize_entry(&name, text),
            StoredField::Number(time) if name.is_timestamp() => {
                object.serialize_entry(&name, &time.map(view::time))
            }
            StoredField::Number(number) => object.serialize_entry(&name, number),
            StoredField::Id(id) => object.serialize_entry(&name, &id.map(|id| id.to_string())),
            StoredField::Flag(flag) => object.serialize_entry(&name, flag),
        })?;
        object.end()
    }
}

/// Formats a row as a JSON object, for `json_populate_record`.
pub(super) fn to_json(row: &StoredRow<'_>) -> StorageResult<String> {
    serde_json::to_string(row).map_err(|error| {
        SwitchboardError::refused(Code::Failed, error.to_string()).caused_by(error)
    })
}

/// Reads a record from the first row.
pub(super) fn first<T: FromRow>(rows: &[Row]) -> StorageResult<T> {
    from_row(rows.first().ok_or_else(missing)?, 0)
}

/// Returns the error for a statement that returned no row although it always must.
pub(super) fn missing() -> SwitchboardError {
    SwitchboardError::unknown(Code::Damaged, "a statement returned no row")
}

/// Converts a number of rows.
pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Reads a position that counts from 1, as an index.
pub(super) fn index(row: &Row) -> StorageResult<usize> {
    let item: i64 = column(row, 0)?;
    let odd = |_| SwitchboardError::refused(Code::Damaged, format!("item {item}"));
    usize::try_from(item - 1).map_err(odd)
}

/// Converts Unix microseconds to the driver's type.
pub(super) fn from_micros(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    let at = if micros < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    // Cannot fail: seconds have 64 bits, so any number of microseconds in 64 bits fits.
    at.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Converts a time of the driver to Unix microseconds.
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
