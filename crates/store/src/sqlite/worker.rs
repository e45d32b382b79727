//! A thread that owns a connection.
//!
//! SQLite has one writer at a time and blocks, so each connection has its own thread, which runs
//! jobs. It waits for locks without SQLite's busy handler, which backs off up to a tenth of a
//! second at a time, so that a busy neighbour starves it for seconds.
//!
//! Why: docs/decisions/0022-sqlite-own-retry.md

use std::sync::Arc;
#[cfg(feature = "conformance")]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::{Clock, Code, LocalInstant, Mutant, StoreError, StoreResult};
use tokio::sync::{mpsc, oneshot};

use super::connect::retry;
use super::error::{commit_error, statement_error};

/// Time limit of a job, waiting in the queue included.
const JOB_TIMEOUT: Duration = Duration::from_secs(15);
/// Jobs that may wait for a thread.
const MAX_QUEUED_JOBS: usize = 1024;

type Job = Box<dyn FnOnce(&mut SqliteConnection) + Send>;

/// A handle to the thread; it ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Worker(JobRunner);

#[derive(Clone, Debug)]
enum JobRunner {
    Thread(mpsc::Sender<Job>),
    /// The caller's thread, for simulations.
    #[cfg(feature = "conformance")]
    Caller(Arc<Mutex<SqliteConnection>>),
}

/// Whether a connection yields to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePriority {
    /// Keeps sessions alive; the other connections yield to it.
    Vital,
    /// After [`MAX_WRITE_STREAK`] of back-to-back writing it leaves the database free for
    /// [`YIELD_PAUSE`], which is longer than the interval at which waiting writers try again.
    Yielding,
}

/// Longest time that a yielding connection writes without a pause.
const MAX_WRITE_STREAK: Duration = Duration::from_millis(4);
/// Pause in which it leaves the database free.
const YIELD_PAUSE: Duration = Duration::from_millis(1);

/// Connection with the times of its own writes.
#[derive(Debug)]
pub struct SqliteConnection {
    pub(super) connection: Connection,
    clock: Arc<dyn Clock>,
    priority: WritePriority,
    streak_began: LocalInstant,
    last_write: LocalInstant,
}

impl SqliteConnection {
    /// Wraps a connection with the clock for its transactions and its priority.
    pub fn new(connection: Connection, clock: Arc<dyn Clock>, priority: WritePriority) -> Self {
        let now = clock.now();
        Self { connection, clock, priority, streak_began: now, last_write: now }
    }

    /// Runs `write` as one transaction. Time is read once the database is locked (R4).
    pub fn write<T>(
        &mut self,
        write: impl FnOnce(&Connection, LocalInstant) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let early = Mutant::R4Early.is_on().then(|| self.clock.now());
        retry(|| self.connection.execute_batch("BEGIN IMMEDIATE")).map_err(statement_error)?;
        let began = early.unwrap_or_else(|| self.clock.now());
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
        read: impl FnOnce(&Connection, LocalInstant) -> StoreResult<T>,
    ) -> StoreResult<T> {
        // The first read takes the snapshot, and may have to wait while another process starts.
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
        // Nothing was written, so the result of the rollback does not matter.
        let _ = self.connection.execute_batch("ROLLBACK");
        answer
    }

    /// Runs `job` outside a transaction, for statements that SQLite refuses inside one.
    pub fn outside_transaction<T>(
        &mut self,
        job: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> StoreResult<T> {
        job(&mut self.connection).map_err(statement_error)
    }

    fn note_write(&mut self, began: LocalInstant) {
        if began.since(self.last_write) >= YIELD_PAUSE {
            self.streak_began = began;
        }
        self.last_write = self.clock.now();
    }

    /// Pauses after a long write streak. Called between jobs, after the last one was answered.
    fn yield_turn(&mut self) {
        let streak = self.last_write.since(self.streak_began);
        if self.priority == WritePriority::Yielding && streak >= MAX_WRITE_STREAK {
            std::thread::park_timeout(YIELD_PAUSE);
            self.streak_began = self.clock.now();
            self.last_write = self.streak_began;
        }
    }
}

impl Worker {
    /// Starts the thread.
    pub fn start(name: &str, mut connection: SqliteConnection) -> StoreResult<Self> {
        let (jobs, mut queue) = mpsc::channel::<Job>(MAX_QUEUED_JOBS);
        let run = move || {
            while let Some(job) = queue.blocking_recv() {
                job(&mut connection);
                connection.yield_turn();
            }
        };
        let thread = std::thread::Builder::new().name(format!("tenure-{name}"));
        thread.spawn(run).map_err(|error| {
            StoreError::refused(Code::Failed, format!("cannot start the SQLite thread: {error}"))
        })?;
        Ok(Self(JobRunner::Thread(jobs)))
    }

    /// Wraps a connection for simulations: jobs run on the caller's thread, so the same calls have
    /// the same results.
    #[cfg(feature = "conformance")]
    pub fn on_caller(connection: SqliteConnection) -> Self {
        Self(JobRunner::Caller(Arc::new(Mutex::new(connection))))
    }

    /// Runs a job on the thread and waits for its answer.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut SqliteConnection) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.begin(job).await?.answer().await
    }

    /// Runs `write` on the thread as one transaction.
    pub async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection, LocalInstant) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.run(move |connection| connection.write(write)).await
    }

    /// Runs `read` on the thread, on one snapshot.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection, LocalInstant) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.run(move |connection| connection.read(read)).await
    }

    /// Hands a job to the thread, and returns before its answer.
    pub async fn begin<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut SqliteConnection) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<PendingJob<T>> {
        let (answer, wait) = oneshot::channel();
        let job: Job = Box::new(move |connection| drop(answer.send(job(connection))));
        match &self.0 {
            JobRunner::Thread(jobs) => queue(jobs, job).await?,
            #[cfg(feature = "conformance")]
            JobRunner::Caller(connection) => {
                job(&mut connection.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
        Ok(PendingJob(wait))
    }
}

async fn queue(jobs: &mpsc::Sender<Job>, job: Job) -> StoreResult<()> {
    let gone = || StoreError::refused(Code::Failed, "the SQLite thread has ended");
    match tokio::time::timeout(JOB_TIMEOUT, jobs.send(job)).await {
        Err(_) => Err(StoreError::refused(Code::Busy, "the job queue stayed full")),
        Ok(sent) => sent.map_err(|_| gone()),
    }
}

/// A job that was handed to the thread.
pub struct PendingJob<T>(oneshot::Receiver<StoreResult<T>>);

impl<T> PendingJob<T> {
    /// Waits for its answer.
    pub async fn answer(self) -> StoreResult<T> {
        match tokio::time::timeout(JOB_TIMEOUT, self.0).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::unknown(Code::Failed, "the SQLite thread has ended")),
            Err(_) => {
                Err(StoreError::unknown(Code::Lost, format!("no response within {JOB_TIMEOUT:?}")))
            }
        }
    }
}
