//! Checkpoints of the write-ahead log (`-wal`).
//!
//! SQLite appends changes to a log and moves them into the file later, as part of some commit: all
//! submissions in that commit wait. Here a separate thread does it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rusqlite::Connection;
use tenure_store::sql::sqlite::{SqliteConnection, Worker};

use super::super::SubmissionOutcome;

/// Number of new rows, of a few pages each, after which the log is checkpointed.
const CHECKPOINT_ROWS: usize = 500;
/// A commit checkpoints a log of this many pages (64 MiB) itself: the thread does not keep up.
const MAX_WAL_PAGES: i64 = 16_384;
/// Page cache of the writer: dedupe keys are spread over the whole file.
const CACHE_KIB: i64 = 32 * 1024;

/// Sets up the connection that commits.
pub(super) fn leave_to_checkpointer(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", MAX_WAL_PAGES)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)
}

/// Thread that checkpoints the log.
#[derive(Debug)]
pub(super) struct WalCheckpointer {
    worker: Worker,
    rows: AtomicUsize,
    is_running: Arc<AtomicBool>,
}

/// Guard for one checkpoint at a time, released however its job ends.
struct RunningCheckpoint(Arc<AtomicBool>);

impl Drop for RunningCheckpoint {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl WalCheckpointer {
    pub(super) fn new(worker: Worker) -> Self {
        Self { worker, rows: AtomicUsize::new(0), is_running: Arc::default() }
    }

    /// Counts new rows and checkpoints the log when there are enough.
    pub(super) async fn note(&self, new: usize) {
        let rows = self.rows.fetch_add(new, Ordering::Relaxed) + new;
        if rows < CHECKPOINT_ROWS || self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        self.rows.store(0, Ordering::Relaxed);
        let running = RunningCheckpoint(self.is_running.clone());
        let job = move |connection: &mut SqliteConnection| {
            let _running = running;
            connection.outside_transaction(|db| {
                db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            })
        };
        // The next checkpoint moves the pages that this one does not.
        let _ = self.worker.begin(job).await;
    }
}

/// Counts the rows that a commit added.
pub(super) fn added(settled: &[SubmissionOutcome]) -> usize {
    let new = |settled: &SubmissionOutcome| match settled {
        SubmissionOutcome::Stored(outcomes) => outcomes.iter().filter(|it| !it.duplicate).count(),
        _ => 0,
    };
    settled.iter().map(new).sum()
}
