//! Notes, documents and reasons, with their limits.

use std::fmt;

use crate::{Code, StoreError};

/// Rejects a value above its limit.
fn limited<T: AsRef<[u8]>>(word: &str, value: T, most: usize) -> Result<T, StoreError> {
    match value.as_ref().len() {
        len if len > most => {
            let detail = format!("the {word} has {len} bytes; the limit is {most}");
            Err(StoreError::refused(Code::BadInput, detail))
        }
        _ => Ok(value),
    }
}

/// Status of a member (weight, zone, draining, versions, ...): text of at most 4 KiB that travels
/// with its session. The store does not read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Note(String);

impl Note {
    /// The longest note.
    pub const MAX_NOTE_BYTES: usize = 4096;

    /// Creates a note of at most [`Note::MAX_NOTE_BYTES`].
    pub fn new(text: impl Into<String>) -> Result<Self, StoreError> {
        limited("note", text.into(), Self::MAX_NOTE_BYTES).map(Self)
    }

    /// Room for the line with which a member signs its note.
    pub const MAX_IDENTITY_BYTES: usize = 256;

    /// Creates a note as it is stored, with the line of its identity.
    pub fn with_identity(text: impl Into<String>) -> Result<Self, StoreError> {
        const MAX_STORED_BYTES: usize = Note::MAX_NOTE_BYTES + Note::MAX_IDENTITY_BYTES;
        limited("note", text.into(), MAX_STORED_BYTES).map(Self)
    }

    /// Reads a note back from a store that keeps bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, StoreError> {
        let text = String::from_utf8(bytes)
            .map_err(|_| StoreError::refused(Code::Damaged, "a stored note is not UTF-8"))?;
        Self::with_identity(text)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A checkpoint or a group document: bytes that the store keeps exactly and does not interpret.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Document(Vec<u8>);

impl Document {
    /// The largest document.
    pub const MAX_DOCUMENT_BYTES: usize = 256 * 1024;

    /// Creates a document of at most [`Document::MAX_DOCUMENT_BYTES`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, StoreError> {
        limited("document", bytes.into(), Self::MAX_DOCUMENT_BYTES).map(Self)
    }

    /// Reads a document back from a store, with the [`crate::Seal`] that may precede it.
    pub fn from_store(bytes: Vec<u8>) -> Result<Self, StoreError> {
        const MAX_STORED_BYTES: usize = Document::MAX_DOCUMENT_BYTES + crate::Seal::MAX_SEAL_BYTES;
        limited("stored document", bytes, MAX_STORED_BYTES).map(Self)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Shows only the size, because a cursor may contain data that its owner would not log.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.0.len())
    }
}

/// Reason of an action, for the audit trail: a short word or sentence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reason(String);

impl Reason {
    /// The longest reason.
    pub const MAX_REASON_BYTES: usize = 256;

    /// Creates a reason: 1 to [`Reason::MAX_REASON_BYTES`] bytes without control characters.
    pub fn new(text: impl Into<String>) -> Result<Self, StoreError> {
        let (text, most): (String, _) = (text.into(), Self::MAX_REASON_BYTES);
        if (1..=most).contains(&text.len()) && !text.chars().any(char::is_control) {
            return Ok(Self(text));
        }
        let detail = format!("a reason must have 1 to {most} bytes and no control characters");
        Err(StoreError::refused(Code::BadInput, detail))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_the_limit_is_refused() {
        assert!(Note::new("n".repeat(4096)).is_ok());
        assert_eq!(Note::new("n".repeat(4097)).unwrap_err().code(), Code::BadInput);
        assert!(Document::new(vec![0; 256 * 1024]).is_ok());
        assert!(Document::new(vec![0; 256 * 1024 + 1]).is_err());
        for bad in ["", "two\nlines", &"r".repeat(257)] {
            assert!(Reason::new(bad).is_err());
        }
    }

    #[test]
    fn a_document_s_bytes_do_not_reach_a_log() {
        let document = Document::new(*b"secret").unwrap();
        assert_eq!(format!("{document:?}"), "Document(6 bytes)");
    }
}
