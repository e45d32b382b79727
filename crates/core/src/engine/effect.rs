//! Effects: what the engine wants done outside.

use std::time::Duration;

use super::event::Ticket;
use crate::store::{ClaimRequest, OpenSession};
use crate::{
    Deadline, Document, DutyId, Epoch, GroupName, Hold, LocalInstant, Note, Problem, Reason,
    Record, Session, Version,
};

/// Something that is to be done outside of the engine, in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask the store. An answer that does not come `within` this time is
    /// [`crate::StoreError::Unknown`].
    Ask {
        /// Comes back with the answer.
        ticket: Ticket,
        /// The request.
        request: StoreRequest,
        /// Timeout of the request.
        within: Duration,
    },
    /// Begin the work on a duty.
    Assign {
        /// The right to it.
        hold: Hold,
        /// Until when it stands.
        deadline: Deadline,
    },
    /// The hold was confirmed: it stands until a later deadline, and effects are allowed again if
    /// they were suspended.
    Extend {
        /// The duty.
        duty: DutyId,
        /// The epoch of the hold.
        epoch: Epoch,
        /// Until when it stands.
        deadline: Deadline,
    },
    /// No effect under any hold until it is extended: this process was paused (R7).
    Suspend,
    /// Ask the work on a duty to come to its end; [`super::EngineEvent::Stopped`] is expected.
    Drain {
        /// The duty.
        duty: DutyId,
        /// The epoch of the hold.
        epoch: Epoch,
        /// Why.
        why: StopReason,
        /// When it will be cancelled.
        until: LocalInstant,
    },
    /// Cancel the work on a duty at once; [`super::EngineEvent::Stopped`] is expected.
    Revoke {
        /// The duty.
        duty: DutyId,
        /// The epoch of the hold.
        epoch: Epoch,
        /// Why.
        why: StopReason,
    },
    /// Something happened.
    Record(Record),
    /// The user's wish was refused.
    Refuse(Problem),
    /// The engine has come to its end: nothing is held, nothing more will be asked for. Work that
    /// was cancelled may still be on its way to its own end.
    End(EngineExit),
}

crate::text_enum! {
    /// Reason why work stops, or why a duty is given back.
    pub enum StopReason {
        Balance "balance" "The plan gives the duty to another member."
        Deadline "deadline" "The hold was not renewed before its deadline."
        Done "done" "The work ended by itself, or when it was asked to."
        Drain "drain" "The member is drained."
        DrainTimeout "drain time is over" "The work did not end in time after it was asked to."
        Failed "failed" "The work failed."
        Failing "failing" "All work fails on this member."
        Fenced "fenced" "A resource refused the epoch of the hold."
        Gone "gone" "The duty is not in the list any more."
        Leave "leave" "The member leaves the group."
        Lost "lost" "The store does not know the hold any more."
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
    /// As it was asked to.
    Left,
    /// It must not go on.
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
    /// Ask for duties.
    Claim {
        /// The session.
        session: Session,
        /// The duties.
        wants: Vec<ClaimRequest>,
        /// Why.
        reason: Reason,
    },
    /// Give duties back.
    Release {
        /// The session.
        session: Session,
        /// The holds.
        holds: Vec<Hold>,
        /// Why.
        reason: Reason,
    },
    /// Be no member any more.
    Close {
        /// The session.
        session: Session,
        /// Why.
        reason: Reason,
    },
    /// Read members and document, and the holders if they are wanted.
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
