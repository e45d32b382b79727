//! The switchboard: the server, and what operators do beside it, on its store.

pub(crate) mod beat;
pub(crate) mod channel;
pub(crate) mod connectors;
mod create;
pub(crate) mod fence;
pub(crate) mod liveness;
mod revoke;
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

use crate::args::{NOT_SHOWN, may_be_secret};
use crate::env;
use crate::failure::Failure;
use crate::output::shown;
use crate::store::Consent;

/// The longest text that an operator gives: a reason, a description, a name.
const LONGEST: usize = 1024;
/// The longest name of an operator.
const LONGEST_NAME: usize = 256;
const MICROS: i64 = 1_000_000;
pub(crate) const DAY: i64 = 24 * 60 * 60 * MICROS;

/// A command that was read and checked.
#[derive(Debug)]
pub(crate) enum Task {
    Token(token::Task),
    Fence(fence::Task),
    Channel(channel::Command),
    Connectors(connectors::Task),
}

pub(crate) async fn run(url: &StoreUrl, task: Task, json: bool) -> Result<String, Failure> {
    match task {
        Task::Token(token::Task::Create(task)) => create::run(url, task, json).await,
        Task::Token(task) => token::run(&*open(url, IfAbsent::Refuse).await?, task, json).await,
        Task::Fence(task) => fence::run(&*open(url, IfAbsent::Refuse).await?, task, json).await,
        Task::Channel(task) => channel::run(&*open(url, IfAbsent::Refuse).await?, task, json).await,
        Task::Connectors(task) => {
            connectors::run(&*open(url, IfAbsent::Refuse).await?, task, json).await
        }
    }
}

/// Takes the inbox over with its store, or only says what would happen: the position above which it
/// goes on. `None` where no switchboard keeps anything.
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

/// Opens what the switchboard keeps, in a store of ours.
async fn open(url: &StoreUrl, if_absent: IfAbsent) -> Result<Arc<dyn Storage>, StoreError> {
    // Before anything is made: not every store has tables.
    url.tables()?;
    url.open(if_absent, process::entropy()).await?;
    // Where there is a store, tables that are not there yet are the switchboard's own affair.
    Ok(storage::open(url, IfAbsent::Create).await?)
}

/// The token of that id, which has to be there.
async fn find(storage: &dyn Storage, id: &str) -> Result<Token, Failure> {
    let found = storage.tokens().await?.into_iter().find(|token| token.token_id == id);
    found.ok_or_else(|| not_there(id))
}

fn not_there(name: &str) -> Failure {
    StoreError::refused(Code::NoSuchToken, name).into()
}

/// Reads the id of a token. The token itself in its place is not repeated.
fn token_id(text: &str) -> Result<String, Failure> {
    if tenure_switchboard::token::is_id(text) {
        return Ok(text.to_owned());
    }
    let text = if may_be_secret(text) { NOT_SHOWN.to_owned() } else { format!("{text:?}") };
    Err(Failure::Usage(format!(
        "{text} is not the id of a token: that is tok_ and 16 characters, as `tenure token list` \
         shows it"
    )))
}

/// Reads what an operator wrote for people to read.
fn words(option: &str, text: &str) -> Result<String, Failure> {
    let text = text.trim();
    if text.is_empty() || text.len() > LONGEST || text.contains('\0') {
        let what = format!("{option} takes 1 to {LONGEST} bytes of text, without NUL");
        return Err(Failure::Usage(what));
    }
    Ok(text.to_owned())
}

/// What whoever runs this command decides, for the audit trail. No token can end meanwhile.
fn decision(reason: &str) -> Decision {
    Decision { by: operator(), reason: reason.to_owned(), token_id: None }
}

/// Who runs this command, for the audit trail.
fn operator() -> String {
    let given = std::env::var(env::OPERATOR).ok().filter(|name| !name.trim().is_empty());
    let name = given.unwrap_or_else(|| {
        let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let number = || format!("uid-{}", rustix::process::getuid().as_raw());
        let user = user.filter(|user| !user.is_empty()).unwrap_or_else(number);
        format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
    });
    bounded(&shown(name.trim()))
}

/// As much of a name as is kept.
fn bounded(name: &str) -> String {
    let most = (0..=LONGEST_NAME).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.get(..most).unwrap_or(name).to_owned()
}

/// The wall clock in microseconds: what people are told is judged by it. Whether a token counts is
/// not.
fn now() -> i64 {
    i64::try_from(process::unix_micros()).unwrap_or(i64::MAX)
}

/// Microseconds since 1970, for people.
fn at(micros: i64) -> String {
    timestamp(u64::try_from(micros / 1000).unwrap_or(0))
}

fn at_or_null(micros: Option<i64>) -> Value {
    micros.map_or(Value::Null, |micros| at(micros).into())
}

/// How long ago something was, in the unit that fits.
fn ago(micros: i64) -> String {
    time_before(now(), micros)
}

/// The same, by another clock than that of this machine.
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

fn scope_shown(scope: Option<&SourceScope>) -> String {
    scope.map_or_else(
        || "-".to_owned(),
        |SourceScope { channel, provider, endpoint_identity }| {
            shown(&format!("{channel}/{provider}/{endpoint_identity}"))
        },
    )
}

fn scope_value(scope: Option<&SourceScope>) -> Value {
    scope.map_or(Value::Null, |scope| {
        json!({
            "channel": scope.channel,
            "provider": scope.provider,
            "endpoint_identity": scope.endpoint_identity,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_operator_is_bounded_and_escaped() {
        let name = operator();
        assert!(!name.is_empty() && name.len() <= LONGEST_NAME, "{name}");
        assert_eq!(bounded("me@host"), "me@host");
        assert_eq!(bounded(&"é".repeat(LONGEST_NAME)).len(), LONGEST_NAME);
        assert_eq!(bounded(&format!("a{}", "é".repeat(LONGEST_NAME))).len(), LONGEST_NAME - 1);
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
        assert_eq!(ago(now() + DAY), "0 seconds ago");
    }
}
