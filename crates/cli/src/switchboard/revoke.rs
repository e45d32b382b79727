//! `tenure token revoke`: ends a token at once.

use serde_json::json;
use tenure_core::{Code, StoreError};
use tenure_switchboard::storage::{Storage, Token};

use super::token::State;
use super::{DAY, ago, at, at_or_null, find, not_there, now, operator, token_id, words};
use crate::failure::Failure;
use crate::output::{DRY_RUN, document, to_stderr};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The token, as `tenure token list` shows it
    id: String,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Also if it was used within the last day
    #[arg(long)]
    force: bool,
    /// Say what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug)]
pub(crate) struct Task {
    id: String,
    reason: String,
    force: bool,
    dry_run: bool,
}

impl Task {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        Ok(Self {
            id: token_id(&args.id)?,
            reason: words("--reason", &args.reason)?,
            force: args.force,
            dry_run: args.dry_run,
        })
    }

    /// A token that somebody uses is not ended by mistake. One that does not count any more shuts
    /// nobody out.
    fn judge(&self, token: &Token) -> Result<(), Failure> {
        match token.last_used_at {
            Some(used) if State::of(token) == State::Good && !self.force && now() - used < DAY => {
                let what = format!("{} was last used {}, {}", self.id, at(used), ago(used));
                Err(StoreError::refused(Code::TokenInUse, what).into())
            }
            _ => Ok(()),
        }
    }
}

pub(super) async fn run(storage: &dyn Storage, task: &Task, json: bool) -> Result<String, Failure> {
    let token = find(storage, &task.id).await?;
    task.judge(&token)?;
    let changed = match task.dry_run {
        true => State::of(&token) == State::Good,
        false => {
            let revoked = storage.revoke_token(&task.id, &operator(), &task.reason).await?;
            revoked.ok_or_else(|| not_there(&task.id))?
        }
    };
    if json {
        return Ok(document(&json!({
            "dry_run": task.dry_run,
            "token_id": task.id,
            "changed": changed,
            "last_used_at": at_or_null(token.last_used_at),
        })));
    }
    if task.dry_run {
        to_stderr(DRY_RUN);
    }
    let did = match (changed, task.dry_run) {
        (false, _) => "had ended before",
        (true, true) => "would be revoked",
        (true, false) => "is revoked: whoever shows it gets 401 from now on",
    };
    let used = token.last_used_at.map_or_else(|| "never".to_owned(), at);
    Ok(format!("{} {did}\nlast used: {used}\n", task.id))
}
