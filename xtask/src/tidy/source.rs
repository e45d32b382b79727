//! Rust text divided into code, comments, strings and tests, without a full parser.

use std::collections::BTreeSet;
use std::ops::Range;

/// Views of a Rust file of equal length: omitted text is blank, and line numbers stay the same.
#[derive(Debug)]
pub(crate) struct Rust {
    /// Everything but comments and the contents of literals.
    pub(crate) code: String,
    /// Contents of string literals only.
    pub(crate) strings: String,
    /// Lines, counted from one, with a comment that is not a doc comment.
    pub(crate) comments: BTreeSet<usize>,
    /// Lines of each item under `#[cfg(test)]`.
    tests: Vec<Range<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpanKind {
    Comment,
    DocComment,
    Str,
    Char,
}

type SourceSpan = (SpanKind, Range<usize>);

impl Rust {
    pub(crate) fn parse(text: &str) -> Self {
        let spans = spans(text.as_bytes());
        let mut code = text.as_bytes().to_vec();
        let mut strings = blank(text.as_bytes(), 0..text.len());
        for (kind, range) in &spans {
            if *kind == SpanKind::Str {
                strings[range.clone()].copy_from_slice(&text.as_bytes()[range.clone()]);
            }
            let blanked = blank(text.as_bytes(), range.clone());
            code[range.clone()].copy_from_slice(&blanked);
        }
        let code = String::from_utf8_lossy(&code).into_owned();
        let comments = spans
            .iter()
            .filter(|(kind, _)| *kind == SpanKind::Comment)
            .map(|(_, range)| line_of(text, range.start))
            .collect();
        let tests = test_items(&code);
        Self { strings: String::from_utf8_lossy(&strings).into_owned(), code, comments, tests }
    }

    /// Whether a line, counted from one, is compiled only for tests.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|lines| lines.contains(&line))
    }
}

/// Returns the line of a byte offset, counted from one.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the offsets of `needle` in `text` as whole words: `print!` is not found in `eprint!`.
pub(crate) fn find_words<'a>(text: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    let starts_word = needle.starts_with(is_word);
    let ends_word = needle.ends_with(is_word);
    text.match_indices(needle).map(|(offset, _)| offset).filter(move |&offset| {
        let glued_before = starts_word && text[..offset].ends_with(is_word);
        let glued_after = ends_word && text[offset + needle.len()..].starts_with(is_word);
        !glued_before && !glued_after
    })
}

/// Returns the offset after the bracket that closes the one at `open`, or the end of the text.
pub(crate) fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return offset + 1;
        }
    }
    code.len()
}

/// Returns the offset of the `{` that opens the body of the item at `from`; `None` before a `;`.
pub(crate) fn body_of(code: &str, from: usize) -> Option<usize> {
    let mut offset = from;
    while let Some(byte) = code.as_bytes().get(offset) {
        match byte {
            b'{' => return Some(offset),
            b';' => return None,
            b'(' | b'[' => offset = closing(code, offset),
            _ => offset += 1,
        }
    }
    None
}

pub(crate) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn test_items(code: &str) -> Vec<Range<usize>> {
    ["#[cfg(test)]", "#[cfg(all(test"]
        .iter()
        .flat_map(|attribute| code.match_indices(attribute))
        .filter_map(|(offset, _)| {
            let open = body_of(code, offset + 1)?;
            Some(line_of(code, offset)..line_of(code, closing(code, open)) + 1)
        })
        .collect()
}

fn blank(text: &[u8], range: Range<usize>) -> Vec<u8> {
    text[range].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }).collect()
}

fn spans(text: &[u8]) -> Vec<SourceSpan> {
    let mut spans = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match span_at(text, at) {
            Some((kind, range)) => {
                // A literal also has a closing quote, with the hashes of a raw string.
                at = range.end + usize::from(matches!(kind, SpanKind::Str | SpanKind::Char));
                spans.push((kind, range));
            }
            None => at += 1,
        }
    }
    spans
}

/// Returns the comment, or content of the literal, whose first byte or opening quote is at `at`.
fn span_at(text: &[u8], at: usize) -> Option<SourceSpan> {
    let rest = &text[at..];
    if rest.starts_with(b"//") {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let documents =
            rest.starts_with(b"//!") || (rest.starts_with(b"///") && !rest.starts_with(b"////"));
        let kind = if documents { SpanKind::DocComment } else { SpanKind::Comment };
        return Some((kind, at..at + end));
    }
    if rest.starts_with(b"/*") {
        return Some((SpanKind::Comment, at..at + block_comment(rest)));
    }
    match rest[0] {
        b'"' => Some((SpanKind::Str, at + 1..string_end(text, at))),
        b'\'' => char_end(text, at).map(|end| (SpanKind::Char, at + 1..end)),
        _ => None,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Returns the offset of the quote that closes the string opened at `open`.
fn string_end(text: &[u8], open: usize) -> usize {
    let hashes = text[..open].iter().rev().take_while(|byte| **byte == b'#').count();
    let is_raw = text[..open - hashes].ends_with(b"r");
    let mut at = open + 1;
    while at < text.len() {
        match text[at] {
            b'\\' if !is_raw => at += 2,
            b'"' if !is_raw => return at,
            b'"' if text[at + 1..].starts_with(&b"#".repeat(hashes)) => return at,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the offset of the quote that closes the one at `open`; `None` for a lifetime.
fn char_end(text: &[u8], open: usize) -> Option<usize> {
    if text.get(open + 1) == Some(&b'\\') {
        let escaped = open + 3;
        return text
            .get(escaped..)?
            .iter()
            .position(|byte| *byte == b'\'')
            .map(|end| escaped + end);
    }
    // A character has at most four bytes, and its first is a quote only if escaped.
    let inside = text.get(open + 1..)?;
    let length = match inside.first()? {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    (inside.get(length) == Some(&b'\'')).then_some(open + 1 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, code: &str) {
        assert_eq!(Rust::parse(text).code, code);
    }

    #[test]
    fn comments_are_left_out() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */ d */ e", "a                   e");
    }

    #[test]
    fn strings_are_left_out() {
        check(r#"f("a\"b{", c)"#, r#"f("     ", c)"#);
        check(r##"f(r#"a"b"#, c)"##, r##"f(r#"   "#, c)"##);
        check(r#"f(b"x", r"\")"#, r#"f(b" ", r" ")"#);
    }

    #[test]
    fn characters_are_left_out_and_lifetimes_stay() {
        check(r"f('{', '\'', '\u{7f}', 'é', &'a T)", "f(' ', '  ', '      ', '  ', &'a T)");
    }

    #[test]
    fn strings_have_their_own_view() {
        assert_eq!(Rust::parse(r#"f("ab") // "c""#).strings.trim(), "ab");
    }

    #[test]
    fn lines_with_reasons_are_known() {
        let rust = Rust::parse("/// doc\n// why\nlet x = \"// no\";\nf(); // why");
        assert_eq!(Vec::from_iter(rust.comments), [2, 4]);
    }

    #[test]
    fn test_items_are_known() {
        let rust = Rust::parse("fn a() {}\n#[cfg(test)]\nmod tests {\n    {}\n}\nfn b() {}");
        let tests: Vec<bool> = (1..=6).map(|line| rust.is_test(line)).collect();
        assert_eq!(tests, [false, true, true, true, true, false]);
    }

    #[test]
    fn words_are_found_whole() {
        let found: Vec<usize> = find_words("print! eprint! HashMap HashMaps", "print!").collect();
        assert_eq!(found, [0]);
        assert_eq!(find_words("HashMaps HashMap", "HashMap").collect::<Vec<_>>(), [9]);
    }
}
