//! Submissions: tokens, fences, dedupe keys and the inbox, in one transaction.

use std::collections::BTreeMap;

use rusqlite::Connection;
use tenure_wire::ingest::IngestEvent;
use uuid::Uuid;

use super::super::{EventOutcome, Submission, SubmissionOutcome, TokenEnd};
use super::fence::FenceGates;
use super::row::{execute, first, one};
use super::{clock, inbox, statements as sql, token};

/// Two observations of the same content within this time are the same event.
const HOUR: i64 = 3_600_000_000;

pub(super) fn commit(
    db: &Connection,
    group: &[Submission],
    now: i64,
) -> rusqlite::Result<Vec<SubmissionOutcome>> {
    let ended = ended(db, group.iter().filter_map(|sent| sent.token_id.as_deref()), now)?;
    let ended = |sent: &Submission| {
        sent.token_id.as_deref().and_then(|token_id| ended.get(token_id).copied().flatten())
    };
    let counted = group.iter().filter(|sent| ended(sent).is_none());
    let fences = counted.filter_map(|sent| Some((sent.token_id.as_deref(), sent.fence.as_ref()?)));
    let gates = FenceGates::raise(db, fences, now)?;
    let stamp = clock::stamp(db, now)?;
    let bounds = inbox::bounds(db)?;
    let first = bounds.last.max(bounds.floor);
    let mut last = first;
    let mut settled = Vec::with_capacity(group.len());
    for sent in group {
        settled.push(if let Some(ended) = ended(sent) {
            SubmissionOutcome::TokenEnded(ended)
        } else if let Some(closed) = gates.closed(sent.token_id.as_deref(), sent.fence.as_ref()) {
            closed.into()
        } else {
            SubmissionOutcome::Stored(store(db, sent, &mut last, stamp)?)
        });
    }
    if last > first {
        execute(db, sql::INBOX_MOVE_LAST, [last])?;
    }
    Ok(settled)
}

/// Reads the state of every named token.
fn ended<'a>(
    db: &Connection,
    token_ids: impl Iterator<Item = &'a str>,
    now: i64,
) -> rusqlite::Result<BTreeMap<&'a str, Option<TokenEnd>>> {
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
) -> rusqlite::Result<Vec<EventOutcome>> {
    let mut outcomes = Vec::with_capacity(sent.items.len());
    for item in &sent.items {
        let outcome = key(db, item.request_id, &item.event, now)?;
        if !outcome.duplicate {
            *last += 1;
            let message = inbox::NewMessage {
                position: *last,
                request_id: item.request_id,
                received_at: now,
                token_id: sent.token_id.as_deref(),
            };
            inbox::add(db, &message, &item.event)?;
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Stores the dedupe key of an event, unless it is known. An event is the same as one under its
/// key, and as one that was observed less than an hour before under the key of the previous hour;
/// of two such, the one that came first.
fn key(
    db: &Connection,
    request_id: Uuid,
    event: &IngestEvent,
    now: i64,
) -> rusqlite::Result<EventOutcome> {
    let mut known = event.dedupe.digest;
    if let Some(previous) = event.dedupe.previous_hour {
        let from = event.observed_at_micros.saturating_sub(HOUR);
        known = first(db, sql::DEDUPE_FIND, (known, previous, from))?.unwrap_or(known);
    }
    let observed = event.observed_at_micros;
    let row = (known, request_id.as_bytes(), event.payload_digest, observed, now);
    if execute(db, sql::DEDUPE_ADD, row)? == 1 {
        return Ok(EventOutcome { request_id, duplicate: false, reused: false });
    }
    let (request_id, reused) = one(db, sql::DEDUPE_SEE_AGAIN, (known, event.payload_digest, now))?;
    Ok(EventOutcome { request_id, duplicate: true, reused })
}
