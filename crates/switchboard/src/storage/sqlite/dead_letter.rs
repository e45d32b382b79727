//! Dead letters.

use rusqlite::Connection;
use uuid::Uuid;

use super::super::{
    DeadLetter, Decision, IngestFence, LetterQuery, LetterResolution, PostOutcome, ResolveOutcome,
    StoredLetter,
};
use super::fence::FenceGates;
use super::row::{all, execute, limit, one};
use super::{clock, statements as sql, token};

pub(super) fn post(
    db: &Connection,
    letter: &DeadLetter,
    fence: Option<&IngestFence>,
    token_id: Option<&str>,
    now: i64,
) -> rusqlite::Result<PostOutcome> {
    if let Some(ended) = token::ended(db, token_id, now)? {
        return Ok(PostOutcome::TokenEnded(ended));
    }
    let gates = FenceGates::raise(db, fence.into_iter().map(|fence| (token_id, fence)), now)?;
    if let Some(closed) = gates.closed(token_id, fence) {
        return Ok(closed.into());
    }
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
    if execute(db, sql::LETTER_ADD, row)? == 1 {
        return Ok(PostOutcome::Kept { id: letter.id, duplicate: false });
    }
    Ok(PostOutcome::Kept { id: one(db, sql::LETTER_FIND, [letter.digest])?, duplicate: true })
}

pub(super) fn list(db: &Connection, query: &LetterQuery) -> rusqlite::Result<Vec<StoredLetter>> {
    let LetterQuery { channel, provider, endpoint_identity, .. } = query;
    let (after, limit) = (query.after.unwrap_or(Uuid::nil()), limit(query.limit));
    let after = after.as_bytes();
    match &query.state {
        None => {
            let values = (after, limit, endpoint_identity, channel, provider);
            all(db, sql::LETTER_LIST, values)
        }
        Some(state) => {
            let values = (after, limit, endpoint_identity, channel, provider, state);
            all(db, sql::LETTER_LIST_STATE, values)
        }
    }
}

pub(super) fn resolve(
    db: &Connection,
    resolve: &LetterResolution,
    now: i64,
) -> rusqlite::Result<ResolveOutcome> {
    let now = clock::stamp(db, now)?;
    let request_id = resolve.request_id.map(Uuid::into_bytes);
    let id = resolve.id.as_bytes();
    let Decision { by, reason, .. } = &resolve.decision;
    let row = (id, resolve.state, now, by, reason, request_id);
    if execute(db, sql::LETTER_RESOLVE, row)? == 1 {
        return Ok(ResolveOutcome::Done);
    }
    Ok(if one(db, sql::LETTER_EXISTS, [id])? {
        ResolveOutcome::Before
    } else {
        ResolveOutcome::Nothing
    })
}
