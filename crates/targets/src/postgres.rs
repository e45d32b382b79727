//! Target list: rows in PostgreSQL.

use std::error::Error as StdError;
use std::time::Duration;

use tenure_core::Listing;
use tenure_store::StoreUrl;
use tenure_store::connect;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Column, Error, IsolationLevel, Row};

use crate::collect::{Collector, Entry, EntryTime};
use crate::columns::Columns;
use crate::error::{TargetsError, bad};

/// Number of rows per fetch.
const PAGE_ROWS: i32 = 1000;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PostgresQuery {
    /// Includes the password, but not the `query` parameter.
    url: String,
    query: String,
}

impl PostgresQuery {
    /// Parses a URL; also returns its printable form.
    pub(crate) fn parse(url: &str) -> Result<(Self, String), TargetsError> {
        let (url, [query]) = connect::take_parameters(url, ["query"])?;
        let place = StoreUrl::parse(&url)?;
        let query = query.ok_or_else(|| bad("a PostgreSQL list URL needs ?query=SELECT ..."))?;
        Ok((Self { url, query }, format!("{place} (query)")))
    }

    pub(crate) async fn read(
        &self,
        most: usize,
        timeout: Duration,
    ) -> Result<Listing, TargetsError> {
        let mut client = connect::postgres(&self.url).await?;
        // Whatever the role's default level: a serializable reader may make writers fail.
        let level = IsolationLevel::ReadCommitted;
        let begin = client.build_transaction().read_only(true).isolation_level(level);
        let transaction = begin.start().await.map_err(wrong)?;
        // Without this limit the server would continue after the client has stopped waiting.
        let limit = timeout.as_millis().max(1);
        let limit = format!("SET LOCAL statement_timeout = {limit}");
        transaction.batch_execute(&limit).await.map_err(wrong)?;
        let statement = transaction.prepare(&self.query).await.map_err(wrong)?;
        let columns = Columns::new(statement.columns().iter().map(Column::name))?;
        let rows = transaction.bind(&statement, &[]).await.map_err(wrong)?;
        let mut list = Collector::new(most);
        loop {
            let some = transaction.query_portal(&rows, PAGE_ROWS).await.map_err(wrong)?;
            for row in &some {
                add(&mut list, row, &columns)?;
            }
            if some.len() < PAGE_ROWS as usize {
                return Ok(list.finish());
            }
        }
    }
}

fn add(list: &mut Collector, row: &Row, columns: &Columns) -> Result<(), TargetsError> {
    let wrong = |list: &Collector, what: &str| list.wrong(format!("its {what}"));
    let id: Option<IdText> =
        row.try_get(0).map_err(|_| wrong(list, "id must be text, a whole number or a UUID"))?;
    let id = id.ok_or_else(|| list.wrong("its id is NULL"))?;
    let zone: Option<&str> = match columns.zone {
        Some(at) => row.try_get(at).map_err(|_| wrong(list, "zone must be text"))?,
        None => None,
    };
    let paused: Option<bool> = match columns.paused {
        Some(at) => row.try_get(at).map_err(|_| wrong(list, "column paused must be boolean"))?,
        None => None,
    };
    let time = |name: &str, at: Option<usize>| match at {
        Some(at) => row
            .try_get::<_, Option<TimeValue>>(at)
            .map_err(|_| wrong(list, &format!("column {name} must be a number or text"))),
        None => Ok(None),
    };
    let (every, timeout) = (time("every", columns.every)?, time("timeout", columns.timeout)?);
    let (every, timeout) =
        (every.as_ref().map(TimeValue::entry), timeout.as_ref().map(TimeValue::entry));
    let paused = paused.unwrap_or_default();
    list.add(&Entry { id: &id.0, zone, paused, every, timeout })
}

/// A time: a number of seconds, or text.
enum TimeValue {
    Seconds(f64),
    Text(String),
}

impl TimeValue {
    fn entry(&self) -> EntryTime<'_> {
        match self {
            Self::Seconds(seconds) => EntryTime::Seconds(*seconds),
            Self::Text(text) => EntryTime::Text(text),
        }
    }
}

impl<'a> FromSql<'a> for TimeValue {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(match *kind {
            Type::INT2 => Self::Seconds(i16::from_sql(kind, raw)?.into()),
            Type::INT4 => Self::Seconds(i32::from_sql(kind, raw)?.into()),
            // More than a year is refused anyway.
            Type::INT8 => Self::Seconds(i64::from_sql(kind, raw)? as f64),
            Type::FLOAT4 => Self::Seconds(f32::from_sql(kind, raw)?.into()),
            Type::FLOAT8 => Self::Seconds(f64::from_sql(kind, raw)?),
            _ => Self::Text(<&str>::from_sql(kind, raw)?.to_owned()),
        })
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT2 | Type::INT4 | Type::INT8 | Type::FLOAT4 | Type::FLOAT8)
            || <&str as FromSql>::accepts(kind)
    }
}

/// An id: text, an integer or a UUID.
struct IdText(String);

impl<'a> FromSql<'a> for IdText {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(match *kind {
            Type::INT2 => i16::from_sql(kind, raw)?.to_string(),
            Type::INT4 => i32::from_sql(kind, raw)?.to_string(),
            Type::INT8 => i64::from_sql(kind, raw)?.to_string(),
            Type::UUID => uuid(<[u8; 16]>::try_from(raw)?),
            _ => <&str>::from_sql(kind, raw)?.to_owned(),
        }))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT2 | Type::INT4 | Type::INT8 | Type::UUID)
            || <&str as FromSql>::accepts(kind)
    }
}

/// Formats a UUID as PostgreSQL does.
fn uuid(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

/// Converts an error of the server or the driver. Neither message contains a password.
fn wrong(error: Error) -> TargetsError {
    let converted = match error.as_db_error() {
        Some(db) => bad(format!("{} ({})", db.message(), db.code().code())),
        None => bad(error.to_string()),
    };
    converted.with_source(error)
}
