//! `tenure token usage` and `tenure token audit`: what was done with tokens, and to them.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::DutyKey;
use tenure_switchboard::storage::{self, Storage, TokenAudit};

use super::token::micros;
use super::{at, find, now, token_id};
use crate::args::{duration, name};
use crate::failure::Failure;
use crate::limits::{MAX_AGE, check_count, check_time};
use crate::output::{document, shown, to_stderr};
use crate::table::table;

#[derive(clap::Args)]
pub(crate) struct UsageArgs {
    /// Only this token, as `tenure token list` shows it
    id: Option<String>,
    /// Since how long; whole days, UTC
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    since: Duration,
}

#[derive(Debug)]
pub(crate) struct Usage {
    id: Option<String>,
    since: Duration,
}

const USAGE: [&str; 6] = ["TOKEN", "DAY", ">REQUESTS", ">ACCEPTED", ">DUPLICATES", ">REFUSED"];

impl Usage {
    pub(crate) fn new(args: &UsageArgs) -> Result<Self, Failure> {
        check_time("--since", args.since, Duration::ZERO, MAX_AGE)?;
        Ok(Self { id: args.id.as_deref().map(token_id).transpose()?, since: args.since })
    }

    pub(crate) async fn run(&self, storage: &dyn Storage, json: bool) -> Result<String, Failure> {
        if let Some(id) = &self.id {
            find(storage, id).await?;
        }
        let since = day(now().saturating_sub(micros(self.since)));
        let usage = storage.usage(self.id.as_deref(), &since).await?;
        if json {
            let value = |usage: &storage::TokenUsage| {
                json!({
                    "token_id": usage.token_id,
                    "day": usage.day,
                    "requests": usage.requests,
                    "accepted": usage.accepted,
                    "duplicates": usage.duplicates,
                    "refused": usage.refused,
                })
            };
            let usage: Vec<Value> = usage.iter().map(value).collect();
            return Ok(document(&json!({ "since": since, "usage": usage })));
        }
        if usage.is_empty() {
            to_stderr(&format!("nothing was done since {since}"));
        }
        let row = |usage: &storage::TokenUsage| {
            [
                shown(&usage.token_id),
                usage.day.clone(),
                usage.requests.to_string(),
                usage.accepted.to_string(),
                usage.duplicates.to_string(),
                usage.refused.to_string(),
            ]
        };
        Ok(table(USAGE, usage.iter().map(row)))
    }
}

/// The day of a time, UTC.
fn day(micros: i64) -> String {
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    time.strftime("%Y-%m-%d").to_string()
}

#[derive(clap::Args)]
pub(crate) struct AuditArgs {
    /// Only this token, this duty whose fence was reset, or this connector: TYPE/IDENTITY, as it is
    /// printed
    id: Option<String>,
    /// The most entries, newest first
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

#[derive(Debug)]
pub(crate) struct Audit {
    /// What was typed may be meant in one of these forms; nothing is all.
    ids: Vec<String>,
    limit: usize,
}

const AUDIT: [&str; 5] = ["AT", "ACTION", "ON", "BY", "REASON"];

impl Audit {
    pub(crate) fn new(args: &AuditArgs) -> Result<Self, Failure> {
        check_count("--limit", args.limit, 1, 10_000)?;
        let ids = match args.id.as_deref() {
            None => Vec::new(),
            Some(id) if id.contains('/') => {
                // Of a duty every way to write it will do; a connector is none, and need not fit.
                let typed = name(id, |id| Ok::<_, Failure>(id.to_owned()))?;
                let duty = typed.parse::<DutyKey>().ok().map(|duty| duty.to_string());
                duty.into_iter().chain([typed]).collect()
            }
            Some(id) => vec![token_id(id)?],
        };
        Ok(Self { ids, limit: args.limit })
    }

    pub(crate) async fn run(&self, storage: &dyn Storage, json: bool) -> Result<String, Failure> {
        let entries = self.entries(storage).await?;
        if json {
            let value = |entry: &TokenAudit| {
                let metadata = serde_json::from_str::<Value>(&entry.metadata).ok();
                json!({
                    "on": entry.token_id,
                    "action": entry.action_type,
                    "by": entry.operator_identity,
                    "reason": entry.reason,
                    "at": at(entry.performed_at),
                    "metadata": metadata,
                })
            };
            let entries: Vec<Value> = entries.iter().map(value).collect();
            return Ok(document(&json!({ "audit": entries })));
        }
        if entries.is_empty() {
            to_stderr("the audit trail has no such entry");
        }
        let row = |entry: &TokenAudit| {
            [
                at(entry.performed_at),
                shown(&entry.action_type),
                shown(&entry.token_id),
                shown(&entry.operator_identity),
                shown(&entry.reason),
            ]
        };
        Ok(table(AUDIT, entries.iter().map(row)))
    }

    async fn entries(&self, storage: &dyn Storage) -> Result<Vec<TokenAudit>, Failure> {
        if self.ids.is_empty() {
            return Ok(storage.audit(None, self.limit).await?);
        }
        let mut entries = Vec::new();
        for id in &self.ids {
            if entries.is_empty() {
                entries = storage.audit(Some(id), self.limit).await?;
            }
        }
        Ok(entries)
    }
}
