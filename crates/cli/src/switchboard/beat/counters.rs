//! What a connector has done, from options or a file.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tenure_core::{Code, StoreError};
use tenure_wire::heartbeat::Counters;

/// As in a heartbeat.
const LARGEST: u64 = (1 << 53) - 1;
/// No file with five numbers is larger.
const LONGEST: u64 = 64 << 10;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Messages that were submitted and accepted as new, since the connector started
    #[arg(long, value_name = "N", value_parser = number())]
    ingested: Option<u64>,
    /// Messages that were given up
    #[arg(long, value_name = "N", value_parser = number())]
    failed: Option<u64>,
    /// Calls to the source
    #[arg(long, value_name = "N", value_parser = number())]
    api_calls: Option<u64>,
    /// Checkpoints that were stored
    #[arg(long, value_name = "N", value_parser = number())]
    checkpoint_saves: Option<u64>,
    /// Messages that were accepted as seen before
    #[arg(long, value_name = "N", value_parser = number())]
    duplicates: Option<u64>,
    /// A file with counters, a JSON object or lines NAME=N; - is standard input. Options win
    #[arg(long, value_name = "PATH")]
    counters: Option<PathBuf>,
}

fn number() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(0..=LARGEST)
}

/// Counters that somebody gave; what is missing was not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Told {
    messages_ingested: Option<u64>,
    messages_failed: Option<u64>,
    source_api_calls: Option<u64>,
    checkpoint_saves: Option<u64>,
    dedupe_accepted: Option<u64>,
}

const NAMES: [&str; 5] = [
    "messages_ingested",
    "messages_failed",
    "source_api_calls",
    "checkpoint_saves",
    "dedupe_accepted",
];

impl Told {
    fn all(&mut self) -> [&mut Option<u64>; 5] {
        [
            &mut self.messages_ingested,
            &mut self.messages_failed,
            &mut self.source_api_calls,
            &mut self.checkpoint_saves,
            &mut self.dedupe_accepted,
        ]
    }

    /// These, and where nothing was told, those.
    fn or(mut self, mut other: Self) -> Self {
        for (mine, other) in self.all().into_iter().zip(other.all()) {
            *mine = mine.or(*other);
        }
        self
    }

    fn counters(self) -> Counters {
        // None is larger than LARGEST.
        let count = |told: Option<u64>| i64::try_from(told.unwrap_or(0)).unwrap_or(i64::MAX);
        Counters {
            messages_ingested: count(self.messages_ingested),
            messages_failed: count(self.messages_failed),
            source_api_calls: count(self.source_api_calls),
            checkpoint_saves: count(self.checkpoint_saves),
            dedupe_accepted: count(self.dedupe_accepted),
        }
    }
}

/// Where the counters come from: what was typed wins over what a file has.
#[derive(Clone, Debug)]
pub(super) struct Source {
    typed: Told,
    file: Option<PathBuf>,
}

impl Source {
    pub(super) fn new(options: &Options) -> Self {
        let typed = Told {
            messages_ingested: options.ingested,
            messages_failed: options.failed,
            source_api_calls: options.api_calls,
            checkpoint_saves: options.checkpoint_saves,
            dedupe_accepted: options.duplicates,
        };
        Self { typed, file: options.counters.clone() }
    }

    /// Whether they can be read once only.
    pub(super) fn is_stdin(&self) -> bool {
        self.file.as_deref() == Some(Path::new("-"))
    }

    /// What there is to tell now. A file that is read again and again must be one: a pipe could
    /// make this wait for ever.
    pub(super) fn read(&self, again: bool) -> Result<Counters, StoreError> {
        let Some(path) = &self.file else { return Ok(self.typed.counters()) };
        let shown = if self.is_stdin() { "standard input".into() } else { path.to_string_lossy() };
        let bad =
            |what: &dyn Display| StoreError::refused(Code::BadCounters, format!("{shown}: {what}"));
        let text = self.text(path, again).map_err(|error| bad(&error))?;
        let told = parse(&text).map_err(|what| bad(&what))?;
        Ok(self.typed.or(told).counters())
    }

    fn text(&self, path: &Path, again: bool) -> io::Result<String> {
        let mut text = String::new();
        let size = match self.is_stdin() {
            true => io::stdin().lock().take(LONGEST + 1).read_to_string(&mut text)?,
            false => {
                if again && !fs::metadata(path)?.is_file() {
                    return Err(io::Error::other("not a file, and it has to be read again"));
                }
                File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?
            }
        };
        if size as u64 > LONGEST {
            return Err(io::Error::other(format!("it has more than {LONGEST} bytes")));
        }
        Ok(text)
    }
}

/// Reads a JSON object, or lines.
fn parse(text: &str) -> Result<Told, String> {
    let mut told = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => parse_lines(text)?,
    };
    for (name, count) in NAMES.iter().zip(told.all()) {
        if count.is_some_and(|count| count > LARGEST) {
            return Err(format!("{name} is more than {LARGEST}"));
        }
    }
    Ok(told)
}

/// Reads `NAME N` or `NAME=N`, one on a line; `#` begins a remark.
fn parse_lines(text: &str) -> Result<Told, String> {
    let mut told = Told::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |what: String| format!("line {number}: {what}");
        let parts = line.split_once('=').or_else(|| line.split_once(char::is_whitespace));
        let (name, value) = parts.map_or((line, ""), |(name, value)| (name.trim(), value.trim()));
        let Some(place) = NAMES.iter().position(|known| *known == name) else {
            let names = NAMES.join(", ");
            return Err(wrong(format!("{name:?} is no counter; there are {names}")));
        };
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let count = value.parse().ok().filter(|_| digits);
        let count: u64 = count.ok_or_else(|| wrong(format!("{value:?} is not a whole number")))?;
        let all = told.all();
        if all[place].replace(count).is_some() {
            return Err(wrong(format!("{name} is there twice")));
        }
    }
    // An empty file may be one that is being written: it does not say that all began anew.
    match told == Told::default() {
        true => Err("there is no counter in it".to_owned()),
        false => Ok(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(ingested: u64, failed: u64) -> Told {
        Told { messages_ingested: Some(ingested), messages_failed: Some(failed), ..Told::default() }
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
        assert_eq!(parse("{}"), Ok(Told::default()));
        assert_eq!(
            parse("dedupe_accepted 9007199254740991").unwrap().dedupe_accepted,
            Some(LARGEST)
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
            ("messages 1", "line 1: \"messages\" is no counter; there are messages_ingested"),
            ("\nmessages_failed", "line 2: \"\" is not a whole number"),
            ("messages_failed -1", "\"-1\" is not a whole number"),
            ("messages_failed +1", "\"+1\" is not a whole number"),
            ("messages_failed 1.0", "\"1.0\" is not a whole number"),
            ("messages_failed 1 2", "\"1 2\" is not a whole number"),
            ("messages_failed 1\nmessages_failed 1", "line 2: messages_failed is there twice"),
            ("messages_failed 9007199254740992", "is more than 9007199254740991"),
            ("messages_failed 99999999999999999999", "is not a whole number"),
            ("[1]", "\"[1]\" is no counter"),
            ("", "there is no counter in it"),
            ("\n# none yet\n", "there is no counter in it"),
        ] {
            let what = parse(text).expect_err(text);
            assert!(what.contains(says), "{text}: {what}");
        }
    }

    #[test]
    fn what_was_typed_wins() {
        let typed = Told { messages_ingested: Some(1), ..Told::default() };
        assert_eq!(typed.or(some(7, 8)), some(1, 8));
    }
}
