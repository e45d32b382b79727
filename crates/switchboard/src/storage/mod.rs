//! Storage of the switchboard: its contract, and the databases that implement it.
//!
//! Why: docs/decisions/0032-envelopes-are-stored-as-text.md

mod channel;
mod dead_letter;
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
use row::{DatabaseRow, FromRow, RowReader};
use tenure_core::{BoxFuture, DutyKey, Epoch, InstanceId};
use tenure_duty::process;
use tenure_store::sql::Database;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_wire::ingest::IngestEvent;
use uuid::Uuid;

pub use channel::ChannelList;
pub use dead_letter::{
    DeadLetter, LetterQuery, LetterResolution, PostOutcome, ResolveOutcome, StoredLetter,
};
pub use inbox::{Diverged, InboxMessage, InboxPage, InboxQuery, InboxRead, MessageLookup};
pub use registry::*;
pub use replica::{REPLICA_EXPIRY, Replicas};
pub use token::{Admission, Attempt, NewToken, SourceScope, Token, TokenAudit, TokenUsage};

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
    /// A newer hold was seen, or the same epoch by another instance: nothing was stored. `None`
    /// where that hold was seen outside the token's source, which the token must not learn of.
    Fenced(Option<NewestHold>),
    /// Its fence cannot be stored: nothing was stored.
    BadFence(BadFence),
    /// The token was revoked or has expired since it was looked at: nothing was stored.
    TokenEnded(TokenEnd),
}

/// Why a submission or a dead letter is not stored.
#[derive(Clone, Debug)]
pub(crate) enum SubmissionRejection {
    Fenced(Option<NewestHold>),
    BadFence(BadFence),
    TokenEnded(TokenEnd),
}

impl From<SubmissionRejection> for SubmissionOutcome {
    fn from(rejection: SubmissionRejection) -> Self {
        match rejection {
            SubmissionRejection::Fenced(newest) => Self::Fenced(newest),
            SubmissionRejection::BadFence(bad) => Self::BadFence(bad),
            SubmissionRejection::TokenEnded(ended) => Self::TokenEnded(ended),
        }
    }
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

/// Reason why a fence cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFence {
    /// The epoch is more than a day above the Unix microseconds of the store: no store grants it.
    EpochAhead,
    /// The source has [`MAX_FENCES_PER_SOURCE`] already.
    TooMany,
}

/// Maximum number of fences of a source. The statements for PostgreSQL say the same.
pub const MAX_FENCES_PER_SOURCE: i64 = 10_000;

/// A fence and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFence {
    /// The source that it applies to; `None` for every source.
    pub source: Option<SourceScope>,
    /// The newest hold.
    pub newest: NewestHold,
}

impl FromRow for KnownFence {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        let (duty, source) = (row.get()?, SourceScope::from_row(row)?);
        let newest =
            NewestHold { duty, epoch: row.epoch()?, instance: row.get()?, updated_at: row.time()? };
        Ok(Self { source: (!source.channel.is_empty()).then_some(source), newest })
    }
}

impl KnownFence {
    /// Its place in the list. Neither duties, as they are printed, nor channels and providers have
    /// spaces.
    pub fn cursor(&self) -> String {
        let duty = &self.newest.duty;
        match &self.source {
            None => duty.clone(),
            Some(SourceScope { channel, provider, endpoint_identity }) => {
                format!("{duty} {channel} {provider} {endpoint_identity}")
            }
        }
    }
}

/// Duty, channel, provider and endpoint of a [`KnownFence::cursor`].
fn parse_fence_cursor(cursor: &str) -> [&str; 4] {
    let mut parts = cursor.splitn(4, ' ');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// The newest hold of a duty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestHold {
    /// The duty as it is printed.
    pub duty: String,
    /// The newest epoch that was seen.
    pub epoch: Epoch,
    /// The holder.
    pub instance: String,
    /// Time when it was first seen, in Unix microseconds.
    pub updated_at: i64,
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

/// The storage of a switchboard: SQLite or PostgreSQL.
///
/// # Contract
/// 1. [`Storage::commit`] is one transaction for all submissions: when it answers, everything it
///    says was stored is durable; when it fails with `Refused`, nothing was stored.
/// 2. A key is stored once. Whoever comes second, in the same group, another one, or on another
///    replica, gets the first one's id, and the payload is compared with the first one's.
/// 3. A submission whose fence is older than the newest seen of its duty, or has the same epoch and
///    another instance, is `Fenced` and stores nothing (R11). Of one group the newest counts
///    first. A fence that passes is remembered, also without items. It is the fence of the token's
///    source alone; one without a token holds for every source.
/// 4. Whatever comes with a token that has ended changes nothing; the fence of a submission is not
///    remembered. Once [`Storage::revoke_token`] has answered, nothing more is changed with it.
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
///     `Diverged`: it was given by an inbox that has since lost messages. [`Storage::adopt`], and
///     on PostgreSQL a commit that finds another timeline or system than the one before, start a
///     new incarnation: positions go on above every position that a reader can have seen.
#[async_trait]
pub trait Storage: Registry + Replicas + ChannelList {
    /// Stores what is new, in one transaction; an answer for each submission.
    async fn commit(&self, group: &[Submission]) -> StorageResult<Vec<SubmissionOutcome>>;

    /// A page of the inbox. It looks at a bounded number of rows: it may be empty before the end.
    async fn inbox(&self, query: &InboxQuery) -> StorageResult<InboxRead>;
    /// One message.
    async fn message(&self, request_id: Uuid) -> StorageResult<MessageLookup>;
    /// The newest position; cheap, for those who wait for more.
    async fn last_position(&self) -> StorageResult<i64>;
    /// Takes the inbox over after a restore and notes it: the position above which it goes on.
    async fn adopt(&self, by: &str) -> StorageResult<i64>;
    /// About the position that [`Storage::adopt`] would say now: by the clock of this host, and
    /// without what earlier adoptions left free.
    async fn foresee_adopt(&self) -> StorageResult<i64> {
        let now = i64::try_from(process::unix_micros()).unwrap_or(i64::MAX);
        Ok(inbox::jump(self.last_position().await?, now))
    }

    /// Known fences, sorted by duty, of one source or of all; at most `limit` after the one with
    /// this [`KnownFence::cursor`], or from the start.
    async fn fences(
        &self,
        of: Option<&SourceScope>,
        after: &str,
        limit: usize,
    ) -> StorageResult<Vec<KnownFence>>;
    /// Deletes the fences of a duty, at one source or at all, records it in the audit trail, and
    /// returns them.
    async fn reset_fence(
        &self,
        duty: &str,
        source: Option<&SourceScope>,
        decision: &Decision,
    ) -> Permitted<Vec<KnownFence>>;

    /// Keeps a dead letter, once. Fence and token as for submissions.
    async fn post_letter(
        &self,
        letter: &DeadLetter,
        fence: Option<&IngestFence>,
        token_id: Option<&str>,
    ) -> StorageResult<PostOutcome>;
    /// Dead letters, oldest first.
    async fn letters(&self, query: &LetterQuery) -> StorageResult<Vec<StoredLetter>>;
    /// One of them.
    async fn letter(&self, id: Uuid) -> StorageResult<Option<StoredLetter>>;
    /// Ends one that is pending.
    async fn resolve_letter(&self, resolve: &LetterResolution) -> Permitted<ResolveOutcome>;
    /// Counts the pending ones.
    async fn pending_letters(&self) -> StorageResult<u64>;

    /// Judges an attempt in one atomic statement and counts it if it failed.
    async fn admit(&self, attempt: &Attempt<'_>) -> StorageResult<Admission>;
    /// Whether a token was ever created, even if all have ended.
    async fn has_tokens(&self) -> StorageResult<bool>;
    /// Creates a token. Returns `false` if the token that it replaces does not exist.
    async fn create_token(&self, token: &NewToken) -> StorageResult<bool>;
    /// All tokens, oldest first.
    async fn tokens(&self) -> StorageResult<Vec<Token>>;
    /// Ends a token at once. Returns `None` if there is none of that id, `false` if it had ended.
    async fn revoke_token(
        &self,
        token_id: &str,
        by: &str,
        reason: &str,
    ) -> StorageResult<Option<bool>>;
    /// Adds to the usage of tokens and records the time of their use.
    async fn add_usage(&self, usage: &[TokenUsage]) -> StorageResult<()>;
    /// Usage of a token, or of all, since a day.
    async fn usage(
        &self,
        token_id: Option<&str>,
        since_day: &str,
    ) -> StorageResult<Vec<TokenUsage>>;
    /// The audit trail, newest first, of a token or of all.
    async fn audit(&self, token_id: Option<&str>, limit: usize) -> StorageResult<Vec<TokenAudit>>;

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
