//! A thread that owns a connection.
//!
//! SQLite has one writer at a time and blocks, so each connection lives on a thread of its own and
//! takes jobs. How it waits for its turn is ours: SQLite's own busy handler backs off up to a
//! tenth of a second at a time, and a busy neighbour then starves it for seconds.
//!
//! Why: docs/decisions/0022-sqlite-own-retry.md

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use tenure_core::{Clock, Code, LocalInstant, StoreError};
use tokio::sync::{mpsc, oneshot};

/// How often a waiting writer looks whether it is its turn.
const RETRY_INTERVAL: Duration = Duration::from_micros(500);
/// How long a writer waits for its turn before it gives up.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a caller waits for a job, its place in the queue included.
const JOB_TIMEOUT: Duration = Duration::from_secs(15);
/// Jobs that may wait for a thread.
const MAX_QUEUED_JOBS: usize = 1024;

type Job = Box<dyn FnOnce(&mut SqliteConnection) + Send>;

/// A handle to the thread; it ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Worker {
    jobs: mpsc::Sender<Job>,
}

/// Whether a connection steps aside for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePriority {
    /// It keeps sessions alive: it is who the others step aside for.
    Vital,
    /// After [`STREAK`] of back-to-back writing it leaves a [`GAP`], longer than [`RETRY`], in
    /// which everybody who waits finds the database free.
    Yielding,
}

/// How long a yielding connection may write without a pause.
const MAX_WRITE_STREAK: Duration = Duration::from_millis(4);
/// How long it then leaves the database free.
const YIELD_PAUSE: Duration = Duration::from_millis(1);

/// The connection and what it knows of its own writing.
pub struct SqliteConnection {
    pub(super) connection: Connection,
    clock: Arc<dyn Clock>,
    manners: WritePriority,
    streak_began: LocalInstant,
    last_write: LocalInstant,
}

/// Opens a file as every connection of ours has it: WAL, durable at each commit, our own waiting.
pub fn connect(path: &PathBuf) -> rusqlite::Result<Connection> {
    // A new file is for its owner alone, whatever the umask says; SQLite gives its companions the
    // same mode. One that is there keeps its own, and what else goes wrong SQLite will say.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Otherwise a statement is prepared anew whenever another value is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Durable at each commit: a lease that power loss takes back would be granted twice.
    retry(|| connection.pragma_update(None, "journal_mode", "WAL"))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// Waits for its turn in small steps; [`std::thread::park_timeout`] because nobody unparks us.
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

impl SqliteConnection {
    /// A connection, the clock that its transactions get, and whether it steps aside.
    pub fn new(connection: Connection, clock: Arc<dyn Clock>, manners: WritePriority) -> Self {
        let now = clock.now();
        Self { connection, clock, manners, streak_began: now, last_write: now }
    }

    /// Runs `write` as one transaction. Time is read once the database is ours (R4).
    pub fn write<T>(
        &mut self,
        write: impl FnOnce(&Connection, LocalInstant) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        retry(|| self.connection.execute_batch("BEGIN IMMEDIATE")).map_err(statement_error)?;
        let began = self.clock.now();
        let written = write(&self.connection, began).and_then(|answer| {
            self.connection.execute_batch("COMMIT").map_err(commit_error)?;
            Ok(answer)
        });
        if !self.connection.is_autocommit() {
            // Failing to roll back changes nothing: the transaction ends with the connection.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        self.note_write(began);
        written
    }

    /// Runs `read` on one snapshot.
    pub fn read<T>(
        &mut self,
        read: impl FnOnce(&Connection, LocalInstant) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // The first look takes the snapshot, and may have to wait while another process starts.
        let begin = "BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1";
        retry(|| {
            let began = self.connection.execute_batch(begin);
            if began.is_err() && !self.connection.is_autocommit() {
                self.connection.execute_batch("ROLLBACK")?;
            }
            began
        })
        .map_err(statement_error)?;
        let answer = read(&self.connection, self.clock.now());
        // Nothing was written: how the transaction ends changes nothing.
        let _ = self.connection.execute_batch("ROLLBACK");
        answer
    }

    /// Runs `job` outside of a transaction: for what SQLite does not do inside of one.
    pub fn outside_transaction<T>(
        &mut self,
        job: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        job(&self.connection).map_err(statement_error)
    }

    fn note_write(&mut self, began: LocalInstant) {
        if began.since(self.last_write) >= YIELD_PAUSE {
            self.streak_began = began;
        }
        self.last_write = self.clock.now();
    }

    /// Called between jobs, after the last one was answered.
    fn yield_turn(&mut self) {
        let streak = self.last_write.since(self.streak_began);
        if self.manners == WritePriority::Yielding && streak >= MAX_WRITE_STREAK {
            std::thread::park_timeout(YIELD_PAUSE);
            self.streak_began = self.clock.now();
            self.last_write = self.streak_began;
        }
    }
}

impl Worker {
    /// Starts the thread.
    pub fn start(name: &str, mut line: SqliteConnection) -> Result<Self, StoreError> {
        let (jobs, mut queue) = mpsc::channel::<Job>(MAX_QUEUED_JOBS);
        let run = move || {
            while let Some(job) = queue.blocking_recv() {
                job(&mut line);
                line.yield_turn();
            }
        };
        let thread = std::thread::Builder::new().name(format!("tenure-{name}"));
        thread.spawn(run).map_err(|error| {
            StoreError::refused(Code::Failed, format!("no thread for SQLite: {error}"))
        })?;
        Ok(Self { jobs })
    }

    /// Runs a job on the thread and waits for its answer.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut SqliteConnection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.begin(job).await?.answer().await
    }

    /// Hands a job to the thread; there is time for something else until its answer.
    pub async fn begin<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut SqliteConnection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<PendingJob<T>, StoreError> {
        let (answer, wait) = oneshot::channel();
        let job: Job = Box::new(move |line| drop(answer.send(job(line))));
        let gone = || StoreError::refused(Code::Failed, "the SQLite thread has ended");
        let queued = tokio::time::timeout(JOB_TIMEOUT, self.jobs.send(job)).await;
        match queued {
            Err(_) => return Err(StoreError::refused(Code::Busy, "the queue stayed full")),
            Ok(sent) => sent.map_err(|_| gone())?,
        }
        Ok(PendingJob(wait))
    }
}

/// A job that was handed over.
pub struct PendingJob<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> PendingJob<T> {
    /// Waits for its answer.
    pub async fn answer(self) -> Result<T, StoreError> {
        match tokio::time::timeout(JOB_TIMEOUT, self.0).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::unknown(Code::Failed, "the SQLite thread has ended")),
            Err(_) => Err(StoreError::unknown(Code::Lost, format!("no answer in {JOB_TIMEOUT:?}"))),
        }
    }
}

/// An error before `COMMIT`: the transaction is rolled back, so it did not happen.
pub fn statement_error(error: Error) -> StoreError {
    let code = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Code::Busy,
        Some(ErrorCode::DiskFull) => Code::Full,
        Some(ErrorCode::ReadOnly) => Code::ReadOnly,
        Some(ErrorCode::CannotOpen) => Code::Unreachable,
        Some(ErrorCode::PermissionDenied) => Code::Denied,
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Code::Damaged,
        _ => Code::Failed,
    };
    // The driver would add the statement; what SQLite says is enough.
    let detail = match error {
        Error::SqlInputError { msg, .. } => msg,
        other => other.to_string(),
    };
    StoreError::refused(code, detail)
}

/// An error of [`connect`]. SQLite does not say that a folder may not be written, and without its
/// log not that a file may only be read.
pub fn open_error(path: &Path, error: Error) -> StoreError {
    let told = statement_error(error);
    // Not by opening it: the close would drop all locks that this process has on the file.
    let is_denied =
        |path: &Path| matches!(access(path, Access::WRITE_OK), Err(Errno::ROFS | Errno::ACCESS));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_read_only = is_denied(path) || is_denied(folder.unwrap_or(Path::new(".")));
    if told.code() == Code::Unreachable && is_read_only {
        return StoreError::refused(Code::ReadOnly, path.display().to_string());
    }
    told
}

/// An error of `COMMIT` itself. When the disk was full or the lock was not to be had, SQLite has
/// rolled back; after anything else the pages may be on disk.
fn commit_error(error: Error) -> StoreError {
    match statement_error(error) {
        StoreError::Refused(problem) if !matches!(problem.code, Code::Full | Code::Busy) => {
            StoreError::Unknown(problem)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn an_error_is_explained_without_dropping_the_locks_of_other_connections() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenure.db");
        let other = connect(&path).unwrap();
        other.execute_batch("CREATE TABLE t (x)").unwrap();
        let file = format!(":{} ", std::fs::metadata(&path).unwrap().ino());
        let locks = || {
            let all = std::fs::read_to_string("/proc/locks").unwrap();
            all.lines().filter(|line| line.contains(&file)).count()
        };
        let before = locks();
        assert!(before > 0);
        let missing = Connection::open_with_flags(folder.path(), OpenFlags::default());
        assert_eq!(open_error(&path, missing.unwrap_err()).code(), Code::Unreachable);
        assert_eq!(locks(), before);
    }
}
