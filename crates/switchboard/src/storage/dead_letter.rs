//! Dead letters.

use async_trait::async_trait;
use uuid::Uuid;

use super::row::from_row;
use super::{Decision, IngestFence, Permitted, SubmissionRejection};
use crate::error::StorageResult;

/// An event that a connector gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// UUID of version 7, created by the server.
    pub id: Uuid,
    /// SHA-256 that identifies the event.
    pub digest: [u8; 32],
    /// Channel of the event.
    pub channel: String,
    /// Provider of the event.
    pub provider: String,
    /// Endpoint of the event.
    pub endpoint_identity: String,
    /// The source's own id of the event.
    pub external_event_id: Option<String>,
    /// `validation_error`, `timeout` and so on.
    pub error_class: String,
    /// Reason for giving it up.
    pub reason: String,
    /// Number of attempts.
    pub attempts: i64,
    /// The event that should have been submitted, as JSON text.
    pub envelope: String,
}

/// A stored dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLetter {
    /// The letter as it was posted.
    pub letter: DeadLetter,
    /// Time of posting, in Unix microseconds.
    pub posted_at: i64,
    /// Duty of the hold under which it was posted.
    pub duty: Option<String>,
    /// Id of the token that posted it.
    pub token_id: Option<String>,
    /// `pending`, `replayed` or `discarded`.
    pub state: String,
    /// Time of resolution, in Unix microseconds.
    pub resolved_at: Option<i64>,
    /// Author of the resolution.
    pub resolved_by: Option<String>,
    /// Reason for the resolution.
    pub resolution: Option<String>,
    /// Request id of the replayed event.
    pub request_id: Option<Uuid>,
}

/// Outcome of posting a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// Stored under this id.
    Kept {
        /// Its own id, or that of the first identical letter.
        id: Uuid,
        /// Whether an identical letter was posted before.
        duplicate: bool,
    },
    /// Not stored.
    Rejected(SubmissionRejection),
}

/// Query for dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterQuery {
    /// Only letters after this id.
    pub after: Option<Uuid>,
    /// Maximum number of letters.
    pub limit: usize,
    /// Only letters in this state.
    pub state: Option<String>,
    /// Only of this channel.
    pub channel: Option<String>,
    /// Only of this provider.
    pub provider: Option<String>,
    /// Only of this endpoint.
    pub endpoint_identity: Option<String>,
    /// Only letters posted at or after this time, in Unix microseconds.
    pub since: Option<i64>,
    /// Only letters with this text in `CLASS: REASON`.
    pub error: Option<String>,
}

/// Resolution of a pending dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterResolution {
    /// Id of the letter.
    pub id: Uuid,
    /// `replayed` or `discarded`.
    pub state: &'static str,
    /// Author and reason.
    pub decision: Decision,
    /// Request id of the replayed event.
    pub request_id: Option<Uuid>,
}

/// Outcome of resolving a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveOutcome {
    /// Resolved.
    Done,
    /// It was resolved before; nothing was changed.
    Before,
    /// No dead letter has that id.
    Nothing,
}

/// Storage of dead letters.
#[async_trait]
pub trait DeadLetters {
    /// Stores a dead letter once. Fence and token are checked as for submissions.
    async fn post_letter(
        &self,
        letter: &DeadLetter,
        fence: Option<&IngestFence>,
        token_id: Option<&str>,
    ) -> StorageResult<PostOutcome>;
    /// Returns dead letters, oldest first.
    async fn letters(&self, query: &LetterQuery) -> StorageResult<Vec<StoredLetter>>;
    /// Returns a dead letter.
    async fn letter(&self, id: Uuid) -> StorageResult<Option<StoredLetter>>;
    /// Resolves a pending letter.
    async fn resolve_letter(&self, resolve: &LetterResolution) -> Permitted<ResolveOutcome>;
    /// Keeps a pending letter that was refused again: with the new reason, and one more attempt.
    /// Returns whether it is pending.
    async fn refuse_letter(&self, id: Uuid, class: &str, reason: &str) -> StorageResult<bool>;
    /// Counts the pending letters.
    async fn pending_letters(&self) -> StorageResult<u64>;
}

from_row! { DeadLetter, |row|
    id, digest, channel, provider, endpoint_identity, external_event_id, error_class, reason,
    attempts, envelope,
}
from_row! { StoredLetter, |row|
    letter, posted_at, duty, token_id, state, resolved_at, resolved_by, resolution, request_id,
}
