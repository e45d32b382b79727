//! The log of changes (`-wal`).
//!
//! SQLite appends changes to a log and moves them into the file later, as part of some commit:
//! everybody whose submission is in that one waits. Here a thread of its own does it meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rusqlite::Connection;
use tenure_store::sql::sqlite::{SqliteConnection, Worker};

use super::super::Settled;
use crate::error::SwitchboardError;

/// After so many new rows the log is moved. Each changes a few pages.
const ROWS: usize = 500;
/// A commit moves a log of so many pages (64 MiB) after all: the thread does not keep up.
const LONGEST: i64 = 16_384;
/// What the writer keeps in memory, in KiB: keys are all over the file.
const CACHE: i64 = 32 * 1024;

/// Sets up the connection that commits.
pub(super) fn leave_to_mover(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", LONGEST)?;
    connection.pragma_update(None, "cache_size", -CACHE)
}

/// The thread that moves it.
#[derive(Debug)]
pub(super) struct Mover {
    worker: Worker,
    rows: AtomicUsize,
    is_moving: Arc<AtomicBool>,
}

/// There is one at a time; it ends however its job ends.
struct Moving(Arc<AtomicBool>);

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Mover {
    pub(super) fn start(line: SqliteConnection) -> Result<Self, SwitchboardError> {
        let worker = Worker::start("switch-log", line)?;
        Ok(Self { worker, rows: AtomicUsize::new(0), is_moving: Arc::default() })
    }

    /// Counts what was added, and moves the log when it is time.
    pub(super) async fn note(&self, new: usize) {
        let rows = self.rows.fetch_add(new, Ordering::Relaxed) + new;
        if rows < ROWS || self.is_moving.swap(true, Ordering::AcqRel) {
            return;
        }
        self.rows.store(0, Ordering::Relaxed);
        let moving = Moving(self.is_moving.clone());
        let job = move |line: &mut SqliteConnection| {
            let _moving = moving;
            line.outside_transaction(|db| {
                db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            })
        };
        // What is not moved now is moved the next time.
        let _ = self.worker.begin(job).await;
    }
}

/// How many rows a commit added.
pub(super) fn added(settled: &[Settled]) -> usize {
    let new = |settled: &Settled| match settled {
        Settled::Stored(outcomes) => outcomes.iter().filter(|it| !it.duplicate).count(),
        _ => 0,
    };
    settled.iter().map(new).sum()
}
