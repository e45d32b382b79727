//! `tenure token`: lists, shows and revokes tokens.

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::text::counted;
use tenure_core::{Code, StoreError};
use tenure_switchboard::storage::Token;

use super::{
    DAY_MICROS, ago, at, change, check_text, create, fields, find_token, list, no_such_token, now,
    open, operator, scope_shown, scope_value, token_id, trail,
};
use crate::args::{Global, duration};
use crate::failure::Failure;
use crate::output::shown;
use crate::table::or_dash;

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it once; only its digest is stored
    Create(create::CreateArgs),
    /// List tokens, oldest first
    List {
        /// List only valid tokens that expire within this time
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires_within: Option<Duration>,
        /// List only valid tokens that were not used for this time
        #[arg(long, value_name = "TIME", value_parser = duration)]
        unused_since: Option<Duration>,
    },
    /// Show a token, without its secret
    Show {
        /// Token id, from `tenure token list`
        id: String,
    },
    /// Revoke a token, with immediate effect
    Revoke(RevokeArgs),
    /// Show requests and events per token and day
    Usage(trail::UsageArgs),
    /// Show who changed tokens, fences, channels and connectors
    Audit(trail::AuditArgs),
}

#[derive(clap::Args)]
pub(crate) struct RevokeArgs {
    /// Token id, from `tenure token list`
    id: String,
    /// Reason, for the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Revoke even if the token was used within the last day
    #[arg(long)]
    force: bool,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(command: TokenCommand, global: &Global) -> Result<String, Failure> {
    match command {
        TokenCommand::Create(args) => create::run(&args, global).await,
        TokenCommand::List { expires_within, unused_since } => {
            let mut tokens = open(global).await?.tokens().await?;
            tokens.retain(|token| is_listed(token, expires_within, unused_since));
            Ok(print(&tokens, global))
        }
        TokenCommand::Show { id } => {
            let id = token_id(&id)?;
            let token = find_token(&*open(global).await?, &id).await?;
            Ok(global.show(&value(&token), || describe(&token)))
        }
        TokenCommand::Revoke(args) => revoke(&args, global).await,
        TokenCommand::Usage(args) => trail::usage(&args, global).await,
        TokenCommand::Audit(args) => trail::audit(&args, global).await,
    }
}

/// Validity of a token by the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenState {
    Good,
    Expired,
    Revoked,
}

impl TokenState {
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

fn is_listed(
    token: &Token,
    expires_within: Option<Duration>,
    unused_since: Option<Duration>,
) -> bool {
    let is_good = || TokenState::of(token) == TokenState::Good;
    let soon = |within| is_good() && token.expires_at <= now().saturating_add(micros(within));
    // An unused token counts from its creation: it may not be deployed yet.
    let last = token.last_used_at.unwrap_or(token.created_at);
    let unused = |since| is_good() && last <= now().saturating_sub(micros(since));
    expires_within.is_none_or(soon) && unused_since.is_none_or(unused)
}

fn print(tokens: &[Token], global: &Global) -> String {
    let heads = ["TOKEN", "STATE", "ENV", "ROLES", "SCOPE", "EXPIRES", "LAST_USED", "DESCRIPTION"];
    let row = |token: &Token| {
        [
            token.token_id.clone(),
            TokenState::of(token).as_str().to_owned(),
            shown(&token.environment),
            shown(&token.roles.join(",")),
            or_dash(token.scope.as_ref().map(scope_shown)),
            at(token.expires_at),
            or_dash(token.last_used_at.map(at)),
            shown(&token.description),
        ]
    };
    let empty = "there is no such token; `tenure token create` creates one";
    list(global, ("tokens", tokens), value, (heads, row), empty)
}

fn describe(token: &Token) -> String {
    let created = format!("{} by {}", at(token.created_at), shown(&token.created_by));
    let revoked = token.revoked_at.map(|revoked| {
        let (by, why) = (token.revoked_by.as_deref(), token.revoked_reason.as_deref());
        let (by, why) = (by.unwrap_or("-"), why.unwrap_or("-"));
        format!("{} by {}: {}", at(revoked), shown(by), shown(why))
    });
    let left = (token.expires_at - now()) / DAY_MICROS;
    let expires = match TokenState::of(token) {
        TokenState::Good => {
            format!("{} ({} left)", at(token.expires_at), counted(left, "day", "days"))
        }
        _ => at(token.expires_at),
    };
    fields([
        ("token", Some(token.token_id.clone())),
        ("state", Some(TokenState::of(token).as_str().to_owned())),
        ("environment", Some(shown(&token.environment))),
        ("roles", Some(shown(&token.roles.join(", ")))),
        ("scope", Some(or_dash(token.scope.as_ref().map(scope_shown)))),
        ("created", Some(created)),
        ("expires", Some(expires)),
        ("revoked", revoked),
        ("last used", Some(token.last_used_at.map_or_else(|| "never".to_owned(), at))),
        ("replaces", token.replaces_token_id.clone()),
        ("description", Some(shown(&token.description)).filter(|text| !text.is_empty())),
    ])
}

/// Refuses to revoke a token that was used within the last day, unless forced.
fn check_unused(token: &Token, force: bool) -> Result<(), Failure> {
    match token.last_used_at {
        Some(used)
            if TokenState::of(token) == TokenState::Good && !force && now() - used < DAY_MICROS =>
        {
            let what = format!("{} was last used {}, {}", token.token_id, at(used), ago(used));
            Err(StoreError::refused(Code::TokenInUse, what).into())
        }
        _ => Ok(()),
    }
}

async fn revoke(args: &RevokeArgs, global: &Global) -> Result<String, Failure> {
    let RevokeArgs { force, dry_run, .. } = *args;
    let (id, reason) = (token_id(&args.id)?, check_text("--reason", &args.reason)?);
    let storage = open(global).await?;
    let token = find_token(&*storage, &id).await?;
    check_unused(&token, force)?;
    let changed = match dry_run {
        true => token.revoked_at.is_none(),
        false => {
            let revoked = storage.revoke_token(&id, &operator(), &reason).await?;
            revoked.ok_or_else(|| no_such_token(&id))?
        }
    };
    let value = json!({
        "dry_run": dry_run,
        "token_id": id,
        "changed": changed,
        "last_used_at": token.last_used_at.map(at),
    });
    let did = match (changed, dry_run) {
        (false, _) => "was already revoked",
        (true, true) => "would be revoked",
        (true, false) => "is revoked: requests with it get 401 from now on",
    };
    let used = token.last_used_at.map_or_else(|| "never".to_owned(), at);
    Ok(change(global, dry_run, &value, format!("{id} {did}\nlast used: {used}\n")))
}

/// Formats a token as JSON.
fn value(token: &Token) -> Value {
    json!({
        "token_id": token.token_id,
        "state": TokenState::of(token).as_str(),
        "environment": token.environment,
        "roles": token.roles,
        "scope": scope_value(token.scope.as_ref()),
        "created_at": at(token.created_at),
        "created_by": token.created_by,
        "expires_at": at(token.expires_at),
        "revoked_at": token.revoked_at.map(at),
        "revoked_by": token.revoked_by,
        "revoked_reason": token.revoked_reason,
        "description": token.description,
        "replaces": token.replaces_token_id,
        "last_used_at": token.last_used_at.map(at),
    })
}

/// Converts a time to microseconds, saturating.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
