//! Rows of either database, read column by column.
//!
//! Both databases select the columns of a record in the same order, so that each record has one
//! reader.

use serde_json::{Map, Value};
use tenure_core::{Epoch, StoreError};
use uuid::Uuid;

/// A row of SQLite or PostgreSQL. Columns count from 0; NULL is `None`.
pub(super) trait DatabaseRow {
    type Error;

    fn text(&self, column: usize) -> Result<Option<String>, Self::Error>;
    /// An integer, or a time in Unix microseconds.
    fn number(&self, column: usize) -> Result<Option<i64>, Self::Error>;
    fn flag(&self, column: usize) -> Result<Option<bool>, Self::Error>;
    fn uuid(&self, column: usize) -> Result<Option<Uuid>, Self::Error>;
    fn digest(&self, column: usize) -> Result<Option<[u8; 32]>, Self::Error>;
    /// Returns the error for a value that is outside its limits.
    fn invalid(&self, column: usize, error: StoreError) -> Self::Error;
    /// Returns the error for a NULL in a column that has none.
    fn unexpected_null(&self, column: usize) -> Self::Error;
}

/// A value of one column.
pub(super) trait ColumnValue: Sized {
    fn read<R: DatabaseRow>(row: &R, column: usize) -> Result<Option<Self>, R::Error>;
}

macro_rules! column_values {
    ($($type:ty: $read:ident,)*) => { $(
        impl ColumnValue for $type {
            fn read<R: DatabaseRow>(row: &R, column: usize) -> Result<Option<Self>, R::Error> {
                row.$read(column)
            }
        }
    )* };
}

column_values! {
    String: text,
    i64: number,
    bool: flag,
    Uuid: uuid,
    [u8; 32]: digest,
}

/// Numbers of labels and counters that have columns: the first ones of their lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldColumns {
    pub(super) labels: usize,
    pub(super) counters: usize,
}

impl Default for FieldColumns {
    fn default() -> Self {
        Self { labels: 1, counters: 5 }
    }
}

/// The columns of a row that are still to be read.
pub(super) struct RowReader<'a, R> {
    row: &'a R,
    next: usize,
    /// Fields without a column, from the column `more`.
    pub(super) more: Map<String, Value>,
    pub(super) columns: FieldColumns,
}

impl<'a, R: DatabaseRow> RowReader<'a, R> {
    /// Returns a reader of the columns from `first` on.
    pub(super) fn from(row: &'a R, first: usize) -> Self {
        Self { row, next: first, more: Map::new(), columns: FieldColumns::default() }
    }

    /// Reads a value or a record from the next columns.
    pub(super) fn get<T: FromRow>(&mut self) -> Result<T, R::Error> {
        T::from_row(self)
    }

    /// Returns the error for an invalid value in the column that was read last.
    pub(super) fn invalid(&self, error: StoreError) -> R::Error {
        self.row.invalid(self.next - 1, error)
    }
}

/// A record that is read from the columns of a row.
pub(super) trait FromRow: Sized {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error>;
}

impl<T: ColumnValue> FromRow for Option<T> {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        row.next += 1;
        T::read(row.row, row.next - 1)
    }
}

impl<T: ColumnValue> FromRow for T {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        let value: Option<T> = row.get()?;
        value.ok_or_else(|| row.row.unexpected_null(row.next - 1))
    }
}

impl FromRow for Epoch {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Self::from_i64(row.get()?).map_err(|error| row.invalid(error))
    }
}

impl<const N: usize> FromRow for [i64; N] {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = row.get()?;
        }
        Ok(numbers)
    }
}

impl<A: FromRow, B: FromRow> FromRow for (A, B) {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok((row.get()?, row.get()?))
    }
}

/// Reads a record from columns in the order of these fields. `field = expression` reads it in
/// another way.
macro_rules! from_row {
    ($type:ty, |$row:ident| $($field:ident $(= $read:expr)?),* $(,)?) => {
        impl $crate::storage::row::FromRow for $type {
            fn from_row<R: $crate::storage::row::DatabaseRow>(
                $row: &mut $crate::storage::row::RowReader<'_, R>,
            ) -> Result<Self, R::Error> {
                Ok(Self { $($field: $crate::storage::row::from_row!(@ $row $(, $read)?)),* })
            }
        }
    };
    (@ $row:ident) => { $row.get()? };
    (@ $row:ident, $read:expr) => { $read };
}
pub(super) use from_row;

/// A value to be stored; Unix microseconds in columns whose name ends with `_at`.
#[derive(Debug)]
pub(super) enum StoredField<'a> {
    Text(Option<&'a str>),
    Number(Option<i64>),
    Id(Option<Uuid>),
    Flag(bool),
}

macro_rules! stored_fields {
    ($($type:ty: |$value:ident| $field:expr,)*) => { $(
        impl<'a> From<&'a $type> for StoredField<'a> {
            fn from($value: &'a $type) -> Self {
                $field
            }
        }
    )* };
}

stored_fields! {
    String: |text| Self::Text(Some(text)),
    Option<String>: |text| Self::Text(text.as_deref()),
    i64: |number| Self::Number(Some(*number)),
    Option<i64>: |number| Self::Number(*number),
    Uuid: |id| Self::Id(Some(*id)),
    Option<Uuid>: |id| Self::Id(*id),
    bool: |flag| Self::Flag(*flag),
}
