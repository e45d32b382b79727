//! JSON scanner that builds no values and does not recurse: the sender controls the nesting.
//!
//! It is written by hand because an envelope is read once, and parsers that build values lose what
//! is needed: the position of each value, so that a payload keeps its bytes; strings with lone
//! surrogates; duplicate fields; numbers of any size; and reading on after a wrong value. It
//! accepts the same JSON as `serde_json`, which tests compare.

use std::borrow::Cow;
use std::ops::Range;

/// The text is not JSON, or too deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    /// At this byte.
    pub(crate) at: usize,
    pub(crate) why: JsonErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonErrorKind {
    /// The expected input.
    Expected(&'static str),
    /// Nested deeper than was allowed.
    TooDeep,
}

impl JsonErrorKind {
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Expected(what) => what,
            Self::TooDeep => "less nesting",
        }
    }
}

/// The inside of a string, without its quotes.
#[derive(Clone, Debug)]
pub(crate) struct JsonString {
    pub(crate) range: Range<usize>,
    pub(crate) escaped: bool,
}

/// Position in a text.
#[derive(Clone, Debug)]
pub(crate) struct Scanner<'a> {
    bytes: &'a [u8],
    pub(crate) at: usize,
    /// Bytes of white space outside strings so far.
    pub(crate) blanks: usize,
}

type Result<T> = std::result::Result<T, JsonError>;

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at: 0, blanks: 0 }
    }

    /// Returns the next byte that is not white space; 0 at the end.
    pub(crate) fn peek(&mut self) -> u8 {
        let start = self.at;
        while matches!(self.here(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        self.blanks += self.at - start;
        self.here()
    }

    fn here(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    /// Skips a token of one byte, if it comes next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == byte;
        self.at += usize::from(there);
        there
    }

    pub(crate) fn expected<T>(&self, what: &'static str) -> Result<T> {
        Err(JsonError { at: self.at, why: JsonErrorKind::Expected(what) })
    }

    /// Checks that nothing more follows.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.peek();
        if self.at == self.bytes.len() { Ok(()) } else { self.expected("the end") }
    }

    /// Reads the name of a member and its colon.
    pub(crate) fn name(&mut self) -> Result<JsonString> {
        if self.peek() != b'"' {
            return self.expected("a name in quotes");
        }
        let name = self.string()?;
        if self.take(b':') { Ok(name) } else { self.expected("a colon") }
    }

    /// Reads a string whose first quote comes next.
    pub(crate) fn string(&mut self) -> Result<JsonString> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = &self.bytes[self.at.min(self.bytes.len())..];
            let Some(n) = find_special(rest) else {
                self.at = self.bytes.len();
                return self.expected("the end of a string");
            };
            self.at += n;
            match rest[n] {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return self.expected("an escaped control character"),
            }
        }
        self.at += 1;
        Ok(JsonString { range: start..self.at - 1, escaped })
    }

    fn escape(&mut self) -> Result<()> {
        let length = match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') if hex4(self.bytes, self.at + 2).is_some() => 6,
            _ => return self.expected("an escape"),
        };
        self.at += length;
        Ok(())
    }

    /// Decodes a string: UTF-8, with lone surrogates as if they were characters.
    pub(crate) fn decode(&self, text: &JsonString) -> Cow<'a, [u8]> {
        let inside = &self.bytes[text.range.clone()];
        if text.escaped { Cow::Owned(unescape(inside)) } else { Cow::Borrowed(inside) }
    }

    /// Skips a number; returns whether it is an integer.
    pub(crate) fn number(&mut self) -> Result<bool> {
        self.at += usize::from(self.here() == b'-');
        match self.here() {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        let mut integer = true;
        if self.here() == b'.' {
            integer = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.here(), b'e' | b'E') {
            integer = false;
            self.at += 1;
            self.at += usize::from(matches!(self.here(), b'+' | b'-'));
            self.digits()?;
        }
        Ok(integer)
    }

    fn digits(&mut self) -> Result<()> {
        if !self.here().is_ascii_digit() {
            return self.expected("a digit");
        }
        while self.here().is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    fn scalar(&mut self) -> Result<()> {
        let word: &[u8] = match self.here() {
            b'"' => return self.string().map(drop),
            b'-' | b'0'..=b'9' => return self.number().map(drop),
            b't' => b"true",
            b'f' => b"false",
            b'n' => b"null",
            _ => return self.expected("a value"),
        };
        if !self.bytes[self.at..].starts_with(word) {
            return self.expected("a value");
        }
        self.at += word.len();
        Ok(())
    }

    /// Skips one value, at most `most` arrays and objects deep; returns its range.
    pub(crate) fn skip(&mut self, most: usize) -> Result<Range<usize>> {
        self.peek();
        let start = self.at;
        // For each open array or object, whether it is an object.
        let mut nest = Vec::new();
        loop {
            let open = self.peek();
            if open == b'{' || open == b'[' {
                if nest.len() == most {
                    return Err(JsonError { at: self.at, why: JsonErrorKind::TooDeep });
                }
                self.at += 1;
                nest.push(open == b'{');
                if !self.take(if open == b'{' { b'}' } else { b']' }) {
                    if open == b'{' {
                        self.name()?;
                    }
                    continue;
                }
                nest.pop();
            } else {
                self.scalar()?;
            }
            while let Some(&object) = nest.last()
                && !self.take(b',')
            {
                if !self.take(if object { b'}' } else { b']' }) {
                    return self.expected(if object { "a comma or }" } else { "a comma or ]" });
                }
                nest.pop();
            }
            match nest.last() {
                None => return Ok(start..self.at),
                Some(true) => _ = self.name()?,
                Some(false) => {}
            }
        }
    }
}

/// End of a run of plain text: a quote, a backslash or a control character.
fn find_special(bytes: &[u8]) -> Option<usize> {
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    // Sixteen at a time, without a branch for each, so that the compiler vectorises it.
    let plain = |chunk: &&[u8]| !chunk.iter().fold(false, |any, byte| any | special(byte));
    let skipped = 16 * bytes.chunks_exact(16).take_while(plain).count();
    Some(skipped + bytes[skipped..].iter().position(special)?)
}

fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 4)?;
    digits.iter().try_fold(0, |sum, digit| Some(sum << 4 | char::from(*digit).to_digit(16)?))
}

/// Decodes the inside of a string that was skipped before.
pub(super) fn unescape(inside: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(n) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..n]);
        let escape = rest.get(n + 1).copied().unwrap_or(b'\\');
        rest = rest.get(n + 2..).unwrap_or_default();
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let (point, taken) = point(rest);
                push_point(&mut out, point);
                rest = rest.get(taken..).unwrap_or_default();
            }
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Returns the code point after `\u`, and the length of its escape: a surrogate pair is one.
fn point(rest: &[u8]) -> (u32, usize) {
    let first = hex4(rest, 0).unwrap_or(0);
    let second = match rest.get(4..6) {
        Some(b"\\u") if (0xD800..0xDC00).contains(&first) => hex4(rest, 6),
        _ => None,
    };
    match second {
        Some(second) if (0xDC00..0xE000).contains(&second) => {
            (0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00), 10)
        }
        _ => (first, 4),
    }
}

fn push_point(out: &mut Vec<u8>, point: u32) {
    match char::from_u32(point) {
        Some(char) => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        // A lone surrogate, encoded like any other character of its size.
        None => out.extend([
            0xE0 | (point >> 12) as u8,
            0x80 | (point >> 6 & 0x3F) as u8,
            0x80 | (point & 0x3F) as u8,
        ]),
    }
}
