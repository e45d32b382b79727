//! Dead letters.

use async_trait::async_trait;
use rusqlite::Connection;
use uuid::Uuid;

use super::super::{
    DeadLetter, DeadLetters, Decision, IngestFence, LetterQuery, LetterResolution, Permitted,
    PostOutcome, ResolveOutcome, StoredLetter, SubmissionRejection,
};
use super::fence::FenceGates;
use super::row::{all, execute, first, limit, one};
use super::{SqliteStorage, clock, sql, token};
use crate::error::StorageResult;

#[async_trait]
impl DeadLetters for SqliteStorage {
    async fn post_letter(
        &self,
        letter: &DeadLetter,
        fence: Option<&IngestFence>,
        token_id: Option<&str>,
    ) -> StorageResult<PostOutcome> {
        let letter = letter.clone();
        let (fence, token_id) = (fence.cloned(), token_id.map(str::to_owned));
        let job =
            move |db: &Connection, now| post(db, &letter, fence.as_ref(), token_id.as_deref(), now);
        self.write(job).await
    }

    async fn letters(&self, query: &LetterQuery) -> StorageResult<Vec<StoredLetter>> {
        let query = query.clone();
        let job = move |db: &Connection, _| {
            let LetterQuery { after, channel, provider, endpoint_identity: of, .. } = &query;
            let (after, limit) = (after.unwrap_or(Uuid::nil()).into_bytes(), limit(query.limit));
            let LetterQuery { since, error, .. } = &query;
            match &query.state {
                None => {
                    let values = (after, limit, of, channel, provider, since, error);
                    all(db, sql!("letter/list"), values)
                }
                Some(state) => {
                    let values = (after, limit, of, channel, provider, since, error, state);
                    all(db, sql!("letter/list_state"), values)
                }
            }
        };
        self.read(job).await
    }

    async fn letter(&self, id: Uuid) -> StorageResult<Option<StoredLetter>> {
        self.read(move |db, _| first(db, sql!("letter/show"), [id.as_bytes()])).await
    }

    async fn resolve_letter(&self, resolve: &LetterResolution) -> Permitted<ResolveOutcome> {
        let (token_id, resolve) = (resolve.decision.token_id.as_deref(), resolve.clone());
        let job = move |db: &Connection, now| {
            let now = clock::stamp(db, now)?;
            let request_id = resolve.request_id.map(Uuid::into_bytes);
            let id = resolve.id.as_bytes();
            let Decision { by, reason, .. } = &resolve.decision;
            let row = (id, resolve.state, now, by, reason, request_id);
            Ok(match execute(db, sql!("letter/resolve"), row)? {
                1 => ResolveOutcome::Done,
                _ if one(db, sql!("letter/exists"), [id])? => ResolveOutcome::Before,
                _ => ResolveOutcome::Nothing,
            })
        };
        self.write_with(token_id, job).await
    }

    async fn refuse_letter(&self, id: Uuid, class: &str, reason: &str) -> StorageResult<bool> {
        let (class, reason) = (class.to_owned(), reason.to_owned());
        let job = move |db: &Connection, _| {
            Ok(execute(db, sql!("letter/refuse"), (id.as_bytes(), class, reason))? == 1)
        };
        self.write(job).await
    }

    async fn pending_letters(&self) -> StorageResult<u64> {
        let pending: i64 = self.read(|db, _| one(db, sql!("letter/count_pending"), [])).await?;
        Ok(pending.unsigned_abs())
    }
}

fn post(
    db: &Connection,
    letter: &DeadLetter,
    fence: Option<&IngestFence>,
    token_id: Option<&str>,
    now: i64,
) -> rusqlite::Result<PostOutcome> {
    if let Some(ended) = token::ended(db, token_id, now)? {
        return Ok(PostOutcome::Rejected(SubmissionRejection::TokenEnded(ended)));
    }
    let gates = FenceGates::raise(db, fence.into_iter().map(|fence| (token_id, fence)), now)?;
    if let Some(closed) = gates.closed(token_id, fence) {
        return Ok(PostOutcome::Rejected(closed));
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
    if execute(db, sql!("letter/add"), row)? == 1 {
        return Ok(PostOutcome::Kept { id: letter.id, duplicate: false });
    }
    Ok(PostOutcome::Kept { id: one(db, sql!("letter/find"), [letter.digest])?, duplicate: true })
}
