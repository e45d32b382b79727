//! The replicas that run.

use async_trait::async_trait;
use rusqlite::Connection;
use uuid::Uuid;

use super::{Sqlite, execute, first};
use crate::error::SwitchboardError;
use crate::storage::{REPLICA_EXPIRY, Replicas};

#[async_trait]
impl Replicas for Sqlite {
    async fn announce(&self, replica_id: Uuid, address: &str) -> Result<(), SwitchboardError> {
        let address = address.to_owned();
        self.write(move |db, now| announce(db, replica_id, &address, now)).await
    }

    async fn replica(&self, replica_id: Uuid) -> Result<Option<String>, SwitchboardError> {
        let sql = "SELECT address FROM switchboard_replica WHERE replica_id = ?1 AND seen_at > ?2";
        let seen = |now: i64| now.saturating_sub(REPLICA_EXPIRY);
        let job = move |db: &Connection, now| {
            first(db, sql, (replica_id.as_bytes(), seen(now)), |row| row.get(0))
        };
        self.read(job).await
    }

    async fn withdraw(&self, replica_id: Uuid) -> Result<(), SwitchboardError> {
        let sql = "DELETE FROM switchboard_replica WHERE replica_id = ?1";
        self.write(move |db, _| execute(db, sql, [replica_id.as_bytes()]).map(drop)).await
    }
}

fn announce(db: &Connection, replica_id: Uuid, address: &str, now: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO switchboard_replica (replica_id, address, seen_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (replica_id) DO UPDATE SET
            address = excluded.address, seen_at = excluded.seen_at";
    execute(db, sql, (replica_id.as_bytes(), address, now))?;
    let gone = "DELETE FROM switchboard_replica WHERE seen_at <= ?1";
    execute(db, gone, [now.saturating_sub(REPLICA_EXPIRY)])?;
    Ok(())
}
