//! Reader for envelopes of any protocol: JSON objects of a closed shape. All errors are reported
//! at once.

mod invalid;
pub(crate) mod json;
mod reader;
pub(crate) mod text;
pub(crate) mod time;

pub use invalid::{InvalidEnvelope, Issue};
pub(crate) use json::JsonError;
pub(crate) use reader::{ObjectShape, RawJson, Reader};

/// Maximum nesting of arrays and objects. Many readers stop at 127, and a page of the inbox adds
/// three levels.
pub const MAX_DEPTH: usize = 124;

/// Maximum length of an identity or key in bytes: it must fit a row of an index.
pub const MAX_IDENTITY_BYTES: usize = 1_024;

/// Reads an envelope: `value` is called in front of the first value, and its result is complete if
/// there is no issue. Also returns the envelope as it is stored.
pub(crate) fn read<'a, T>(
    protocol: &'static str,
    bytes: &'a [u8],
    value: impl FnOnce(&mut Reader<'a>) -> Result<T, JsonError>,
) -> Result<(T, String), InvalidEnvelope> {
    let invalid = |says: String| Err(InvalidEnvelope::json(protocol, "json_invalid", says));
    let text = match std::str::from_utf8(bytes) {
        Err(error) => return invalid(format!("not UTF-8 at byte {}", error.valid_up_to())),
        Ok(text) if text.starts_with('\u{feff}') => {
            return invalid("begins with a byte order mark, which JSON does not allow".to_owned());
        }
        Ok(text) if text.trim_ascii().is_empty() => return invalid("is empty".to_owned()),
        Ok(text) => text,
    };
    let mut reader = Reader::new(protocol, text);
    reader.scan.peek();
    let start = reader.scan.at;
    let read = value(&mut reader).map_err(|broken| InvalidEnvelope::broken(protocol, broken))?;
    Ok((read, reader.end(start)?))
}
