//! Submissions: tokens, fences, keys and the inbox, in one transaction.

use std::collections::BTreeMap;

use rusqlite::types::Type;
use rusqlite::{Connection, Error, Row};
use tenure_core::Epoch;
use tenure_wire::ingest::Event;
use uuid::Uuid;

use super::super::{Ended, Fence, Outcome, Settled, Standing, Submission};
use super::{all, clock, count_of, execute, first, inbox, token};

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
    let standings = raise(db, counted.filter_map(|sent| sent.fence.as_ref()), now)?;
    let stamp = clock::stamp(db, now)?;
    let bounds = inbox::bounds(db)?;
    let first = bounds.last.max(bounds.floor);
    let mut last = first;
    let mut settled = Vec::with_capacity(group.len());
    for sent in group {
        settled.push(if let Some(ended) = ended(sent) {
            Settled::TokenEnded(ended)
        } else if let Some(standing) = fenced(&standings, sent.fence.as_ref()) {
            Settled::Fenced(standing)
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
            states.insert(token_id, token::ended(db, token_id, now)?);
        }
    }
    Ok(states)
}

/// Remembers the newest hold of every duty that is named, and says which it is. At the same epoch
/// the one that was known stays, or else the first one.
pub(super) fn raise<'a>(
    db: &Connection,
    fences: impl Iterator<Item = &'a Fence>,
    now: i64,
) -> rusqlite::Result<BTreeMap<String, Standing>> {
    let mut newest: BTreeMap<String, (Standing, bool)> = BTreeMap::new();
    for fence in fences {
        let duty = fence.duty.to_string();
        let new = || Standing {
            duty: duty.clone(),
            epoch: fence.epoch,
            instance: fence.instance.as_str().to_owned(),
            updated_at: now,
        };
        if !newest.contains_key(&duty) {
            let known = standing_of(db, &duty)?;
            let is_new = known.is_none();
            newest.insert(duty.clone(), (known.unwrap_or_else(new), is_new));
        }
        match newest.get_mut(&duty) {
            Some(known) if known.0.epoch < fence.epoch => *known = (new(), true),
            _ => {}
        }
    }
    let keep = "INSERT INTO ingest_fence (duty, epoch, instance, updated_at)
        VALUES (?1, ?2, ?3, ?4) ON CONFLICT (duty) DO UPDATE SET
            epoch = excluded.epoch, instance = excluded.instance, updated_at = excluded.updated_at";
    for (it, _) in newest.values().filter(|(_, is_new)| *is_new) {
        execute(db, keep, (&it.duty, it.epoch.as_i64(), &it.instance, it.updated_at))?;
    }
    Ok(newest.into_iter().map(|(duty, (standing, _))| (duty, standing)).collect())
}

/// What stands in the way of a fence.
pub(super) fn fenced(
    standings: &BTreeMap<String, Standing>,
    fence: Option<&Fence>,
) -> Option<Standing> {
    let fence = fence?;
    let standing = standings.get(&fence.duty.to_string())?;
    let stands = (standing.epoch, standing.instance.as_str());
    ((fence.epoch, fence.instance.as_str()) != stands).then(|| standing.clone())
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

fn standing(row: &Row<'_>) -> rusqlite::Result<Standing> {
    let epoch = Epoch::from_i64(row.get(1)?)
        .map_err(|error| Error::FromSqlConversionFailure(1, Type::Integer, error.into()))?;
    Ok(Standing { duty: row.get(0)?, epoch, instance: row.get(2)?, updated_at: row.get(3)? })
}

fn standing_of(db: &Connection, duty: &str) -> rusqlite::Result<Option<Standing>> {
    let sql = "SELECT duty, epoch, instance, updated_at FROM ingest_fence WHERE duty = ?1";
    first(db, sql, [duty], standing)
}

pub(super) fn fences(
    db: &Connection,
    after: &str,
    limit: usize,
) -> rusqlite::Result<Vec<Standing>> {
    let sql = "SELECT duty, epoch, instance, updated_at FROM ingest_fence
        WHERE duty > ?1 ORDER BY duty LIMIT ?2";
    all(db, sql, (after, count_of(limit)), standing)
}

pub(super) fn reset_fence(
    db: &Connection,
    duty: &str,
    by: &str,
    reason: &str,
    now: i64,
) -> rusqlite::Result<Option<Standing>> {
    let Some(was) = standing_of(db, duty)? else { return Ok(None) };
    execute(db, "DELETE FROM ingest_fence WHERE duty = ?1", [duty])?;
    let metadata = serde_json::json!({ "epoch": was.epoch.get(), "instance": was.instance });
    let entry = token::Entry { token_id: duty, action: "fence_reset", by, reason, metadata };
    token::record(db, &entry, now)?;
    Ok(Some(was))
}
