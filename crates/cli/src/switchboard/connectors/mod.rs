//! `tenure connectors`: lists, shows and changes connectors.

mod change;
mod show;

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::{Code, StoreError};
use tenure_store::StoreUrl;
use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{Connector, ConnectorKey, ConnectorQuery, Storage};
use tenure_switchboard::view;
use tenure_wire::heartbeat::MAX_TYPE_BYTES;
use tenure_wire::ingest::MAX_IDENTITY_BYTES;

use super::liveness::{WORDS, policy};
use super::{open, time_before};
use crate::args::{NOT_SHOWN, may_be_token};
use crate::env;
use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};
use crate::table::{or_dash, table};

/// Connectors per read.
const PAGE_ROWS: usize = 500;

#[derive(Subcommand)]
pub(crate) enum ConnectorCommand {
    /// List connectors with their liveness, state and counts of today (UTC)
    Ls {
        /// List archived connectors instead
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        liveness: LivenessArgs,
    },
    /// Show all details of a connector and its instances
    Show {
        #[command(flatten)]
        name: ConnectorArgs,
        #[command(flatten)]
        liveness: LivenessArgs,
    },
    /// Archive a connector; its next heartbeat unarchives it
    Archive(change::ArchiveArgs),
    /// Delete a connector with its history and statistics
    Delete(change::ChangeArgs),
    /// Recompute a connector's statistics from its heartbeat history
    Recount(change::ChangeArgs),
    /// Register a connector before its first heartbeat
    Add {
        #[command(flatten)]
        name: ConnectorArgs,
    },
}

/// ConnectorKey of a connector.
#[derive(clap::Args)]
pub(crate) struct ConnectorArgs {
    /// Connector type, such as telegram_bot
    #[arg(value_name = "TYPE")]
    connector_type: String,
    /// Endpoint identity of the connector
    #[arg(value_name = "IDENTITY")]
    endpoint_identity: String,
}

/// Liveness thresholds.
#[derive(clap::Args)]
pub(crate) struct LivenessArgs {
    /// Liveness policy: silence after which a connector is stale, then offline
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

pub(super) async fn run(
    url: &StoreUrl,
    command: ConnectorCommand,
    json: bool,
) -> Result<String, Failure> {
    match command {
        ConnectorCommand::Ls { archived, liveness } => {
            list(&*open(url).await?, archived, liveness.liveness, json).await
        }
        ConnectorCommand::Show { name, liveness } => {
            show::run(url, &name.parse()?, liveness.liveness, json).await
        }
        ConnectorCommand::Archive(args) => change::archive(url, &args, json).await,
        ConnectorCommand::Delete(args) => change::delete(url, &args, json).await,
        ConnectorCommand::Recount(args) => change::recount(url, &args, json).await,
        ConnectorCommand::Add { name } => change::add(url, &name.parse()?, json).await,
    }
}

impl ConnectorArgs {
    /// Parses a name by the rules of heartbeats. A wrong one is not repeated: it may be a secret.
    fn parse(&self) -> Result<ConnectorKey, Failure> {
        let connector_type = trimmed(&self.connector_type);
        let endpoint_identity = trimmed(&self.endpoint_identity);
        let is_type = !connector_type.is_empty()
            && connector_type.len() <= MAX_TYPE_BYTES
            && !connector_type.chars().any(char::is_control);
        if !is_type || hides(connector_type) {
            return Err(Failure::Usage(format!(
                "TYPE is 1 to {MAX_TYPE_BYTES} bytes of text without control characters, as in \
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

/// Trims as envelopes are trimmed: with the four separators of ASCII.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}'))
}

/// Whether a name may hold a password or a token. Most identities with an `@` are addresses.
fn hides(name: &str) -> bool {
    name.contains("://") && name.contains('@') || may_be_token(name)
}

/// Formats a name for a terminal.
fn named(name: &ConnectorKey) -> String {
    shown(&plain(name))
}

/// Formats a name without escapes, for text that is escaped when it is printed.
fn plain(name: &ConnectorKey) -> String {
    let part = |part| if hides(part) { NOT_SHOWN } else { part };
    format!("{} {}", part(&name.connector_type), part(&name.endpoint_identity))
}

fn no_such_connector(name: &ConnectorKey) -> Failure {
    StoreError::refused(Code::NoSuchConnector, plain(name)).into()
}

const HEADS: [&str; 8] = [
    "TYPE",
    "IDENTITY",
    "LIVENESS",
    "STATE",
    "HEARD",
    ">INGESTED_TODAY",
    ">FAILED_TODAY",
    "VERSION",
];

/// Reads all pages, each with the time at which the store read it.
async fn all(
    storage: &dyn Storage,
    archived: bool,
    mut each: impl FnMut(i64, &Connector),
) -> Result<(), StoreError> {
    let mut query = ConnectorQuery { limit: PAGE_ROWS, archived, ..ConnectorQuery::default() };
    loop {
        let page = storage.connectors(&query).await?;
        page.connectors.iter().for_each(|connector| each(page.now, connector));
        match page.connectors.into_iter().nth(PAGE_ROWS - 1) {
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
    Ok(table(HEADS, rows))
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
        ConnectorArgs { connector_type, endpoint_identity }.parse()
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
