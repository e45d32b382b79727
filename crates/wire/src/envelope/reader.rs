//! Reader for the values of an envelope. It collects errors and reads on.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use uuid::Uuid;

use super::json::{self, JsonError, JsonString, Scanner};
use super::time::{self, Wrong};
use super::{InvalidEnvelope, Issue, MAX_DEPTH, MAX_IDENTITY_BYTES, text};

type FieldNames = &'static [&'static str];

/// Required and optional fields of an object; others are rejected.
pub(crate) struct ObjectShape(pub(crate) FieldNames, pub(crate) FieldNames);

impl ObjectShape {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().chain(self.1).copied()
    }
}

/// Largest integer that every JSON reader represents exactly.
const MAX_INTEGER: i128 = (1 << 53) - 1;

/// JSON that is stored unchanged.
pub(crate) struct RawJson<'a> {
    pub(crate) json: &'a str,
    /// White space outside its strings.
    pub(crate) blanks: usize,
}

enum PathStep {
    Name(&'static str),
    Item(usize),
}

/// Position in an envelope, and the findings so far. A wrong value is noted and skipped; only
/// invalid JSON ends the reading.
pub(crate) struct Reader<'a> {
    protocol: &'static str,
    text: &'a str,
    pub(super) scan: Scanner<'a>,
    path: Vec<PathStep>,
    depth: usize,
    issues: Vec<Issue>,
    more: usize,
    /// Whether unknown fields are stored rather than rejected.
    pub(crate) keeps_unknown: bool,
    /// Notes of values that were changed or left out so that the rest can be stored.
    pub(crate) mended: Vec<String>,
    /// Replacements of parts of the text, in order.
    edits: Vec<(Range<usize>, String)>,
}

type FieldResult<T> = Result<Option<T>, JsonError>;

impl<'a> Reader<'a> {
    pub(super) fn new(protocol: &'static str, text: &'a str) -> Self {
        Self {
            protocol,
            text,
            scan: Scanner::new(text),
            path: Vec::with_capacity(4),
            depth: 0,
            issues: Vec::new(),
            more: 0,
            keeps_unknown: false,
            mended: Vec::new(),
            edits: Vec::new(),
        }
    }

    /// Notes that the current value is wrong.
    pub(crate) fn issue(&mut self, kind: &'static str, says: String) {
        self.issue_at(None, kind, || says);
    }

    fn issue_at(&mut self, name: Option<&str>, kind: &'static str, says: impl FnOnce() -> String) {
        if self.issues.len() == InvalidEnvelope::MAX_ISSUES {
            self.more += 1;
            return;
        }
        self.issues.push(Issue { kind, at: self.place(name), says: says() });
    }

    fn place(&self, name: Option<&str>) -> String {
        let step = |step: &PathStep| match step {
            PathStep::Name(name) => (*name).to_owned(),
            PathStep::Item(n) => n.to_string(),
        };
        let steps = self.path.iter().map(step).chain(name.map(str::to_owned));
        steps.collect::<Vec<_>>().join(".")
    }

    /// Notes a change of the current value, which is still accepted.
    fn mend(&mut self, says: &str) {
        self.mended.push(format!("{} {says}", self.place(None)));
    }

    /// Skips a value of the wrong type.
    fn wrong<T>(&mut self, kind: &'static str, should: &str) -> FieldResult<T> {
        let range = self.scan.skip(MAX_DEPTH - self.depth)?;
        let given = text::shown_value(&self.text.as_bytes()[range]);
        self.issue(kind, format!("{given} is not {should}"));
        Ok(None)
    }

    /// Reads an object: calls `field` in front of the value of each known field.
    pub(crate) fn object(
        &mut self,
        shape: &ObjectShape,
        mut field: impl FnMut(&mut Self, &'static str) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        if !self.scan.take(b'{') {
            return self.wrong::<()>("model_type", "an object").map(drop);
        }
        self.depth += 1;
        let mut seen = 0_u32;
        let mut unknown = BTreeSet::new();
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
                    self.path.push(PathStep::Name(known));
                    field(self, known)?;
                    self.path.pop();
                }
                None if self.keeps_unknown && unknown.insert(name.to_vec()) => {
                    self.scan.skip(MAX_DEPTH - self.depth)?;
                }
                known => {
                    let twice = known.is_some() || unknown.contains(&*name);
                    self.refuse_field(shape, &name, twice)?;
                }
            }
        }
        self.depth -= 1;
        for (n, name) in shape.0.iter().enumerate() {
            if seen & (1 << n) == 0 {
                self.issue_at(Some(name), "missing", || "is missing".to_owned());
            }
        }
        Ok(())
    }

    /// Skips an unknown or repeated field.
    fn refuse_field(
        &mut self,
        shape: &ObjectShape,
        name: &[u8],
        twice: bool,
    ) -> Result<(), JsonError> {
        self.scan.skip(MAX_DEPTH - self.depth)?;
        let name = text::shown_name(name);
        if twice {
            self.issue_at(Some(&name), "duplicate_key", || "is given twice".to_owned());
        } else {
            let protocol = self.protocol;
            let says = || {
                let names = shape.names().collect::<Vec<_>>().join(", ");
                format!("is not a field of {protocol}; known fields: {names}")
            };
            self.issue_at(Some(&name), "extra_forbidden", says);
        }
        Ok(())
    }

    /// Reads an array, or null: calls `item` in front of each item; returns their number.
    pub(crate) fn array(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<usize, JsonError> {
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
            self.path.push(PathStep::Item(count));
            item(self)?;
            self.path.pop();
            count += 1;
        }
        self.depth -= 1;
        Ok(count)
    }

    /// Reads a value that may be null.
    pub(crate) fn nullable<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> FieldResult<T>,
    ) -> FieldResult<T> {
        if self.scan.peek() != b'n' {
            return value(self);
        }
        self.scan.skip(0)?;
        Ok(None)
    }

    /// Reads an object that is stored unchanged.
    pub(crate) fn kept(&mut self) -> FieldResult<RawJson<'a>> {
        if self.scan.peek() != b'{' {
            return self.wrong("dict_type", "an object");
        }
        let before = self.scan.blanks;
        let range = self.scan.skip(MAX_DEPTH - self.depth)?;
        Ok(Some(RawJson { json: &self.text[range], blanks: self.scan.blanks - before }))
    }

    /// Reads a text that is not blank, and trims it.
    pub(crate) fn text(&mut self) -> FieldResult<Cow<'a, [u8]>> {
        let said = self.trimmed()?;
        if said.as_ref().is_some_and(|said| said.is_empty()) {
            self.issue("string_too_short", "is empty; it needs at least 1 character".to_owned());
            return Ok(None);
        }
        Ok(said)
    }

    /// Reads a string, as it is written and decoded.
    fn string(
        &mut self,
        kind: &'static str,
        should: &str,
    ) -> FieldResult<(JsonString, Cow<'a, [u8]>)> {
        if self.scan.peek() != b'"' {
            return self.wrong(kind, should);
        }
        let string = self.scan.string()?;
        let said = self.scan.decode(&string);
        Ok(Some((string, said)))
    }

    /// Reads a text, which may be blank, and trims it.
    fn trimmed(&mut self) -> FieldResult<Cow<'a, [u8]>> {
        let Some((string, said)) = self.string("string_type", "a string")? else {
            return Ok(None);
        };
        let kept = text::trim(&said);
        if kept.len() == said.len() {
            return Ok(Some(said));
        }
        Ok(Some(match said {
            Cow::Borrowed(said) => {
                let start = string.range.start;
                self.edits.push((start..start + kept.start, String::new()));
                self.edits.push((start + kept.end..string.range.end, String::new()));
                Cow::Borrowed(&said[kept])
            }
            Cow::Owned(said) => {
                self.edits.push((string.range, text::encode(&said[kept.clone()])));
                Cow::Owned(said[kept].to_vec())
            }
        }))
    }

    /// Reads a text that every store can keep and index.
    pub(crate) fn identity(&mut self) -> FieldResult<String> {
        self.name(MAX_IDENTITY_BYTES)
    }

    /// Reads a text of at most `most` bytes that is not blank, and that every store can keep.
    pub(crate) fn name(&mut self, most: usize) -> FieldResult<String> {
        let Some(said) = self.text()? else { return Ok(None) };
        if said.len() > most {
            let says = format!("has {} bytes; the limit is {most}", said.len());
            self.issue("string_too_long", says);
            return Ok(None);
        }
        let text = text::storable(&said).map(str::to_owned);
        if text.is_none() {
            let said = text::shown(&said);
            let says =
                format!("{said} contains a NUL or a lone surrogate, which no store can keep");
            self.issue("invalid_text", says);
        }
        Ok(text)
    }

    /// Reads a text for people; null and blank texts count as missing. It is never rejected:
    /// characters that no store can keep are replaced, and it is cut to `most` bytes.
    pub(crate) fn remark(&mut self, most: usize) -> FieldResult<String> {
        let said = self.nullable(Self::trimmed)?.filter(|said| !said.is_empty());
        let Some(said) = said else { return Ok(None) };
        let mut text = match text::storable(&said) {
            Some(text) => text.to_owned(),
            None => {
                self.mend("contained a NUL or a lone surrogate, which was replaced by U+FFFD");
                String::from_utf8_lossy(&said).replace('\0', "\u{fffd}")
            }
        };
        if text.len() > most {
            self.mend(&format!("was longer than {most} bytes and was truncated"));
            text = text::cut(&text, most, said.len());
        }
        Ok(Some(text))
    }

    /// Reads an object that is stored unchanged. It is left out if it has more than `most` bytes,
    /// or characters that no store can keep.
    pub(crate) fn small_object(&mut self, most: usize) -> FieldResult<String> {
        let Some(RawJson { json, .. }) = self.kept()? else { return Ok(None) };
        if json.len() > most {
            self.mend(&format!("had more than {most} bytes of JSON and was dropped"));
        } else if text::storable(&json::unescape(json.as_bytes())).is_none() {
            // Only strings have escapes, so the whole can be decoded as one.
            self.mend("contained a NUL or a lone surrogate and was dropped");
        } else {
            return Ok(Some(json.to_owned()));
        }
        Ok(None)
    }

    /// Reads a UUID in any notation.
    pub(crate) fn uuid(&mut self) -> FieldResult<Uuid> {
        const FORM: &str = "a UUID like 0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10";
        if self.scan.peek() != b'"' {
            return self.wrong("uuid_type", FORM);
        }
        let Some(said) = self.text()? else { return Ok(None) };
        let uuid = Uuid::try_parse_ascii(&said).ok();
        if uuid.is_none() {
            self.issue("uuid_parsing", format!("{} is not {FORM}", text::shown(&said)));
        }
        Ok(uuid)
    }

    /// Reads `schema_version`, which names the protocol.
    pub(crate) fn version(&mut self) -> Result<(), JsonError> {
        if let Some(given) = self.text()?
            && *given != *self.protocol.as_bytes()
        {
            let says = format!("{} is not {}", text::shown(&given), self.protocol);
            self.issue("unsupported_schema_version", says);
        }
        Ok(())
    }

    /// Reads one of a list of words.
    pub(crate) fn one_of<'w>(&mut self, words: &'w [impl AsRef<str>]) -> FieldResult<&'w str> {
        let mut known = words.iter().map(AsRef::as_ref);
        let all = || words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        let Some((_, said)) = self.string("literal_error", &format!("one of {}", all()))? else {
            return Ok(None);
        };
        let word = known.find(|word| word.as_bytes() == &*said);
        if word.is_none() {
            let says = format!("{} is not one of {}", text::shown(&said), all());
            self.issue("literal_error", says);
        }
        Ok(word)
    }

    /// Reads an integer of at least `least`.
    pub(crate) fn integer(&mut self, least: i128) -> FieldResult<u64> {
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
        let value = given.parse().unwrap_or(far);
        if value < least {
            self.issue("greater_than_equal", format!("{shown} is less than {least}"));
        } else if value > MAX_INTEGER {
            self.issue("less_than_equal", format!("{shown} is more than {MAX_INTEGER}"));
        } else {
            return Ok(u64::try_from(value).ok());
        }
        Ok(None)
    }

    /// Reads a time in microseconds; finer digits are removed from the envelope.
    pub(crate) fn time(&mut self) -> FieldResult<i64> {
        const FORM: &str = "a time like 2026-02-15T10:30:00.25Z or 2026-02-15T10:30:00+01:00";
        let Some((string, said)) = self.string("rfc3339_string_required", FORM)? else {
            return Ok(None);
        };
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
                    Wrong::NoOffset => ("timezone_required", "has no time zone; it must be"),
                    Wrong::Form => ("rfc3339_string_required", "is not"),
                };
                self.issue(kind, format!("{} {why} {FORM}", text::shown(&said)));
                Ok(None)
            }
        }
    }

    /// Returns the envelope as it is stored, after all of it was read.
    pub(super) fn end(mut self, start: usize) -> Result<String, InvalidEnvelope> {
        let end = self.scan.at;
        self.scan.end().map_err(|broken| InvalidEnvelope::broken(self.protocol, broken))?;
        if !self.issues.is_empty() {
            let Self { protocol, issues, more, .. } = self;
            return Err(InvalidEnvelope { protocol, issues, more });
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
}
