//! Inbox: messages, and the check of a reader's cursor.
//!
//! Why: docs/decisions/0031-inbox-cursor-names-its-message.md

use async_trait::async_trait;
use tenure_duty::process;
use tenure_wire::ingest::{InboxCursor, InboxQuery, Tag};
use uuid::Uuid;

use super::row::from_row;
use super::{Submission, SubmissionOutcome};
use crate::error::StorageResult;

/// A new incarnation begins at a full second of Unix time in microseconds, and at least so far
/// above what is known: no inbox takes a million messages a second, so no reader has seen more.
/// The statements for PostgreSQL say the same.
const JUMP: i64 = 1_000_000;
/// A clock beyond the year 2112 is wrong: positions stay far below 2^53.
const LATEST: i64 = 1 << 52;

/// The position above which a new incarnation goes on.
pub(super) fn jump(known: i64, now: i64) -> i64 {
    let now = now.clamp(0, LATEST);
    (now - now % JUMP + JUMP).max(known + JUMP)
}

/// A message of the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxMessage {
    /// Its place, in the order of commits.
    pub position: i64,
    /// Its id.
    pub request_id: Uuid,
    /// By the store's clock, in Unix microseconds.
    pub received_at: i64,
    /// From the envelope.
    pub channel: String,
    /// From the envelope.
    pub provider: String,
    /// From the envelope.
    pub endpoint_identity: String,
    /// From the envelope.
    pub sender_identity: String,
    /// From the envelope.
    pub thread_identity: Option<String>,
    /// Dedupe key of the event.
    pub dedupe_key: String,
    /// Id of the token that it was submitted with.
    pub token_id: Option<String>,
    /// `accepted`.
    pub lifecycle_state: String,
    /// JSON text.
    pub envelope: String,
}

/// A part of the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxPage {
    /// In the order of positions.
    pub messages: Vec<InboxMessage>,
    /// Cursor of the next page: everything up to here was read. It names a message, or what is
    /// left of one, so that the next page can be checked.
    pub next_after: InboxCursor,
    /// Whether this is the last page.
    pub at_end: bool,
    /// Retention may have deleted messages up to this position.
    pub trimmed: i64,
}

/// Result of a lookup by request id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageLookup {
    /// The message.
    Message(Box<InboxMessage>),
    /// It was accepted; its body is past its retention.
    Trimmed {
        /// When its key was seen first, in Unix microseconds.
        first_seen_at: i64,
    },
    /// No such id, or so old that its key is gone, too.
    Nothing,
}

/// Result of reading the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxRead {
    /// A part of the inbox.
    Page(InboxPage),
    /// Nothing: the cursor is not of this inbox.
    Diverged(Diverged),
}

/// The inbox that a cursor does not belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diverged {
    /// The position of the newest message.
    pub last: i64,
    /// Retention may have deleted messages up to this position.
    pub trimmed: i64,
}

/// State of the inbox at the position of a cursor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CursorPlace {
    /// The position of the newest message.
    pub(crate) last: i64,
    /// The newest incarnation goes on above this.
    pub(crate) floor: i64,
    /// Retention may have deleted messages up to this position.
    pub(crate) trimmed: i64,
    /// The message at the cursor's position.
    pub(crate) at: Option<Uuid>,
}

impl CursorPlace {
    /// Whether a reader that came so far has read this inbox and no other.
    ///
    /// A message that retention has deleted cannot be compared; below `trimmed` the reader learns
    /// anyway that it missed something. A bare position above `last` and up to `floor` is of a
    /// message that was lost: everything new is above it.
    pub(crate) fn check(self, cursor: InboxCursor) -> Result<(), Diverged> {
        let Self { last, floor, trimmed, at } = self;
        let agrees = |tag: Tag| at.map_or(cursor.position <= trimmed, |id| Tag::of(id) == tag);
        let is_within = cursor.position <= last.max(floor);
        let is_ours = cursor.position == 0 || (is_within && cursor.tag.is_none_or(agrees));
        is_ours.then_some(()).ok_or(Diverged { last, trimmed })
    }
}

/// Storage of messages.
#[async_trait]
pub trait Inbox: Sync {
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
    /// About the position that [`Inbox::adopt`] would say now: by the clock of this host, and
    /// without what earlier adoptions left free.
    async fn foresee_adopt(&self) -> StorageResult<i64> {
        let now = i64::try_from(process::unix_micros()).unwrap_or(i64::MAX);
        Ok(jump(self.last_position().await?, now))
    }
}

from_row! { InboxMessage, |row|
    position, request_id, received_at, channel, provider, endpoint_identity, sender_identity,
    thread_identity, dedupe_key, token_id, lifecycle_state, envelope,
}
