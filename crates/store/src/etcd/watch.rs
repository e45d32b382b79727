//! Hints by a watch on the keys of a group whose change matters.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::store::Watch;
use tenure_core::{Code, GroupName, StoreError, StoreResult};
use tenure_etcd::{Client, WatchCreate, WatchStream};
use tokio::time::timeout;

use super::call::EtcdCall;
use super::cluster::{ATTEMPT_TIMEOUT, EtcdCluster};
use super::error::{self, RequestError};
use super::read::end_of;

/// Watch on one group.
struct EtcdWatch {
    cluster: Arc<EtcdCluster>,
    folder: String,
    /// `None` while the connection is down.
    stream: Option<WatchStream>,
}

impl EtcdCall<'_> {
    pub(super) async fn group_watch(&self, group: &GroupName) -> StoreResult<Box<dyn Watch>> {
        let (cluster, folder) = (self.cluster.clone(), self.keys.live(group));
        let mut listener = EtcdWatch { cluster, folder, stream: None };
        listener.stream = Some(listener.subscribe().await?);
        Ok(Box::new(listener))
    }
}

impl EtcdWatch {
    /// Returns once the server has confirmed the watch: every later change yields a hint.
    async fn subscribe(&self) -> StoreResult<WatchStream> {
        let (key, range_end) = (self.folder.as_bytes().to_vec(), end_of(&self.folder));
        let create = &WatchCreate { key, range_end, start_revision: 0 };
        let sent = |client: Client| async move {
            let mut stream = client.watch(create.clone()).await?;
            let first = stream.next().await?;
            Ok((stream, first))
        };
        let late = |_| RequestError::NotSent(error::unreachable(&self.cluster.address()));
        let started =
            timeout(4 * ATTEMPT_TIMEOUT, self.cluster.repeat(ATTEMPT_TIMEOUT, sent)).await;
        let (stream, first) = started.map_err(late).flatten().map_err(RequestError::into_error)?;
        match first {
            Some(first) if first.created && !first.canceled => Ok(stream),
            _ => Err(StoreError::refused(Code::Failed, "the server did not confirm the watch")),
        }
    }
}

/// Waits for a change; returns false when the watch has ended.
async fn heard(stream: &mut WatchStream) -> bool {
    loop {
        match stream.next().await {
            Ok(Some(message)) if message.canceled => return false,
            Ok(Some(message)) if message.events.is_empty() => {}
            Ok(Some(_)) => return true,
            _ => return false,
        }
    }
}

#[async_trait]
impl Watch for EtcdWatch {
    async fn changed(&mut self) -> StoreResult<()> {
        if let Some(stream) = &mut self.stream {
            if heard(stream).await {
                return Ok(());
            }
            self.stream = None;
        }
        // Changes may have been missed in between, so reconnecting counts as a hint.
        self.stream = Some(self.subscribe().await?);
        Ok(())
    }
}

impl fmt::Debug for EtcdWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdWatch({} {})", self.cluster.address(), self.folder)
    }
}
