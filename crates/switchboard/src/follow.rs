//! Those who wait for the next message of the inbox.
//!
//! One task asks the store for its newest position while somebody waits, however many they are;
//! what this replica commits itself is seen at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::storage::Storage;

/// How often other replicas' messages are looked for.
const EVERY: Duration = Duration::from_millis(250);
/// The store is asked no more often than this.
const LEAST: Duration = Duration::from_millis(5);
/// How long the store may take to say.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells those who wait that there is more.
#[derive(Debug)]
pub(crate) struct Follow {
    newest: watch::Sender<i64>,
    nudge: Notify,
    waiting: AtomicUsize,
}

impl Follow {
    pub(crate) fn new() -> Self {
        let waiting = AtomicUsize::new(0);
        Self { newest: watch::Sender::new(0), nudge: Notify::new(), waiting }
    }

    /// Something was committed here.
    pub(crate) fn nudge(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.nudge.notify_one();
        }
    }

    /// Somebody begins to wait.
    pub(crate) fn start(&self) -> Follower<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.nudge.notify_one();
        Follower { follow: self, newest: self.newest.subscribe() }
    }

    /// Looks for news for as long as the server runs.
    pub(crate) async fn run(&self, storage: Arc<dyn Storage>) {
        loop {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                self.nudge.notified().await;
            } else {
                let _ = timeout(EVERY, self.nudge.notified()).await;
            }
            if let Ok(Ok(newest)) = timeout(PATIENCE, storage.last_position()).await {
                self.newest.send_if_modified(|known| std::mem::replace(known, newest) != newest);
            }
            sleep(LEAST).await;
        }
    }
}

/// One who waits.
#[derive(Debug)]
pub(crate) struct Follower<'a> {
    follow: &'a Follow,
    newest: watch::Receiver<i64>,
}

impl Follower<'_> {
    /// The newest position that is known.
    pub(crate) fn look(&mut self) -> i64 {
        *self.newest.borrow_and_update()
    }

    /// Waits until it is another one than was seen.
    pub(crate) async fn moved(&mut self, seen: i64) {
        // The sender lives as long as this does.
        let _ = self.newest.wait_for(|newest| *newest != seen).await;
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.follow.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
