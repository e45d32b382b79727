//! The work on a duty, as somebody's code would do it: announce, load, then effects and
//! checkpoints, each behind a look at the guard.

use tenure_core::{Deadline, Hold, InstanceId, LocalInstant, Version};

use crate::Nanos;

/// Next step of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Tell the resource the epoch, so that it refuses older ones from now on.
    Announce,
    /// Read the checkpoint.
    Load,
    /// Send the event after the cursor.
    Effect,
    /// Store the cursor.
    Commit,
    /// Nothing: the store has refused a checkpoint, and whoever renews will learn why.
    Rest,
}

/// Whether the work was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkMode {
    /// It goes on.
    Runs,
    /// It was asked to come to its end.
    Drains,
    /// It was cancelled: no effect any more.
    Revoked,
}

/// The work on a duty under one hold.
#[derive(Clone, Debug)]
pub struct SimWork {
    /// The right to it.
    pub hold: Hold,
    /// Until when it stands.
    pub deadline: Deadline,
    /// No effect before the hold is extended.
    pub suspended: bool,
    /// Whether it was asked to end.
    pub mode: WorkMode,
    /// Its next step.
    pub next: NextStep,
    /// The last event that the resource has.
    pub cursor: u64,
    /// The last event in the checkpoint.
    pub saved: u64,
    /// The version of the checkpoint.
    pub version: Version,
    /// Counts what it does: an answer to something older is dropped.
    pub turn: u64,
    /// Since when its process believes that it may act, in virtual time.
    pub believes_since: Option<Nanos>,
    /// When the request left that last confirmed the hold, in virtual time.
    pub confirmed: Nanos,
    /// When it was assigned, in virtual time.
    pub since: Nanos,
    /// The duty came here because the one before shed it; the members of then.
    pub moved_among: Option<Vec<InstanceId>>,
}

impl SimWork {
    /// Begins under a hold.
    pub fn new(hold: Hold, deadline: Deadline, since: Nanos) -> Self {
        Self {
            hold,
            deadline,
            suspended: false,
            mode: WorkMode::Runs,
            next: NextStep::Announce,
            cursor: 0,
            saved: 0,
            version: Version::ZERO,
            turn: 0,
            believes_since: None,
            confirmed: 0,
            since,
            moved_among: None,
        }
    }

    /// The guard: whether an effect may begin at this local instant.
    pub fn may_act(&self, now: LocalInstant) -> bool {
        self.is_trusted() && self.deadline.allows(now)
    }

    /// Whether only the deadline can end what it believes.
    pub fn is_trusted(&self) -> bool {
        !self.suspended && self.mode != WorkMode::Revoked
    }
}
