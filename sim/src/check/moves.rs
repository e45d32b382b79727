//! Checks that duties change hands only when the roster says so.

use std::time::Duration;

use tenure_core::engine::StopReason;
use tenure_core::{DutyId, Epoch, InstanceId};

use super::{CheckFinding, CheckTimes};
use crate::Nanos;

/// A duty that was shed for balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyMove {
    /// Time of the move.
    pub at: Nanos,
    /// The instance that shed it.
    pub instance: InstanceId,
    /// The duty.
    pub duty: DutyId,
    /// Number of duties that the instance held before.
    pub held: usize,
    /// Its share, by its latest view; `None` when that is unknown.
    pub quota: Option<usize>,
    /// When it was assigned.
    pub since: Nanos,
    /// Whether it had come from another member that shed it.
    pub was_moved: bool,
    /// The reason given.
    pub why: StopReason,
}

impl DutyMove {
    /// Whether a reason stands for a move that was not forced.
    pub fn is_voluntary(why: StopReason) -> bool {
        why == StopReason::Balance
    }
}

/// Work that was started, asked to end, or cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkTurn {
    /// Time of the step.
    pub at: Nanos,
    /// The instance.
    pub instance: InstanceId,
    /// The duty.
    pub duty: DutyId,
    /// The epoch of its hold.
    pub epoch: Epoch,
    /// Kind of the step.
    pub what: &'static str,
    /// The reason given.
    pub why: String,
}

/// Checks that only members with more than their share shed duties.
pub(super) fn justified(moves: &[DutyMove]) -> Result<(), CheckFinding> {
    let unjust = |one: &&DutyMove| one.quota.is_some_and(|quota| one.held <= quota);
    match moves.iter().find(unjust) {
        Some(DutyMove { at, instance, duty, held, quota, why, .. }) => {
            let (at, quota) = (*at as f64 / 1e9, quota.unwrap_or_default());
            let what = format!(
                "at {at:.3} {instance} sheds {duty} ({why}), but holds {held} with a \
                 share of {quota}"
            );
            Err(CheckFinding { checker: "moves", what })
        }
        None => Ok(()),
    }
}

/// Checks that a moved duty stays for the window. The window is counted on a clock that may run up
/// to a tenth fast.
pub(super) fn not_twice(moves: &[DutyMove], window: Duration) -> Result<(), CheckFinding> {
    let window = (window.as_nanos() as Nanos) / 11 * 10;
    match moves.iter().find(|one| one.was_moved && one.at - one.since < window) {
        Some(DutyMove { at, instance, duty, since, .. }) => {
            let (at, since) = (*at as f64 / 1e9, *since as f64 / 1e9);
            let what = format!(
                "at {at:.3} {instance} sheds {duty}, which was moved to it only at {since:.3}"
            );
            Err(CheckFinding { checker: "moves", what })
        }
        None => Ok(()),
    }
}

/// Checks that nothing changes hands in a settled group.
pub(super) fn quiet(turns: &[WorkTurn], times: CheckTimes) -> Result<(), CheckFinding> {
    match turns.iter().find(|turn| turn.at > times.settled) {
        Some(WorkTurn { at, instance, duty, epoch, what, why }) => {
            let at = *at as f64 / 1e9;
            let settled = times.settled as f64 / 1e9;
            let what = format!(
                "at {at:.3} {instance} {duty} epoch {epoch}: {what} {why}, although the group \
                 was settled at {settled:.3}"
            );
            Err(CheckFinding { checker: "quiet", what })
        }
        None => Ok(()),
    }
}
