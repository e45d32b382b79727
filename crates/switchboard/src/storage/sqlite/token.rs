//! Tokens, their audit trail and usage, and attempts to use them.

use async_trait::async_trait;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::super::{Admission, Attempt, NewToken, Token, TokenAudit, TokenEnd, TokenUsage, Tokens};
use super::row::{self, all, execute, first, one};
use super::{SqliteStorage, sql};
use crate::error::StorageResult;

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
    let state: Option<(bool, i64)> = first(db, sql!("token/end"), [token_id])?;
    Ok(state.map_or(Some(TokenEnd::Gone), |(is_revoked, expires_at)| {
        why_ended(is_revoked, expires_at, now)
    }))
}

/// Judges an attempt; changes nothing.
fn judge(db: &Connection, attempt: &Attempt, now: i64) -> rusqlite::Result<Admission> {
    let token: Option<Token> = match attempt.hash {
        Some(hash) => first(db, sql!("token/of_hash"), [hash])?,
        None => None,
    };
    if let Some(token) = token {
        return Ok(match why_ended(token.revoked_at.is_some(), token.expires_at, now) {
            Some(ended) => Admission::Ended(ended),
            None => Admission::Token(Box::new(token)),
        });
    }
    let limited: Option<i64> =
        first(db, sql!("address/limited"), (&attempt.address, now, attempt.limit))?;
    Ok(match limited {
        Some(window_ends_at) => Admission::Limited { retry_after: window_ends_at - now },
        None => Admission::Unknown,
    })
}

/// Judges an attempt and counts it if it failed.
fn count(db: &Connection, attempt: &Attempt, now: i64) -> rusqlite::Result<Admission> {
    let admission = judge(db, attempt, now)?;
    if admission == Admission::Unknown {
        let window_ends_at = now.saturating_add(attempt.window);
        execute(db, sql!("address/count"), (&attempt.address, window_ends_at, now))?;
    }
    Ok(admission)
}

#[async_trait]
impl Tokens for SqliteStorage {
    async fn admit(&self, attempt: &Attempt) -> StorageResult<Admission> {
        let (attempt, again) = (attempt.clone(), attempt.clone());
        match self.read(move |db, now| judge(db, &attempt, now)).await? {
            // Only a failure is written. It is judged again in that transaction, without races.
            Admission::Unknown => self.write(move |db, now| count(db, &again, now)).await,
            judged => Ok(judged),
        }
    }

    async fn has_tokens(&self) -> StorageResult<bool> {
        self.read(|db, _| one(db, sql!("token/any"), [])).await
    }

    async fn create_token(&self, token: &NewToken) -> StorageResult<bool> {
        let token = token.clone();
        self.write(move |db, now| create(db, &token, now)).await
    }

    async fn tokens(&self) -> StorageResult<Vec<Token>> {
        self.read(|db, _| all(db, sql!("token/list"), [])).await
    }

    async fn revoke_token(
        &self,
        token_id: &str,
        by: &str,
        reason: &str,
    ) -> StorageResult<Option<bool>> {
        let (id, by, reason) = (token_id.to_owned(), by.to_owned(), reason.to_owned());
        let job = move |db: &Connection, now| {
            if execute(db, sql!("token/revoke"), (&id, now, &by, &reason))? == 0 {
                return Ok(one::<bool>(db, sql!("token/exists"), [&id])?.then_some(false));
            }
            record(db, (&id, "revoke", &by, &reason, json!({})), now)?;
            Ok(Some(true))
        };
        self.write(job).await
    }

    async fn add_usage(&self, usage: &[TokenUsage]) -> StorageResult<()> {
        let usage = usage.to_vec();
        let job = move |db: &Connection, now: i64| {
            let minute = now - now.rem_euclid(MINUTE);
            for TokenUsage { token_id, day, requests, accepted, duplicates, refused } in &usage {
                let row = (token_id, day, requests, accepted, duplicates, refused);
                execute(db, sql!("usage/add"), row)?;
                execute(db, sql!("token/touch"), (token_id, minute))?;
            }
            Ok(())
        };
        self.write(job).await
    }

    async fn usage(
        &self,
        token_id: Option<&str>,
        since_day: &str,
    ) -> StorageResult<Vec<TokenUsage>> {
        let values = (token_id.map(str::to_owned), since_day.to_owned());
        self.read(move |db, _| all(db, sql!("usage/list"), values)).await
    }

    async fn audit(&self, token_id: Option<&str>, limit: usize) -> StorageResult<Vec<TokenAudit>> {
        let (token_id, limit) = (token_id.map(str::to_owned), row::limit(limit));
        let job = move |db: &Connection, _| match token_id {
            Some(token_id) => all(db, sql!("audit/list_token"), (limit, token_id)),
            None => all(db, sql!("audit/list"), [limit]),
        };
        self.read(job).await
    }
}

fn create(db: &Connection, token: &NewToken, now: i64) -> rusqlite::Result<bool> {
    if let Some(replaces) = &token.replaces
        && !one::<bool>(db, sql!("token/exists"), [replaces])?
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
    execute(db, sql!("token/create"), row)?;
    let action = if token.replaces.is_some() { "rotate" } else { "create" };
    let metadata = json!({
        "environment": token.environment,
        "roles": token.roles,
        "replaces_token_id": token.replaces,
    });
    record(db, (&token.token_id, action, &token.by, &token.description, metadata), now)?;
    Ok(true)
}

/// Records token, action, author, reason and metadata in the audit trail.
pub(super) fn record(
    db: &Connection,
    (token_id, action, by, reason, metadata): (&str, &str, &str, &str, Value),
    now: i64,
) -> rusqlite::Result<()> {
    let row = (token_id, action, by, reason, now, metadata.to_string());
    execute(db, sql!("audit/record"), row).map(drop)
}
