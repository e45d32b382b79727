//! Checks that no belief outlasts the hold in the store (R5).

use tenure_core::{DutyId, Epoch, InstanceId};

use super::CheckFinding;
use crate::Nanos;

/// A deadline that was given to work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// When the work got it.
    pub at: Nanos,
    /// The instance.
    pub instance: InstanceId,
    /// The duty.
    pub duty: DutyId,
    /// The epoch of its hold.
    pub epoch: Epoch,
    /// Until when it may act if nothing more arrives.
    pub believes: Nanos,
    /// Until when the store keeps the hold if nothing more arrives.
    pub stands: Nanos,
}

/// Checks that each belief ends before its hold, even if no later message arrives. This finds an
/// error even if no other instance is fast enough to overlap.
pub(super) fn kept(promises: &[Promise]) -> Result<(), CheckFinding> {
    let broken = |one: &&Promise| one.believes > one.stands && one.believes > one.at;
    match promises.iter().find(broken) {
        Some(Promise { at, instance, duty, epoch, believes, stands }) => {
            let [at, believes, stands] = [at, believes, stands].map(|nanos| *nanos as f64 / 1e9);
            let what = format!(
                "at {at:.3}, {instance} may act on {duty}@{epoch} until {believes:.3}, but the \
                 store keeps the hold only until {stands:.3}"
            );
            Err(CheckFinding { checker: "deadline", what })
        }
        None => Ok(()),
    }
}
