//! Checks that a member that saw the store forget its sessions waits until their holders have
//! stopped (R21).

use tenure_core::invariant::Step;
use tenure_core::{DutyId, Epoch, InstanceId};

use super::{CheckFinding, spans_of};
use crate::Nanos;

/// A belief under a session that the store has forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlived {
    /// On this duty.
    pub duty: DutyId,
    /// Under this epoch.
    pub epoch: Epoch,
    /// By this instance.
    pub instance: InstanceId,
    /// From the reset, or from when it heard of an older grant.
    pub from: Nanos,
    /// To the last instant before this one.
    pub until: Nanos,
    /// Which reset it was.
    pub reset: usize,
}

/// Nobody who was a member at a reset begins beside a holder of before. Who came later cannot know:
/// to it the store is a new one. `witnesses`: the members at each reset.
pub(super) fn waited(
    history: &[Step],
    outlived: &[Outlived],
    witnesses: &[Vec<InstanceId>],
) -> Result<(), CheckFinding> {
    for old in outlived {
        let saw = |who: &InstanceId| witnesses.get(old.reset).is_some_and(|all| all.contains(who));
        for (from, until, epoch, instance) in spans_of(history, &old.duty) {
            let overlaps = from.max(old.from) < until.min(old.until);
            let other = (instance, epoch) != (&old.instance, old.epoch);
            if overlaps && other && saw(instance) {
                let what = format!(
                    "{}: {instance} was there at the reset and believes under epoch {epoch} from \
                     {:.3}; {} does under epoch {} of before until {:.3}",
                    old.duty,
                    from as f64 / 1e9,
                    old.instance,
                    old.epoch,
                    old.until as f64 / 1e9,
                );
                return Err(CheckFinding { checker: "reset", what });
            }
        }
    }
    Ok(())
}
