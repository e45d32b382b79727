//! Target list: rows in SQLite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, InterruptHandle, OpenFlags, Row};
use tenure_core::Listing;
use tokio::sync::oneshot;

use crate::blocking;
use crate::collect::{Collector, Entry, EntryTime};
use crate::columns::Columns;
use crate::error::{TargetsError, bad};

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SqliteQuery {
    path: PathBuf,
    query: String,
}

impl SqliteQuery {
    /// Parses the URL after `sqlite:`; also returns its printable form.
    pub(crate) fn parse(rest: &str) -> Result<(Self, String), TargetsError> {
        let lacks = || bad("a SQLite list URL has the form sqlite:PATH?query=SELECT ...");
        let (path, query) = rest.split_once("?query=").ok_or_else(lacks)?;
        if path.is_empty() || path.contains('\0') || path.starts_with(':') {
            return Err(bad("sqlite: needs the path of a file"));
        }
        let query = percent_decode_str(query).decode_utf8();
        let query = query.map_err(|_| bad("the query is not UTF-8; write % as %25"))?;
        let shown = format!("sqlite:{path} (query)");
        Ok((Self { path: path.into(), query: query.into_owned() }, shown))
    }

    pub(crate) async fn read(
        &self,
        most: usize,
        timeout: Duration,
    ) -> Result<Listing, TargetsError> {
        let Self { path, query } = self.clone();
        let (give, take) = oneshot::channel();
        // Otherwise an endless query would occupy its thread forever.
        let _interrupt = QueryInterrupt(take);
        blocking(move || {
            let connection = open(&path, timeout).map_err(wrong)?;
            let _ = give.send(connection.get_interrupt_handle());
            read(&connection, &query, most)
        })
        .await
    }
}

/// Interrupts the query when its caller stops waiting.
struct QueryInterrupt(oneshot::Receiver<InterruptHandle>);

impl Drop for QueryInterrupt {
    fn drop(&mut self) {
        if let Ok(query) = self.0.try_recv() {
            query.interrupt();
        }
    }
}

fn open(path: &Path, timeout: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(timeout)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Reads all rows with one statement, which sees one consistent state of the file.
fn read(connection: &Connection, query: &str, most: usize) -> Result<Listing, TargetsError> {
    let mut statement = connection.prepare(query).map_err(wrong)?;
    if !statement.readonly() {
        return Err(bad("the query is not read-only"));
    }
    let columns = Columns::new(statement.column_names())?;
    let mut rows = statement.query([]).map_err(wrong)?;
    let mut list = Collector::new(most);
    while let Some(row) = rows.next().map_err(wrong)? {
        add(&mut list, row, &columns)?;
    }
    Ok(list.finish())
}

fn add(list: &mut Collector, row: &Row<'_>, columns: &Columns) -> Result<(), TargetsError> {
    let at = |at: usize| row.get_ref(at).map_err(wrong);
    let number;
    let id = match at(0)? {
        ValueRef::Text(text) => str::from_utf8(text).map_err(|_| list.wrong("it is not UTF-8"))?,
        ValueRef::Integer(id) => {
            number = id.to_string();
            &number
        }
        _ => return Err(list.wrong("its id is neither text nor a whole number")),
    };
    let zone = match columns.zone.map(at).transpose()? {
        None | Some(ValueRef::Null) => None,
        Some(ValueRef::Text(text)) => {
            Some(str::from_utf8(text).map_err(|_| list.wrong("its zone is not UTF-8"))?)
        }
        Some(_) => return Err(list.wrong("its zone is not text")),
    };
    let paused = match columns.paused.map(at).transpose()? {
        None | Some(ValueRef::Null | ValueRef::Integer(0)) => false,
        Some(ValueRef::Integer(1)) => true,
        Some(_) => return Err(list.wrong("its column paused is neither 0 nor 1")),
    };
    let time = |name: &str, column: Option<usize>| match column.map(at).transpose()? {
        None | Some(ValueRef::Null) => Ok(None),
        Some(ValueRef::Integer(seconds)) => Ok(Some(EntryTime::Seconds(seconds as f64))),
        Some(ValueRef::Real(seconds)) => Ok(Some(EntryTime::Seconds(seconds))),
        Some(ValueRef::Text(text)) => match str::from_utf8(text) {
            Ok(text) => Ok(Some(EntryTime::Text(text))),
            Err(_) => Err(list.wrong(format!("its column {name} is not UTF-8"))),
        },
        Some(_) => Err(list.wrong(format!("its column {name} is neither a number nor text"))),
    };
    let (every, timeout) = (time("every", columns.every)?, time("timeout", columns.timeout)?);
    list.add(&Entry { id, zone, paused, every, timeout })
}

fn wrong(error: rusqlite::Error) -> TargetsError {
    bad(error.to_string()).with_source(error)
}
