//! The switchboard: the server, and commands of its operators.

pub(crate) mod beat;
pub(crate) mod channel;
pub(crate) mod connectors;
mod create;
pub(crate) mod dead;
pub(crate) mod fence;
pub(crate) mod liveness;
pub(crate) mod serve;
mod serve_log;
pub(crate) mod token;
mod trail;

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_core::{Code, StoreError};
use tenure_duty::process;
use tenure_operate::timestamp;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::storage::{self, Decision, SourceScope, Storage, Token};

use crate::args::{Global, quoted};
use crate::env;
use crate::failure::Failure;
use crate::output::{document, note_dry_run, shown, to_stderr};
use crate::store::Consent;
use crate::table::table;

/// Longest reason or description of an operator.
const MAX_TEXT_BYTES: usize = 1024;
/// Longest name of an operator.
const MAX_OPERATOR_BYTES: usize = 256;
const MICROS: i64 = 1_000_000;
const DAY_MICROS: i64 = 24 * 60 * 60 * MICROS;

/// Adopts the inbox, or previews that without consent. Returns the position above which the inbox
/// continues; `None` if there is no switchboard.
pub(crate) async fn adopt_inbox(
    url: &StoreUrl,
    consent: Consent,
) -> Result<Option<i64>, StoreError> {
    if url.tables().is_err() {
        return Ok(None);
    }
    match storage::open(url, IfAbsent::Refuse).await {
        Ok(storage) if consent == Consent::Yes => Ok(Some(storage.adopt(&operator()).await?)),
        Ok(storage) => Ok(Some(storage.foresee_adopt().await?)),
        Err(error) if error.code() == Code::Absent => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens the storage of a switchboard that exists.
async fn open(global: &Global) -> Result<Arc<dyn Storage>, StoreError> {
    open_or(global, IfAbsent::Refuse).await
}

async fn open_or(global: &Global, if_absent: IfAbsent) -> Result<Arc<dyn Storage>, StoreError> {
    let url = &global.url()?;
    // Check before anything is created: not every store has tables.
    url.tables()?;
    url.open(if_absent, process::entropy()).await?;
    // The store exists; create missing tables of the switchboard.
    Ok(storage::open(url, IfAbsent::Create).await?)
}

/// Formats a list: a JSON document, or a table. `empty` goes to standard error for an empty table.
fn list<T, const N: usize>(
    global: &Global,
    (key, items): (&str, &[T]),
    value: impl Fn(&T) -> Value,
    (heads, row): ([&str; N], impl Fn(&T) -> [String; N]),
    empty: &str,
) -> String {
    if global.json {
        let values: Vec<Value> = items.iter().map(value).collect();
        return document(&json!({ key: values }));
    }
    if items.is_empty() && !empty.is_empty() {
        to_stderr(empty);
    }
    table(heads, items.iter().map(row))
}

/// Formats the result of a change: a JSON document, or text, with a note for a dry run.
fn change(global: &Global, dry_run: bool, value: &Value, text: String) -> String {
    global.show(value, || {
        note_dry_run(dry_run);
        text
    })
}

/// Prints named values, one per line; leaves out those that are missing.
fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let fields = fields.into_iter();
    fields.filter_map(|(name, value)| Some(format!("{name}: {}\n", value?))).collect()
}

/// Finds a token by its id.
async fn find_token(storage: &dyn Storage, id: &str) -> Result<Token, Failure> {
    let found = storage.tokens().await?.into_iter().find(|token| token.token_id == id);
    found.ok_or_else(|| no_such_token(id))
}

fn no_such_token(name: &str) -> Failure {
    StoreError::refused(Code::NoSuchToken, name).into()
}

/// Parses the id of a token. A token in its place is not repeated.
fn token_id(text: &str) -> Result<String, Failure> {
    if tenure_switchboard::token::is_id(text) {
        return Ok(text.to_owned());
    }
    let text = quoted(text);
    Err(Failure::Usage(format!(
        "{text} is not a token id: tok_ and 16 characters, as `tenure token list` prints it"
    )))
}

/// Checks a reason or description.
fn check_text(option: &str, text: &str) -> Result<String, Failure> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_TEXT_BYTES || text.contains('\0') {
        let what = format!("{option} takes 1 to {MAX_TEXT_BYTES} bytes of text, without NUL");
        return Err(Failure::Usage(what));
    }
    Ok(text.to_owned())
}

/// Returns a decision of the operator who runs this command, for the audit trail.
fn decision(reason: &str) -> Decision {
    Decision { by: operator(), reason: reason.to_owned(), token_id: None }
}

/// Returns the operator who runs this command, for the audit trail.
fn operator() -> String {
    let given = std::env::var(env::OPERATOR).ok().filter(|name| !name.trim().is_empty());
    let name = given.unwrap_or_else(|| {
        let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let user = user.filter(|user| !user.is_empty());
        let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()));
        format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
    });
    bounded(&shown(name.trim()))
}

/// Truncates a name to the stored length.
fn bounded(name: &str) -> String {
    let end = (0..=MAX_OPERATOR_BYTES).rev().find(|end| name.is_char_boundary(*end));
    name[..end.unwrap_or(0)].to_owned()
}

/// Returns the wall clock in microseconds, for messages. It does not decide whether a token is
/// valid.
fn now() -> i64 {
    i64::try_from(process::unix_micros()).unwrap_or(i64::MAX)
}

/// Formats microseconds since 1970.
fn at(micros: i64) -> String {
    timestamp(u64::try_from(micros / 1000).unwrap_or(0))
}

/// Formats a time as its age by the clock of this machine.
fn ago(micros: i64) -> String {
    time_before(now(), micros)
}

/// Formats a time as its age at `now`, in a fitting unit.
fn time_before(now: i64, micros: i64) -> String {
    let seconds = now.saturating_sub(micros).max(0) / MICROS;
    match seconds {
        1 => "1 second ago".to_owned(),
        ..120 => format!("{seconds} seconds ago"),
        120..7200 => format!("{} minutes ago", seconds / 60),
        7200..172_800 => format!("{} hours ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn scope_shown(scope: &SourceScope) -> String {
    let SourceScope { channel, provider, endpoint_identity } = scope;
    shown(&format!("{channel}/{provider}/{endpoint_identity}"))
}

fn scope_value(scope: Option<&SourceScope>) -> Value {
    json!(scope.map(|SourceScope { channel, provider, endpoint_identity }| json!({
        "channel": channel, "provider": provider, "endpoint_identity": endpoint_identity,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_operator_is_bounded_and_escaped() {
        let name = operator();
        assert!(!name.is_empty() && name.len() <= MAX_OPERATOR_BYTES, "{name}");
        assert_eq!(bounded("me@host"), "me@host");
        assert_eq!(bounded(&"é".repeat(MAX_OPERATOR_BYTES)).len(), MAX_OPERATOR_BYTES);
        assert_eq!(
            bounded(&format!("a{}", "é".repeat(MAX_OPERATOR_BYTES))).len(),
            MAX_OPERATOR_BYTES - 1
        );
    }

    #[test]
    fn a_token_in_the_place_of_its_id_is_not_repeated() {
        let secret = format!("sw_live_{}", "a".repeat(32));
        let Err(Failure::Usage(what)) = token_id(&secret) else { panic!("a secret") };
        assert!(!what.contains(&secret), "{what}");
        let Err(Failure::Usage(what)) = token_id("tok_1") else { panic!("too short") };
        assert!(what.contains("\"tok_1\""), "{what}");
        assert!(token_id("tok_0123456789abcdEF").is_ok());
    }

    #[test]
    fn how_long_ago_is_said_in_a_unit_that_fits() {
        let second = |seconds: i64| ago(now() - seconds * MICROS);
        assert_eq!(time_before(MICROS, 0), "1 second ago");
        assert_eq!(second(150), "2 minutes ago");
        assert_eq!(second(3 * 3600 + 1), "3 hours ago");
        assert_eq!(second(9 * 86_400 + 1), "9 days ago");
        assert_eq!(ago(now() + DAY_MICROS), "0 seconds ago");
    }
}
