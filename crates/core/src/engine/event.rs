//! Events: input of the engine.

use std::time::Duration;

use crate::store::{
    Claimed, Closed, GroupDocument, Holder, KeptAlive, Member, Opened, Released, Replaced,
};
use crate::{DutyId, Epoch, Listing, StoreError};

/// Names one request, so that its answer finds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something that happened outside of the engine.
#[derive(Clone, Debug)]
pub enum EngineEvent {
    /// Time has passed: [`super::Engine::wake_at`] has come.
    Tick,
    /// The store hints that the group has changed.
    Hint,
    /// A request was answered, or its time is over ([`crate::Code::Lost`], unknown).
    Answered(Ticket, StoreResponse),
    /// A new list of duties.
    Listed(Listing),
    /// The list of duties could not be read.
    Unlisted(StoreError),
    /// The work on a duty has ended, and nothing of it runs any more.
    Stopped {
        /// The duty.
        duty: DutyId,
        /// The epoch under which it ran.
        epoch: Epoch,
        /// Outcome of the work.
        how: WorkOutcome,
    },
    /// The work on a duty came a step further.
    Progress {
        /// The duty.
        duty: DutyId,
        /// The epoch under which it runs.
        epoch: Epoch,
    },
    /// A resource has seen a newer epoch than the hold has, while the store still confirms the
    /// hold: the store has forgotten something.
    Fenced {
        /// The duty.
        duty: DutyId,
        /// The epoch that was refused.
        epoch: Epoch,
        /// The newest that the resource knows.
        newest: Epoch,
    },
    /// Somebody has seen a hold gone behind the store's back: the store is asked now.
    Doubted,
    /// The work on every duty fails here: give way for so long to members whose work does not.
    /// Zero takes it back.
    Failing {
        /// Duration; zero ends it.
        rest: Duration,
    },
    /// Hand everything over and go, if somebody else is there to take it.
    Drain,
    /// Stop, give everything back and go.
    Leave,
}

/// Outcome of the work on a duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// It was asked to, or cancelled.
    Asked,
    /// By itself: it was done.
    Done,
    /// By itself: it failed.
    Failed,
}

/// The answer to a [`super::StoreRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreResponse {
    /// To [`super::StoreRequest::Open`].
    Open(Result<Opened, StoreError>),
    /// To [`super::StoreRequest::KeepAlive`].
    KeepAlive(Result<KeptAlive, StoreError>),
    /// To [`super::StoreRequest::Claim`].
    Claim(Result<Vec<Claimed>, StoreError>),
    /// To [`super::StoreRequest::Release`].
    Release(Result<Vec<Released>, StoreError>),
    /// To [`super::StoreRequest::Close`].
    Close(Result<Closed, StoreError>),
    /// To [`super::StoreRequest::Look`].
    Look(Result<GroupView, StoreError>),
    /// To [`super::StoreRequest::Settle`].
    Settle(Result<Replaced, StoreError>),
}

/// Snapshot of a group as the store returned it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupView {
    /// Its members, by instance id.
    pub members: Vec<Member>,
    /// Its duties, by id; `None` when they were not asked for.
    pub holders: Option<Vec<Holder>>,
    /// Its document.
    pub document: GroupDocument,
}
