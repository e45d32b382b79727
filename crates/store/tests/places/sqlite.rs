//! A SQLite file of its own.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{Clock, DutyKey, Session, Store};
use tenure_store::BootClock;
use tenure_store::conformance::{Boxed, Place};
use tenure_store::sqlite::{Sqlite, SqliteSettings};

#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn settings(&self) -> SqliteSettings {
        SqliteSettings { path: self.0.path().join("tenure.db"), ..SqliteSettings::default() }
    }

    fn edit(
        &self,
        sql: &'static str,
        parameters: impl rusqlite::Params + Send + 'static,
    ) -> Boxed<()> {
        let path = self.settings().path;
        let edit = move || {
            let connection = Connection::open(path).unwrap();
            connection.busy_timeout(Duration::from_secs(30)).unwrap();
            connection.execute(sql, parameters).unwrap();
        };
        Box::pin(async { tokio::task::spawn_blocking(edit).await.unwrap() })
    }
}

impl Place for Folder {
    fn open(&self) -> Boxed<Arc<dyn Store>> {
        let settings = self.settings();
        Box::pin(async { Arc::new(Sqlite::open(settings).await.unwrap()) as Arc<dyn Store> })
    }

    fn lapse(&self, session: Session) -> Boxed<()> {
        let now = BootClock.now().as_nanos() as i64;
        let sql = "UPDATE session SET expires_ns = min(expires_ns, ?1)
            WHERE group_name = ?2 AND instance = ?3 AND nonce = ?4";
        let nonce = session.nonce.to_string();
        let (group, instance) = (session.group, session.instance);
        self.edit(sql, (now, group.as_str().to_owned(), instance.as_str().to_owned(), nonce))
    }

    fn lose_epoch(&self, duty: DutyKey) -> Boxed<()> {
        let sql = "DELETE FROM hold WHERE group_name = ?1 AND duty = ?2";
        self.edit(sql, (duty.group.as_str().to_owned(), duty.id.as_str().to_owned()))
    }

    fn fresh(&self) -> Boxed<Arc<dyn Place>> {
        Box::pin(async { Arc::new(Self::new()) as Arc<dyn Place> })
    }
}
