//! Dead letters.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use uuid::Uuid;

use super::super::{DeadLetter, DeadQuery, Decision, Fence, KeptLetter, Posted, Resolve, Resolved};
use super::commit::uuid;
use super::fence::{Closed, Gates};
use super::{all, clock, count_of, execute, first, token};

const COLUMNS: &str = "id, digest, source_channel, source_provider, source_endpoint_identity,
    external_event_id, error_class, reason, attempts, envelope, posted_at, duty,
    authenticated_token_id, state, resolved_at, resolved_by, resolution, request_id";

pub(super) fn post(
    db: &Connection,
    letter: &DeadLetter,
    fence: Option<&Fence>,
    token_id: Option<&str>,
    now: i64,
) -> rusqlite::Result<Posted> {
    if let Some(ended) = token::ended(db, token_id, now)? {
        return Ok(Posted::TokenEnded(ended));
    }
    let gates = Gates::raise(db, fence.into_iter().map(|fence| (token_id, fence)), now)?;
    match gates.closed(token_id, fence) {
        Some(Closed::Fenced(newest)) => return Ok(Posted::Fenced(newest)),
        Some(Closed::Bad(bad)) => return Ok(Posted::BadFence(bad)),
        None => {}
    }
    let sql = "INSERT INTO dead_letter (id, digest, posted_at, source_channel, source_provider,
            source_endpoint_identity, external_event_id, error_class, reason, attempts, duty,
            authenticated_token_id, envelope)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
        ON CONFLICT (digest) DO NOTHING";
    let row = (
        letter.id.as_bytes(),
        letter.digest,
        now,
        &letter.channel,
        &letter.provider,
        &letter.endpoint_identity,
        &letter.external_event_id,
        &letter.error_class,
        &letter.reason,
        letter.attempts,
        fence.map(|fence| fence.duty.to_string()),
        token_id,
        &letter.envelope,
    );
    if execute(db, sql, row)? == 1 {
        return Ok(Posted::Kept { id: letter.id, duplicate: false });
    }
    let mut kept = db.prepare_cached("SELECT id FROM dead_letter WHERE digest = ?1")?;
    let id = kept.query_row([letter.digest], |row| uuid(row, 0))?;
    Ok(Posted::Kept { id, duplicate: true })
}

fn read(row: &Row<'_>) -> rusqlite::Result<KeptLetter> {
    let letter = DeadLetter {
        id: uuid(row, 0)?,
        digest: row.get(1)?,
        channel: row.get(2)?,
        provider: row.get(3)?,
        endpoint_identity: row.get(4)?,
        external_event_id: row.get(5)?,
        error_class: row.get(6)?,
        reason: row.get(7)?,
        attempts: row.get(8)?,
        envelope: row.get(9)?,
    };
    Ok(KeptLetter {
        letter,
        posted_at: row.get(10)?,
        duty: row.get(11)?,
        token_id: row.get(12)?,
        state: row.get(13)?,
        resolved_at: row.get(14)?,
        resolved_by: row.get(15)?,
        resolution: row.get(16)?,
        request_id: row.get::<_, Option<[u8; 16]>>(17)?.map(Uuid::from_bytes),
    })
}

pub(super) fn list(db: &Connection, query: &DeadQuery) -> rusqlite::Result<Vec<KeptLetter>> {
    let after = query.after.map_or(Vec::new(), |id| id.as_bytes().to_vec());
    let mut parameters = vec![Value::from(after), Value::from(count_of(query.limit))];
    let mut sql = format!("SELECT {COLUMNS} FROM dead_letter WHERE id > ?1");
    let filters = [
        ("state", &query.state),
        ("source_channel", &query.channel),
        ("source_provider", &query.provider),
        ("source_endpoint_identity", &query.endpoint_identity),
    ];
    for (column, wanted) in filters {
        if let Some(wanted) = wanted {
            parameters.push(Value::from(wanted.clone()));
            sql.push_str(&format!(" AND {column} = ?{}", parameters.len()));
        }
    }
    sql.push_str(" ORDER BY id LIMIT ?2");
    all(db, &sql, params_from_iter(parameters), read)
}

pub(super) fn find(db: &Connection, id: Uuid) -> rusqlite::Result<Option<KeptLetter>> {
    let sql = format!("SELECT {COLUMNS} FROM dead_letter WHERE id = ?1");
    first(db, &sql, [id.as_bytes()], read)
}

pub(super) fn resolve(db: &Connection, resolve: &Resolve, now: i64) -> rusqlite::Result<Resolved> {
    let now = clock::stamp(db, now)?;
    let sql = "UPDATE dead_letter SET state = ?2, resolved_at = ?3, resolved_by = ?4,
            resolution = ?5, request_id = ?6
        WHERE id = ?1 AND state = 'pending'";
    let request_id = resolve.request_id.map(Uuid::into_bytes);
    let id = resolve.id.as_bytes();
    let Decision { by, reason, .. } = &resolve.decision;
    let row = (id, resolve.state, now, by, reason, request_id);
    if execute(db, sql, row)? == 1 {
        return Ok(Resolved::Done);
    }
    let is_there = first(db, "SELECT 1 FROM dead_letter WHERE id = ?1", [id], |_| Ok(()))?;
    Ok(if is_there.is_some() { Resolved::Before } else { Resolved::Nothing })
}

pub(super) fn pending(db: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM dead_letter WHERE state = 'pending'";
    let pending: i64 = db.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(pending.unsigned_abs())
}
