//! Hints by `LISTEN`, on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::Watch;
use tenure_core::{Code, GroupName, StoreError, StoreResult};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::connect::{CONNECT_TIMEOUT, PostgresConnectConfig, drive, with_timeout};
use super::{Postgres, error};
use crate::hints::Hints;

/// Time between attempts to reconnect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);

/// The listening connection; it ends when the last watch and the store are dropped.
#[derive(Debug)]
pub(super) struct NotificationListener {
    groups: Arc<Hints>,
    task: JoinHandle<()>,
}

impl Postgres {
    pub(super) async fn group_watch(&self, group: &GroupName) -> StoreResult<Box<dyn Watch>> {
        let start = || async {
            let channel = format!("{}.changes", self.schema);
            NotificationListener::start(self.target.clone(), channel).await.map(Arc::new)
        };
        let listener = self.listener.get_or_try_init(start).await?;
        Ok(listener.groups.watch(group, listener.clone()))
    }
}

impl NotificationListener {
    /// Starts listening, and returns once the server has confirmed it.
    pub(super) async fn start(target: PostgresConnectConfig, channel: String) -> StoreResult<Self> {
        let groups = Arc::new(Hints::default());
        let line = ListenConnection::open(&target, &channel, groups.clone()).await?;
        let task = tokio::spawn(listen(target, channel, groups.clone(), line));
        Ok(Self { groups, task })
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
        groups: Arc<Hints>,
    ) -> StoreResult<Self> {
        let connecting = target.config.connect(target.tls());
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let silent = |_| StoreError::refused(Code::Unreachable, "the server did not respond");
        let (client, connection) = connecting.map_err(silent)?.map_err(error::connect_error)?;
        let ended = tokio::spawn(drive(connection, move |notification| {
            if let Ok(group) = GroupName::new(notification.payload()) {
                groups.send(&group);
            }
        }));
        let line = Self { _client: client, ended };
        with_timeout(line._client.batch_execute(&format!("LISTEN \"{channel}\""))).await?;
        Ok(line)
    }
}

/// Keeps a connection open. Changes while it was down are unknown, so all watchers get one hint.
async fn listen(
    target: PostgresConnectConfig,
    channel: String,
    groups: Arc<Hints>,
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
        groups.send_all();
    }
}
