//! Writing a checkpoint from outside: claims the duty, commits and releases.

use std::sync::Arc;

use tenure_core::{Document, DutyKey, Store, Version};
use tenure_store::signing::Protection;
use tenure_store::transfer::{self, OperatorSession, Put};

use super::operator;
use crate::error::OperateError;

/// A checkpoint to write.
#[derive(Clone, Debug)]
pub struct PutOptions {
    /// Duty.
    pub duty: DutyKey,
    /// Its new checkpoint.
    pub document: Document,
    /// The version that it replaces; by default the newest one.
    pub over: Option<Version>,
    /// Take the duty from its holder.
    pub force: bool,
}

/// Writes a checkpoint. `store` is open without signature checks; `name` is its address.
pub async fn put(
    store: Arc<dyn Store>,
    name: String,
    protection: Protection,
    options: PutOptions,
) -> Result<Put, OperateError> {
    let PutOptions { duty, document, over, force } = options;
    let mut session =
        OperatorSession::new(store, protection, name, operator("checkpoint put", force)?);
    let put = transfer::put(&mut session, &duty, document.as_bytes(), over).await;
    session.close().await;
    Ok(put?)
}
