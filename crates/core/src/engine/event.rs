//! Events: input of the engine.

use std::time::Duration;

use crate::store::{
    Claimed, Closed, GroupDocument, Holder, KeptAlive, Member, Opened, Released, Replaced,
};
use crate::{DutyId, Epoch, Listing, StoreError};

/// Number of a request, to match its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// An input of the engine.
#[derive(Clone, Debug)]
pub enum EngineEvent {
    /// The instant of [`super::Engine::wake_at`] has been reached.
    Tick,
    /// The store hints that the group has changed.
    Hint,
    /// A request was answered or timed out ([`crate::Code::Lost`], unknown).
    Answered(Ticket, StoreResponse),
    /// A new list of duties.
    Listed(Listing),
    /// The list of duties could not be read.
    Unlisted(StoreError),
    /// The work on a duty has ended completely.
    Stopped {
        /// The duty.
        duty: DutyId,
        /// The epoch under which it ran.
        epoch: Epoch,
        /// Outcome of the work.
        how: WorkOutcome,
    },
    /// The work on a duty made progress.
    Progress {
        /// The duty.
        duty: DutyId,
        /// The epoch under which it runs.
        epoch: Epoch,
    },
    /// A resource has seen an epoch newer than the hold's, while the store still confirms the hold:
    /// the store has lost data.
    Fenced {
        /// The duty.
        duty: DutyId,
        /// The epoch that was refused.
        epoch: Epoch,
        /// The newest epoch that the resource knows.
        newest: Epoch,
    },
    /// The driver suspects that a hold was lost: verify it with the store now.
    Doubted,
    /// The work on every duty fails here: for this long, leave duties to members whose work does
    /// not fail.
    Failing {
        /// Duration; zero ends it.
        rest: Duration,
    },
    /// Hand everything over and leave, if another member can take it.
    Drain,
    /// Stop, release everything and leave.
    Leave,
}

/// Outcome of the work on a duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// It was asked to end, or cancelled.
    Asked,
    /// It completed without being asked to end.
    Done,
    /// It failed without being asked to end.
    Failed,
}

/// Response to a [`super::StoreRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreResponse {
    /// Response to [`super::StoreRequest::Open`].
    Open(Result<Opened, StoreError>),
    /// Response to [`super::StoreRequest::KeepAlive`].
    KeepAlive(Result<KeptAlive, StoreError>),
    /// Response to [`super::StoreRequest::Claim`].
    Claim(Result<Vec<Claimed>, StoreError>),
    /// Response to [`super::StoreRequest::Release`].
    Release(Result<Vec<Released>, StoreError>),
    /// Response to [`super::StoreRequest::Close`].
    Close(Result<Closed, StoreError>),
    /// Response to [`super::StoreRequest::Look`].
    Look(Result<GroupView, StoreError>),
    /// Response to [`super::StoreRequest::Settle`].
    Settle(Result<Replaced, StoreError>),
}

/// Snapshot of a group as the store returned it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupView {
    /// Its members, by instance id.
    pub members: Vec<Member>,
    /// Its duties, by id; `None` when they were not requested.
    pub holders: Option<Vec<Holder>>,
    /// Its document.
    pub document: GroupDocument,
}
