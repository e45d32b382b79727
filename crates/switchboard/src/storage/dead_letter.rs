//! Dead letters.

use async_trait::async_trait;
use uuid::Uuid;

use super::row::from_row;
use super::{Decision, IngestFence, Permitted, SubmissionRejection};
use crate::error::StorageResult;

/// An event that a connector gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Minted by the server, version 7.
    pub id: Uuid,
    /// SHA-256 of what was posted.
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

/// A dead letter as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLetter {
    /// The letter as it was posted.
    pub letter: DeadLetter,
    /// In Unix microseconds.
    pub posted_at: i64,
    /// Under which duty.
    pub duty: Option<String>,
    /// With which token.
    pub token_id: Option<String>,
    /// `pending`, `replayed` or `discarded`.
    pub state: String,
    /// In Unix microseconds.
    pub resolved_at: Option<i64>,
    /// By whom.
    pub resolved_by: Option<String>,
    /// Why.
    pub resolution: Option<String>,
    /// The id that the replay got.
    pub request_id: Option<Uuid>,
}

/// Outcome of posting a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// It is kept under this id.
    Kept {
        /// Its own, or that of the first one.
        id: Uuid,
        /// Whether the same was posted before.
        duplicate: bool,
    },
    /// It is not stored.
    Rejected(SubmissionRejection),
}

/// Which dead letters to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterQuery {
    /// Only those that come after this id.
    pub after: Option<Uuid>,
    /// At most so many.
    pub limit: usize,
    /// Only in this state.
    pub state: Option<String>,
    /// Only of this channel.
    pub channel: Option<String>,
    /// Only of this provider.
    pub provider: Option<String>,
    /// Only of this endpoint.
    pub endpoint_identity: Option<String>,
}

/// The end of a pending dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterResolution {
    /// Which one.
    pub id: Uuid,
    /// `replayed` or `discarded`.
    pub state: &'static str,
    /// By whom and why.
    pub decision: Decision,
    /// The id that the replay got.
    pub request_id: Option<Uuid>,
}

/// Outcome of ending a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveOutcome {
    /// It ended now.
    Done,
    /// It had ended before; nothing was changed.
    Before,
    /// No dead letter has that id.
    Nothing,
}

/// Storage of dead letters.
#[async_trait]
pub trait DeadLetters {
    /// Keeps a dead letter, once. Fence and token as for submissions.
    async fn post_letter(
        &self,
        letter: &DeadLetter,
        fence: Option<&IngestFence>,
        token_id: Option<&str>,
    ) -> StorageResult<PostOutcome>;
    /// Dead letters, oldest first.
    async fn letters(&self, query: &LetterQuery) -> StorageResult<Vec<StoredLetter>>;
    /// One of them.
    async fn letter(&self, id: Uuid) -> StorageResult<Option<StoredLetter>>;
    /// Ends one that is pending.
    async fn resolve_letter(&self, resolve: &LetterResolution) -> Permitted<ResolveOutcome>;
    /// Counts the pending ones.
    async fn pending_letters(&self) -> StorageResult<u64>;
}

from_row! { DeadLetter, |row|
    id, digest, channel, provider, endpoint_identity, external_event_id, error_class, reason,
    attempts, envelope,
}
from_row! { StoredLetter, |row|
    letter, posted_at, duty, token_id, state, resolved_at, resolved_by, resolution, request_id,
}
