//! Rows in SQLite.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use percent_encoding::percent_decode_str;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, InterruptHandle, OpenFlags, Row};
use tenure_core::{Listing, StoreError, Targets};
use tokio::sync::oneshot;

use crate::collect::Collector;
use crate::columns::Columns;
use crate::{bad, within};

/// Database and query.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SqliteQuery {
    path: PathBuf,
    query: String,
}

impl SqliteQuery {
    /// Takes what comes after `sqlite:` apart, and says how it prints.
    pub(crate) fn parse(rest: &str) -> Result<(Self, String), StoreError> {
        let lacks = || bad("a list in SQLite is sqlite:PATH?query=SELECT ...");
        let (path, query) = rest.split_once("?query=").ok_or_else(lacks)?;
        if path.is_empty() || path.contains('\0') || path.starts_with(':') {
            return Err(bad("sqlite: needs the path of a file"));
        }
        let query = percent_decode_str(query).decode_utf8();
        let query = query.map_err(|_| bad("the query is no UTF-8; write % as %25"))?;
        let shown = format!("sqlite:{path} (query)");
        Ok((Self { path: path.into(), query: query.into_owned() }, shown))
    }
}

/// The targets that a query finds.
pub(crate) struct SqliteTargets {
    settings: SqliteQuery,
    timeout: Duration,
}

impl SqliteTargets {
    pub(crate) fn new(settings: SqliteQuery, timeout: Duration) -> Self {
        Self { settings, timeout }
    }
}

#[async_trait]
impl Targets for SqliteTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        let SqliteQuery { path, query } = self.settings.clone();
        let (timeout, (give, take)) = (self.timeout, oneshot::channel());
        let reading = tokio::task::spawn_blocking(move || {
            let connection = open(&path, timeout).map_err(wrong)?;
            let _ = give.send(connection.get_interrupt_handle());
            read(&connection, &query, most)
        });
        // A query without end would keep its thread for ever.
        let _ender = QueryInterrupt(take);
        let ended = |_| bad("the query was ended");
        within(self.timeout, async { reading.await.map_err(ended)? }).await
    }
}

impl fmt::Debug for SqliteTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTargets").finish_non_exhaustive()
    }
}

/// Interrupts a query that nobody waits for any more.
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

/// One statement sees one state of the file.
fn read(connection: &Connection, query: &str, most: usize) -> Result<Listing, StoreError> {
    let mut statement = connection.prepare(query).map_err(wrong)?;
    if !statement.readonly() {
        return Err(bad("the query would write"));
    }
    let columns = Columns::new(statement.column_names())?;
    let mut rows = statement.query([]).map_err(wrong)?;
    let mut list = Collector::new(most);
    while let Some(row) = rows.next().map_err(wrong)? {
        add(&mut list, row, &columns)?;
    }
    Ok(list.finish())
}

fn add(list: &mut Collector, row: &Row<'_>, columns: &Columns) -> Result<(), StoreError> {
    let at = |at: usize| row.get_ref(at).map_err(wrong);
    let number;
    let id = match at(0)? {
        ValueRef::Text(text) => str::from_utf8(text).map_err(|_| list.wrong("it is no UTF-8"))?,
        ValueRef::Integer(id) => {
            number = id.to_string();
            &number
        }
        _ => return Err(list.wrong("its id is neither text nor a whole number")),
    };
    let zone = match columns.zone.map(at).transpose()? {
        None | Some(ValueRef::Null) => None,
        Some(ValueRef::Text(text)) => {
            Some(str::from_utf8(text).map_err(|_| list.wrong("its zone is no UTF-8"))?)
        }
        Some(_) => return Err(list.wrong("its zone is no text")),
    };
    let paused = match columns.paused.map(at).transpose()? {
        None | Some(ValueRef::Null | ValueRef::Integer(0)) => false,
        Some(ValueRef::Integer(1)) => true,
        Some(_) => return Err(list.wrong("its paused is neither 0 nor 1")),
    };
    list.add(id, zone, paused)
}

fn wrong(error: rusqlite::Error) -> StoreError {
    bad(error.to_string()).with_source(error)
}
