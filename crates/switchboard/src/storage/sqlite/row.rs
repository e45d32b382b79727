//! Rows and values of SQLite.

use rusqlite::functions::FunctionFlags;
use rusqlite::types::{ToSqlOutput, Type, Value};
use rusqlite::{Connection, Error, OptionalExtension, Params, Row, ToSql};
use tenure_core::StoreError;
use uuid::Uuid;

use crate::storage::is_time;
use crate::storage::registry::row::StoredRow;
use crate::storage::row::{DatabaseRow, FromRow, RowReader, StoredField};

impl DatabaseRow for Row<'_> {
    type Error = Error;

    fn text(&self, column: usize) -> Result<Option<String>, Error> {
        self.get(column)
    }

    fn number(&self, column: usize) -> Result<Option<i64>, Error> {
        self.get(column)
    }

    fn flag(&self, column: usize) -> Result<Option<bool>, Error> {
        self.get(column)
    }

    fn uuid(&self, column: usize) -> Result<Option<Uuid>, Error> {
        Ok(self.get::<_, Option<[u8; 16]>>(column)?.map(Uuid::from_bytes))
    }

    fn digest(&self, column: usize) -> Result<Option<[u8; 32]>, Error> {
        self.get(column)
    }

    fn invalid(&self, column: usize, error: StoreError) -> Error {
        Error::FromSqlConversionFailure(column, Type::Integer, error.into())
    }

    fn unexpected_null(&self, column: usize) -> Error {
        Error::InvalidColumnType(column, "a column that is never NULL".to_owned(), Type::Null)
    }
}

impl ToSql for StoredField<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Text(text) => text.to_sql(),
            Self::Number(number) => number.to_sql(),
            Self::Id(id) => {
                let bytes = id.map(|id| Value::Blob(id.as_bytes().to_vec()));
                Ok(ToSqlOutput::Owned(bytes.unwrap_or(Value::Null)))
            }
            Self::Flag(flag) => flag.to_sql(),
        }
    }
}

/// Runs a statement through the cache of prepared ones and returns how many rows it changed.
pub(super) fn execute(db: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<usize> {
    db.prepare_cached(sql)?.execute(values)
}

/// Splits the text of a file with several statements.
pub(super) fn statements(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(';').filter(|sql| !sql.trim().is_empty())
}

/// Runs several statements with the same parameters.
pub(super) fn execute_all(
    db: &Connection,
    sql: &str,
    values: impl Params + Clone,
) -> rusqlite::Result<()> {
    statements(sql).try_for_each(|sql| execute(db, sql, values.clone()).map(drop))
}

/// Adds the functions that statements call: `grown`, the part of a counter's growth that counts.
pub(super) fn add_functions(db: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    db.create_scalar_function("grown", 2, flags, |context| {
        let (grown, at): (i64, i64) = (context.get(0)?, context.get(1)?);
        Ok(if is_time(grown, at) { 0 } else { grown })
    })
}

/// Runs a statement whose parameters are named like the columns.
pub(super) fn store(db: &Connection, sql: &str, row: &StoredRow<'_>) -> rusqlite::Result<usize> {
    let mut statement = db.prepare_cached(sql)?;
    row.each(|name, value| match statement.parameter_index(&format!(":{name}"))? {
        Some(index) => statement.raw_bind_parameter(index, value),
        None => Ok(()),
    })?;
    statement.raw_execute()
}

/// Reads the only row of a statement.
pub(super) fn one<T: FromRow>(
    db: &Connection,
    sql: &str,
    values: impl Params,
) -> rusqlite::Result<T> {
    db.prepare_cached(sql)?.query_row(values, |row| T::from_row(&mut RowReader::from(row, 0)))
}

/// Reads the row of a statement, if there is one.
pub(super) fn first<T: FromRow>(
    db: &Connection,
    sql: &str,
    values: impl Params,
) -> rusqlite::Result<Option<T>> {
    one(db, sql, values).optional()
}

/// Reads all rows of a statement.
pub(super) fn all<T: FromRow>(
    db: &Connection,
    sql: &str,
    values: impl Params,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(values, |row| T::from_row(&mut RowReader::from(row, 0)))?;
    rows.collect()
}

/// Converts a number of rows for `LIMIT`.
pub(super) fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
