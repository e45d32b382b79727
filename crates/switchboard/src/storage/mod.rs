//! Storage of the switchboard: its contract, and the databases that implement it.
//!
//! Why: docs/decisions/0032-envelopes-are-stored-as-text.md

mod channel;
mod dead_letter;
mod fence;
mod inbox;
pub mod postgres;
mod registry;
mod replica;
mod row;
pub mod sqlite;
mod token;

use std::sync::Arc;

use crate::error::StorageResult;
use async_trait::async_trait;
use row::from_row;
use tenure_core::{BoxFuture, DutyKey, Epoch, InstanceId};
use tenure_store::sql::{Database, Migration};
use tenure_store::{IfAbsent, StoreUrl};
pub use tenure_wire::ingest::InboxQuery;
use tenure_wire::ingest::IngestEvent;
use uuid::Uuid;

pub use channel::ChannelList;
pub use dead_letter::{
    DeadLetter, DeadLetters, LetterQuery, LetterResolution, PostOutcome, ResolveOutcome,
    StoredLetter,
};
pub use fence::{BadFence, Fences, KnownFence, MAX_FENCES_PER_SOURCE, NewestHold};
pub use inbox::{Diverged, Inbox, InboxMessage, InboxPage, InboxRead, MessageLookup};
pub use registry::*;
pub use replica::{REPLICA_EXPIRY, Replicas};
pub use token::{Admission, Attempt, NewToken, SourceScope, Token, TokenAudit, TokenUsage, Tokens};

/// Opens the storage in a store's database and updates its tables.
pub fn open(url: &StoreUrl, if_absent: IfAbsent) -> BoxFuture<'_, StorageResult<Arc<dyn Storage>>> {
    Box::pin(async move {
        Ok(match url.tables()? {
            Database::Sqlite(path) => {
                Arc::new(sqlite::open(path, if_absent).await?) as Arc<dyn Storage>
            }
            Database::Postgres { url, schema } => {
                Arc::new(postgres::open(&url, &schema, if_absent).await?)
            }
        })
    })
}

/// Returns the statements that create or update its tables, for an administrator.
pub fn script(url: &StoreUrl) -> StorageResult<String> {
    match url.tables()? {
        Database::Sqlite(_) => Ok(sqlite::script()),
        Database::Postgres { schema, .. } => postgres::script(&schema),
    }
}

const fn migration(number: i64, name: &'static str, sql: &'static str) -> Migration {
    Migration { number, name, sql }
}

/// One request: its events belong together only in that its fence and its token are judged once.
#[derive(Clone, Debug)]
pub struct Submission {
    /// May be empty: then it announces an epoch.
    pub items: Vec<SubmittedEvent>,
    /// The hold under which it was sent.
    pub fence: Option<IngestFence>,
    /// The token it was sent with; `None` where the switchboard is open.
    pub token_id: Option<String>,
}

/// An event and the id that it gets if it is new.
#[derive(Clone, Debug)]
pub struct SubmittedEvent {
    /// Version 7.
    pub request_id: Uuid,
    /// Content of the envelope.
    pub event: IngestEvent,
}

/// The hold under which something was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestFence {
    /// The duty.
    pub duty: DutyKey,
    /// Epoch of the hold.
    pub epoch: Epoch,
    /// The holder.
    pub instance: InstanceId,
}

/// Outcome of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmissionOutcome {
    /// In the order of its items.
    Stored(Vec<EventOutcome>),
    /// Nothing was stored.
    Rejected(SubmissionRejection),
}

/// Reason why nothing of a submission, or a dead letter, was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmissionRejection {
    /// A newer hold was seen, or the same epoch by another instance. `None` where that hold was
    /// seen outside the token's source, which the token must not learn of.
    Fenced(Option<NewestHold>),
    /// Its fence cannot be stored.
    BadFence(BadFence),
    /// The token was revoked or expired after the request was authenticated.
    TokenEnded(TokenEnd),
}

/// Outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOutcome {
    /// Its own, or that of the first one under the same key.
    pub request_id: Uuid,
    /// Whether the key was seen before.
    pub duplicate: bool,
    /// Whether it was seen with another payload.
    pub reused: bool,
}

/// Reason why a token is no longer valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenEnd {
    /// It was revoked.
    Revoked,
    /// It has expired.
    Expired,
    /// No token has that id.
    Gone,
}

/// Author and reason of a change, for the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The id of a token, or the name of an operator.
    pub by: String,
    /// The reason.
    pub reason: String,
    /// Id of the token that was used.
    pub token_id: Option<String>,
}

/// Result of a change that needs a valid token. If the token has ended, nothing was changed.
pub type Permitted<T> = StorageResult<Result<T, TokenEnd>>;

/// Retention of the inbox, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxRetention {
    /// Messages of the inbox, and dead letters that ended.
    pub bodies: i64,
    /// Dedupe keys, since they were seen last. Not less than bodies.
    pub keys: i64,
}

/// Rows that retention deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Messages of the inbox.
    pub messages: u64,
    /// Dedupe keys.
    pub keys: u64,
    /// Dead letters that had ended.
    pub letters: u64,
    /// Addresses whose window was over.
    pub addresses: u64,
    /// Whether there may be more: a step deletes a bounded number of rows.
    pub more: bool,
}

/// Time that a replica has measured since its last [`Storage::tick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockMeasurement {
    /// From its answer.
    pub turn: i64,
    /// From its answer.
    pub wall: i64,
    /// Time since that answer, in microseconds of a monotonic clock.
    pub elapsed: i64,
}

/// A reading of the clock of retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Number of times that it was moved.
    pub turn: i64,
    /// The store's own clock, in Unix microseconds.
    pub wall: i64,
    /// The clock of retention, in Unix microseconds.
    pub reached: i64,
}

from_row! { ClockReading, |row| turn, wall, reached }

/// The storage of a switchboard: SQLite or PostgreSQL.
///
/// # Contract
/// 1. [`Inbox::commit`] is one transaction for all submissions: when it answers, everything it
///    says was stored is durable; when it fails with `Refused`, nothing was stored.
/// 2. A key is stored once. Whoever comes second, in the same group, another one, or on another
///    replica, gets the first one's id, and the payload is compared with the first one's.
/// 3. A submission whose fence is older than the newest seen of its duty, or has the same epoch and
///    another instance, is `Fenced` and stores nothing (R11). Of one group the newest counts
///    first. A fence that passes is remembered, also without items. It is the fence of the token's
///    source alone; one without a token holds for every source.
/// 4. Whatever comes with a token that has ended changes nothing; the fence of a submission is not
///    remembered. Once [`Tokens::revoke_token`] has answered, nothing more is changed with it.
/// 5. Positions are given in the order of commits; within a submission in the order of its items.
///    Each is one more than the one before, unless a new incarnation has begun. Nothing ever
///    becomes visible before something that was there.
/// 6. Expiry and windows are by the store's clock; what is stored has its time, or that of the
///    clock of retention if that is later.
/// 7. One commit comes after another, over all replicas, and locks are taken in one order (keys in
///    that of their digests, where there are locks on rows): no deadlock.
/// 8. Retention deletes by a clock of its own, which is stored: it follows the store's clock, never
///    goes back, and moves at most twice as far as replicas have measured since it was moved, over
///    all replicas ([`Storage::tick`]). A replica that does not know the last turn learns it, and
///    moves nothing.
/// 9. When two readings of the store's clock agree with the time between them, beats that were
///    stored with a later time count as heard then: a clock that was ahead keeps nobody alive.
/// 10. A cursor with another tag than that of the message at its position, or beyond the end, is
///     `Diverged`: it was given by an inbox that has since lost messages. [`Inbox::adopt`], and
///     on PostgreSQL a commit that finds another timeline or system than the one before, start a
///     new incarnation: positions go on above every position that a reader can have seen.
#[async_trait]
pub trait Storage:
    Inbox + Fences + DeadLetters + Tokens + Registry + Replicas + ChannelList
{
    /// Moves the clock of retention and reads it.
    async fn tick(
        &self,
        since: Option<ClockMeasurement>,
        when: TimeSource,
    ) -> StorageResult<ClockReading>;
    /// Deletes what is past its retention, a bounded number of rows at a time.
    async fn prune(&self, keep: InboxRetention) -> StorageResult<PruneReport>;
    /// Whether the store answers and takes writes.
    async fn ping(&self) -> StorageResult<()>;
}
