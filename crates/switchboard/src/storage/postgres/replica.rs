//! Running replicas.

use async_trait::async_trait;
use uuid::Uuid;

use super::{PostgresStorage, parameters, sql};
use crate::error::StorageResult;
use crate::storage::{REPLICA_EXPIRY, Replicas};

#[async_trait]
impl Replicas for PostgresStorage {
    async fn announce(&self, replica_id: Uuid, address: &str) -> StorageResult<()> {
        let parameters = parameters! { replica_id, address, REPLICA_EXPIRY };
        self.query(sql!("replica/announce"), &parameters).await.map(drop)
    }

    async fn replica(&self, replica_id: Uuid) -> StorageResult<Option<String>> {
        let parameters = parameters! { replica_id, REPLICA_EXPIRY };
        Ok(self.all(sql!("replica/find"), &parameters).await?.pop())
    }

    async fn withdraw(&self, replica_id: Uuid) -> StorageResult<()> {
        self.query(sql!("replica/withdraw"), &parameters! { replica_id }).await.map(drop)
    }
}
