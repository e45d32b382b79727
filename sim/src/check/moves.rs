//! Duties change hands only when the roster says so.

use std::time::Duration;

use tenure_core::engine::StopReason;
use tenure_core::{DutyId, Epoch, InstanceId};

use super::{CheckFinding, CheckTimes};
use crate::Nanos;

/// A duty that was shed for the sake of balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyMove {
    /// When.
    pub at: Nanos,
    /// By whom.
    pub instance: InstanceId,
    /// Which.
    pub duty: DutyId,
    /// Number of duties it held before.
    pub held: usize,
    /// Its share, by what it had seen; `None` when that is not known.
    pub quota: Option<usize>,
    /// Since when it worked on it.
    pub since: Nanos,
    /// It had got it because somebody else had shed it.
    pub was_moved: bool,
    /// The reason given.
    pub why: StopReason,
}

impl DutyMove {
    /// Whether a reason stands for a move that nobody was forced to.
    pub fn is_voluntary(why: StopReason) -> bool {
        why == StopReason::Balance
    }
}

/// Work that began, was asked to end, or was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkTurn {
    /// When.
    pub at: Nanos,
    /// By whom.
    pub instance: InstanceId,
    /// On which duty.
    pub duty: DutyId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// Kind of the step.
    pub what: &'static str,
    /// The reason given.
    pub why: String,
}

/// Only somebody with more than its share sheds.
pub(super) fn justified(moves: &[DutyMove]) -> Result<(), CheckFinding> {
    let unjust = |one: &&DutyMove| one.quota.is_some_and(|quota| one.held <= quota);
    match moves.iter().find(unjust) {
        Some(DutyMove { at, instance, duty, held, quota, why, .. }) => {
            let (at, quota) = (*at as f64 / 1e9, quota.unwrap_or_default());
            let what = format!(
                "at {at:.3} {instance} sheds {duty} ({why}), but has {held} of a share of {quota}"
            );
            Err(CheckFinding { checker: "moves", what })
        }
        None => Ok(()),
    }
}

/// A duty that was moved stays for the window. The window is counted on a clock that may run up to
/// a tenth fast.
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

/// In a group that is settled nothing changes hands.
pub(super) fn quiet(turns: &[WorkTurn], times: CheckTimes) -> Result<(), CheckFinding> {
    match turns.iter().find(|turn| turn.at > times.settled) {
        Some(WorkTurn { at, instance, duty, epoch, what, why }) => {
            let at = *at as f64 / 1e9;
            let settled = times.settled as f64 / 1e9;
            let what = format!(
                "at {at:.3} {instance} {duty} epoch {epoch}: {what} {why}, though all is settled \
                 since {settled:.3}"
            );
            Err(CheckFinding { checker: "quiet", what })
        }
        None => Ok(()),
    }
}
