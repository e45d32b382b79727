//! Hints inside one process.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tenure_core::store::Watch;
use tenure_core::{Code, GroupName, StoreError, StoreResult};
use tokio::sync::watch;

/// Watchers by group.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<BTreeMap<GroupName, watch::Sender<()>>>);

impl Hints {
    fn senders(&self) -> MutexGuard<'_, BTreeMap<GroupName, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the watchers of a group.
    pub(crate) fn send(&self, group: &GroupName) {
        if let Some(hint) = self.senders().get(group) {
            hint.send_replace(());
        }
    }

    /// Notifies the watchers of every group.
    #[cfg(feature = "postgres")]
    pub(crate) fn send_all(&self) {
        self.senders().values().for_each(|hint| {
            hint.send_replace(());
        });
    }

    /// Subscribes to the hints of a group.
    pub(crate) fn watch<S>(&self, group: &GroupName, source: S) -> Box<dyn Watch>
    where
        S: Debug + Send + Sync + 'static,
    {
        let mut senders = self.senders();
        senders.retain(|_, hint| hint.receiver_count() > 0);
        let sender = senders.entry(group.clone()).or_insert_with(|| watch::channel(()).0);
        Box::new(HintWatch { hints: sender.subscribe(), _source: source })
    }
}

/// Hints of one group. It keeps their source alive, since a watch may outlive its store.
#[derive(Debug)]
pub(crate) struct HintWatch<S, T = ()> {
    pub(crate) hints: watch::Receiver<T>,
    pub(crate) _source: S,
}

#[async_trait]
impl<S: Debug + Send + Sync, T: Debug + Send + Sync> Watch for HintWatch<S, T> {
    async fn changed(&mut self) -> StoreResult<()> {
        let gone = |_| StoreError::refused(Code::Lost, "the store was closed");
        self.hints.changed().await.map_err(gone)
    }
}
