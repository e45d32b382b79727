//! `ingest.v1`: one event, as connectors submit it.
//!
//! The shape is closed: unknown fields are rejected (`extra_forbidden`), unless the rules keep
//! them. Unknown words are always rejected.

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
pub use query::{BadQuery, InboxQuery, inbox_query, percent_decode};

use crate::envelope::json;
pub use crate::envelope::{InvalidEnvelope, Issue, MAX_DEPTH, MAX_IDENTITY_BYTES};

/// Returns whether a JSON text is not nested too deep for later readers.
pub fn fits_depth(text: &str) -> bool {
    json::Scanner::new(text).skip(MAX_DEPTH).is_ok()
}

/// Reads one envelope by the published rules; see [`read_by`].
pub fn read(bytes: &[u8]) -> Result<IngestEvent, InvalidEnvelope> {
    read_by(bytes, &Rules::default())
}

/// Reads one envelope. All errors are reported at once, unless it is not JSON.
///
/// Identities have no NUL and no lone surrogate, because no store can index those; the payload, its
/// attachments and the trace context may have them.
pub fn read_by(bytes: &[u8], rules: &Rules) -> Result<IngestEvent, InvalidEnvelope> {
    envelope::read(bytes, rules)
}

/// Event of a valid envelope. Texts are trimmed, valid UTF-8 and have no NUL; only the payload is
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestEvent {
    /// `source.channel`.
    pub channel: String,
    /// `source.provider`.
    pub provider: String,
    /// `source.endpoint_identity`: the receiver.
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
    /// SHA-256 of the content, to notice a key that is reused for another event.
    pub payload_digest: [u8; 32],
    /// The envelope as JSON text, with trimmed texts and at most six digits of a second in
    /// `observed_at`. `payload.raw` and `control.trace_context` keep their bytes. Reading it again
    /// returns the same event.
    pub envelope: String,
}

/// Identity of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedupe {
    /// For display: `event:telegram:telegram:bot:42`.
    pub key: String,
    /// SHA-256 of the key's parts, each with its length: parts may contain colons.
    pub digest: [u8; 32],
    /// For a key of the content: its digest an hour earlier. An event with that digest, observed
    /// less than an hour before, is the same.
    pub previous_hour: Option<[u8; 32]>,
}
