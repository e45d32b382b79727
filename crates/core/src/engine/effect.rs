//! Effects: actions that the engine requests from its driver.

use std::time::Duration;

use super::event::Ticket;
use crate::store::{ClaimRequest, OpenSession};
use crate::{
    Deadline, Document, DutyId, Epoch, GroupName, Hold, LocalInstant, Note, Problem, Reason,
    Record, Session, Version,
};

/// An action for the driver, to be executed in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send a request to the store. If no response arrives `within` this time, the result is
    /// [`crate::StoreError::Unknown`].
    Ask {
        /// Returned with the response.
        ticket: Ticket,
        /// The request.
        request: StoreRequest,
        /// Timeout of the request.
        within: Duration,
    },
    /// Start the work on a duty.
    Assign {
        /// The hold.
        hold: Hold,
        /// End of its validity.
        deadline: Deadline,
    },
    /// The hold was confirmed: it is valid until a later deadline, and effects are allowed again if
    /// they were suspended.
    Extend {
        /// The duty.
        duty: DutyId,
        /// The epoch of the hold.
        epoch: Epoch,
        /// The new end of its validity.
        deadline: Deadline,
    },
    /// Allow no effect under any hold until it is extended: this process was paused (R7).
    Suspend,
    /// Ask the work on a duty to finish; [`super::EngineEvent::Stopped`] is expected.
    Drain {
        /// The duty.
        duty: DutyId,
        /// The epoch of the hold.
        epoch: Epoch,
        /// The reason.
        why: StopReason,
        /// The instant at which it will be cancelled.
        until: LocalInstant,
    },
    /// Cancel the work on a duty at once; [`super::EngineEvent::Stopped`] is expected.
    Revoke {
        /// The duty.
        duty: DutyId,
        /// The epoch of the hold.
        epoch: Epoch,
        /// The reason.
        why: StopReason,
    },
    /// Log a transition.
    Record(Record),
    /// The user's request was refused.
    Refuse(Problem),
    /// The engine has finished: it holds nothing and sends no more requests. Cancelled work may
    /// still be stopping.
    End(EngineExit),
}

crate::text_enum! {
    /// Reason why work stops, or why a duty is released.
    pub enum StopReason {
        Balance "balance" "The plan assigns the duty to another member."
        Deadline "deadline" "The hold was not renewed before its deadline."
        Done "done" "The work ended by itself or on request."
        Drain "drain" "The member is drained."
        DrainTimeout "drain time is over" "The work did not stop within the drain time."
        Failed "failed" "The work failed."
        Failing "failing" "All work fails on this member."
        Fenced "fenced" "A resource refused the epoch of the hold."
        Gone "gone" "The duty is no longer in the list."
        Leave "leave" "The member leaves the group."
        Lost "lost" "The store no longer has the hold."
        NoProgress "no progress" "The work did not report progress in time."
        NotStarted "not started" "The duty was granted too late to start its work."
        Paused "paused" "The duty is paused."
        Pin "pin" "The duty is pinned elsewhere."
        SessionEnded "session ended" "The session has ended, and every hold with it."
    }
}

/// Outcome of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EngineExit {
    /// It left as requested.
    Left,
    /// It must not continue.
    Failed(Problem),
}

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreRequest {
    /// Become a member.
    Open(OpenSession),
    /// Extend the session.
    KeepAlive {
        /// The session.
        session: Session,
        /// The member's status, if it has changed.
        note: Option<Note>,
        /// Every hold.
        holds: Vec<Hold>,
    },
    /// Claim duties.
    Claim {
        /// The session.
        session: Session,
        /// The duties.
        wants: Vec<ClaimRequest>,
        /// The reason.
        reason: Reason,
    },
    /// Release duties.
    Release {
        /// The session.
        session: Session,
        /// The holds.
        holds: Vec<Hold>,
        /// The reason.
        reason: Reason,
    },
    /// End the membership.
    Close {
        /// The session.
        session: Session,
        /// The reason.
        reason: Reason,
    },
    /// Read members and document, and the holders if requested.
    Look {
        /// The group.
        group: GroupName,
        /// Whether to read the holders too.
        holders: bool,
    },
    /// Replace the group's document.
    Settle {
        /// The group.
        group: GroupName,
        /// The version that it replaces.
        expected: Version,
        /// The new one.
        document: Document,
    },
}
