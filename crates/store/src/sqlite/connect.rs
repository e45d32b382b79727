//! Connections to a file, and waiting for the write lock.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};

/// Interval at which a waiting writer tries again.
const RETRY_INTERVAL: Duration = Duration::from_micros(500);
/// Longest wait for the write lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a file with our settings: WAL, durable at each commit, and our own waiting for locks.
pub fn connect(path: &PathBuf) -> rusqlite::Result<Connection> {
    // Only the owner may read a new file, whatever the umask; SQLite gives `-wal` and `-shm` the
    // same mode. An existing file keeps its mode, and SQLite reports any other error.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Otherwise a statement is prepared anew whenever another value is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Durable at each commit: a lease that a power loss undoes would be granted twice.
    retry(|| connection.pragma_update(None, "journal_mode", "WAL"))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// Retries while the database is locked, for a bounded time. Nobody unparks the thread early.
pub fn retry<T>(mut attempt: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let mut left = LOCK_TIMEOUT.as_micros() / RETRY_INTERVAL.as_micros();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && left > 0 => std::thread::park_timeout(RETRY_INTERVAL),
            answer => return answer,
        }
        left -= 1;
    }
}

fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
