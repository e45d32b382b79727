//! `tenure token usage` and `tenure token audit`.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::DutyKey;
use tenure_switchboard::storage::{TokenAudit, TokenUsage};

use super::token::micros;
use super::{at, find_token, list, now, open, token_id};
use crate::args::{Global, duration, name};
use crate::failure::Failure;
use crate::limits::{MAX_AGE, check_count, check_time};
use crate::output::{document, shown, to_stderr};
use crate::table::table;

#[derive(clap::Args)]
pub(crate) struct UsageArgs {
    /// Token id, from `tenure token list`; all if omitted
    id: Option<String>,
    /// Period to show, in whole days (UTC)
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    since: Duration,
}

#[derive(clap::Args)]
pub(crate) struct AuditArgs {
    /// Token id, duty, channel, or connector as TYPE/IDENTITY; all if omitted
    id: Option<String>,
    /// Maximum number of entries, newest first
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

pub(super) async fn usage(args: &UsageArgs, global: &Global) -> Result<String, Failure> {
    check_time("--since", args.since, Duration::ZERO, MAX_AGE)?;
    let id = args.id.as_deref().map(token_id).transpose()?;
    let storage = open(global).await?;
    if let Some(id) = &id {
        find_token(&*storage, id).await?;
    }
    let since = day(now().saturating_sub(micros(args.since)));
    let usage = storage.usage(id.as_deref(), &since).await?;
    if global.json {
        let value = |usage: &TokenUsage| {
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
        to_stderr(&format!("there was no request since {since}"));
    }
    let row = |usage: &TokenUsage| {
        let TokenUsage { requests, accepted, duplicates, refused, .. } = usage;
        let [requests, accepted, duplicates, refused] =
            [requests, accepted, duplicates, refused].map(ToString::to_string);
        [shown(&usage.token_id), usage.day.clone(), requests, accepted, duplicates, refused]
    };
    let heads = ["TOKEN", "DAY", ">REQUESTS", ">ACCEPTED", ">DUPLICATES", ">REFUSED"];
    Ok(table(heads, usage.iter().map(row)))
}

/// Formats the day of a time, UTC.
fn day(micros: i64) -> String {
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    time.strftime("%Y-%m-%d").to_string()
}

pub(super) async fn audit(args: &AuditArgs, global: &Global) -> Result<String, Failure> {
    check_count("--limit", args.limit, 1, 10_000)?;
    // Ids to try in order; `None` selects all entries.
    let ids = match args.id.as_deref() {
        None => vec![None],
        Some(id) if id.contains('/') => {
            // A duty may be spelt in several ways; a connector is looked up as given.
            let given = name(id, |id| Ok::<_, Failure>(id.to_owned()))?;
            let duty = given.parse::<DutyKey>().ok().map(|duty| duty.to_string());
            duty.into_iter().chain([given]).map(Some).collect()
        }
        Some(id) => vec![Some(token_id(id)?)],
    };
    let storage = open(global).await?;
    let mut entries = Vec::new();
    for id in ids {
        if entries.is_empty() {
            entries = storage.audit(id.as_deref(), args.limit).await?;
        }
    }
    let value = |entry: &TokenAudit| {
        json!({
            "on": entry.token_id,
            "action": entry.action_type,
            "by": entry.operator_identity,
            "reason": entry.reason,
            "at": at(entry.performed_at),
            "metadata": serde_json::from_str::<Value>(&entry.metadata).ok(),
        })
    };
    let row = |entry: &TokenAudit| {
        let text = [&entry.action_type, &entry.token_id, &entry.operator_identity, &entry.reason];
        let [action, on, by, reason] = text.map(|text| shown(text));
        [at(entry.performed_at), action, on, by, reason]
    };
    let heads = ["AT", "ACTION", "ON", "BY", "REASON"];
    let empty = "the audit trail has no such entry";
    Ok(list(global, ("audit", &entries), value, (heads, row), empty))
}
