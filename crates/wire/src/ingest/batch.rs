//! Batches: splits a body into envelopes without reading them, so that each is judged alone.

use crate::envelope::json::{JsonError, Scanner};

/// Reason why a body is not a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBatch {
    /// It does not begin like an array.
    #[error("the batch is not a JSON array")]
    NotAnArray,
    /// It is not JSON from this byte on.
    #[error("the batch is not JSON at byte {at}: expected {expected}")]
    Broken {
        /// Byte offset, from 0.
        at: usize,
        /// The expected input.
        expected: &'static str,
    },
    /// It has more items than this.
    #[error("the batch has more than {most} items")]
    TooMany {
        /// Maximum number.
        most: usize,
    },
    /// It is not UTF-8 from this byte on.
    #[error("the batch is not UTF-8 at byte {at}")]
    NotUtf8 {
        /// Byte offset, from 0.
        at: usize,
    },
}

impl From<JsonError> for BadBatch {
    fn from(JsonError { at, why }: JsonError) -> Self {
        Self::Broken { at, expected: why.expected() }
    }
}

/// Splits a JSON array into at most `most` items, each as it is written. An item that is nested
/// too deep is rejected when it is read, without its neighbours.
pub fn split_array(bytes: &[u8], most: usize) -> Result<Vec<&[u8]>, BadBatch> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| BadBatch::NotUtf8 { at: error.valid_up_to() })?;
    let mut scan = Scanner::new(text);
    if !scan.take(b'[') {
        return Err(BadBatch::NotAnArray);
    }
    let mut items = Vec::new();
    while !scan.take(b']') {
        if !items.is_empty() && !scan.take(b',') {
            scan.expected::<()>("a comma or ]")?;
        }
        let range = scan.skip(usize::MAX)?;
        if items.len() == most {
            return Err(BadBatch::TooMany { most });
        }
        items.push(&bytes[range]);
    }
    scan.end()?;
    Ok(items)
}

/// Splits NDJSON into at most `most` lines, without blank ones. Lines end in LF or CRLF; the last
/// need not.
pub fn split_lines(bytes: &[u8], most: usize) -> Result<Vec<&[u8]>, BadBatch> {
    let is_blank = |line: &[u8]| line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !is_blank(line));
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let items: Vec<_> = lines.take(most.saturating_add(1)).collect();
    if items.len() > most { Err(BadBatch::TooMany { most }) } else { Ok(items) }
}
