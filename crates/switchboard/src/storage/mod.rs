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

/// Events of one request. Their fence and token are checked once.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Events; without any, the submission only announces an epoch.
    pub items: Vec<SubmittedEvent>,
    /// The hold under which it was sent.
    pub fence: Option<IngestFence>,
    /// Id of its token; `None` if the switchboard is open.
    pub token_id: Option<String>,
}

/// An event and the id that it gets if it is new.
#[derive(Clone, Debug)]
pub struct SubmittedEvent {
    /// UUID of version 7.
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
    /// A newer hold was seen, or the same epoch with another instance. `None` if that hold was seen
    /// outside the token's source and must not be revealed.
    Fenced(Option<NewestHold>),
    /// Its fence cannot be stored.
    BadFence(BadFence),
    /// The token was revoked or expired after the request was authenticated.
    TokenEnded(TokenEnd),
}

/// Outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOutcome {
    /// Its own id, or that of the first event with the same key.
    pub request_id: Uuid,
    /// Whether the key was seen before.
    pub duplicate: bool,
    /// Whether the key was seen with another payload.
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
    /// Dedupe keys, since they were last seen. At least `bodies`.
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
    /// `turn` of its answer.
    pub turn: i64,
    /// `wall` of its answer.
    pub wall: i64,
    /// Time since that answer, in microseconds of a monotonic clock.
    pub elapsed: i64,
}

/// A reading of the clock of retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Number of times that the clock was moved.
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
/// 1. [`Inbox::commit`] is one transaction for all submissions: when it returns, everything that it
///    reports as stored is durable; when it fails with `Refused`, nothing was stored.
/// 2. A key is stored once. A later event with that key, in the same group, in another one or on
///    another replica, gets the id of the first one, and the two payloads are compared.
/// 3. A submission whose fence is older than the newest seen of its duty, or has the same epoch and
///    another instance, is `Fenced` and stores nothing (R11). Within a group the newest fence of a
///    source is applied first. A fence that passes is stored, even without items. It applies to the
///    source of its token; a fence without a token applies to every source.
/// 4. A request with a token that has ended changes nothing, and its fence is not stored. After
///    [`Tokens::revoke_token`] has returned, the token changes nothing more.
/// 5. Positions are assigned in commit order, within a submission in the order of its items. Each
///    is one more than the previous one, unless a new incarnation has begun. No message becomes
///    visible below one that is already visible.
/// 6. Expiry and windows follow the store's clock; stored times are by that clock, or by the clock
///    of retention if that is later.
/// 7. Commits are serialized over all replicas, and locks are taken in one order (row locks on keys
///    in the order of their digests), so there are no deadlocks.
/// 8. Retention uses a stored clock of its own: it follows the store's clock, never goes back, and
///    moves at most twice as far as a replica has measured since the last move by any replica
///    ([`Storage::tick`]). A replica that does not know the last turn only learns it.
/// 9. When two readings of the store's clock agree with the time measured between them, heartbeats
///    stored with a time after both count as received at the second: a clock that was ahead keeps
///    no connector online.
/// 10. A cursor beyond the end, or whose tag differs from that of the message at its position, is
///     `Diverged`: it comes from an inbox that has since lost messages. [`Inbox::adopt`], and on
///     PostgreSQL a commit that finds another timeline or system than the previous one, start a new
///     incarnation: positions continue above every position that a reader can have seen.
/// 11. Statistics count each heartbeat once, and only under the newest epoch that has counted: a
///     step under an older one changes nothing. A heartbeat whose transaction is still under way is
///     counted by a later step.
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
    /// Deletes data past its retention, a bounded number of rows at a time.
    async fn prune(&self, keep: InboxRetention) -> StorageResult<PruneReport>;
    /// Checks that the store answers and accepts writes.
    async fn ping(&self) -> StorageResult<()>;
}
