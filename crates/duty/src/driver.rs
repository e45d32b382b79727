//! Drives the engine: a thread of its own, with a runtime and connections of its own (R7).

use tenure_core::StoreError;

use crate::join::Join;
use crate::membership::Membership;

pub(crate) async fn start(_join: Join) -> Result<Membership, StoreError> {
    Err(StoreError::refused(tenure_core::Code::NotBuilt, "not written yet"))
}
