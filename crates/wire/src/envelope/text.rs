//! Texts of an envelope: UTF-8 that may contain lone surrogates.

use std::ops::Range;

/// Returns the range without white space at both ends: Unicode white space and the four ASCII
/// separators, which Python's `strip` also removes.
pub(crate) fn trim(text: &[u8]) -> Range<usize> {
    let (mut start, mut end) = (0, text.len());
    // Only the ends are inspected: a text may be long, and no white space has 4 bytes.
    let blank = |start: usize, end: usize| text.get(start..end).is_some_and(is_blank);
    while let Some(length) = (1..=3).find(|n| start + n <= end && blank(start, start + n)) {
        start += length;
    }
    while let Some(length) = (1..=3).find(|n| start + n <= end && blank(end - n, end)) {
        end -= length;
    }
    start..end
}

/// Whether these bytes are one character of white space.
fn is_blank(bytes: &[u8]) -> bool {
    let mut chars = std::str::from_utf8(bytes).unwrap_or_default().chars();
    let blank = |c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c);
    chars.next().is_some_and(blank) && chars.next().is_none()
}

/// Returns the text if every store can keep it: no NUL and no lone surrogate.
pub(crate) fn storable(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok().filter(|text| !text.contains('\0'))
}

/// Cuts a text to `most` bytes, with a note of its original length.
pub(crate) fn cut(text: &str, most: usize, sent: usize) -> String {
    let mark = format!("... [cut: {sent} bytes]");
    let mut end = most.saturating_sub(mark.len()).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{mark}", &text[..end])
}

/// Returns the text as the inside of a JSON string.
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
    // Without surrogates it is UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

fn escape(point: u32) -> Vec<u8> {
    format!("\\u{point:04x}").into_bytes()
}

/// Returns a text for a message: shortened, escaped and quoted.
pub(crate) fn shown(text: &[u8]) -> String {
    let (short, more) = shorten(text);
    format!("{short:?}{more}")
}

/// Returns a name for a message: shortened and escaped.
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

/// Returns a value of the wrong type for a message.
pub(crate) fn shown_value(json: &[u8]) -> String {
    match json {
        [b'{', ..] => "an object".to_owned(),
        [b'[', ..] => "an array".to_owned(),
        [b'"', inside @ .., b'"'] => shown(inside),
        _ => shown_name(json),
    }
}
