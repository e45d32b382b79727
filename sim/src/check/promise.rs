//! Nobody believes for longer than the store keeps its hold (R5).

use tenure_core::{DutyId, Epoch, InstanceId};

use super::CheckFinding;
use crate::Nanos;

/// Work was told until when it may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// When it was told.
    pub at: Nanos,
    /// By whom.
    pub instance: InstanceId,
    /// On which duty.
    pub duty: DutyId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// Until when it may act if it hears nothing more.
    pub believes: Nanos,
    /// Until when the store keeps the hold if it hears nothing more.
    pub stands: Nanos,
}

/// Each belief ends before its hold, even if nothing gets through from here on. That an overlap
/// needs somebody else who is fast enough, this does not wait for.
pub(super) fn kept(promises: &[Promise]) -> Result<(), CheckFinding> {
    let broken = |one: &&Promise| one.believes > one.stands && one.believes > one.at;
    match promises.iter().find(broken) {
        Some(Promise { at, instance, duty, epoch, believes, stands }) => {
            let [at, believes, stands] = [at, believes, stands].map(|nanos| *nanos as f64 / 1e9);
            let what = format!(
                "at {at:.3} {instance} is told to act on {duty}@{epoch} until {believes:.3}, and \
                 the store keeps it until {stands:.3}"
            );
            Err(CheckFinding { checker: "deadline", what })
        }
        None => Ok(()),
    }
}
