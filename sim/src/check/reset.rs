//! Checks that a member that saw the store forget its sessions waits until their holders have
//! stopped (R21).

use tenure_core::invariant::Step;
use tenure_core::{DutyId, Epoch, InstanceId};

use super::{CheckFinding, spans_of};
use crate::Nanos;

/// A belief under a session that the store has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlived {
    /// The duty.
    pub duty: DutyId,
    /// The epoch of its hold.
    pub epoch: Epoch,
    /// The instance.
    pub instance: InstanceId,
    /// Start of the belief: the reset, or the response with an older grant.
    pub from: Nanos,
    /// End of the belief, exclusive.
    pub until: Nanos,
    /// Index of the reset.
    pub reset: usize,
}

/// Checks that no member at a reset starts work beside an earlier holder. Later members cannot know
/// about the reset: to them the store is new. `witnesses`: the members at each reset.
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
                    "{}: {instance} was a member at the reset and may act under epoch {epoch} from \
                     {:.3}; {} may still act under the earlier epoch {} until {:.3}",
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
