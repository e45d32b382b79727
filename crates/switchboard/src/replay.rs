//! Replay of dead letters on the storage, by an operator.

use tenure_core::Code;
use tenure_wire::ingest::{Rules, read_by};
use uuid::Uuid;

use crate::commit::is_about_content;
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{
    Decision, LetterResolution, ResolveOutcome, Storage, StoredLetter, Submission,
    SubmissionOutcome, SubmittedEvent,
};

/// Maximum length of a stored reason.
const MAX_REASON_BYTES: usize = 4096;
/// Class of a letter whose envelope was refused.
const REFUSED_CLASS: &str = "validation_error";

/// Outcome of replaying a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// Its event is in the inbox, and the letter is replayed. In a dry run: it would be.
    Replayed {
        /// Id of the event, or of the first event with its key; `None` in a dry run.
        request_id: Option<Uuid>,
        /// Whether the event was accepted before.
        duplicate: bool,
    },
    /// Refused again: the letter is still pending, with this reason.
    Refused(String),
    /// It was replayed or discarded before; its state.
    Ended(String),
}

/// Validates the envelope of a letter, submits it without a token or a fence, and marks the letter
/// as replayed.
///
/// The event is durable before the letter is marked. An interruption in between leaves the letter
/// pending; replaying it again finds a duplicate.
pub async fn replay(
    storage: &dyn Storage,
    rules: &Rules,
    kept: &StoredLetter,
    by: &Decision,
    dry_run: bool,
) -> StorageResult<ReplayOutcome> {
    if kept.state != "pending" {
        return Ok(ReplayOutcome::Ended(kept.state.clone()));
    }
    let id = kept.letter.id;
    let event = match read_by(kept.letter.envelope.as_bytes(), rules) {
        Ok(event) => event,
        Err(invalid) => return refuse(storage, id, &invalid.to_string(), dry_run).await,
    };
    if dry_run {
        return Ok(ReplayOutcome::Replayed { request_id: None, duplicate: false });
    }
    let items = vec![SubmittedEvent { request_id: Uuid::now_v7(), event }];
    let submission = Submission { items, fence: None, token_id: None };
    let stored = match storage.commit(&[submission]).await {
        Err(error) if is_about_content(&error) => {
            return refuse(storage, id, &error.to_string(), dry_run).await;
        }
        settled => match settled?.pop() {
            Some(SubmissionOutcome::Stored(stored)) => stored.into_iter().next(),
            _ => None,
        },
    };
    let odd = || SwitchboardError::unknown(Code::Damaged, "the inbox did not store the event");
    let stored = stored.ok_or_else(odd)?;
    let request_id = Some(stored.request_id);
    let decision = by.clone();
    let resolution = LetterResolution { id, state: "replayed", decision, request_id };
    match storage.resolve_letter(&resolution).await? {
        Ok(ResolveOutcome::Done) => {
            Ok(ReplayOutcome::Replayed { request_id, duplicate: stored.duplicate })
        }
        // Another operator was faster, and may have discarded the letter: the event is in the inbox
        // once all the same.
        _ => {
            let state = storage.letter(id).await?.map(|kept| kept.state);
            Ok(ReplayOutcome::Ended(state.unwrap_or_else(|| "deleted".to_owned())))
        }
    }
}

async fn refuse(
    storage: &dyn Storage,
    id: Uuid,
    reason: &str,
    dry_run: bool,
) -> StorageResult<ReplayOutcome> {
    let fits = |end: &usize| reason.is_char_boundary(*end);
    let end = (0..=MAX_REASON_BYTES.min(reason.len())).rev().find(fits);
    let reason = &reason[..end.unwrap_or(0)];
    if !dry_run {
        storage.refuse_letter(id, REFUSED_CLASS, reason).await?;
    }
    Ok(ReplayOutcome::Refused(reason.to_owned()))
}
