//! `tenure connectors`: lists, shows and changes connectors.

mod change;
mod show;

use clap::Subcommand;
use tenure_core::{Code, StoreError};
use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{
    Connector, ConnectorDetail, ConnectorKey, ConnectorQuery, Storage,
};
use tenure_switchboard::view;
use tenure_wire::heartbeat::MAX_TYPE_BYTES;
use tenure_wire::ingest::MAX_IDENTITY_BYTES;

use super::liveness::{WORDS, policy};
use super::{open, time_before};
use crate::args::{Global, NOT_SHOWN, may_be_token};
use crate::env;
use crate::failure::Failure;
use crate::output::shown;
use crate::table::or_dash;

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

/// Name of a connector.
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
    #[arg(long, value_name = WORDS, env = env::LIVENESS)]
    #[arg(default_value = "usual", value_parser = policy)]
    liveness: Policy,
}

pub(crate) async fn run(command: ConnectorCommand, global: &Global) -> Result<String, Failure> {
    match command {
        ConnectorCommand::Ls { archived, liveness } => {
            list(archived, liveness.liveness, global).await
        }
        ConnectorCommand::Show { name, liveness } => {
            show::run(&name.parse()?, liveness.liveness, global).await
        }
        ConnectorCommand::Archive(args) => change::archive(&args, global).await,
        ConnectorCommand::Delete(args) => change::delete(&args, global).await,
        ConnectorCommand::Recount(args) => change::recount(&args, global).await,
        ConnectorCommand::Add { name } => change::add(&name.parse()?, global).await,
    }
}

impl ConnectorArgs {
    /// Parses a name by the rules of heartbeats. Errors do not repeat it: it may be a secret.
    fn parse(&self) -> Result<ConnectorKey, Failure> {
        let connector_type = trimmed(&self.connector_type);
        let is_type = !connector_type.is_empty()
            && connector_type.len() <= MAX_TYPE_BYTES
            && !connector_type.chars().any(char::is_control);
        if !is_type || hides(connector_type) {
            return Err(Failure::Usage(format!(
                "TYPE is 1 to {MAX_TYPE_BYTES} bytes of text without control characters, as in \
                 telegram_bot"
            )));
        }
        let identity = identity(&self.endpoint_identity).filter(|text| !may_be_token(text));
        let endpoint_identity = identity.ok_or_else(|| {
            Failure::Usage(format!(
                "IDENTITY is 1 to {MAX_IDENTITY_BYTES} bytes of text without NUL, as in bot-123, \
                 and not a token"
            ))
        })?;
        Ok(ConnectorKey { connector_type: connector_type.to_owned(), endpoint_identity })
    }
}

/// Trims white space and the four ASCII separators, as for envelopes.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}'))
}

/// Returns an endpoint identity, trimmed, if it is valid.
pub(super) fn identity(text: &str) -> Option<String> {
    let text = trimmed(text);
    let is_valid = !text.is_empty() && text.len() <= MAX_IDENTITY_BYTES && !text.contains('\0');
    is_valid.then(|| text.to_owned())
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

async fn find(storage: &dyn Storage, name: &ConnectorKey) -> Result<ConnectorDetail, Failure> {
    storage.connector(name).await?.ok_or_else(|| no_such_connector(name))
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
async fn all(storage: &dyn Storage, archived: bool) -> Result<Vec<(i64, Connector)>, StoreError> {
    let mut query = ConnectorQuery { limit: PAGE_ROWS, archived, ..ConnectorQuery::default() };
    let mut all = Vec::new();
    loop {
        let page = storage.connectors(&query).await?;
        let last = page.connectors.get(PAGE_ROWS - 1);
        query.after =
            last.map(|last| (last.connector_type.clone(), last.endpoint_identity.clone()));
        all.extend(page.connectors.into_iter().map(|connector| (page.now, connector)));
        if query.after.is_none() {
            return Ok(all);
        }
    }
}

async fn list(archived: bool, policy: Policy, global: &Global) -> Result<String, Failure> {
    let connectors = all(&*open(global).await?, archived).await?;
    let empty = match archived {
        true => "no connector is archived",
        false => "there are no connectors yet; `tenure beat` sends a heartbeat",
    };
    let value = |(now, connector): &(i64, Connector)| view::summary(connector, *now, policy);
    let row = |(now, connector): &(i64, Connector)| row(connector, *now, policy);
    Ok(super::list(global, ("connectors", &connectors), value, (HEADS, row), empty))
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
        or_dash(connector.labels.version.as_deref().map(shown)),
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
