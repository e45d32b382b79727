//! Percent-escaping of names where `/` and `:` are separators.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// `[A-Za-z0-9._:@-]` stay unescaped: for such ids the key names match the poll-lease layout.
const IN_ID: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b':').remove(b'@').remove(b'-');

/// A group comes first in every key, so it must not contain `:`, which terminates it.
const IN_GROUP: &AsciiSet = &IN_ID.add(b':');

pub(crate) fn group(raw: &str) -> Cow<'_, str> {
    utf8_percent_encode(raw, IN_GROUP).into()
}

pub(crate) fn id(raw: &str) -> Cow<'_, str> {
    utf8_percent_encode(raw, IN_ID).into()
}

/// Reverses [`group`] and [`id`]. Other unescaped characters are accepted as they are. `None` when
/// the bytes are not UTF-8 or a `%` is not followed by two hex digits.
pub(crate) fn undo(escaped: &str) -> Option<String> {
    let mut rest = escaped;
    while let Some(at) = rest.find('%') {
        let digits = rest.as_bytes().get(at + 1..at + 3)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        rest = rest.get(at + 3..)?;
    }
    percent_decode_str(escaped).decode_utf8().ok().map(Cow::into_owned)
}
