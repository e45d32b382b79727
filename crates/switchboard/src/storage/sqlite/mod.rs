//! Switchboard storage on SQLite: one host, any number of processes.
//!
//! Every change is one `BEGIN IMMEDIATE` transaction, so changes are serialized and positions
//! follow commit order. Reads have a thread and a connection of their own and never wait for a
//! write; so have checkpoints of the write-ahead log.

mod channel;
mod clock;
mod commit;
mod dead_letter;
mod fence;
mod inbox;
mod mutants;
mod registry;
mod replica;
mod retention;
mod row;
#[cfg(feature = "simulation")]
mod simulation;
mod token;
mod wal;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, Error, ErrorCode};
use tenure_core::{Code, StoreError};
use tenure_duty::process;
use tenure_store::sql::MigrationHistory;
use tenure_store::sql::sqlite::{
    BootLock, SqliteConnection, Worker, WritePriority, connect, is_there, migrate,
    script as write_script, share, statement_error,
};
use tenure_store::{BootClock, IfAbsent};

use super::{Permitted, migration};
use crate::error::{StorageResult, SwitchboardError};

/// Text of a statement, by the name of its file below `sql/`.
macro_rules! sql {
    ($file:literal) => {
        tenure_core::mutant::Swap::apply(
            crate::storage::sqlite::mutants::SWAPS,
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/storage/sqlite/sql/",
                $file,
                ".sql"
            )),
        )
    };
}
use sql;

const HISTORY: MigrationHistory = MigrationHistory {
    table: "switchboard_migration",
    migrations: &[
        migration(1, "ground", include_str!("migrations/0001_ground.sql")),
        migration(2, "connectors", include_str!("migrations/0002_connectors.sql")),
        migration(3, "clock", include_str!("migrations/0003_clock.sql")),
        migration(4, "cursors", include_str!("migrations/0004_cursors.sql")),
        migration(5, "heartbeats", include_str!("migrations/0005_heartbeats.sql")),
        migration(6, "fences", include_str!("migrations/0006_fences.sql")),
        migration(7, "channels", include_str!("migrations/0007_channels.sql")),
        migration(8, "fields", include_str!("migrations/0008_fields.sql")),
    ],
    swaps: &[],
};

/// Switchboard storage in a SQLite file, which may also contain a store.
#[derive(Debug)]
pub struct SqliteStorage {
    writer: Worker,
    reader: Worker,
    wal: wal::WalCheckpointer,
    clock: Arc<dyn WallClock>,
    /// Nobody replaces the file while it is open.
    _share: Option<BootLock>,
}

/// The store's clock. Only a simulation has another one than [`SystemClock`].
pub trait WallClock: Debug + Send + Sync + 'static {
    /// Returns the time in Unix microseconds.
    fn now(&self) -> i64;
}

/// Clock of this host.
#[derive(Debug)]
struct SystemClock;

impl WallClock for SystemClock {
    fn now(&self) -> i64 {
        i64::try_from(process::unix_micros()).unwrap_or(i64::MAX)
    }
}

/// Opens the file, updates its tables and starts the threads.
pub async fn open(path: PathBuf, if_absent: IfAbsent) -> StorageResult<SqliteStorage> {
    let opened = tokio::task::spawn_blocking(move || open_blocking(&path, if_absent)).await;
    opened.map_err(|error| {
        SwitchboardError::unknown(Code::Failed, error.to_string()).caused_by(error)
    })?
}

/// Returns the schema as a script.
pub fn script() -> String {
    write_script(&HISTORY)
}

fn open_blocking(path: &PathBuf, if_absent: IfAbsent) -> StorageResult<SqliteStorage> {
    let absent = || SwitchboardError::refused(Code::Absent, path.display().to_string());
    if if_absent == IfAbsent::Refuse && !path.exists() {
        return Err(absent());
    }
    let share = share(path)?;
    let connection = connect(path).map_err(statement_error)?;
    if !is_there(&connection, &HISTORY)? && if_absent == IfAbsent::Refuse {
        return Err(absent());
    }
    wal::leave_to_checkpointer(&connection).map_err(statement_error)?;
    row::add_functions(&connection).map_err(statement_error)?;
    let owned = |connection| {
        SqliteConnection::new(connection, Arc::new(BootClock), WritePriority::Yielding)
    };
    let mut writer = owned(connection);
    migrate(&mut writer, &HISTORY)?;
    let reader = owned(connect(path).map_err(statement_error)?);
    let checkpointer = owned(connect(path).map_err(statement_error)?);
    Ok(SqliteStorage {
        writer: Worker::start("switch-writer", writer)?,
        reader: Worker::start("switch-reader", reader)?,
        wal: wal::WalCheckpointer::new(Worker::start("switch-log", checkpointer)?),
        clock: Arc::new(SystemClock),
        _share: share,
    })
}

/// Returns the number of messages in the inbox of a copied file; `None` without a switchboard.
pub fn count_messages(path: &Path) -> StorageResult<Option<u64>> {
    let connection = Connection::open(path).map_err(statement_error)?;
    if !is_there(&connection, &HISTORY)? {
        return Ok(None);
    }
    let count = connection.query_row(sql!("inbox/count"), [], |row| row.get::<_, i64>(0));
    Ok(Some(count.map_err(statement_error)?.unsigned_abs()))
}

/// Classifies an error before `COMMIT`: a row that can never be stored is `Unstorable`.
fn failed(error: Error) -> StoreError {
    let never = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
    );
    match statement_error(error) {
        StoreError::Refused(problem) if never => {
            StoreError::refused(Code::Unstorable, problem.detail)
        }
        other => other,
    }
}

impl SqliteStorage {
    /// Runs a transaction that may change something. The clock is read once it has begun.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> StorageResult<T> {
        let clock = Arc::clone(&self.clock);
        let job = move |connection: &mut SqliteConnection| {
            connection.write(|db, _| job(db, clock.now()).map_err(failed))
        };
        Ok(self.writer.run(job).await?)
    }

    /// Runs a transaction that may change something, if its token is still valid.
    async fn write_with<T: Send + 'static>(
        &self,
        token_id: Option<&str>,
        job: impl FnOnce(&Connection, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> Permitted<T> {
        let token_id = token_id.map(str::to_owned);
        let job = move |db: &Connection, now| match token::ended(db, token_id.as_deref(), now)? {
            Some(ended) => Ok(Err(ended)),
            None => job(db, now).map(Ok),
        };
        self.write(job).await
    }

    /// Runs a transaction that only reads.
    async fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> StorageResult<T> {
        let clock = Arc::clone(&self.clock);
        let job = move |connection: &mut SqliteConnection| {
            connection.read(|db, _| job(db, clock.now()).map_err(failed))
        };
        Ok(self.reader.run(job).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rusqlite::Connection;
    use tenure_store::IfAbsent;

    use super::{open_blocking, row};

    fn prepare_all(db: &Connection, folder: &Path) -> usize {
        let mut prepared = 0;
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                prepared += prepare_all(db, &path);
                continue;
            }
            let sql = std::fs::read_to_string(&path).unwrap();
            for sql in row::statements(&sql) {
                db.prepare(sql).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                prepared += 1;
            }
        }
        prepared
    }

    #[test]
    fn every_statement_fits_the_tables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switchboard.db");
        drop(open_blocking(&path, IfAbsent::Create).unwrap());
        let db = Connection::open(&path).unwrap();
        row::add_functions(&db).unwrap();
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/storage/sqlite/sql");
        assert!(prepare_all(&db, &files) > 100);
    }
}
