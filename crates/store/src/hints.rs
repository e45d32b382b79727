//! Hints inside one process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use tenure_core::store::Watch;
use tenure_core::{Code, GroupName, StoreError};
use tokio::sync::watch;

/// Watchers by group.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<BTreeMap<GroupName, watch::Sender<()>>>);

impl Hints {
    /// Notifies the watchers of a group.
    pub(crate) fn send(&self, group: &GroupName) {
        let hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hint) = hints.get(group) {
            hint.send_replace(());
        }
    }

    /// Listens to a group from now on.
    pub(crate) fn watch(&self, group: &GroupName) -> Box<dyn Watch> {
        let mut hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = hints.entry(group.clone()).or_insert_with(|| watch::channel(()).0);
        Box::new(LocalWatch(sender.subscribe()))
    }
}

#[derive(Debug)]
struct LocalWatch(watch::Receiver<()>);

#[async_trait]
impl Watch for LocalWatch {
    async fn changed(&mut self) -> Result<(), StoreError> {
        let gone = |_| StoreError::refused(Code::Lost, "the store was dropped");
        self.0.changed().await.map_err(gone)
    }
}
