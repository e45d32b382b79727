//! Query parameters of `GET /api/switchboard/inbox`.

use super::InboxCursor;
use super::channel::{MAX_NAME_BYTES, is_name};
use crate::envelope::{MAX_IDENTITY_BYTES, text, time};

/// Part of the inbox to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxQuery {
    /// Only messages after this one; position 0 from the start.
    pub after: InboxCursor,
    /// Maximum number of messages.
    pub limit: usize,
    /// Only of this channel.
    pub channel: Option<String>,
    /// Only of this provider.
    pub provider: Option<String>,
    /// Only of this endpoint.
    pub endpoint_identity: Option<String>,
    /// Only of this sender.
    pub sender_identity: Option<String>,
    /// Only of this thread.
    pub thread_identity: Option<String>,
    /// Only received at or after this, in Unix microseconds.
    pub since: Option<i64>,
    /// Only received before this, in Unix microseconds.
    pub until: Option<i64>,
}

/// Error of a query parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("query parameter {parameter}: {says}")]
pub struct BadQuery {
    /// The parameter, escaped.
    pub parameter: String,
    /// Description of the error.
    pub says: String,
}

const PARAMETERS: [&str; 10] = [
    "after", "limit", "channel", "provider", "endpoint", "sender", "thread", "since", "until",
    "wait",
];

/// Reads a query, the part of a URL after its `?`, and the seconds to wait for a message, 0 to 30.
/// Each parameter may occur once. Unknown or invalid ones are errors: ignoring a filter would show
/// everything.
pub fn inbox_query(query: &str) -> Result<(InboxQuery, u64), BadQuery> {
    let (mut read, mut wait) = (InboxQuery { limit: 100, ..InboxQuery::default() }, 0);
    let decode = |text: &str| percent_decode(&text.replace('+', " "));
    let mut seen = [false; PARAMETERS.len()];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = decode(name);
        let shown = text::shown_name(decoded.as_deref().unwrap_or(name).as_bytes());
        let bad = |says: String| BadQuery { parameter: shown.clone(), says };
        let known = decoded.and_then(|name| PARAMETERS.iter().position(|known| *known == name));
        let Some(known) = known else {
            return Err(bad(format!("is unknown; known parameters: {}", PARAMETERS.join(", "))));
        };
        if std::mem::replace(&mut seen[known], true) {
            return Err(bad("is given twice".to_owned()));
        }
        let Some(value) = decode(value) else {
            return Err(bad("is not valid percent-encoded UTF-8".to_owned()));
        };
        set(&mut read, &mut wait, PARAMETERS[known], value).map_err(bad)?;
    }
    Ok((read, wait))
}

fn set(read: &mut InboxQuery, wait: &mut u64, name: &str, value: String) -> Result<(), String> {
    match name {
        "after" => {
            read.after = value.parse().map_err(|no| format!("{} {no}", shown(&value)))?;
        }
        "limit" => read.limit = number(&value, 1, 1_000)? as usize,
        "channel" => read.channel = Some(plain(value)?),
        "provider" => read.provider = Some(plain(value)?),
        "endpoint" => read.endpoint_identity = Some(identity(value)?),
        "sender" => read.sender_identity = Some(identity(value)?),
        "thread" => read.thread_identity = Some(identity(value)?),
        "since" => read.since = Some(instant(&value)?),
        "until" => read.until = Some(instant(&value)?),
        _ => *wait = number(&value, 0, 30)?,
    }
    Ok(())
}

fn number(value: &str, min: u64, max: u64) -> Result<u64, String> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && (min..=max).contains(number));
    number.ok_or_else(|| format!("{} is not a number from {min} to {max}", shown(value)))
}

/// Reads the name of a channel or provider, which may have been removed while its messages stay.
fn plain(value: String) -> Result<String, String> {
    if is_name(&value) {
        return Ok(value);
    }
    Err(format!("{} is not 1 to {MAX_NAME_BYTES} characters of a-z, 0-9 and _", shown(&value)))
}

/// Reads an identity. No stored identity is empty, too long or has a NUL.
fn identity(value: String) -> Result<String, String> {
    match value.len() {
        0 => Err("is empty; omit it to read all".to_owned()),
        1..=MAX_IDENTITY_BYTES if !value.contains('\0') => Ok(value),
        _ => Err(format!(
            "{} is longer than {MAX_IDENTITY_BYTES} bytes or contains a NUL",
            shown(&value)
        )),
    }
}

/// Reads a time. A time before 1970 counts as 1970: no message is older, and not every store can
/// represent it.
fn instant(value: &str) -> Result<i64, String> {
    time::read(value.as_bytes()).map(|time| time.micros.max(0)).map_err(|_| {
        let hint = if value.contains(' ') { "; + means a space here; write %2B" } else { "" };
        format!("{} is not a time like 2026-02-15T10:30:00Z{hint}", shown(value))
    })
}

fn shown(value: &str) -> String {
    text::shown(value.as_bytes())
}

/// Decodes percent escapes; `None` if they are broken or not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
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
            _ => out.push(*first),
        }
    }
    String::from_utf8(out).ok()
}
