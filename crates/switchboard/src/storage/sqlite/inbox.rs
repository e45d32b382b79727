//! The inbox.

use async_trait::async_trait;
use rusqlite::{Connection, Row};
use serde_json::json;
use tenure_wire::ingest::InboxCursor;
use uuid::Uuid;

use super::super::inbox::{CursorPlace, jump};
use super::super::row::{DatabaseRow as _, FromRow as _, RowReader, from_row};
use super::super::{
    Inbox, InboxMessage, InboxPage, InboxQuery, InboxRead, MessageLookup, Submission,
    SubmissionOutcome,
};
use super::row::{execute, first, one};
use super::{SqliteStorage, commit, sql, token, wal};
use crate::error::StorageResult;

/// Maximum number of rows read for a page.
const MAX_PAGE_ROWS: usize = 10_000;
/// A page ends when its envelopes have more bytes than this.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// Bounds of the inbox.
pub(super) struct InboxBounds {
    pub(super) last: i64,
    pub(super) floor: i64,
    trimmed: i64,
    last_id: Option<Uuid>,
    trimmed_id: Option<Uuid>,
}

from_row! { InboxBounds, |row| last, floor, trimmed, last_id, trimmed_id }

#[async_trait]
impl Inbox for SqliteStorage {
    async fn commit(&self, group: &[Submission]) -> StorageResult<Vec<SubmissionOutcome>> {
        let group = group.to_vec();
        let settled = self.write(move |db, now| commit::commit(db, &group, now)).await?;
        self.wal.note(wal::added(&settled)).await;
        Ok(settled)
    }

    async fn inbox(&self, query: &InboxQuery) -> StorageResult<InboxRead> {
        let query = query.clone();
        self.read(move |db, _| page(db, &query)).await
    }

    async fn message(&self, request_id: Uuid) -> StorageResult<MessageLookup> {
        let job = move |db: &Connection, _| {
            let id = request_id.as_bytes();
            if let Some(message) = first(db, sql!("inbox/show"), [id])? {
                return Ok(MessageLookup::Message(Box::new(message)));
            }
            let trimmed = first(db, sql!("dedupe/first_seen"), [id])?;
            Ok(trimmed.map_or(MessageLookup::Nothing, |first_seen_at| MessageLookup::Trimmed {
                first_seen_at,
            }))
        };
        self.read(job).await
    }

    async fn last_position(&self) -> StorageResult<i64> {
        self.read(|db, _| Ok(bounds(db)?.last)).await
    }

    async fn adopt(&self, by: &str) -> StorageResult<i64> {
        let by = by.to_owned();
        let job = move |db: &Connection, now| {
            let InboxBounds { last, floor, .. } = bounds(db)?;
            let floor = jump(last.max(floor), now);
            execute(db, sql!("inbox/move_floor"), [floor])?;
            let metadata = json!({ "last": last, "floor": floor });
            let entry = ("inbox", "inbox_adopt", by.as_str(), "the store was adopted", metadata);
            token::record(db, entry, now)?;
            Ok(floor)
        };
        self.write(job).await
    }
}

pub(super) fn bounds(db: &Connection) -> rusqlite::Result<InboxBounds> {
    one(db, sql!("inbox/bounds"), [])
}

/// Returns the id of the message at a position, even of a deleted one at either end.
fn at(db: &Connection, bounds: &InboxBounds, position: i64) -> rusqlite::Result<Option<Uuid>> {
    Ok(match first(db, sql!("inbox/find_position"), [position])? {
        Some(id) => Some(id),
        None if position == bounds.last => bounds.last_id,
        None if position == bounds.trimmed => bounds.trimmed_id,
        None => None,
    })
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
        statement = db.prepare_cached(sql!("inbox/read_endpoint"))?;
        rows = statement.query((query.after.position, endpoint))?;
    } else {
        statement = db.prepare_cached(sql!("inbox/read"))?;
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

/// Returns whether a row matches. Does not read the envelope, which may be long.
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
