//! Notification of clients that wait for the next message of the inbox.
//!
//! One task polls the newest position while any client waits; messages committed by this replica
//! are seen at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::http::ServerState;

/// Interval of polls for messages committed by other replicas.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(5);
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Watches the newest position of the inbox.
#[derive(Debug, Default)]
pub(crate) struct InboxWatch {
    newest: watch::Sender<i64>,
    nudge: Notify,
    waiting: AtomicUsize,
}

impl InboxWatch {
    /// Reports that this replica committed something.
    pub(crate) fn notify(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.nudge.notify_one();
        }
    }

    pub(crate) fn start(&self) -> InboxFollower<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.nudge.notify_one();
        InboxFollower { follow: self, newest: self.newest.subscribe() }
    }

    /// Polls the store for as long as the server runs.
    pub(crate) async fn run(state: Arc<ServerState>) {
        let Self { newest, nudge, waiting } = &state.follow;
        loop {
            if waiting.load(Ordering::Relaxed) == 0 {
                nudge.notified().await;
            } else {
                let _ = timeout(POLL_INTERVAL, nudge.notified()).await;
            }
            if let Ok(Ok(last)) = timeout(STORE_TIMEOUT, state.storage.last_position()).await {
                newest.send_if_modified(|known| std::mem::replace(known, last) != last);
            }
            sleep(MIN_POLL_INTERVAL).await;
        }
    }
}

#[derive(Debug)]
pub(crate) struct InboxFollower<'a> {
    follow: &'a InboxWatch,
    newest: watch::Receiver<i64>,
}

impl InboxFollower<'_> {
    pub(crate) fn current(&mut self) -> i64 {
        *self.newest.borrow_and_update()
    }

    /// Waits until the position differs from `seen`.
    pub(crate) async fn changed(&mut self, seen: i64) {
        // The sender outlives this receiver, so waiting cannot fail.
        let _ = self.newest.wait_for(|newest| *newest != seen).await;
    }
}

impl Drop for InboxFollower<'_> {
    fn drop(&mut self) {
        self.follow.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
