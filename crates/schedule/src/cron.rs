//! Cron expressions: five fields, matched against local times without a time zone.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use tenure_core::text::{counted, escaped};
use tenure_core::{Code, StoreError};

/// A field of an expression.
struct CronField {
    name: &'static str,
    values: &'static str,
    /// Words that may stand for a value or modify it.
    words: &'static [&'static str],
}

const MONTHS: &[&str] =
    &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "L"];

/// The fields in their order.
const FIELDS: [CronField; 5] = [
    CronField { name: "minute", values: "0-59", words: &[] },
    CronField { name: "hour", values: "0-23", words: &[] },
    CronField { name: "day of month", values: "1-31 or L", words: &["L", "W", "LW"] },
    CronField { name: "month", values: "1-12 or JAN-DEC", words: MONTHS },
    CronField { name: "day of week", values: "0-7 or SUN-SAT", words: WEEKDAYS },
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

/// A cron expression.
#[derive(Clone, Debug)]
pub(crate) struct CronExpression {
    text: String,
    cron: Cron,
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
        let fields = match text.starts_with('@') {
            true => nickname_fields(&text).map_err(fail)?.to_owned(),
            false => text.clone(),
        };
        let words: Vec<&str> = fields.split(' ').filter(|word| !word.is_empty()).collect();
        let Ok(words) = <[&str; FIELDS.len()]>::try_from(words.as_slice()) else {
            return Err(fail(wrong_count(words.len(), &text)));
        };
        for (n, word) in words.iter().enumerate() {
            check_field(n, word).map_err(fail)?;
        }
        let cron = parse(words).map_err(|error| fail(reason(&error)))?;
        let follows_clock = words[..2].iter().any(|word| word.starts_with('*'));
        let expression = Self { cron, follows_clock, text };
        if expression.next(DateTime::constant(2000, 1, 1, 0, 0, 0, 0)).is_none() {
            let text = escaped(&expression.text);
            return Err(fail(format!("{text:?} never occurs: there is no such day")));
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
        self.cron.find_next_occurrence(&after, false).ok()
    }

    /// Whether a local time matches.
    pub(crate) fn matches(&self, local: DateTime) -> bool {
        self.cron.is_time_matching(&local).unwrap_or(false)
    }
}

fn nickname_fields(name: &str) -> Result<&'static str, String> {
    let found = NICKNAMES.iter().find(|(nickname, _)| nickname.eq_ignore_ascii_case(name));
    found.map(|(_, fields)| *fields).ok_or_else(|| {
        let known: Vec<&str> = NICKNAMES.iter().map(|(nickname, _)| *nickname).collect();
        format!("\"{}\" is not one of {}", escaped(name), known.join(", "))
    })
}

fn wrong_count(count: usize, text: &str) -> String {
    let note = match count {
        6 => "; seconds and years are not supported, and a time zone is given by --tz",
        // A shell has replaced the stars.
        7.. => "; put the expression in quotes",
        _ => "",
    };
    let names = FIELDS.each_ref().map(|field| field.name).join(", ");
    let (text, fields) = (escaped(text), counted(count, "field", "fields"));
    format!("\"{text}\" has {fields} instead of 5: {names}{note}")
}

/// Checks one field by itself, so that an error can name it.
fn check_field(n: usize, word: &str) -> Result<(), String> {
    let field = &FIELDS[n];
    let mut words = ["*"; FIELDS.len()];
    words[n] = word;
    let problem = match bad_text(field, &word.to_ascii_uppercase()) {
        Some(problem) => problem,
        None => match parse(words) {
            Ok(_) => return Ok(()),
            Err(error) => reason(&error),
        },
    };
    let CronField { name, values, .. } = field;
    Err(format!("the field {name}, \"{}\": {problem} (values: {values})", escaped(word)))
}

/// Finds what the parser would read otherwise than it was meant: it accepts the names of any field
/// in each, and ignores empty items.
fn bad_text(field: &CronField, word: &str) -> Option<String> {
    if word.split(',').any(str::is_empty) {
        return Some("an item of the list is empty".to_owned());
    }
    let mut names = word.split(|c: char| !c.is_alphabetic()).filter(|name| !name.is_empty());
    if let Some(name) = names.find(|name| !field.words.contains(name)) {
        return Some(format!("{name} is not a name of this field"));
    }
    let is_known = |c: char| c.is_ascii_alphanumeric() || "*,-/#".contains(c);
    let other = word.chars().find(|c| !is_known(*c))?;
    Some(format!("the character {} has no meaning", escaped(&other.to_string())))
}

fn parse([minute, hour, day, month, weekday]: [&str; FIELDS.len()]) -> Result<Cron, CronError> {
    // As in Vixie's cron, a day has to match both fields if one of them begins with a star.
    let both = if [day, weekday].iter().any(|word| word.starts_with("*/")) { "+" } else { "" };
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(&format!("{minute} {hour} {day} {month} {both}{weekday}"))
}

/// Returns the reason of the parser as the end of a sentence.
fn reason(error: &CronError) -> String {
    let text = match error {
        CronError::InvalidPattern(text)
        | CronError::IllegalCharacters(text)
        | CronError::ComponentError(text) => text.clone(),
        other => other.to_string(),
    };
    let text = text.trim_end_matches('.');
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}
