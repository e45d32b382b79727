//! Reading the values that envelopes are made of, and remembering what is wrong with them.

use std::borrow::Cow;
use std::ops::Range;

use super::json::{Broken, Scanner};
use super::time::{self, Wrong};
use super::{Invalid, Issue, MAX_DEPTH, MAX_IDENTITY_BYTES, text};

/// The fields of an object; there may be no others.
pub(super) struct Shape {
    pub(super) required: &'static [&'static str],
    pub(super) optional: &'static [&'static str],
}

impl Shape {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.required.iter().chain(self.optional).copied()
    }
}

/// The largest integer that every reader of JSON can tell from its neighbours.
const MAX_INTEGER: i128 = (1 << 53) - 1;

/// JSON that is kept as it came.
pub(super) struct Kept<'a> {
    pub(super) json: &'a str,
    /// White space outside its strings.
    pub(super) blanks: usize,
}

enum Step {
    Name(&'static str),
    Item(usize),
}

/// A place in an envelope, and what was found on the way. A value that is wrong is noted, and
/// reading goes on; only broken JSON ends it.
pub(super) struct Reader<'a> {
    text: &'a str,
    scan: Scanner<'a>,
    path: Vec<Step>,
    depth: usize,
    issues: Vec<Issue>,
    more: usize,
    /// What is to be written instead of parts of the text, in order.
    edits: Vec<(Range<usize>, String)>,
}

type Read<T> = Result<Option<T>, Broken>;

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            scan: Scanner::new(text),
            path: Vec::with_capacity(4),
            depth: 0,
            issues: Vec::new(),
            more: 0,
            edits: Vec::new(),
        }
    }

    /// Notes that the value at this place is wrong.
    pub(super) fn issue(&mut self, kind: &'static str, says: String) {
        self.issue_at(None, kind, || says);
    }

    fn issue_at(&mut self, name: Option<&str>, kind: &'static str, says: impl FnOnce() -> String) {
        if self.issues.len() == Invalid::MOST {
            self.more += 1;
            return;
        }
        let step = |step: &Step| match step {
            Step::Name(name) => (*name).to_owned(),
            Step::Item(n) => n.to_string(),
        };
        let steps = self.path.iter().map(step).chain(name.map(str::to_owned));
        let at = steps.collect::<Vec<_>>().join(".");
        self.issues.push(Issue { kind, at, says: says() });
    }

    /// Goes over a value that is not what it should be.
    fn wrong<T>(&mut self, kind: &'static str, should: &str) -> Read<T> {
        let range = self.scan.skip(MAX_DEPTH - self.depth)?;
        let given = text::shown_value(&self.text.as_bytes()[range]);
        self.issue(kind, format!("{given} is not {should}"));
        Ok(None)
    }

    /// Reads an object: calls `field` in front of the value of each field that is known.
    pub(super) fn object(
        &mut self,
        shape: &Shape,
        mut field: impl FnMut(&mut Self, &'static str) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        if !self.scan.take(b'{') {
            return self.wrong::<()>("model_type", "an object").map(drop);
        }
        self.depth += 1;
        let mut seen = 0_u32;
        let mut first = true;
        while !self.scan.take(b'}') {
            if !first && !self.scan.take(b',') {
                return self.scan.expected("a comma or }");
            }
            first = false;
            let name = self.scan.name()?;
            let name = self.scan.decode(&name);
            match shape.names().enumerate().find(|(_, known)| known.as_bytes() == &*name) {
                Some((n, known)) if seen & (1 << n) == 0 => {
                    seen |= 1 << n;
                    self.path.push(Step::Name(known));
                    field(self, known)?;
                    self.path.pop();
                }
                known => self.refuse_field(shape, &name, known.is_some())?,
            }
        }
        self.depth -= 1;
        for (n, name) in shape.required.iter().enumerate() {
            if seen & (1 << n) == 0 {
                self.issue_at(Some(name), "missing", || "is missing".to_owned());
            }
        }
        Ok(())
    }

    /// Goes over a field that may not be there, or not twice.
    fn refuse_field(&mut self, shape: &Shape, name: &[u8], known: bool) -> Result<(), Broken> {
        self.scan.skip(MAX_DEPTH - self.depth)?;
        let name = text::shown_name(name);
        if known {
            self.issue_at(Some(&name), "duplicate_key", || "is there twice".to_owned());
        } else {
            let says = || {
                let names = shape.names().collect::<Vec<_>>().join(", ");
                format!("is not a field of ingest.v1; there may be {names}")
            };
            self.issue_at(Some(&name), "extra_forbidden", says);
        }
        Ok(())
    }

    /// Reads an array, or null: calls `item` in front of each item; says how many there were.
    pub(super) fn array(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), Broken>,
    ) -> Result<usize, Broken> {
        if self.scan.peek() == b'n' {
            return self.scan.skip(0).map(|_| 0);
        }
        if !self.scan.take(b'[') {
            return self.wrong::<()>("list_type", "an array or null").map(|_| 0);
        }
        self.depth += 1;
        let mut count = 0;
        while !self.scan.take(b']') {
            if count > 0 && !self.scan.take(b',') {
                return self.scan.expected("a comma or ]");
            }
            self.path.push(Step::Item(count));
            item(self)?;
            self.path.pop();
            count += 1;
        }
        self.depth -= 1;
        Ok(count)
    }

    /// Reads what may be null.
    pub(super) fn nullable<T>(&mut self, value: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.scan.peek() != b'n' {
            return value(self);
        }
        self.scan.skip(0)?;
        Ok(None)
    }

    /// Reads an object that is nobody's business here.
    pub(super) fn kept(&mut self) -> Read<Kept<'a>> {
        if self.scan.peek() != b'{' {
            return self.wrong("dict_type", "an object");
        }
        let before = self.scan.blanks;
        let range = self.scan.skip(MAX_DEPTH - self.depth)?;
        Ok(Some(Kept { json: &self.text[range], blanks: self.scan.blanks - before }))
    }

    /// Reads a text that says something; without the white space around it.
    pub(super) fn text(&mut self) -> Read<Cow<'a, [u8]>> {
        if self.scan.peek() != b'"' {
            return self.wrong("string_type", "a string");
        }
        let string = self.scan.string()?;
        let said = self.scan.decode(&string);
        let trimmed = text::trim(&said);
        if trimmed.is_empty() {
            self.issue("string_too_short", "is empty; it needs at least 1 character".to_owned());
            return Ok(None);
        }
        if trimmed.len() == said.len() {
            return Ok(Some(said));
        }
        self.edits.push((string.range, text::encode(trimmed)));
        Ok(Some(match said {
            Cow::Borrowed(said) => Cow::Borrowed(text::trim(said)),
            Cow::Owned(_) => Cow::Owned(trimmed.to_vec()),
        }))
    }

    /// Reads a text by which something is found again: every store can keep and index it.
    pub(super) fn identity(&mut self) -> Read<String> {
        let Some(said) = self.text()? else {
            return Ok(None);
        };
        if said.len() > MAX_IDENTITY_BYTES {
            let says = format!("has {} bytes; at most {MAX_IDENTITY_BYTES} may be", said.len());
            self.issue("string_too_long", says);
            return Ok(None);
        }
        match std::str::from_utf8(&said) {
            Ok(text) if !text.contains('\0') => Ok(Some(text.to_owned())),
            _ => {
                let says = "holds a NUL or a lone surrogate, which no store can keep";
                self.issue("invalid_text", format!("{} {says}", text::shown(&said)));
                Ok(None)
            }
        }
    }

    /// Reads one of a few words, exactly as it is written.
    pub(super) fn one_of(&mut self, words: &[&'static str]) -> Read<&'static str> {
        if self.scan.peek() != b'"' {
            return self.wrong("literal_error", &format!("one of {}", words.join(", ")));
        }
        let string = self.scan.string()?;
        let said = self.scan.decode(&string);
        let word = words.iter().find(|word| word.as_bytes() == &*said).copied();
        if word.is_none() {
            let says = format!("{} is not one of {}", text::shown(&said), words.join(", "));
            self.issue("literal_error", says);
        }
        Ok(word)
    }

    /// Reads an integer that is not less than `least`.
    pub(super) fn integer(&mut self, least: i128) -> Read<u64> {
        if !matches!(self.scan.peek(), b'-' | b'0'..=b'9') {
            return self.wrong("int_type", "an integer");
        }
        let start = self.scan.at;
        let integer = self.scan.number()?;
        let given = &self.text[start..self.scan.at];
        let shown = text::shown_name(given.as_bytes());
        if !integer {
            self.issue("int_type", format!("{shown} is not an integer"));
            return Ok(None);
        }
        let far = if given.starts_with('-') { i128::MIN } else { i128::MAX };
        match given.parse().unwrap_or(far) {
            value if value < least => {
                self.issue("greater_than_equal", format!("{shown} is less than {least}"));
                Ok(None)
            }
            value if value > MAX_INTEGER => {
                self.issue("less_than_equal", format!("{shown} is more than {MAX_INTEGER}"));
                Ok(None)
            }
            value => Ok(u64::try_from(value).ok()),
        }
    }

    /// Reads a time, in microseconds; finer digits are taken out of the envelope.
    pub(super) fn time(&mut self) -> Read<i64> {
        const FORM: &str = "a time like 2026-02-15T10:30:00.25Z or 2026-02-15T10:30:00+01:00";
        if self.scan.peek() != b'"' {
            return self.wrong("rfc3339_string_required", FORM);
        }
        let string = self.scan.string()?;
        let said = self.scan.decode(&string);
        match time::read(&said) {
            Ok(time) => {
                let (from, to) = time.finer;
                if from < to {
                    let edit = [&said[..from], &said[to..]].concat();
                    self.edits.push((string.range, text::encode(&edit)));
                }
                Ok(Some(time.micros))
            }
            Err(wrong) => {
                let (kind, why) = match wrong {
                    Wrong::NoOffset => ("timezone_required", "has no time zone: it is not"),
                    Wrong::Form => ("rfc3339_string_required", "is not"),
                };
                self.issue(kind, format!("{} {why} {FORM}", text::shown(&said)));
                Ok(None)
            }
        }
    }

    /// The envelope as it is kept, once all of it was read.
    pub(super) fn end(mut self, start: usize) -> Result<String, Invalid> {
        let end = self.scan.at;
        self.scan.end()?;
        if !self.issues.is_empty() {
            return Err(Invalid { issues: self.issues, more: self.more });
        }
        let mut envelope = String::with_capacity(end - start);
        let mut at = start;
        for (range, instead) in self.edits {
            envelope.push_str(&self.text[at..range.start]);
            envelope.push_str(&instead);
            at = range.end;
        }
        envelope.push_str(&self.text[at..end]);
        Ok(envelope)
    }

    /// Where the next value begins.
    pub(super) fn start(&mut self) -> usize {
        self.scan.peek();
        self.scan.at
    }
}
