//! Rows of either database, read column by column.
//!
//! Both databases select the columns of a record in the same order, so that each record has one
//! reader.

use tenure_core::{Epoch, StoreError};
use uuid::Uuid;

/// A row of SQLite or PostgreSQL. RowReader count from 0; NULL is `None`.
pub(super) trait DatabaseRow {
    type Error;

    fn text(&self, column: usize) -> Result<Option<String>, Self::Error>;
    fn number(&self, column: usize) -> Result<Option<i64>, Self::Error>;
    fn flag(&self, column: usize) -> Result<Option<bool>, Self::Error>;
    /// Unix microseconds.
    fn time(&self, column: usize) -> Result<Option<i64>, Self::Error>;
    fn uuid(&self, column: usize) -> Result<Option<Uuid>, Self::Error>;
    fn digest(&self, column: usize) -> Result<Option<[u8; 32]>, Self::Error>;
    /// The error for a value that is outside its limits.
    fn invalid(&self, column: usize, error: StoreError) -> Self::Error;
    /// The error for a NULL in a column that has none.
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

/// The columns of a row that are still to be read.
pub(super) struct RowReader<'a, R> {
    row: &'a R,
    next: usize,
}

impl<'a, R: DatabaseRow> RowReader<'a, R> {
    /// All columns from a number on.
    pub(super) fn from(row: &'a R, first: usize) -> Self {
        Self { row, next: first }
    }

    fn advance(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    /// Reads the next column, which may be NULL.
    pub(super) fn maybe<T: ColumnValue>(&mut self) -> Result<Option<T>, R::Error> {
        let column = self.advance();
        T::read(self.row, column)
    }

    /// Reads the next column.
    pub(super) fn get<T: ColumnValue>(&mut self) -> Result<T, R::Error> {
        let column = self.advance();
        T::read(self.row, column)?.ok_or_else(|| self.row.unexpected_null(column))
    }

    /// Reads the next column as an epoch.
    pub(super) fn epoch(&mut self) -> Result<Epoch, R::Error> {
        let number = self.get()?;
        Epoch::from_i64(number).map_err(|error| self.row.invalid(self.next - 1, error))
    }

    /// Reads the next column as Unix microseconds, if it is not NULL.
    pub(super) fn maybe_time(&mut self) -> Result<Option<i64>, R::Error> {
        let column = self.advance();
        self.row.time(column)
    }

    /// Reads the next column as Unix microseconds.
    pub(super) fn time(&mut self) -> Result<i64, R::Error> {
        let column = self.advance();
        self.row.time(column)?.ok_or_else(|| self.row.unexpected_null(column))
    }
}

/// A record that is read from the columns of a row.
pub(super) trait FromRow: Sized {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error>;
}

impl<T: ColumnValue> FromRow for T {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        row.get()
    }
}

impl<A: FromRow, B: FromRow> FromRow for (A, B) {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok((A::from_row(row)?, B::from_row(row)?))
    }
}

/// A value to be stored in a column.
pub(super) enum StoredField<'a> {
    Text(Option<&'a str>),
    Number(Option<i64>),
    /// Unix microseconds.
    Time(Option<i64>),
    Id(Option<Uuid>),
    Flag(bool),
}

/// The columns of a row to be stored, by name.
pub(super) type StoredFields<'a> = Vec<(&'static str, StoredField<'a>)>;
