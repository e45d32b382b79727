//! The inbox.

use rusqlite::{Connection, Row};
use tenure_wire::ingest::{InboxCursor, IngestEvent};
use uuid::Uuid;

use super::super::inbox::{CursorPlace, jump};
use super::super::row::{DatabaseRow, FromRow, RowReader};
use super::super::{InboxMessage, InboxPage, InboxQuery, InboxRead, MessageLookup};
use super::row::{execute, first, one};
use super::{statements as sql, token};

/// A page reads at most this many rows.
const MAX_PAGE_ROWS: usize = 10_000;
/// A page ends when its envelopes have more bytes than this.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// The ends of the inbox.
pub(super) struct InboxBounds {
    pub(super) last: i64,
    pub(super) floor: i64,
    trimmed: i64,
    last_id: Option<Uuid>,
    trimmed_id: Option<Uuid>,
}

impl FromRow for InboxBounds {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            last: row.get()?,
            floor: row.get()?,
            trimmed: row.get()?,
            last_id: row.maybe()?,
            trimmed_id: row.maybe()?,
        })
    }
}

pub(super) fn bounds(db: &Connection) -> rusqlite::Result<InboxBounds> {
    one(db, sql::INBOX_BOUNDS, [])
}

/// The message at a position, also when its row is gone and it is at one of the ends.
fn at(db: &Connection, bounds: &InboxBounds, position: i64) -> rusqlite::Result<Option<Uuid>> {
    Ok(match first(db, sql::INBOX_FIND_POSITION, [position])? {
        Some(id) => Some(id),
        None if position == bounds.last => bounds.last_id,
        None if position == bounds.trimmed => bounds.trimmed_id,
        None => None,
    })
}

/// Starts a new incarnation.
pub(super) fn adopt(db: &Connection, by: &str, now: i64) -> rusqlite::Result<i64> {
    let InboxBounds { last, floor, .. } = bounds(db)?;
    let floor = jump(last.max(floor), now);
    execute(db, sql::INBOX_MOVE_FLOOR, [floor])?;
    let metadata = serde_json::json!({ "last": last, "floor": floor });
    let reason = "the store was adopted";
    let (token_id, action) = ("inbox", "inbox_adopt");
    let entry = token::TokenAuditRecord { token_id, action, by, reason, metadata };
    token::record(db, &entry, now)?;
    Ok(floor)
}

/// The columns of a message that its event does not have.
pub(super) struct NewMessage<'a> {
    pub(super) position: i64,
    pub(super) request_id: Uuid,
    pub(super) received_at: i64,
    pub(super) token_id: Option<&'a str>,
}

pub(super) fn add(
    db: &Connection,
    message: &NewMessage<'_>,
    event: &IngestEvent,
) -> rusqlite::Result<()> {
    let row = (
        message.position,
        message.request_id.as_bytes(),
        message.received_at,
        &event.channel,
        &event.provider,
        &event.endpoint_identity,
        &event.sender_identity,
        &event.thread_identity,
        event.policy_tier,
        &event.dedupe.key,
        message.token_id,
        &event.envelope,
    );
    execute(db, sql::INBOX_ADD, row)?;
    Ok(())
}

pub(super) fn page(db: &Connection, query: &InboxQuery) -> rusqlite::Result<InboxRead> {
    let bounds = bounds(db)?;
    let InboxBounds { last, floor, trimmed, .. } = bounds;
    let place = CursorPlace { last, floor, trimmed, at: at(db, &bounds, query.after.position)? };
    if let Err(diverged) = place.check(query.after) {
        return Ok(InboxRead::Diverged(diverged));
    }
    let (mut statement, mut rows);
    if let Some(endpoint) = &query.endpoint_identity {
        statement = db.prepare_cached(sql::INBOX_READ_ENDPOINT)?;
        rows = statement.query((query.after.position, endpoint))?;
    } else {
        statement = db.prepare_cached(sql::INBOX_READ)?;
        rows = statement.query([query.after.position])?;
    }
    let mut page =
        InboxPage { messages: Vec::new(), next_after: query.after, at_end: false, trimmed };
    let (mut looked, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        if page.messages.len() >= query.limit || bytes > MAX_PAGE_BYTES || looked >= MAX_PAGE_ROWS {
            return Ok(InboxRead::Page(page));
        }
        looked += 1;
        page.next_after = InboxCursor::new(row.get(0)?, row.uuid(1)?);
        if matches(row, query)? {
            let message = InboxMessage::from_row(&mut RowReader::from(row, 0))?;
            bytes += message.envelope.len();
            page.messages.push(message);
        }
    }
    page.next_after = InboxCursor::new(last, at(db, &bounds, last)?);
    page.at_end = true;
    Ok(InboxRead::Page(page))
}

/// Reads only the columns that it needs: the envelope may be long.
fn matches(row: &Row<'_>, query: &InboxQuery) -> rusqlite::Result<bool> {
    let texts = [
        (3, &query.channel),
        (4, &query.provider),
        (6, &query.sender_identity),
        (7, &query.thread_identity),
    ];
    for (column, wanted) in texts {
        if let Some(wanted) = wanted
            && row.get_ref(column)?.as_str_or_null()? != Some(wanted.as_str())
        {
            return Ok(false);
        }
    }
    let received_at: i64 = row.get(2)?;
    Ok(query.since.is_none_or(|since| received_at >= since)
        && query.until.is_none_or(|until| received_at < until))
}

pub(super) fn message(db: &Connection, request_id: Uuid) -> rusqlite::Result<MessageLookup> {
    let id = request_id.as_bytes();
    if let Some(message) = first(db, sql::INBOX_SHOW, [id])? {
        return Ok(MessageLookup::Message(Box::new(message)));
    }
    let trimmed = first(db, sql::DEDUPE_FIRST_SEEN, [id])?;
    Ok(trimmed
        .map_or(MessageLookup::Nothing, |first_seen_at| MessageLookup::Trimmed { first_seen_at }))
}
