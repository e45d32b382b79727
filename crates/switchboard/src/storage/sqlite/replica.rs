//! Running replicas.

use async_trait::async_trait;
use rusqlite::Connection;
use uuid::Uuid;

use super::row::{execute, first};
use super::{SqliteStorage, statements as sql};
use crate::error::StorageResult;
use crate::storage::{REPLICA_EXPIRY, Replicas};

#[async_trait]
impl Replicas for SqliteStorage {
    async fn announce(&self, replica_id: Uuid, address: &str) -> StorageResult<()> {
        let address = address.to_owned();
        self.write(move |db, now| announce(db, replica_id, &address, now)).await
    }

    async fn replica(&self, replica_id: Uuid) -> StorageResult<Option<String>> {
        let since = |now: i64| now.saturating_sub(REPLICA_EXPIRY);
        let job = move |db: &Connection, now| {
            first(db, sql::REPLICA_FIND, (replica_id.as_bytes(), since(now)))
        };
        self.read(job).await
    }

    async fn withdraw(&self, replica_id: Uuid) -> StorageResult<()> {
        let job =
            move |db: &Connection, _| execute(db, sql::REPLICA_WITHDRAW, [replica_id.as_bytes()]);
        self.write(job).await.map(drop)
    }
}

fn announce(db: &Connection, replica_id: Uuid, address: &str, now: i64) -> rusqlite::Result<()> {
    execute(db, sql::REPLICA_ANNOUNCE, (replica_id.as_bytes(), address, now))?;
    execute(db, sql::REPLICA_PRUNE, [now.saturating_sub(REPLICA_EXPIRY)])?;
    Ok(())
}
