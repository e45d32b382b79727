//! Hints: a thread that polls a counter per group.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use tenure_core::store::Watch;
use tenure_core::{Code, GroupName, StoreError, StoreResult};
use tokio::sync::{oneshot, watch};

use super::connect::connect;
use super::error::statement_error;
use super::sql;
use crate::hints::HintWatch;

/// Poll interval. One poll costs a few microseconds while nothing has changed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

type Receiver = watch::Receiver<i64>;
type Subscribed = StoreResult<Receiver>;

struct Subscribe {
    group: GroupName,
    answer: oneshot::Sender<Subscribed>,
}

/// Handle of the polling thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct ChangePoller {
    subscribe: Sender<Subscribe>,
}

impl ChangePoller {
    pub(super) fn start(path: &PathBuf) -> StoreResult<Self> {
        let connection = connect(path).map_err(statement_error)?;
        let (subscribe, requests) = channel::<Subscribe>();
        let run = move || {
            let mut looker = PollerThread { connection, seen: None, groups: BTreeMap::new() };
            loop {
                match requests.recv_timeout(POLL_INTERVAL) {
                    Ok(Subscribe { group, answer }) => drop(answer.send(looker.subscribe(group))),
                    Err(RecvTimeoutError::Timeout) => looker.look(),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("tenure-watch".to_owned());
        thread.spawn(run).map_err(|error| {
            StoreError::refused(Code::Failed, format!("cannot start the SQLite thread: {error}"))
        })?;
        Ok(Self { subscribe })
    }

    pub(super) async fn watch(self: Arc<Self>, group: &GroupName) -> StoreResult<Box<dyn Watch>> {
        let (answer, wait) = oneshot::channel();
        let gone = || StoreError::refused(Code::Failed, "the watch thread has ended");
        let request = Subscribe { group: group.clone(), answer };
        self.subscribe.send(request).map_err(|_| gone())?;
        let hints = wait.await.map_err(|_| gone())??;
        Ok(Box::new(HintWatch { hints, _source: self }))
    }
}

struct PollerThread {
    connection: Connection,
    /// SQLite's own counter of commits by others: a cheap first check.
    seen: Option<i64>,
    groups: BTreeMap<GroupName, watch::Sender<i64>>,
}

impl PollerThread {
    fn count(&self, group: &GroupName) -> rusqlite::Result<i64> {
        let mut statement = self.connection.prepare_cached(sql!("change/read"))?;
        Ok(statement.query_row([group.as_str()], |row| row.get(0)).optional()?.unwrap_or(0))
    }

    fn subscribe(&mut self, group: GroupName) -> Subscribed {
        let count = self.count(&group).map_err(statement_error)?;
        let sender = self.groups.entry(group).or_insert_with(|| watch::channel(count).0);
        // A late subscriber starts from now; earlier ones still get what they have not seen.
        sender.send_if_modified(|seen| std::mem::replace(seen, count) != count);
        Ok(sender.subscribe())
    }

    /// Polls once. The next tick repeats a failed poll, and the counter loses no change meanwhile.
    fn look(&mut self) {
        self.groups.retain(|_, sender| sender.receiver_count() > 0);
        let version = self.connection.query_row("PRAGMA data_version", [], |row| row.get(0));
        let Ok(version) = version else { return };
        if self.groups.is_empty() || self.seen == Some(version) {
            return;
        }
        for (group, sender) in &self.groups {
            let Ok(count) = self.count(group) else { return };
            sender.send_if_modified(|seen| std::mem::replace(seen, count) != count);
        }
        self.seen = Some(version);
    }
}
