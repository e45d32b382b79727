//! Counters of a connector, from fixed values or a file.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tenure_wire::heartbeat::{COUNTER_NAMES, Counters};

use crate::ConnectorError;

/// The largest value of a counter.
pub const MAX_COUNT: u64 = (1 << 53) - 1;
/// Size limit of a file with counters.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Counters since the connector started; a missing one is zero, or comes from a file.
pub type CounterValues = Counters<Option<u64>>;

/// Source of the counters. Fixed values take precedence over the file.
#[derive(Clone, Debug, Default)]
pub struct CounterSource {
    /// Fixed values.
    pub values: CounterValues,
    /// A file with a JSON object or lines `NAME=N`; `-` is standard input.
    pub file: Option<PathBuf>,
}

impl CounterSource {
    /// Whether the counters can be read only once.
    pub fn is_stdin(&self) -> bool {
        self.file.as_deref() == Some(Path::new("-"))
    }

    /// Reads the counters. A source that is read repeatedly must be a regular file: a pipe could
    /// block for ever.
    pub(crate) fn read(&self, repeatedly: bool) -> Result<Counters, ConnectorError> {
        let Some(path) = &self.file else {
            return Ok(merge(self.values, CounterValues::default()));
        };
        let input = if self.is_stdin() { "standard input".into() } else { path.to_string_lossy() };
        let bad = |problem: &dyn Display| ConnectorError::Counters {
            input: input.to_string(),
            problem: problem.to_string(),
        };
        let text = self.text(path, repeatedly).map_err(|error| bad(&error))?;
        let values = parse(&text).map_err(|problem| bad(&problem))?;
        Ok(merge(self.values, values))
    }

    fn text(&self, path: &Path, repeatedly: bool) -> io::Result<String> {
        let mut text = String::new();
        let size = match self.is_stdin() {
            true => io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?,
            false => {
                if repeatedly && !fs::metadata(path)?.is_file() {
                    return Err(io::Error::other(
                        "not a regular file, which repeated reads require",
                    ));
                }
                File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?
            }
        };
        if size as u64 > MAX_FILE_BYTES {
            return Err(io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
        Ok(text)
    }
}

/// Fills missing values from those of a file.
fn merge(fixed: CounterValues, read: CounterValues) -> Counters {
    fixed
        .zip(read)
        .map(|(fixed, read)| i64::try_from(fixed.or(read).unwrap_or(0)).unwrap_or(i64::MAX))
}

/// Parses a JSON object, or lines.
fn parse(text: &str) -> Result<CounterValues, String> {
    let values: CounterValues = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => parse_lines(text)?,
    };
    for (name, count) in COUNTER_NAMES.iter().zip(values.fields()) {
        if count.is_some_and(|count| count > MAX_COUNT) {
            return Err(format!("{name} is more than {MAX_COUNT}"));
        }
    }
    Ok(values)
}

/// Parses `NAME N` or `NAME=N`, one per line; `#` begins a comment.
fn parse_lines(text: &str) -> Result<CounterValues, String> {
    let mut values = CounterValues::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |what: String| format!("line {number}: {what}");
        let parts = line.split_once('=').or_else(|| line.split_once(char::is_whitespace));
        let (name, value) = parts.map_or((line, ""), |(name, value)| (name.trim(), value.trim()));
        let Some(counter) = values.get_mut(name) else {
            let names = COUNTER_NAMES.join(", ");
            return Err(wrong(format!("{name:?} is not a counter; the counters are {names}")));
        };
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let count = value.parse().ok().filter(|_| digits);
        let count: u64 = count.ok_or_else(|| wrong(format!("{value:?} is not a whole number")))?;
        if counter.replace(count).is_some() {
            return Err(wrong(format!("{name} occurs twice")));
        }
    }
    // An empty file may be in the middle of a write: it does not reset the counters.
    match values == CounterValues::default() {
        true => Err("it contains no counters".to_owned()),
        false => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(ingested: u64, failed: u64) -> CounterValues {
        CounterValues {
            messages_ingested: Some(ingested),
            messages_failed: Some(failed),
            ..CounterValues::default()
        }
    }

    #[test]
    fn objects_and_lines_are_read() {
        for text in [
            r#" {"messages_ingested": 7, "messages_failed": 0}"#,
            "messages_ingested 7\nmessages_failed 0\n",
            "# of today\n\nmessages_ingested=7 # so far\r\n  messages_failed = 0",
            "messages_ingested\t7\nmessages_failed  0",
        ] {
            assert_eq!(parse(text), Ok(some(7, 0)), "{text}");
        }
        assert_eq!(parse("{}"), Ok(CounterValues::default()));
        assert_eq!(
            parse("dedupe_accepted 9007199254740991").unwrap().dedupe_accepted,
            Some(MAX_COUNT)
        );
    }

    #[test]
    fn what_is_no_counter_is_named() {
        for (text, says) in [
            (r#"{"messages": 1}"#, "unknown field `messages`"),
            (r#"{"messages_failed": -1}"#, "invalid value: integer `-1`"),
            (r#"{"messages_failed": 1.0}"#, "floating point"),
            (r#"{"messages_failed": "1"}"#, "string"),
            (r#"{"messages_failed": true}"#, "boolean"),
            (r#"{"messages_failed": 1, "messages_failed": 1}"#, "duplicate field"),
            (r#"{"messages_failed": 9007199254740992}"#, "is more than 9007199254740991"),
            (r#"{"messages_failed": 1"#, "EOF"),
            (
                "messages 1",
                "line 1: \"messages\" is not a counter; the counters are messages_ingested",
            ),
            ("\nmessages_failed", "line 2: \"\" is not a whole number"),
            ("messages_failed -1", "\"-1\" is not a whole number"),
            ("messages_failed +1", "\"+1\" is not a whole number"),
            ("messages_failed 1.0", "\"1.0\" is not a whole number"),
            ("messages_failed 1 2", "\"1 2\" is not a whole number"),
            ("messages_failed 1\nmessages_failed 1", "line 2: messages_failed occurs twice"),
            ("messages_failed 9007199254740992", "is more than 9007199254740991"),
            ("messages_failed 99999999999999999999", "is not a whole number"),
            ("[1]", "\"[1]\" is not a counter"),
            ("", "it contains no counters"),
            ("\n# none yet\n", "it contains no counters"),
        ] {
            let what = parse(text).expect_err(text);
            assert!(what.contains(says), "{text}: {what}");
        }
    }

    #[test]
    fn what_was_typed_wins() {
        let typed = CounterValues { messages_ingested: Some(1), ..CounterValues::default() };
        let merged = merge(typed, some(7, 8));
        let expected = Counters { messages_ingested: 1, messages_failed: 8, ..Counters::default() };
        assert_eq!(merged, expected);
    }
}
