//! Hints by `LISTEN`, on a connection of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tenure_core::store::Watch;
use tenure_core::{Code, GroupName, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client};

use super::connect::{CONNECT_TIMEOUT, PostgresConnectConfig, with_timeout};
use super::error;

/// Between attempts to get the connection back.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);

type GroupSenders = Mutex<BTreeMap<GroupName, watch::Sender<()>>>;

/// The listening connection; it ends when the last watch and the store are gone.
#[derive(Debug)]
pub(super) struct NotificationListener {
    groups: Arc<GroupSenders>,
    task: JoinHandle<()>,
}

impl NotificationListener {
    /// Returns once the server has confirmed that it will tell.
    pub(super) async fn start(
        target: PostgresConnectConfig,
        channel: String,
    ) -> Result<Self, StoreError> {
        let groups = Arc::new(GroupSenders::default());
        let line = ListenConnection::open(&target, &channel, groups.clone()).await?;
        let task = tokio::spawn(listen(target, channel, groups.clone(), line));
        Ok(Self { groups, task })
    }

    pub(super) fn watch(self: &Arc<Self>, group: &GroupName) -> Box<dyn Watch> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|_, hints| hints.receiver_count() > 0);
        let hints = groups.entry(group.clone()).or_insert_with(|| watch::channel(()).0);
        Box::new(PostgresWatch { hints: hints.subscribe(), _listener: self.clone() })
    }
}

impl Drop for NotificationListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection that listens; `ended` finishes when it breaks.
struct ListenConnection {
    _client: Client,
    ended: JoinHandle<()>,
}

impl Drop for ListenConnection {
    fn drop(&mut self) {
        self.ended.abort();
    }
}

impl ListenConnection {
    async fn open(
        target: &PostgresConnectConfig,
        channel: &str,
        groups: Arc<GroupSenders>,
    ) -> Result<Self, StoreError> {
        let connecting = target.config.connect(target.tls());
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let silent = |_| StoreError::refused(Code::Unreachable, "the server stayed silent");
        let (client, mut connection) = connecting.map_err(silent)?.map_err(error::connect_error)?;
        let ended = tokio::spawn(async move {
            let mut messages = poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                let AsyncMessage::Notification(notice) = message else {
                    continue;
                };
                let Ok(group) = GroupName::new(notice.payload()) else {
                    continue;
                };
                let groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(hints) = groups.get(&group) {
                    hints.send_replace(());
                }
            }
        });
        let line = Self { _client: client, ended };
        with_timeout(line._client.batch_execute(&format!("LISTEN \"{channel}\""))).await?;
        Ok(line)
    }
}

/// Keeps a line open. What happened while it was down is unknown, so everybody gets one hint.
async fn listen(
    target: PostgresConnectConfig,
    channel: String,
    groups: Arc<GroupSenders>,
    mut line: ListenConnection,
) {
    loop {
        let _ = (&mut line.ended).await;
        line = loop {
            match ListenConnection::open(&target, &channel, groups.clone()).await {
                Ok(line) => break line,
                Err(_) => tokio::time::sleep(RECONNECT_INTERVAL).await,
            }
        };
        for hints in groups.lock().unwrap_or_else(PoisonError::into_inner).values() {
            hints.send_replace(());
        }
    }
}

#[derive(Debug)]
struct PostgresWatch {
    hints: watch::Receiver<()>,
    /// A watch may outlive the store that made it.
    _listener: Arc<NotificationListener>,
}

#[async_trait]
impl Watch for PostgresWatch {
    async fn changed(&mut self) -> Result<(), StoreError> {
        let gone = |_| StoreError::refused(Code::Lost, "the store was closed");
        self.hints.changed().await.map_err(gone)
    }
}
