//! The replicas that run.

use async_trait::async_trait;
use tenure_core::{Code, StoreError};
use uuid::Uuid;

use super::Sqlite;
use crate::storage::Replicas;

fn not_yet() -> StoreError {
    StoreError::refused(Code::Failed, "not yet")
}

#[async_trait]
impl Replicas for Sqlite {
    async fn announce(&self, _replica_id: Uuid, _address: &str) -> Result<(), StoreError> {
        Err(not_yet())
    }
    async fn replica(&self, _replica_id: Uuid) -> Result<Option<String>, StoreError> {
        Err(not_yet())
    }
    async fn withdraw(&self, _replica_id: Uuid) -> Result<(), StoreError> {
        Err(not_yet())
    }
}
