//! Texts of an envelope: UTF-8, except that they may hold lone surrogates.

/// Without white space at both ends: what Unicode calls white space, and the four separators of
/// ASCII, which Python's `strip` takes away, too.
pub(super) fn trim(mut text: &[u8]) -> &[u8] {
    while let Some(length) = blank_first(text) {
        text = &text[length..];
    }
    while let Some(length) = blank_last(text) {
        text = &text[..text.len() - length];
    }
    text
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

/// The inside of a JSON string that says `text`.
pub(super) fn encode(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len() + 8);
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'"' | b'\\', _) => out.extend([b'\\', *first]),
            (..0x20, _) => out.extend(escape(u32::from(*first))),
            (0xED, [b @ 0xA0..=0xBF, c, after @ ..]) => {
                out.extend(escape(0xD000 | u32::from(b & 0x3F) << 6 | u32::from(c & 0x3F)));
                rest = after;
            }
            _ => out.push(*first),
        }
    }
    // Without its surrogates it is UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

fn escape(point: u32) -> Vec<u8> {
    format!("\\u{point:04x}").into_bytes()
}

/// As much of a text as a message may show: short, in quotes, and escaped.
pub(super) fn shown(text: &[u8]) -> String {
    let (short, more) = shorten(text);
    format!("{short:?}{more}")
}

/// The same without quotes, for names.
pub(super) fn shown_name(text: &[u8]) -> String {
    let (short, more) = shorten(text);
    format!("{}{more}", short.escape_debug())
}

fn shorten(text: &[u8]) -> (String, &'static str) {
    const MOST: usize = 40;
    let cut = text.get(..4 * MOST).unwrap_or(text);
    let lossy = String::from_utf8_lossy(cut);
    let short: String = lossy.chars().take(MOST).collect();
    let more = short.len() < lossy.len() || cut.len() < text.len();
    (short, if more { "..." } else { "" })
}

/// A value of the wrong kind, as a message may show it.
pub(super) fn shown_value(json: &[u8]) -> String {
    match json {
        [b'{', ..] => "an object".to_owned(),
        [b'[', ..] => "an array".to_owned(),
        [b'"', inside @ .., b'"'] => shown(inside),
        _ => shown_name(json),
    }
}
