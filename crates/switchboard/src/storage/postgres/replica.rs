//! The replicas that run.

use async_trait::async_trait;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::row::column;
use super::{Parameter, PostgresStorage};
use crate::error::StorageResult;
use crate::storage::{REPLICA_EXPIRY, Replicas};

#[async_trait]
impl Replicas for PostgresStorage {
    async fn announce(&self, replica_id: Uuid, address: &str) -> StorageResult<()> {
        let parameters: [Parameter<'_>; 3] =
            [(&replica_id, Type::UUID), (&address, Type::TEXT), (&REPLICA_EXPIRY, Type::INT8)];
        self.data.query(&self.statements.replica_announce, &parameters).await?;
        Ok(())
    }

    async fn replica(&self, replica_id: Uuid) -> StorageResult<Option<String>> {
        let parameters: [Parameter<'_>; 2] =
            [(&replica_id, Type::UUID), (&REPLICA_EXPIRY, Type::INT8)];
        let rows = self.data.query(&self.statements.replica_find, &parameters).await?;
        rows.first().map(|row| column(row, 0)).transpose()
    }

    async fn withdraw(&self, replica_id: Uuid) -> StorageResult<()> {
        let parameters: [Parameter<'_>; 1] = [(&replica_id, Type::UUID)];
        self.data.query(&self.statements.replica_withdraw, &parameters).await?;
        Ok(())
    }
}
