//! Simulated work on a duty, as in user code: announce, load, then effects and checkpoints, with a
//! check of the guard before each.

use tenure_core::{Deadline, Hold, InstanceId, LocalInstant, Version};

use crate::Nanos;

/// Next step of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Announce the epoch to the resource, so that it refuses older ones from now on.
    Announce,
    /// Read the checkpoint.
    Load,
    /// Send the event after the cursor.
    Effect,
    /// Store the cursor.
    Commit,
    /// Nothing: the store has refused a checkpoint, and the next renewal will show why.
    Rest,
}

/// The last order that the work was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkMode {
    /// To continue.
    Runs,
    /// To finish.
    Drains,
    /// To stop without any further effect.
    Revoked,
}

/// The work on a duty under one hold.
#[derive(Clone, Debug)]
pub struct SimWork {
    /// The hold.
    pub hold: Hold,
    /// End of its validity.
    pub deadline: Deadline,
    /// No effect before the hold is extended.
    pub suspended: bool,
    /// The last order that it was given.
    pub mode: WorkMode,
    /// Its next step.
    pub next: NextStep,
    /// The last event that the resource has accepted.
    pub cursor: u64,
    /// The last event in the checkpoint.
    pub saved: u64,
    /// The version of the checkpoint.
    pub version: Version,
    /// Number of actions so far: a response to an older one is dropped.
    pub turn: u64,
    /// Since when its process believes that it may act, in virtual time.
    pub believes_since: Option<Nanos>,
    /// When the request that last confirmed the hold was sent, in virtual time.
    pub confirmed: Nanos,
    /// When it was assigned, in virtual time.
    pub since: Nanos,
    /// The members at the time when the previous holder shed the duty, if it did.
    pub moved_among: Option<Vec<InstanceId>>,
}

impl SimWork {
    /// Starts work under a hold.
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

    /// Whether only the deadline can end its belief that it may act.
    pub fn is_trusted(&self) -> bool {
        !self.suspended && self.mode != WorkMode::Revoked
    }
}
