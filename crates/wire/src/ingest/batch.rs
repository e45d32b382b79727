//! Many envelopes in one body, taken apart without reading them: each is judged for itself.

use std::fmt::{self, Display};

use crate::envelope::json::{JsonError, Scanner};

/// Why a body is no batch: nothing of it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBatch {
    /// It is JSON, or at least begins so, but not an array.
    NotAnArray,
    /// It is not JSON from this byte on.
    Broken {
        /// Byte offset, from 0.
        at: usize,
        /// The expected input.
        expected: &'static str,
    },
    /// It has more items than this.
    TooMany {
        /// Maximum number.
        most: usize,
    },
    /// It is not UTF-8 from this byte on.
    NotUtf8 {
        /// Byte offset, from 0.
        at: usize,
    },
}

impl Display for BadBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnArray => f.write_str("the batch is not a JSON array"),
            Self::Broken { at, expected } => {
                write!(f, "the batch is not JSON at byte {at}, where {expected} should be")
            }
            Self::TooMany { most } => write!(f, "the batch has more than {most} items"),
            Self::NotUtf8 { at } => write!(f, "the batch is not UTF-8 at byte {at}"),
        }
    }
}

impl std::error::Error for BadBatch {}

/// The items of a JSON array, at most `most`, each as it is written. An item that is nested too
/// deep is still found: it is refused when it is read, and its neighbours are not.
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
            return Err(broken(scan.at, "a comma or ]"));
        }
        let range =
            scan.skip(usize::MAX).map_err(|JsonError { at, why }| broken(at, why.expected()))?;
        if items.len() == most {
            return Err(BadBatch::TooMany { most });
        }
        items.push(&bytes[range]);
    }
    scan.end().map_err(|JsonError { at, why }| broken(at, why.expected()))?;
    Ok(items)
}

fn broken(at: usize, expected: &'static str) -> BadBatch {
    BadBatch::Broken { at, expected }
}

/// The lines of NDJSON, at most `most`, without blank ones. Lines end in a line feed, with or
/// without a carriage return before it; the last need not.
pub fn split_lines(bytes: &[u8], most: usize) -> Result<Vec<&[u8]>, BadBatch> {
    let is_blank = |line: &[u8]| line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !is_blank(line));
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let items: Vec<_> = lines.take(most.saturating_add(1)).collect();
    if items.len() > most { Err(BadBatch::TooMany { most }) } else { Ok(items) }
}
