//! Inbox: messages, and the check of a reader's cursor.
//!
//! Why: docs/decisions/0031-inbox-cursor-names-its-message.md

use async_trait::async_trait;
use tenure_core::Mutant;
use tenure_duty::process;
use tenure_wire::ingest::{InboxCursor, InboxQuery, Tag};
use uuid::Uuid;

use super::row::from_row;
use super::{Submission, SubmissionOutcome};
use crate::error::StorageResult;

/// A new incarnation begins at a full second of Unix time in microseconds, and at least this far
/// above the known positions. No inbox takes a million messages a second, so no reader has seen a
/// higher position. Repeated in the PostgreSQL statements.
const JUMP: i64 = 1_000_000;
/// A clock beyond the year 2112 is wrong: positions stay far below 2^53.
const LATEST: i64 = 1 << 52;

/// Returns the position above which a new incarnation continues.
pub(super) fn jump(known: i64, now: i64) -> i64 {
    let now = now.clamp(0, LATEST);
    (now - now % JUMP + JUMP).max(known + JUMP)
}

/// A message of the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxMessage {
    /// Position in the inbox, in commit order.
    pub position: i64,
    /// Request id.
    pub request_id: Uuid,
    /// Time of receipt by the store's clock, in Unix microseconds.
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

/// A page of the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxPage {
    /// In the order of positions.
    pub messages: Vec<InboxMessage>,
    /// Cursor for the next page: everything up to it was read. It names a message, even one that
    /// retention deleted, so that the next read can be checked.
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
        /// Time at which its key was first seen, in Unix microseconds.
        first_seen_at: i64,
    },
    /// No message has this id, or its key is past its retention, too.
    Nothing,
}

/// Result of reading the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxRead {
    /// A page.
    Page(InboxPage),
    /// The cursor is not from this inbox.
    Diverged(Diverged),
}

/// State of an inbox that a cursor does not belong to.
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
    /// Position above which the newest incarnation continues.
    pub(crate) floor: i64,
    /// Retention may have deleted messages up to this position.
    pub(crate) trimmed: i64,
    /// The message at the cursor's position.
    pub(crate) at: Option<Uuid>,
}

impl CursorPlace {
    /// Checks that a cursor comes from this inbox.
    ///
    /// A message that retention has deleted cannot be compared, but `trimmed` tells the reader of
    /// the gap. A bare position above `last` and up to `floor` belongs to a lost message and is
    /// valid, because everything new is above it.
    pub(crate) fn check(self, cursor: InboxCursor) -> Result<(), Diverged> {
        let Self { last, floor, trimmed, at } = self;
        let agrees = |tag: Tag| {
            let is_it = |id| Tag::of(id) == tag;
            at.map_or(cursor.position <= trimmed, is_it) || Mutant::S10Tag.is_on()
        };
        let is_within = cursor.position <= last.max(floor);
        let is_ours = cursor.position == 0 || (is_within && cursor.tag.is_none_or(agrees));
        is_ours.then_some(()).ok_or(Diverged { last, trimmed })
    }
}

/// Storage of messages.
#[async_trait]
pub trait Inbox: Sync {
    /// Stores new events in one transaction and returns an outcome for each submission.
    async fn commit(&self, group: &[Submission]) -> StorageResult<Vec<SubmissionOutcome>>;

    /// Returns a page. It reads a bounded number of rows, so a page before the end may be empty.
    async fn inbox(&self, query: &InboxQuery) -> StorageResult<InboxRead>;
    /// Looks up a message.
    async fn message(&self, request_id: Uuid) -> StorageResult<MessageLookup>;
    /// Returns the newest position; cheap enough for polling.
    async fn last_position(&self) -> StorageResult<i64>;
    /// Takes the inbox over after a restore, records it, and returns the floor of new positions.
    async fn adopt(&self, by: &str) -> StorageResult<i64>;
    /// Estimates the result of [`Inbox::adopt`] from the clock of this host, ignoring the gaps that
    /// earlier adoptions left.
    async fn foresee_adopt(&self) -> StorageResult<i64> {
        let now = i64::try_from(process::unix_micros()).unwrap_or(i64::MAX);
        Ok(jump(self.last_position().await?, now))
    }
}

from_row! { InboxMessage, |row|
    position, request_id, received_at, channel, provider, endpoint_identity, sender_identity,
    thread_identity, dedupe_key, token_id, lifecycle_state, envelope,
}
