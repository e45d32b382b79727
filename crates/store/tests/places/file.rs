//! A cursor file in a folder of its own. It has one user, so all clients share one open store.

use std::sync::Arc;

use tempfile::TempDir;
use tenure_core::{DutyKey, Session, Store};
use tenure_store::conformance::{Boxed, Place};
use tenure_store::file::{FileSettings, FileStore};

#[derive(Debug)]
pub struct Cursor {
    store: Arc<FileStore>,
    _folder: TempDir,
}

impl Cursor {
    pub async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("cursor.json");
        let store =
            FileStore::open(FileSettings { path, ..FileSettings::default() }).await.unwrap();
        Self { store: Arc::new(store), _folder: folder }
    }
}

impl Place for Cursor {
    fn open(&self) -> Boxed<Arc<dyn Store>> {
        let store = self.store.clone();
        Box::pin(async { store as Arc<dyn Store> })
    }

    fn lapse(&self, session: Session) -> Boxed<()> {
        self.store.lapse(&session);
        Box::pin(async {})
    }

    fn lose_epoch(&self, duty: DutyKey) -> Boxed<()> {
        self.store.lose_epoch(&duty);
        Box::pin(async {})
    }
    fn fresh(&self) -> Boxed<Arc<dyn Place>> {
        Box::pin(async { Arc::new(Self::new().await) as Arc<dyn Place> })
    }
}
