//! The inbox.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use tenure_wire::ingest::{Cursor, Event};
use uuid::Uuid;

use super::super::inbox::{Place as Asked, jump};
use super::super::{Found, InboxPage, InboxQuery, InboxRead, Message};
use super::commit::uuid;
use super::{execute, first, token};

/// So many rows are looked at for a page.
const LOOKED: usize = 10_000;
/// A page ends when its envelopes have more bytes than this.
const PAGE_BYTES: usize = 4 << 20;

const COLUMNS: &str = "position, request_id, received_at, source_channel, source_provider,
    source_endpoint_identity, source_sender_identity, source_thread_identity, dedupe_key,
    authenticated_token_id, lifecycle_state, envelope";

/// The ends of the inbox.
pub(super) struct Bounds {
    pub(super) last: i64,
    pub(super) floor: i64,
    trimmed: i64,
    last_id: Option<Uuid>,
    trimmed_id: Option<Uuid>,
}

pub(super) fn bounds(db: &Connection) -> rusqlite::Result<Bounds> {
    let sql = "SELECT last, floor, trimmed, last_id, trimmed_id FROM inbox_position";
    let id = |bytes: Option<[u8; 16]>| bytes.map(Uuid::from_bytes);
    db.prepare_cached(sql)?.query_row([], |row| {
        Ok(Bounds {
            last: row.get(0)?,
            floor: row.get(1)?,
            trimmed: row.get(2)?,
            last_id: id(row.get(3)?),
            trimmed_id: id(row.get(4)?),
        })
    })
}

/// The message at a position, also when its row is gone and it is at one of the ends.
fn at(db: &Connection, bounds: &Bounds, position: i64) -> rusqlite::Result<Option<Uuid>> {
    let sql = "SELECT request_id FROM message_inbox WHERE position = ?1";
    Ok(match first(db, sql, [position], |row| uuid(row, 0))? {
        Some(id) => Some(id),
        None if position == bounds.last => bounds.last_id,
        None if position == bounds.trimmed => bounds.trimmed_id,
        None => None,
    })
}

/// Starts a new incarnation.
pub(super) fn adopt(db: &Connection, by: &str, now: i64) -> rusqlite::Result<i64> {
    let Bounds { last, floor, .. } = bounds(db)?;
    let floor = jump(last.max(floor), now);
    execute(db, "UPDATE inbox_position SET floor = ?1", [floor])?;
    let metadata = serde_json::json!({ "last": last, "floor": floor });
    let reason = "the store was adopted";
    let entry = token::Entry { token_id: "inbox", action: "inbox_adopt", by, reason, metadata };
    token::record(db, &entry, now)?;
    Ok(floor)
}

/// What a message has beside its event.
pub(super) struct Place<'a> {
    pub(super) position: i64,
    pub(super) request_id: Uuid,
    pub(super) received_at: i64,
    pub(super) token_id: Option<&'a str>,
}

pub(super) fn add(db: &Connection, place: &Place<'_>, event: &Event) -> rusqlite::Result<()> {
    let sql = "INSERT INTO message_inbox (position, request_id, received_at, source_channel,
            source_provider, source_endpoint_identity, source_sender_identity,
            source_thread_identity, policy_tier, dedupe_key, authenticated_token_id, envelope)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    let row = (
        place.position,
        place.request_id.as_bytes(),
        place.received_at,
        &event.channel,
        &event.provider,
        &event.endpoint_identity,
        &event.sender_identity,
        &event.thread_identity,
        event.policy_tier,
        &event.dedupe.key,
        place.token_id,
        &event.envelope,
    );
    execute(db, sql, row)?;
    Ok(())
}

pub(super) fn page(db: &Connection, query: &InboxQuery) -> rusqlite::Result<InboxRead> {
    let bounds = bounds(db)?;
    let Bounds { last, floor, trimmed, .. } = bounds;
    let asked = Asked { last, floor, trimmed, at: at(db, &bounds, query.after.position)? };
    if let Err(diverged) = asked.check(query.after) {
        return Ok(InboxRead::Diverged(diverged));
    }
    let mut parameters = vec![Value::from(query.after.position)];
    let mut sql = format!("SELECT {COLUMNS} FROM message_inbox WHERE position > ?1");
    if let Some(endpoint) = &query.endpoint_identity {
        parameters.push(Value::from(endpoint.clone()));
        sql.push_str(" AND source_endpoint_identity = ?2");
    }
    sql.push_str(" ORDER BY position");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(parameters))?;
    let mut page =
        InboxPage { messages: Vec::new(), next_after: query.after, at_end: false, trimmed };
    let (mut looked, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        if page.messages.len() >= query.limit || bytes > PAGE_BYTES || looked >= LOOKED {
            return Ok(InboxRead::Page(page));
        }
        looked += 1;
        page.next_after = Cursor::new(row.get(0)?, Some(uuid(row, 1)?));
        if matches(row, query)? {
            let message = read(row)?;
            bytes += message.envelope.len();
            page.messages.push(message);
        }
    }
    page.next_after = Cursor::new(last, at(db, &bounds, last)?);
    page.at_end = true;
    Ok(InboxRead::Page(page))
}

/// Looks at no more columns than it needs to: the envelope may be long.
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

fn read(row: &Row<'_>) -> rusqlite::Result<Message> {
    Ok(Message {
        position: row.get(0)?,
        request_id: uuid(row, 1)?,
        received_at: row.get(2)?,
        channel: row.get(3)?,
        provider: row.get(4)?,
        endpoint_identity: row.get(5)?,
        sender_identity: row.get(6)?,
        thread_identity: row.get(7)?,
        dedupe_key: row.get(8)?,
        token_id: row.get(9)?,
        lifecycle_state: row.get(10)?,
        envelope: row.get(11)?,
    })
}

pub(super) fn message(db: &Connection, request_id: Uuid) -> rusqlite::Result<Found> {
    let id = request_id.as_bytes();
    let sql = format!("SELECT {COLUMNS} FROM message_inbox WHERE request_id = ?1");
    if let Some(message) = first(db, &sql, [id], read)? {
        return Ok(Found::Message(Box::new(message)));
    }
    let sql = "SELECT first_seen_at FROM ingest_dedupe WHERE request_id = ?1";
    let trimmed = first(db, sql, [id], |row| row.get(0))?;
    Ok(trimmed.map_or(Found::Nothing, |first_seen_at| Found::Trimmed { first_seen_at }))
}
