//! Cron expressions: five fields, matched against local times without a time zone.

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use tenure_core::text::escaped;
use tenure_core::{Code, StoreError};

/// The fields in their order, with their values.
const FIELDS: [(&str, &str); 5] = [
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of month", "1-31 or L"),
    ("month", "1-12 or JAN-DEC"),
    ("day of week", "0-7 or SUN-SAT"),
];

/// Names for common expressions.
const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

const MAX_EXPRESSION_BYTES: usize = 256;

/// Years without a match after which an expression never matches. The rarest valid ones, such as a
/// leap day that is a Sunday, may need 40, across a century without a leap day.
const MAX_YEARS_AHEAD: i16 = 60;
/// Years that the parser searches at a time.
const YEARS_AT_A_TIME: i16 = 4;

/// A cron expression.
#[derive(Clone, Debug)]
pub(crate) struct CronExpression {
    text: String,
    /// The expression in UTC, in which every local time exists once.
    crontab: Crontab,
    follows_clock: bool,
}

impl CronExpression {
    /// Parses an expression; an error names the field and the reason.
    pub(crate) fn parse(given: &str) -> Result<Self, StoreError> {
        let fail = |what: String| StoreError::refused(Code::BadSchedule, what);
        let text = given.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        if text.len() > MAX_EXPRESSION_BYTES {
            let (bytes, most) = (text.len(), MAX_EXPRESSION_BYTES);
            return Err(fail(format!("the expression has {bytes} bytes; the limit is {most}")));
        }
        let nickname = text.starts_with('@').then(|| text.to_ascii_lowercase());
        let fields = match &nickname {
            Some(name) => nickname_fields(name).map_err(fail)?,
            None => &text,
        };
        let words: Vec<&str> = fields.split(' ').filter(|word| !word.is_empty()).collect();
        if words.len() != FIELDS.len() {
            return Err(fail(wrong_count(words.len(), &text)));
        }
        for (n, word) in words.iter().enumerate() {
            check_field(n, word).map_err(fail)?;
        }
        let crontab = parse(fields).map_err(|error| fail(reason(&error)))?;
        let follows_clock = words[..2].iter().any(|word| word.starts_with('*'));
        let expression = Self { crontab, follows_clock, text };
        let epoch = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        if expression.next(epoch).is_none() {
            return Err(fail(format!("{:?} never occurs: no such day exists", expression.text)));
        }
        Ok(expression)
    }

    /// The text, with single spaces.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the expression follows elapsed time: its minute or hour begins with `*`.
    pub(crate) fn follows_clock(&self) -> bool {
        self.follows_clock
    }

    /// Returns the first local time after `after` that matches.
    pub(crate) fn next(&self, after: DateTime) -> Option<DateTime> {
        let mut from = after;
        let last = after.year().checked_add(MAX_YEARS_AHEAD)?;
        while from.year() <= last {
            if let Ok(found) = self.crontab.find_next(as_utc(from)?) {
                return Some(found.datetime());
            }
            // A minute less, so that the windows leave none out.
            from = from.checked_add(YEARS_AT_A_TIME.years()).ok()?.checked_sub(1.minute()).ok()?;
        }
        None
    }

    /// Whether a local time matches.
    pub(crate) fn matches(&self, local: DateTime) -> bool {
        as_utc(local).is_some_and(|at| self.crontab.matches(at).unwrap_or(false))
    }
}

fn as_utc(local: DateTime) -> Option<MakeTimestamp> {
    let at: Timestamp = TimeZone::UTC.to_timestamp(local).ok()?;
    Some(MakeTimestamp(at))
}

fn nickname_fields(name: &str) -> Result<&'static str, String> {
    let found = NICKNAMES.iter().find(|(nickname, _)| *nickname == name);
    found.map(|(_, fields)| *fields).ok_or_else(|| {
        let known: Vec<&str> = NICKNAMES.iter().map(|(nickname, _)| *nickname).collect();
        format!("{:?} is not one of {}", escaped(name), known.join(", "))
    })
}

fn wrong_count(count: usize, text: &str) -> String {
    let note = match count {
        6 => "; seconds and years are not supported, and a time zone is given by --tz",
        // A shell has replaced the stars.
        7.. => "; put the expression in quotes",
        _ => "",
    };
    let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
    let fields = tenure_core::text::counted(count, "field", "fields");
    format!("{:?} has {fields} instead of 5: {}{note}", escaped(text), names.join(", "))
}

/// Checks one field by itself, so that an error can name it.
fn check_field(n: usize, word: &str) -> Result<(), String> {
    let mut words = ["*"; FIELDS.len()];
    words[n] = word;
    let problem = match parse(&words.join(" ")) {
        Ok(_) => return Ok(()),
        Err(error) => reason(&error),
    };
    let (name, values) = FIELDS[n];
    Err(format!("the field {name}, {:?}: {problem} (values: {values})", escaped(word)))
}

fn parse(fields: &str) -> Result<Crontab, cronexpr::Error> {
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    parse_crontab_with(&fields.to_ascii_uppercase(), options)
}

/// Returns the reason of the parser, without the expression that it repeats above a caret.
fn reason(error: &cronexpr::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.split_once("^ ").map_or(last, |(_, reason)| reason).trim().to_owned()
}
