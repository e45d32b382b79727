//! The words of `GET /api/switchboard/inbox?after=...`.

use std::fmt::{self, Display};

use super::InboxCursor;
use super::channel::{MAX_NAME_BYTES, is_name};
use crate::envelope::{MAX_IDENTITY_BYTES, text, time};

/// Which part of the inbox is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxWords {
    /// Only what comes after this.
    pub after: InboxCursor,
    /// At most so many, 1 to 1,000.
    pub limit: usize,
    /// Only of this channel.
    pub channel: Option<String>,
    /// Only of this provider.
    pub provider: Option<String>,
    /// Only of this endpoint.
    pub endpoint: Option<String>,
    /// Only of this sender.
    pub sender: Option<String>,
    /// Only of this thread.
    pub thread: Option<String>,
    /// Only received at or after this, in microseconds since 1970.
    pub since: Option<i64>,
    /// Only received before this, in microseconds since 1970.
    pub until: Option<i64>,
    /// Seconds to wait for a message, 0 to 30.
    pub wait: u64,
}

impl Default for InboxWords {
    fn default() -> Self {
        Self {
            after: InboxCursor::default(),
            limit: 100,
            channel: None,
            provider: None,
            endpoint: None,
            sender: None,
            thread: None,
            since: None,
            until: None,
            wait: 0,
        }
    }
}

/// A query that cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadQuery {
    /// The parameter, escaped.
    pub parameter: String,
    /// Description of the error.
    pub says: String,
}

impl Display for BadQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query parameter {}: {}", self.parameter, self.says)
    }
}

impl std::error::Error for BadQuery {}

const PARAMETERS: [&str; 10] = [
    "after", "limit", "channel", "provider", "endpoint", "sender", "thread", "since", "until",
    "wait",
];

/// Reads a query, the part of a URL behind its `?`. Each parameter may be there once; what is not
/// known or cannot be read is an error, because ignoring a filter would show everything.
pub fn inbox_query(query: &str) -> Result<InboxWords, BadQuery> {
    let mut words = InboxWords::default();
    let mut seen = [false; PARAMETERS.len()];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = decode(name);
        let shown = text::shown_name(decoded.as_deref().unwrap_or(name).as_bytes());
        let bad = |says: String| BadQuery { parameter: shown.clone(), says };
        let known = decoded.and_then(|name| PARAMETERS.iter().position(|known| *known == name));
        let Some(known) = known else {
            return Err(bad(format!("is unknown; there are {}", PARAMETERS.join(", "))));
        };
        if std::mem::replace(&mut seen[known], true) {
            return Err(bad("is there twice".to_owned()));
        }
        let Some(value) = decode(value) else {
            return Err(bad("is not UTF-8 with percent escapes".to_owned()));
        };
        set(&mut words, PARAMETERS[known], value).map_err(bad)?;
    }
    Ok(words)
}

fn set(words: &mut InboxWords, name: &str, value: String) -> Result<(), String> {
    match name {
        "after" => {
            words.after = value.parse().map_err(|no| format!("{} {no}", shown(&value)))?;
        }
        "limit" => words.limit = number(&value, 1, 1_000)? as usize,
        "channel" => words.channel = Some(plain(value)?),
        "provider" => words.provider = Some(plain(value)?),
        "endpoint" => words.endpoint = Some(identity(value)?),
        "sender" => words.sender = Some(identity(value)?),
        "thread" => words.thread = Some(identity(value)?),
        "since" => words.since = Some(instant(&value)?),
        "until" => words.until = Some(instant(&value)?),
        _ => words.wait = number(&value, 0, 30)?.unsigned_abs(),
    }
    Ok(())
}

fn number(value: &str, least: i64, most: i64) -> Result<i64, String> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && (least..=most).contains(number));
    let wrong = || format!("{} is not a number from {least} to {most}", shown(value));
    number.ok_or_else(wrong)
}

/// A channel or provider may have been removed, and its messages are still there.
fn plain(value: String) -> Result<String, String> {
    if is_name(&value) {
        return Ok(value);
    }
    Err(format!("{} is not 1 to {MAX_NAME_BYTES} of a-z, 0-9 and _", shown(&value)))
}

/// No identity is kept that is empty, too long or has a NUL: asking for one is a mistake.
fn identity(value: String) -> Result<String, String> {
    match value.len() {
        0 => Err("is empty; leave it out to ask for all".to_owned()),
        1..=MAX_IDENTITY_BYTES if !value.contains('\0') => Ok(value),
        _ => Err(format!("{} is longer than any, or holds a NUL", shown(&value))),
    }
}

fn instant(value: &str) -> Result<i64, String> {
    time::read(value.as_bytes()).map(|time| time.micros).map_err(|_| {
        let hint = if value.contains(' ') { "; a + is a space here, write %2B" } else { "" };
        format!("{} is not a time like 2026-02-15T10:30:00Z{hint}", shown(value))
    })
}

fn shown(value: &str) -> String {
    text::shown(value.as_bytes())
}

/// Undoes percent escapes, and `+` for a space; `None` when they are broken or do not make UTF-8.
fn decode(text: &str) -> Option<String> {
    let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                out.push(hex(*high)? << 4 | hex(*low)?);
                rest = after;
            }
            (b'%', _) => return None,
            (b'+', _) => out.push(b' '),
            _ => out.push(*first),
        }
    }
    String::from_utf8(out).ok()
}
