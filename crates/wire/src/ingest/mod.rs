//! `ingest.v1`: one event that came in somewhere, as connectors submit it.
//!
//! The shape is closed: a field that `ingest.v1` does not have is refused (`extra_forbidden`),
//! unless the rules say that such fields are kept. A word that is not on its list is always
//! refused: whoever sends more than is understood should hear of it.

mod batch;
mod channel;
mod cursor;
mod dedupe;
mod envelope;
mod query;

#[cfg(test)]
mod tests;

pub use batch::{BadBatch, split_array, split_lines};
pub use channel::{Channel, Fields, MAX_NAME_BYTES, PAIRS, Rules, is_name};
pub use cursor::{InboxCursor, NoCursor, Tag};
pub use query::{BadQuery, InboxWords, inbox_query};

use crate::envelope::json;
pub use crate::envelope::{InvalidEnvelope, Issue, MAX_DEPTH, MAX_IDENTITY_BYTES};

/// Whether a JSON text is not too deep for those who read it later.
pub fn fits_depth(text: &str) -> bool {
    json::Scanner::new(text).skip(MAX_DEPTH).is_ok()
}

/// Reads one envelope by the published rules: see [`read_by`].
pub fn read(bytes: &[u8]) -> Result<IngestEvent, InvalidEnvelope> {
    read_by(bytes, &Rules::default())
}

/// Reads one envelope. All that is wrong with it is told at once, unless it is not even JSON.
///
/// Identities hold no NUL and no lone surrogate, because no store can index those; the payload, its
/// attachments and the trace context may, and keep them.
pub fn read_by(bytes: &[u8], rules: &Rules) -> Result<IngestEvent, InvalidEnvelope> {
    envelope::read(bytes, rules)
}

/// An event that may be stored: its envelope was read and every rule of `ingest.v1` holds. Texts
/// are trimmed, hold no NUL and are valid UTF-8; only the payload is kept as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestEvent {
    /// `source.channel`.
    pub channel: String,
    /// `source.provider`, one that goes with the channel.
    pub provider: String,
    /// `source.endpoint_identity`: who received it.
    pub endpoint_identity: String,
    /// `sender.identity`.
    pub sender_identity: String,
    /// `event.external_thread_id`.
    pub thread_identity: Option<String>,
    /// `control.policy_tier`.
    pub policy_tier: &'static str,
    /// `event.observed_at`, in microseconds since 1970.
    pub observed_at_micros: i64,
    /// Dedupe key.
    pub dedupe: Dedupe,
    /// SHA-256 of what was said, to notice when a key comes again with something else.
    pub payload_digest: [u8; 32],
    /// The envelope as JSON text: as it came, but texts are trimmed and `observed_at` has at most
    /// six digits after its point. `payload.raw` and `control.trace_context` are byte for byte as
    /// they came. Reading it again gives the same event.
    pub envelope: String,
}

/// The identity of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedupe {
    /// As it is shown: `event:telegram:telegram:bot:42`.
    pub key: String,
    /// SHA-256 over the parts of the key, each with its length: parts may hold colons, so two keys
    /// that read alike need not be the same.
    pub digest: [u8; 32],
    /// For a key made from the content: the digest that it would have had an hour before. What was
    /// observed less than an hour before under that digest is the same event.
    pub previous_hour: Option<[u8; 32]>,
}
