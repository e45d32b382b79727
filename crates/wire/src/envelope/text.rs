//! Texts of an envelope: UTF-8, except that they may hold lone surrogates.

use std::ops::Range;

/// Range of a text without white space at both ends: what Unicode calls white space, and the four
/// separators of ASCII, which Python's `strip` takes away, too.
pub(crate) fn trim(text: &[u8]) -> Range<usize> {
    let (mut start, mut end) = (0, text.len());
    while let Some(length) = blank_first(&text[start..end]) {
        start += length;
    }
    while let Some(length) = blank_last(&text[start..end]) {
        end -= length;
    }
    start..end
}

fn blank_first(text: &[u8]) -> Option<usize> {
    match text {
        [byte, ..] if byte.is_ascii() => is_blank(&[*byte]).then_some(1),
        [a, b, ..] if is_blank(&[*a, *b]) => Some(2),
        [a, b, c, ..] if is_blank(&[*a, *b, *c]) => Some(3),
        _ => None,
    }
}

fn blank_last(text: &[u8]) -> Option<usize> {
    match text {
        [.., byte] if byte.is_ascii() => is_blank(&[*byte]).then_some(1),
        [.., a, b] if is_blank(&[*a, *b]) => Some(2),
        [.., a, b, c] if is_blank(&[*a, *b, *c]) => Some(3),
        _ => None,
    }
}

/// Whether these bytes are one character of white space.
fn is_blank(bytes: &[u8]) -> bool {
    match bytes {
        [byte] => matches!(byte, 9..=13 | 28..=32),
        _ => {
            let mut chars = std::str::from_utf8(bytes).unwrap_or_default().chars();
            chars.next().is_some_and(char::is_whitespace) && chars.next().is_none()
        }
    }
}

/// The text, if every store can keep it: without NUL and lone surrogates.
pub(crate) fn storable(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok().filter(|text| !text.contains('\0'))
}

/// As much of a text as fits into so many bytes, between two characters, with a mark that says how
/// long it was when it was sent.
pub(crate) fn cut(text: &str, most: usize, sent: usize) -> String {
    let mark = format!("... [cut: {sent} bytes]");
    let mut end = most.saturating_sub(mark.len()).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{mark}", &text[..end])
}

/// The inside of a JSON string that says `text`.
pub(crate) fn encode(text: &[u8]) -> String {
    let special = |byte: &u8| matches!(byte, ..0x20 | b'"' | b'\\' | 0xED);
    let mut out = Vec::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(n) = rest.iter().position(special) {
        out.extend_from_slice(&rest[..n]);
        let (escaped, length) = match &rest[n..] {
            [0xED, b @ 0xA0..=0xBF, c, ..] => {
                (escape(0xD000 | u32::from(b & 0x3F) << 6 | u32::from(c & 0x3F)), 3)
            }
            [0xED, ..] => (vec![0xED], 1),
            [byte @ (b'"' | b'\\'), ..] => (vec![b'\\', *byte], 1),
            other => (escape(other.first().copied().unwrap_or(0).into()), 1),
        };
        out.extend(escaped);
        rest = &rest[n + length..];
    }
    out.extend_from_slice(rest);
    // Without its surrogates it is UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

fn escape(point: u32) -> Vec<u8> {
    format!("\\u{point:04x}").into_bytes()
}

/// As much of a text as a message may show: short, in quotes, and escaped.
pub(crate) fn shown(text: &[u8]) -> String {
    let (short, more) = shorten(text);
    format!("{short:?}{more}")
}

/// The same without quotes, for names.
pub(crate) fn shown_name(text: &[u8]) -> String {
    let (short, more) = shorten(text);
    format!("{}{more}", short.escape_debug())
}

fn shorten(text: &[u8]) -> (String, &'static str) {
    const MAX_SHOWN_CHARS: usize = 40;
    let cut = text.get(..4 * MAX_SHOWN_CHARS).unwrap_or(text);
    let lossy = String::from_utf8_lossy(cut);
    let short: String = lossy.chars().take(MAX_SHOWN_CHARS).collect();
    let more = short.len() < lossy.len() || cut.len() < text.len();
    (short, if more { "..." } else { "" })
}

/// A value of the wrong kind, as a message may show it.
pub(crate) fn shown_value(json: &[u8]) -> String {
    match json {
        [b'{', ..] => "an object".to_owned(),
        [b'[', ..] => "an array".to_owned(),
        [b'"', inside @ .., b'"'] => shown(inside),
        _ => shown_name(json),
    }
}
