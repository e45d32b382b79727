//! Dedupe keys and content hashes of events.
//!
//! Why: docs/decisions/0033-dedupe-keys-are-digests.md

use sha2::{Digest, Sha256};

use super::Dedupe;
use crate::envelope::time;
use crate::folder::hex;

/// Event ids that sources send if they have none.
const PLACEHOLDERS: [&str; 4] = ["placeholder", "unknown", "none", ""];

/// Length of the content hash in a key.
const SHOWN_DIGITS: usize = 16;

const HOUR_MICROS: i64 = 3_600_000_000;

/// Parts of a key, trimmed.
pub(super) struct KeyParts<'a> {
    pub(super) channel: &'a str,
    pub(super) provider: &'a str,
    pub(super) endpoint: &'a str,
    pub(super) idempotency_key: Option<&'a str>,
    pub(super) event_id: &'a str,
    pub(super) sender: &'a str,
    pub(super) text: &'a [u8],
    pub(super) observed_at: i64,
}

impl KeyParts<'_> {
    /// Returns the key of the source, else of the event's id, else of text, sender and hour. Hours
    /// are in UTC: an instant is the same however it is written.
    pub(super) fn dedupe(&self) -> Dedupe {
        if let Some(key) = self.idempotency_key {
            return named(&["idem", self.channel, self.endpoint, key]);
        }
        if !is_placeholder(self.event_id) {
            return named(&["event", self.channel, self.provider, self.endpoint, self.event_id]);
        }
        let content = Sha256::new()
            .chain_update(self.text)
            .chain_update(b":")
            .chain_update(self.sender)
            .finalize();
        let mut content = hex(&content);
        content.truncate(SHOWN_DIGITS);
        let before = time::hour(self.observed_at - HOUR_MICROS);
        let hour = time::hour(self.observed_at);
        let of = |hour| ["hash", self.channel, self.endpoint, self.sender, hour, &content];
        Dedupe { previous_hour: Some(digest(&of(&before))), ..named(&of(&hour)) }
    }
}

fn named(parts: &[&str]) -> Dedupe {
    Dedupe { key: parts.join(":"), digest: digest(parts), previous_hour: None }
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|text| part(&mut hash, text.as_bytes()));
    hash.finalize().into()
}

fn is_placeholder(id: &str) -> bool {
    // Some letters beyond ASCII have a lower case within it.
    PLACEHOLDERS.iter().any(|word| word.eq_ignore_ascii_case(id))
        || !id.is_ascii() && PLACEHOLDERS.contains(&id.to_lowercase().as_str())
}

/// Adds a text to a hash after its length, so that different lists of texts differ.
pub(super) fn part(hash: &mut Sha256, bytes: &[u8]) {
    length(hash, bytes.len());
    hash.update(bytes);
}

pub(super) fn length(hash: &mut Sha256, length: usize) {
    hash.update((length as u64).to_be_bytes());
}

/// Adds a text, or else a marker that no length equals.
pub(super) fn optional(hash: &mut Sha256, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => part(hash, bytes),
        None => hash.update(u64::MAX.to_be_bytes()),
    }
}

/// Adds JSON without the `blanks` bytes of white space outside its strings.
pub(super) fn json(hash: &mut Sha256, json: &[u8], blanks: usize) {
    length(hash, json.len() - blanks);
    if blanks == 0 {
        return hash.update(json);
    }
    let (mut start, mut in_string, mut escaped) = (0, false, false);
    for (at, byte) in json.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b' ' | b'\n' | b'\r' | b'\t' if !in_string => {
                hash.update(&json[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    hash.update(&json[start..]);
}
