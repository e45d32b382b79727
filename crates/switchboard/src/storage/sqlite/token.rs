//! Tokens, their audit trail and usage, and attempts to use them.

use rusqlite::Connection;
use serde_json::json;

use super::super::{
    Admission, Attempt, NewToken, SourceScope, Token, TokenAudit, TokenEnd, TokenUsage,
};
use super::row::{self, all, execute, first, one};
use super::statements as sql;

const MINUTE: i64 = 60_000_000;

fn why_ended(is_revoked: bool, expires_at: i64, now: i64) -> Option<TokenEnd> {
    match is_revoked {
        true => Some(TokenEnd::Revoked),
        false => (expires_at <= now).then_some(TokenEnd::Expired),
    }
}

/// Returns why a token is no longer valid.
pub(super) fn ended(
    db: &Connection,
    token_id: Option<&str>,
    now: i64,
) -> rusqlite::Result<Option<TokenEnd>> {
    let Some(token_id) = token_id else { return Ok(None) };
    let state: Option<(bool, i64)> = first(db, sql::TOKEN_END, [token_id])?;
    Ok(state.map_or(Some(TokenEnd::Gone), |(is_revoked, expires_at)| {
        why_ended(is_revoked, expires_at, now)
    }))
}

/// Reads the source of a token.
pub(super) fn scope(db: &Connection, token_id: &str) -> rusqlite::Result<Option<SourceScope>> {
    first(db, sql::TOKEN_SCOPE, [token_id])
}

/// An [`Attempt`] that can go to another thread.
#[derive(Clone)]
pub(super) struct OwnedAttempt {
    hash: Option<[u8; 32]>,
    address: String,
    limit: i64,
    window: i64,
}

impl OwnedAttempt {
    pub(super) fn new(attempt: &Attempt<'_>) -> Self {
        Self {
            hash: attempt.hash,
            address: attempt.address.to_owned(),
            limit: attempt.limit,
            window: attempt.window,
        }
    }
}

/// Judges an attempt; changes nothing.
pub(super) fn judge(
    db: &Connection,
    attempt: &OwnedAttempt,
    now: i64,
) -> rusqlite::Result<Admission> {
    let token: Option<Token> = match attempt.hash {
        Some(hash) => first(db, sql::TOKEN_OF_HASH, [hash])?,
        None => None,
    };
    if let Some(token) = token {
        return Ok(match why_ended(token.revoked_at.is_some(), token.expires_at, now) {
            Some(ended) => Admission::Ended(ended),
            None => Admission::Token(Box::new(token)),
        });
    }
    let limited: Option<i64> =
        first(db, sql::ADDRESS_LIMITED, (&attempt.address, now, attempt.limit))?;
    Ok(match limited {
        Some(window_ends_at) => Admission::Limited { retry_after: window_ends_at - now },
        None => Admission::Unknown,
    })
}

/// Judges an attempt and counts it if it failed.
pub(super) fn count(
    db: &Connection,
    attempt: &OwnedAttempt,
    now: i64,
) -> rusqlite::Result<Admission> {
    let admission = judge(db, attempt, now)?;
    if admission == Admission::Unknown {
        let window_ends_at = now.saturating_add(attempt.window);
        execute(db, sql::ADDRESS_COUNT, (&attempt.address, window_ends_at, now))?;
    }
    Ok(admission)
}

pub(super) fn create(db: &Connection, token: &NewToken, now: i64) -> rusqlite::Result<bool> {
    if let Some(replaces) = &token.replaces
        && !one::<bool>(db, sql::TOKEN_EXISTS, [replaces])?
    {
        return Ok(false);
    }
    let scope = token.scope.as_ref();
    let row = (
        &token.token_id,
        token.hash,
        &token.environment,
        token.roles.join(","),
        scope.map(|scope| &scope.channel),
        scope.map(|scope| &scope.provider),
        scope.map(|scope| &scope.endpoint_identity),
        now,
        &token.by,
        now.saturating_add(token.lifetime),
        &token.description,
        &token.replaces,
    );
    execute(db, sql::TOKEN_CREATE, row)?;
    let action = if token.replaces.is_some() { "rotate" } else { "create" };
    let metadata = json!({
        "environment": token.environment,
        "roles": token.roles,
        "replaces_token_id": token.replaces,
    });
    let (token_id, reason) = (token.token_id.as_str(), token.description.as_str());
    record(db, &TokenAuditRecord { token_id, action, by: &token.by, reason, metadata }, now)?;
    Ok(true)
}

pub(super) fn revoke(
    db: &Connection,
    token_id: &str,
    by: &str,
    reason: &str,
    now: i64,
) -> rusqlite::Result<Option<bool>> {
    if execute(db, sql::TOKEN_REVOKE, (token_id, now, by, reason))? == 0 {
        return Ok(one::<bool>(db, sql::TOKEN_EXISTS, [token_id])?.then_some(false));
    }
    record(
        db,
        &TokenAuditRecord { token_id, action: "revoke", by, reason, metadata: json!({}) },
        now,
    )?;
    Ok(Some(true))
}

pub(super) fn add_usage(db: &Connection, usage: &[TokenUsage], now: i64) -> rusqlite::Result<()> {
    let minute = now - now.rem_euclid(MINUTE);
    for it in usage {
        let row = (&it.token_id, &it.day, it.requests, it.accepted, it.duplicates, it.refused);
        execute(db, sql::USAGE_ADD, row)?;
        execute(db, sql::TOKEN_TOUCH, (&it.token_id, minute))?;
    }
    Ok(())
}

/// An entry of the audit trail.
pub(super) struct TokenAuditRecord<'a> {
    pub(super) token_id: &'a str,
    pub(super) action: &'a str,
    pub(super) by: &'a str,
    pub(super) reason: &'a str,
    pub(super) metadata: serde_json::Value,
}

pub(super) fn record(
    db: &Connection,
    entry: &TokenAuditRecord<'_>,
    now: i64,
) -> rusqlite::Result<()> {
    let metadata = entry.metadata.to_string();
    let row = (entry.token_id, entry.action, entry.by, entry.reason, now, metadata);
    execute(db, sql::AUDIT_RECORD, row)?;
    Ok(())
}

pub(super) fn audit(
    db: &Connection,
    token_id: Option<&str>,
    limit: usize,
) -> rusqlite::Result<Vec<TokenAudit>> {
    match token_id {
        Some(token_id) => all(db, sql::AUDIT_LIST_TOKEN, (row::limit(limit), token_id)),
        None => all(db, sql::AUDIT_LIST, [row::limit(limit)]),
    }
}
