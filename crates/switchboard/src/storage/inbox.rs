//! Inbox: queries, messages, and the check of a reader's cursor.
//!
//! Why: docs/decisions/0031-inbox-cursor-names-its-message.md

use tenure_wire::ingest::{InboxCursor, Tag};
use uuid::Uuid;

use super::row::{DatabaseRow, FromRow, RowReader};

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

/// Which part of the inbox to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxQuery {
    /// Only what comes after this; position 0 from the start.
    pub after: InboxCursor,
    /// At most so many.
    pub limit: usize,
    /// Only of this channel, and so on.
    pub channel: Option<String>,
    /// Only of this provider.
    pub provider: Option<String>,
    /// Only of this endpoint.
    pub endpoint_identity: Option<String>,
    /// Only of this sender.
    pub sender_identity: Option<String>,
    /// Only of this thread.
    pub thread_identity: Option<String>,
    /// Only received at or after this, in Unix microseconds.
    pub since: Option<i64>,
    /// Only received before this, in Unix microseconds.
    pub until: Option<i64>,
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

impl FromRow for InboxMessage {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            position: row.get()?,
            request_id: row.get()?,
            received_at: row.time()?,
            channel: row.get()?,
            provider: row.get()?,
            endpoint_identity: row.get()?,
            sender_identity: row.get()?,
            thread_identity: row.maybe()?,
            dedupe_key: row.get()?,
            token_id: row.maybe()?,
            lifecycle_state: row.get()?,
            envelope: row.get()?,
        })
    }
}
