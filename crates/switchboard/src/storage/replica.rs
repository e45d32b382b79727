//! Running replicas.

use std::fmt::Debug;

use crate::error::StorageResult;
use async_trait::async_trait;
use uuid::Uuid;

/// A replica that was not seen for this long, in microseconds, is gone.
pub const REPLICA_EXPIRY: i64 = 60 * 1_000_000;

/// Addresses of running replicas. Times are by the store's clock.
#[async_trait]
pub trait Replicas: Debug + Send + Sync + 'static {
    /// Announces a replica and its address, and deletes those that have expired.
    async fn announce(&self, replica_id: Uuid, address: &str) -> StorageResult<()>;
    /// Returns the address of a replica that was seen lately.
    async fn replica(&self, replica_id: Uuid) -> StorageResult<Option<String>>;
    /// Removes a replica that shuts down.
    async fn withdraw(&self, replica_id: Uuid) -> StorageResult<()>;
}
