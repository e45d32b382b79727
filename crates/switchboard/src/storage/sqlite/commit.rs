//! Submissions: tokens, fences, keys and the inbox, in one transaction.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row};
use tenure_wire::ingest::Event;
use uuid::Uuid;

use super::super::{Ended, Outcome, Settled, Submission};
use super::fence::{Closed, Gates};
use super::{clock, execute, first, inbox, token};

/// What was observed less than this before is the same, if its content is.
const HOUR: i64 = 3_600_000_000;

pub(super) fn commit(
    db: &Connection,
    group: &[Submission],
    now: i64,
) -> rusqlite::Result<Vec<Settled>> {
    let ended = ended(db, group.iter().filter_map(|sent| sent.token_id.as_deref()), now)?;
    let ended = |sent: &Submission| {
        sent.token_id.as_deref().and_then(|token_id| ended.get(token_id).copied().flatten())
    };
    let counted = group.iter().filter(|sent| ended(sent).is_none());
    let fences = counted.filter_map(|sent| Some((sent.token_id.as_deref(), sent.fence.as_ref()?)));
    let gates = Gates::raise(db, fences, now)?;
    let stamp = clock::stamp(db, now)?;
    let bounds = inbox::bounds(db)?;
    let first = bounds.last.max(bounds.floor);
    let mut last = first;
    let mut settled = Vec::with_capacity(group.len());
    for sent in group {
        settled.push(if let Some(ended) = ended(sent) {
            Settled::TokenEnded(ended)
        } else if let Some(closed) = gates.closed(sent.token_id.as_deref(), sent.fence.as_ref()) {
            match closed {
                Closed::Fenced(newest) => Settled::Fenced(newest),
                Closed::Bad(bad) => Settled::BadFence(bad),
            }
        } else {
            Settled::Stored(store(db, sent, &mut last, stamp)?)
        });
    }
    if last > first {
        let sql = "UPDATE inbox_position SET last = ?1,
            last_id = (SELECT request_id FROM message_inbox WHERE position = ?1)";
        execute(db, sql, [last])?;
    }
    Ok(settled)
}

/// The state of every token that is named.
pub(super) fn ended<'a>(
    db: &Connection,
    token_ids: impl Iterator<Item = &'a str>,
    now: i64,
) -> rusqlite::Result<BTreeMap<&'a str, Option<Ended>>> {
    let mut states = BTreeMap::new();
    for token_id in token_ids {
        if !states.contains_key(token_id) {
            states.insert(token_id, token::ended(db, Some(token_id), now)?);
        }
    }
    Ok(states)
}

fn store(
    db: &Connection,
    sent: &Submission,
    last: &mut i64,
    now: i64,
) -> rusqlite::Result<Vec<Outcome>> {
    let mut outcomes = Vec::with_capacity(sent.items.len());
    for item in &sent.items {
        let outcome = key(db, item.request_id, &item.event, now)?;
        if !outcome.duplicate {
            *last += 1;
            let place = inbox::Place {
                position: *last,
                request_id: item.request_id,
                received_at: now,
                token_id: sent.token_id.as_deref(),
            };
            inbox::add(db, &place, &item.event)?;
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Whether an event is new. It is the same as one under its key, and as one that was observed less
/// than an hour before under the key of the previous hour; of two such, the one that came first.
fn key(db: &Connection, request_id: Uuid, event: &Event, now: i64) -> rusqlite::Result<Outcome> {
    let mut known = event.dedupe.digest;
    if let Some(previous) = event.dedupe.previous_hour {
        let sql = "SELECT dedupe_digest FROM ingest_dedupe
            WHERE dedupe_digest = ?1 OR (dedupe_digest = ?2 AND observed_at > ?3)
            ORDER BY first_seen_at, request_id LIMIT 1";
        let from = event.observed_at_micros.saturating_sub(HOUR);
        let found = first(db, sql, (known, previous, from), |row| row.get(0))?;
        known = found.unwrap_or(known);
    }
    let add = "INSERT INTO ingest_dedupe
        (dedupe_digest, request_id, payload_digest, observed_at, first_seen_at, last_seen_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT (dedupe_digest) DO NOTHING";
    let observed = event.observed_at_micros;
    let row = (known, request_id.as_bytes(), event.payload_digest, observed, now);
    if execute(db, add, row)? == 1 {
        return Ok(Outcome { request_id, duplicate: false, reused: false });
    }
    let again = "UPDATE ingest_dedupe SET seen = seen + 1, last_seen_at = max(last_seen_at, ?3),
            reused = reused + (payload_digest <> ?2)
        WHERE dedupe_digest = ?1 RETURNING request_id, payload_digest <> ?2";
    let mut again = db.prepare_cached(again)?;
    again.query_row((known, event.payload_digest, now), |row| {
        Ok(Outcome { request_id: uuid(row, 0)?, duplicate: true, reused: row.get(1)? })
    })
}

/// An id that is kept as its 16 bytes.
pub(super) fn uuid(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    row.get(column).map(Uuid::from_bytes)
}
