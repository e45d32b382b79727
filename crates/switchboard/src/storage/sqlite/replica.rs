//! Running replicas.

use async_trait::async_trait;
use rusqlite::Connection;
use uuid::Uuid;

use super::row::{execute, first};
use super::{SqliteStorage, sql};
use crate::error::StorageResult;
use crate::storage::{REPLICA_EXPIRY, Replicas};

#[async_trait]
impl Replicas for SqliteStorage {
    async fn announce(&self, replica_id: Uuid, address: &str) -> StorageResult<()> {
        let address = address.to_owned();
        let job = move |db: &Connection, now: i64| {
            execute(db, sql!("replica/announce"), (replica_id.as_bytes(), address, now))?;
            execute(db, sql!("replica/prune"), [now.saturating_sub(REPLICA_EXPIRY)]).map(drop)
        };
        self.write(job).await
    }

    async fn replica(&self, replica_id: Uuid) -> StorageResult<Option<String>> {
        let since = |now: i64| now.saturating_sub(REPLICA_EXPIRY);
        let job = move |db: &Connection, now| {
            first(db, sql!("replica/find"), (replica_id.as_bytes(), since(now)))
        };
        self.read(job).await
    }

    async fn withdraw(&self, replica_id: Uuid) -> StorageResult<()> {
        let job = move |db: &Connection, _| {
            execute(db, sql!("replica/withdraw"), [replica_id.as_bytes()])
        };
        self.write(job).await.map(drop)
    }
}
