//! Notification of clients that wait for the next message of the inbox.
//!
//! One task polls the newest position while any client waits; messages committed by this replica
//! are seen at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::storage::Storage;

/// Interval at which messages of other replicas are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum time between two queries.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout of a query.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Watches the newest position of the inbox.
#[derive(Debug)]
pub(crate) struct InboxWatch {
    newest: watch::Sender<i64>,
    nudge: Notify,
    waiting: AtomicUsize,
}

impl InboxWatch {
    pub(crate) fn new() -> Self {
        let waiting = AtomicUsize::new(0);
        Self { newest: watch::Sender::new(0), nudge: Notify::new(), waiting }
    }

    /// Reports that this replica committed something.
    pub(crate) fn notify(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.nudge.notify_one();
        }
    }

    /// Registers a client that waits.
    pub(crate) fn start(&self) -> InboxFollower<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.nudge.notify_one();
        InboxFollower { follow: self, newest: self.newest.subscribe() }
    }

    /// Polls the store for as long as the server runs.
    pub(crate) async fn run(&self, storage: Arc<dyn Storage>) {
        loop {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                self.nudge.notified().await;
            } else {
                let _ = timeout(POLL_INTERVAL, self.nudge.notified()).await;
            }
            if let Ok(Ok(newest)) = timeout(STORE_TIMEOUT, storage.last_position()).await {
                self.newest.send_if_modified(|known| std::mem::replace(known, newest) != newest);
            }
            sleep(MIN_POLL_INTERVAL).await;
        }
    }
}

/// A client that waits.
#[derive(Debug)]
pub(crate) struct InboxFollower<'a> {
    follow: &'a InboxWatch,
    newest: watch::Receiver<i64>,
}

impl InboxFollower<'_> {
    /// Returns the newest known position.
    pub(crate) fn current(&mut self) -> i64 {
        *self.newest.borrow_and_update()
    }

    /// Waits until the position differs from `seen`.
    pub(crate) async fn changed(&mut self, seen: i64) {
        // The sender lives as long as this does.
        let _ = self.newest.wait_for(|newest| *newest != seen).await;
    }
}

impl Drop for InboxFollower<'_> {
    fn drop(&mut self) {
        self.follow.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
