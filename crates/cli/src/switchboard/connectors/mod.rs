//! `tenure connectors`: who beats, who does not, and what operators do about it.

mod change;
mod show;

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::{Code, StoreError};
use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{Connector, ConnectorKey, ConnectorQuery, Storage};
use tenure_switchboard::view;
use tenure_wire::ingest::MAX_IDENTITY_BYTES;

use super::liveness::{WORDS, policy};
use super::time_before;
use crate::args::{NOT_SHOWN, may_be_token};
use crate::env;
use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};
use crate::table::{or_dash, table};

/// How many are read at a time.
const PAGE: usize = 500;
/// The longest name of a type.
const LONGEST_TYPE: usize = 128;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List connectors: whether they live, how they are, and what they did today (UTC)
    Ls {
        /// Those that were put away, instead of those that were not
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        judge: Judge,
    },
    /// Show everything that is known of a connector, and its instances
    Show {
        #[command(flatten)]
        name: NameArgs,
        #[command(flatten)]
        judge: Judge,
    },
    /// Put a connector away that is gone for good; its next beat would bring it back
    Archive(change::ArchiveArgs),
    /// Remove a connector with its history and its statistics
    Delete(change::ChangeArgs),
    /// Count a connector again from its history
    Recount(change::ChangeArgs),
    /// Make a connector known that has not been heard yet: it is listed as unknown
    Add {
        #[command(flatten)]
        name: NameArgs,
    },
}

/// Which connector.
#[derive(clap::Args)]
pub(crate) struct NameArgs {
    /// Its type, as in telegram_bot
    #[arg(value_name = "TYPE")]
    connector_type: String,
    /// The endpoint that it receives for
    #[arg(value_name = "IDENTITY")]
    endpoint_identity: String,
}

/// What liveness is judged by.
#[derive(clap::Args)]
pub(crate) struct Judge {
    /// How long a connector may be silent
    #[arg(
        long,
        value_name = WORDS,
        env = env::LIVENESS,
        hide_env_values = true,
        default_value = "usual",
        value_parser = policy
    )]
    liveness: Policy,
}

/// A command that was read and checked.
#[derive(Debug)]
pub(crate) enum Task {
    Ls { archived: bool, policy: Policy },
    Show { name: ConnectorKey, policy: Policy },
    Archive { change: change::Change, archived: bool },
    Delete(change::Change),
    Recount(change::Change),
    Add { name: ConnectorKey },
}

impl Task {
    pub(crate) fn new(command: &Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::Ls { archived, judge } => {
                Self::Ls { archived: *archived, policy: judge.liveness }
            }
            Command::Show { name, judge } => {
                Self::Show { name: name.read()?, policy: judge.liveness }
            }
            Command::Archive(args) => {
                let change = change::Change::new(&args.change)?;
                Self::Archive { change, archived: !args.undo }
            }
            Command::Delete(args) => Self::Delete(change::Change::new(args)?),
            Command::Recount(args) => Self::Recount(change::Change::new(args)?),
            Command::Add { name } => Self::Add { name: name.read()? },
        })
    }
}

pub(super) async fn run(storage: &dyn Storage, task: Task, json: bool) -> Result<String, Failure> {
    match task {
        Task::Ls { archived, policy } => list(storage, archived, policy, json).await,
        Task::Show { name, policy } => show::run(storage, &name, policy, json).await,
        Task::Archive { change, archived } => change.archive(archived, storage, json).await,
        Task::Delete(change) => change.delete(storage, json).await,
        Task::Recount(change) => change.recount(storage, json).await,
        Task::Add { name } => change::add(storage, &name, json).await,
    }
}

impl NameArgs {
    /// Reads a name as heartbeats have it. What is wrong is not repeated: it may be anything.
    fn read(&self) -> Result<ConnectorKey, Failure> {
        let connector_type = trimmed(&self.connector_type);
        let endpoint_identity = trimmed(&self.endpoint_identity);
        let is_type = !connector_type.is_empty()
            && connector_type.len() <= LONGEST_TYPE
            && !connector_type.chars().any(char::is_control);
        if !is_type || hides(connector_type) {
            return Err(Failure::Usage(format!(
                "TYPE is 1 to {LONGEST_TYPE} bytes of text without control characters, as in \
                 telegram_bot"
            )));
        }
        let is_identity = !endpoint_identity.is_empty()
            && endpoint_identity.len() <= MAX_IDENTITY_BYTES
            && !endpoint_identity.contains('\0');
        if !is_identity || may_be_token(endpoint_identity) {
            return Err(Failure::Usage(format!(
                "IDENTITY is 1 to {MAX_IDENTITY_BYTES} bytes of text without NUL, as in bot-123, \
                 and no token"
            )));
        }
        Ok(ConnectorKey {
            connector_type: connector_type.to_owned(),
            endpoint_identity: endpoint_identity.to_owned(),
        })
    }
}

/// As envelopes are trimmed: with the four separators of ASCII.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}'))
}

/// Whether a name may hold a password or a token. Most identities with an `@` are addresses.
fn hides(name: &str) -> bool {
    name.contains("://") && name.contains('@') || may_be_token(name)
}

/// A name for people, as one or two words of a sentence.
fn named(name: &ConnectorKey) -> String {
    shown(&plain(name))
}

/// The same without escapes, for what gets them when it is printed.
fn plain(name: &ConnectorKey) -> String {
    let part = |part| if hides(part) { NOT_SHOWN } else { part };
    format!("{} {}", part(&name.connector_type), part(&name.endpoint_identity))
}

fn not_there(name: &ConnectorKey) -> Failure {
    StoreError::refused(Code::NoSuchConnector, plain(name)).into()
}

const COLUMNS: [&str; 8] = [
    "TYPE",
    "IDENTITY",
    "LIVENESS",
    "STATE",
    "HEARD",
    ">INGESTED_TODAY",
    ">FAILED_TODAY",
    "VERSION",
];

/// Every page, each with the time at which the store read it.
async fn all(
    storage: &dyn Storage,
    archived: bool,
    mut each: impl FnMut(i64, &Connector),
) -> Result<(), StoreError> {
    let mut query = ConnectorQuery { limit: PAGE, archived, ..ConnectorQuery::default() };
    loop {
        let page = storage.connectors(&query).await?;
        page.connectors.iter().for_each(|connector| each(page.now, connector));
        match page.connectors.into_iter().nth(PAGE - 1) {
            Some(last) => query.after = Some((last.connector_type, last.endpoint_identity)),
            None => return Ok(()),
        }
    }
}

async fn list(
    storage: &dyn Storage,
    archived: bool,
    policy: Policy,
    json: bool,
) -> Result<String, Failure> {
    if json {
        let mut connectors: Vec<Value> = Vec::new();
        all(storage, archived, |now, it| connectors.push(view::summary(it, now, policy))).await?;
        return Ok(document(&json!({ "connectors": connectors })));
    }
    let mut rows = Vec::new();
    all(storage, archived, |now, it| rows.push(row(it, now, policy))).await?;
    if rows.is_empty() {
        to_stderr(match archived {
            true => "no connector is archived",
            false => "no connector was heard yet; `tenure beat` sends a heartbeat",
        });
    }
    Ok(table(COLUMNS, rows))
}

fn row(connector: &Connector, now: i64, policy: Policy) -> [String; 8] {
    let liveness = policy.judge(now, connector.last_heartbeat_at, connector.interval);
    let heard = connector.last_heartbeat_at.map(|heard| time_before(now, heard));
    [
        shown(&connector.connector_type),
        shown(&connector.endpoint_identity),
        liveness.to_string(),
        shown(&connector.state),
        heard.unwrap_or_else(|| "never".to_owned()),
        connector.today.messages_ingested.to_string(),
        connector.today.messages_failed.to_string(),
        or_dash(connector.version.as_deref().map(shown)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(connector_type: &str, endpoint_identity: &str) -> Result<ConnectorKey, Failure> {
        let (connector_type, endpoint_identity) =
            (connector_type.to_owned(), endpoint_identity.to_owned());
        NameArgs { connector_type, endpoint_identity }.read()
    }

    #[test]
    fn names_are_those_of_heartbeats() {
        let name = read(" gmail\t", "\u{1c}gmail:user:a@b/c <i>\u{1b}\n").unwrap();
        assert_eq!(name.connector_type, "gmail");
        assert_eq!(name.endpoint_identity, "gmail:user:a@b/c <i>\u{1b}");
        assert!(read(&"t".repeat(128), &"i".repeat(1024)).is_ok());
        let token = format!("sw_live_{}", "a".repeat(32));
        for (connector_type, identity) in [
            ("", "x"),
            (" ", "x"),
            (&"t".repeat(129), "x"),
            ("a\u{1b}b", "x"),
            ("postgres://me:s3cret@h/db", "x"),
            ("x", ""),
            ("x", " \t"),
            ("x", &"i".repeat(1025)),
            ("x", "a\0b"),
            ("x", &token),
        ] {
            let Err(Failure::Usage(what)) = read(connector_type, identity) else {
                panic!("{connector_type} {identity}")
            };
            assert!(!what.contains("s3cret") && !what.contains(&token), "{what}");
        }
    }

    #[test]
    fn a_name_that_may_hold_a_password_is_not_repeated() {
        let name = read("imap", "imap://me:s3cret@h").unwrap();
        assert_eq!(named(&name), "imap (not shown)");
        let name = read("imap", "me@h\u{7}").unwrap();
        assert_eq!(
            (named(&name), plain(&name)),
            ("imap me@h\\u{7}".into(), "imap me@h\u{7}".into())
        );
    }
}
