//! Rows and values of SQLite.

use rusqlite::types::{ToSqlOutput, Type, Value};
use rusqlite::{Connection, Error, OptionalExtension, Params, Row, ToSql};
use uuid::Uuid;

use crate::storage::row::{Columns, DatabaseRow, Field, Fields, FromRow};

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

    fn time(&self, column: usize) -> Result<Option<i64>, Error> {
        self.get(column)
    }

    fn uuid(&self, column: usize) -> Result<Option<Uuid>, Error> {
        Ok(self.get::<_, Option<[u8; 16]>>(column)?.map(Uuid::from_bytes))
    }

    fn digest(&self, column: usize) -> Result<Option<[u8; 32]>, Error> {
        self.get(column)
    }

    fn unexpected_null(&self, column: usize) -> Error {
        Error::InvalidColumnType(column, "a column that is never NULL".to_owned(), Type::Null)
    }
}

impl ToSql for Field<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Text(text) => text.to_sql(),
            Self::Number(number) | Self::Time(number) => number.to_sql(),
            Self::Id(id) => {
                let bytes = id.map(|id| Value::Blob(id.as_bytes().to_vec()));
                Ok(ToSqlOutput::Owned(bytes.unwrap_or(Value::Null)))
            }
            Self::Flag(flag) => flag.to_sql(),
        }
    }
}

/// Runs a statement whose parameters are named like the fields.
pub(super) fn store(db: &Connection, sql: &str, fields: &Fields<'_>) -> rusqlite::Result<usize> {
    let mut statement = db.prepare_cached(sql)?;
    for (name, value) in fields {
        if let Some(index) = statement.parameter_index(&format!(":{name}"))? {
            statement.raw_bind_parameter(index, value)?;
        }
    }
    statement.raw_execute()
}

/// Reads the only row of a statement.
pub(super) fn one<T: FromRow>(
    db: &Connection,
    sql: &str,
    values: impl Params,
) -> rusqlite::Result<T> {
    db.prepare_cached(sql)?.query_row(values, |row| T::from_row(&mut Columns::from(row, 0)))
}

/// Reads the row of a statement, if there is one.
pub(super) fn first<T: FromRow>(
    db: &Connection,
    sql: &str,
    values: impl Params,
) -> rusqlite::Result<Option<T>> {
    one(db, sql, values).optional()
}
