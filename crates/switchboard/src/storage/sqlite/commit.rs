//! Submissions: tokens, fences, dedupe keys and the inbox, in one transaction.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use tenure_wire::ingest::IngestEvent;
use uuid::Uuid;

use super::super::{EventOutcome, Submission, SubmissionOutcome, SubmissionRejection, TokenEnd};
use super::fence::FenceGates;
use super::row::{execute, first, one};
use super::{clock, inbox, sql, token};

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
            SubmissionOutcome::Rejected(SubmissionRejection::TokenEnded(ended))
        } else if let Some(closed) = gates.closed(sent.token_id.as_deref(), sent.fence.as_ref()) {
            SubmissionOutcome::Rejected(closed)
        } else {
            SubmissionOutcome::Stored(store(db, sent, &mut last, stamp)?)
        });
    }
    if last > first {
        execute(db, sql!("inbox/move_last"), [last])?;
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
            let (id, event) = (item.request_id.as_bytes(), &item.event);
            let source = (&event.channel, &event.provider, &event.endpoint_identity);
            let (sender, thread) = (&event.sender_identity, &event.thread_identity);
            let (tier, key) = (event.policy_tier, &event.dedupe.key);
            let row = params! {
                *last, id, now, source.0, source.1, source.2, sender, thread, tier, key,
                sent.token_id, event.envelope
            };
            execute(db, sql!("inbox/add"), row)?;
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Stores the dedupe key of an event, unless it is known. An event repeats one with its key, or one
/// with the key of the previous hour that was observed less than an hour before; of both, the one
/// that was stored first.
fn key(
    db: &Connection,
    request_id: Uuid,
    event: &IngestEvent,
    now: i64,
) -> rusqlite::Result<EventOutcome> {
    let mut known = event.dedupe.digest;
    if let Some(previous) = event.dedupe.previous_hour {
        let from = event.observed_at_micros.saturating_sub(HOUR);
        known = first(db, sql!("dedupe/find"), (known, previous, from))?.unwrap_or(known);
    }
    let observed = event.observed_at_micros;
    let row = (known, request_id.as_bytes(), event.payload_digest, observed, now);
    if execute(db, sql!("dedupe/add"), row)? == 1 {
        return Ok(EventOutcome { request_id, duplicate: false, reused: false });
    }
    let (request_id, reused) =
        one(db, sql!("dedupe/see_again"), (known, event.payload_digest, now))?;
    Ok(EventOutcome { request_id, duplicate: true, reused })
}
