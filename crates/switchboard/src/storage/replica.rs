//! The replicas that run.

use std::fmt::Debug;

use crate::error::SwitchboardError;
use async_trait::async_trait;
use uuid::Uuid;

/// A replica that was not seen for so long, in microseconds, is gone.
pub const REPLICA_EXPIRY: i64 = 60 * 1_000_000;

/// Where replicas find each other. Times are by the store's clock.
#[async_trait]
pub trait Replicas: Debug + Send + Sync + 'static {
    /// Says that a replica runs and where the others can reach it; takes away those that are gone.
    async fn announce(&self, replica_id: Uuid, address: &str) -> Result<(), SwitchboardError>;
    /// Where a replica can be reached, if it was seen lately.
    async fn replica(&self, replica_id: Uuid) -> Result<Option<String>, SwitchboardError>;
    /// Says that a replica ends.
    async fn withdraw(&self, replica_id: Uuid) -> Result<(), SwitchboardError>;
}
