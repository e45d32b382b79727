//! `tenure token`: its words, and what only looks.

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::text::counted;
use tenure_switchboard::storage::{Storage, Token};

use super::{DAY, at, at_or_null, create, find, now, revoke, scope_shown, scope_value, trail};
use crate::args::duration;
use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};
use crate::table::{or_dash, table};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make a token, and print it: this once, for only its digest is stored
    Create(create::Args),
    /// List tokens, oldest first
    List {
        /// Only those that are good and expire within this time
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires_within: Option<Duration>,
        /// Only those that are good and nobody used for this time
        #[arg(long, value_name = "TIME", value_parser = duration)]
        unused_since: Option<Duration>,
    },
    /// Show a token; its secret is not kept
    Show {
        /// The token, as `tenure token list` shows it
        id: String,
    },
    /// End a token at once
    Revoke(revoke::Args),
    /// Say what was done with tokens, day by day
    Usage(trail::UsageArgs),
    /// Say who made, replaced and revoked tokens, reset fences, and changed connectors
    Audit(trail::AuditArgs),
}

/// A command that was read and checked.
#[derive(Debug)]
pub(crate) enum Task {
    Create(create::Task),
    List { expires_within: Option<Duration>, unused_since: Option<Duration> },
    Show { id: String },
    Revoke(revoke::Task),
    Usage(trail::Usage),
    Audit(trail::Audit),
}

impl Task {
    pub(crate) fn new(command: &Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::Create(args) => Self::Create(create::Task::new(args)?),
            Command::List { expires_within, unused_since } => {
                Self::List { expires_within: *expires_within, unused_since: *unused_since }
            }
            Command::Show { id } => Self::Show { id: super::token_id(id)? },
            Command::Revoke(args) => Self::Revoke(revoke::Task::new(args)?),
            Command::Usage(args) => Self::Usage(trail::Usage::new(args)?),
            Command::Audit(args) => Self::Audit(trail::Audit::new(args)?),
        })
    }
}

pub(super) async fn run(storage: &dyn Storage, task: Task, json: bool) -> Result<String, Failure> {
    match task {
        Task::Create(_) => Ok(String::new()),
        Task::List { expires_within, unused_since } => {
            list(storage, expires_within, unused_since, json).await
        }
        Task::Show { id } => show(&find(storage, &id).await?, json),
        Task::Revoke(task) => revoke::run(storage, &task, json).await,
        Task::Usage(task) => task.run(storage, json).await,
        Task::Audit(task) => task.run(storage, json).await,
    }
}

/// Whether a token counts, as far as the clock of this machine is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Good,
    Expired,
    Revoked,
}

impl State {
    pub(super) fn of(token: &Token) -> Self {
        match token {
            Token { revoked_at: Some(_), .. } => Self::Revoked,
            Token { expires_at, .. } if *expires_at <= now() => Self::Expired,
            _ => Self::Good,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

const COLUMNS: [&str; 8] =
    ["TOKEN", "STATE", "ENV", "ROLES", "SCOPE", "EXPIRES", "LAST_USED", "DESCRIPTION"];

async fn list(
    storage: &dyn Storage,
    expires_within: Option<Duration>,
    unused_since: Option<Duration>,
    json: bool,
) -> Result<String, Failure> {
    let mut tokens = storage.tokens().await?;
    tokens.retain(|token| {
        let is_good = || State::of(token) == State::Good;
        let soon = |within| is_good() && token.expires_at <= now().saturating_add(micros(within));
        // One that is new may still be on its way to whoever will use it.
        let last = token.last_used_at.unwrap_or(token.created_at);
        let unused = |since| is_good() && last <= now().saturating_sub(micros(since));
        expires_within.is_none_or(soon) && unused_since.is_none_or(unused)
    });
    if json {
        let tokens: Vec<Value> = tokens.iter().map(value).collect();
        return Ok(document(&json!({ "tokens": tokens })));
    }
    if tokens.is_empty() {
        to_stderr("there is no such token; `tenure token create` makes one");
    }
    let row = |token: &Token| {
        [
            token.token_id.clone(),
            State::of(token).as_str().to_owned(),
            shown(&token.environment),
            shown(&token.roles.join(",")),
            scope_shown(token.scope.as_ref()),
            at(token.expires_at),
            or_dash(token.last_used_at.map(at)),
            shown(&token.description),
        ]
    };
    Ok(table(COLUMNS, tokens.iter().map(row)))
}

fn show(token: &Token, json: bool) -> Result<String, Failure> {
    if json {
        return Ok(document(&value(token)));
    }
    let mut text = format!(
        "token: {}\nstate: {}\nenvironment: {}\nroles: {}\nscope: {}\n",
        token.token_id,
        State::of(token).as_str(),
        shown(&token.environment),
        shown(&token.roles.join(", ")),
        scope_shown(token.scope.as_ref()),
    );
    let created = format!("{} by {}", at(token.created_at), shown(&token.created_by));
    let revoked = token.revoked_at.map(|revoked| {
        let (by, why) = (token.revoked_by.as_deref(), token.revoked_reason.as_deref());
        let (by, why) = (by.unwrap_or("-"), why.unwrap_or("-"));
        format!("{} by {}: {}", at(revoked), shown(by), shown(why))
    });
    let left = (token.expires_at - now()) / DAY;
    let expires = match State::of(token) {
        State::Good => format!("{} ({} left)", at(token.expires_at), counted(left, "day", "days")),
        _ => at(token.expires_at),
    };
    for (name, value) in [
        ("created", Some(created)),
        ("expires", Some(expires)),
        ("revoked", revoked),
        ("last used", Some(token.last_used_at.map_or_else(|| "never".to_owned(), at))),
        ("replaces", token.replaces_token_id.clone()),
        ("description", Some(shown(&token.description)).filter(|text| !text.is_empty())),
    ] {
        if let Some(value) = value {
            text.push_str(&format!("{name}: {value}\n"));
        }
    }
    Ok(text)
}

/// A token for programs.
fn value(token: &Token) -> Value {
    json!({
        "token_id": token.token_id,
        "state": State::of(token).as_str(),
        "environment": token.environment,
        "roles": token.roles,
        "scope": scope_value(token.scope.as_ref()),
        "created_at": at(token.created_at),
        "created_by": token.created_by,
        "expires_at": at(token.expires_at),
        "revoked_at": at_or_null(token.revoked_at),
        "revoked_by": token.revoked_by,
        "revoked_reason": token.revoked_reason,
        "description": token.description,
        "replaces": token.replaces_token_id,
        "last_used_at": at_or_null(token.last_used_at),
    })
}

/// More than fits is for ever.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
