//! Tokens, their audit trail and usage, and who shows them.

use rusqlite::{Connection, Row};
use serde_json::json;

use super::super::{Admission, Attempt, Ended, NewToken, Scope, Token, TokenAudit, Usage};
use super::{all, count_of, execute, first};

const COLUMNS: &str = "token_id, environment, roles, scope_channel, scope_provider,
    scope_endpoint_identity, created_at, created_by, expires_at, revoked_at, revoked_by,
    revoked_reason, description, replaces_token_id, last_used_at";

const MINUTE: i64 = 60_000_000;

fn read(row: &Row<'_>) -> rusqlite::Result<Token> {
    let roles: String = row.get(2)?;
    let scope = match (row.get(3)?, row.get(4)?, row.get(5)?) {
        (Some(channel), Some(provider), Some(endpoint_identity)) => {
            Some(Scope { channel, provider, endpoint_identity })
        }
        _ => None,
    };
    Ok(Token {
        token_id: row.get(0)?,
        environment: row.get(1)?,
        roles: roles.split(',').filter(|role| !role.is_empty()).map(str::to_owned).collect(),
        scope,
        created_at: row.get(6)?,
        created_by: row.get(7)?,
        expires_at: row.get(8)?,
        revoked_at: row.get(9)?,
        revoked_by: row.get(10)?,
        revoked_reason: row.get(11)?,
        description: row.get(12)?,
        replaces_token_id: row.get(13)?,
        last_used_at: row.get(14)?,
    })
}

fn why_ended(revoked_at: Option<i64>, expires_at: i64, now: i64) -> Option<Ended> {
    match revoked_at {
        Some(_) => Some(Ended::Revoked),
        None => (expires_at <= now).then_some(Ended::Expired),
    }
}

/// Why a token does not count any more, if it does not.
pub(super) fn ended(
    db: &Connection,
    token_id: Option<&str>,
    now: i64,
) -> rusqlite::Result<Option<Ended>> {
    let Some(token_id) = token_id else { return Ok(None) };
    let sql = "SELECT revoked_at, expires_at FROM connector_tokens WHERE token_id = ?1";
    let state = |row: &Row<'_>| Ok(why_ended(row.get(0)?, row.get(1)?, now));
    Ok(first(db, sql, [token_id], state)?.unwrap_or(Some(Ended::Gone)))
}

/// The source of a token. One without a scope submits nothing, and must not stand for all sources.
pub(super) fn scope(db: &Connection, token_id: &str) -> rusqlite::Result<Option<Scope>> {
    let sql = "SELECT coalesce(scope_channel, '-'), coalesce(scope_provider, '-'),
            coalesce(scope_endpoint_identity, '-')
        FROM connector_tokens WHERE token_id = ?1";
    first(db, sql, [token_id], |row| {
        let (channel, provider, endpoint_identity) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Scope { channel, provider, endpoint_identity })
    })
}

/// An [`Attempt`] that can go to another thread.
#[derive(Clone)]
pub(super) struct Asked {
    hash: Option<[u8; 32]>,
    address: String,
    limit: i64,
    window: i64,
}

impl Asked {
    pub(super) fn new(attempt: &Attempt<'_>) -> Self {
        Self {
            hash: attempt.hash,
            address: attempt.address.to_owned(),
            limit: attempt.limit,
            window: attempt.window,
        }
    }
}

/// What an attempt gets; changes nothing.
pub(super) fn judge(db: &Connection, asked: &Asked, now: i64) -> rusqlite::Result<Admission> {
    let sql = format!("SELECT {COLUMNS} FROM connector_tokens WHERE token_hash = ?1");
    let token = match asked.hash {
        Some(hash) => first(db, &sql, [hash], read)?,
        None => None,
    };
    if let Some(token) = token {
        return Ok(match why_ended(token.revoked_at, token.expires_at, now) {
            Some(ended) => Admission::Ended(ended),
            None => Admission::Token(Box::new(token)),
        });
    }
    let sql = "SELECT window_ends_at FROM auth_failure
        WHERE address = ?1 AND window_ends_at > ?2 AND failures >= ?3";
    let limited: Option<i64> =
        first(db, sql, (&asked.address, now, asked.limit), |row| row.get(0))?;
    Ok(match limited {
        Some(window_ends_at) => Admission::Limited { retry_after: window_ends_at - now },
        None => Admission::Unknown,
    })
}

/// The same, and a failure is counted.
pub(super) fn count(db: &Connection, asked: &Asked, now: i64) -> rusqlite::Result<Admission> {
    let admission = judge(db, asked, now)?;
    if admission == Admission::Unknown {
        let sql = "INSERT INTO auth_failure (address, failures, window_ends_at)
            VALUES (?1, 1, ?2) ON CONFLICT (address) DO UPDATE SET
                failures = CASE WHEN window_ends_at > ?3 THEN failures + 1 ELSE 1 END,
                window_ends_at = CASE WHEN window_ends_at > ?3 THEN window_ends_at ELSE ?2 END";
        execute(db, sql, (&asked.address, now.saturating_add(asked.window), now))?;
    }
    Ok(admission)
}

pub(super) fn any(db: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM connector_tokens)";
    db.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

fn is_known(db: &Connection, token_id: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM connector_tokens WHERE token_id = ?1)";
    db.prepare_cached(sql)?.query_row([token_id], |row| row.get(0))
}

pub(super) fn create(db: &Connection, token: &NewToken, now: i64) -> rusqlite::Result<bool> {
    if let Some(replaces) = &token.replaces
        && !is_known(db, replaces)?
    {
        return Ok(false);
    }
    let sql = "INSERT INTO connector_tokens (token_id, token_hash, environment, roles,
            scope_channel, scope_provider, scope_endpoint_identity, created_at, created_by,
            expires_at, description, replaces_token_id)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
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
    execute(db, sql, row)?;
    let action = if token.replaces.is_some() { "rotate" } else { "create" };
    let metadata = json!({
        "environment": token.environment,
        "roles": token.roles,
        "replaces_token_id": token.replaces,
    });
    let (token_id, reason) = (token.token_id.as_str(), token.description.as_str());
    record(db, &Entry { token_id, action, by: &token.by, reason, metadata }, now)?;
    Ok(true)
}

pub(super) fn list(db: &Connection) -> rusqlite::Result<Vec<Token>> {
    let sql = format!("SELECT {COLUMNS} FROM connector_tokens ORDER BY created_at, token_id");
    all(db, &sql, [], read)
}

pub(super) fn revoke(
    db: &Connection,
    token_id: &str,
    by: &str,
    reason: &str,
    now: i64,
) -> rusqlite::Result<Option<bool>> {
    let sql = "UPDATE connector_tokens SET revoked_at = ?2, revoked_by = ?3, revoked_reason = ?4
        WHERE token_id = ?1 AND revoked_at IS NULL AND expires_at > ?2";
    if execute(db, sql, (token_id, now, by, reason))? == 0 {
        return Ok(is_known(db, token_id)?.then_some(false));
    }
    record(db, &Entry { token_id, action: "revoke", by, reason, metadata: json!({}) }, now)?;
    Ok(Some(true))
}

pub(super) fn add_usage(db: &Connection, usage: &[Usage], now: i64) -> rusqlite::Result<()> {
    let add = "INSERT INTO token_usage (token_id, day, requests, accepted, duplicates, refused)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (token_id, day) DO UPDATE SET
            requests = requests + excluded.requests, accepted = accepted + excluded.accepted,
            duplicates = duplicates + excluded.duplicates, refused = refused + excluded.refused";
    let used = "UPDATE connector_tokens SET last_used_at = ?2
        WHERE token_id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)";
    let minute = now - now.rem_euclid(MINUTE);
    for it in usage {
        let row = (&it.token_id, &it.day, it.requests, it.accepted, it.duplicates, it.refused);
        execute(db, add, row)?;
        execute(db, used, (&it.token_id, minute))?;
    }
    Ok(())
}

pub(super) fn usage(
    db: &Connection,
    token_id: Option<&str>,
    since_day: &str,
) -> rusqlite::Result<Vec<Usage>> {
    let sql = "SELECT token_id, day, requests, accepted, duplicates, refused FROM token_usage
        WHERE (?1 IS NULL OR token_id = ?1) AND day >= ?2 ORDER BY day, token_id";
    all(db, sql, (token_id, since_day), |row| {
        Ok(Usage {
            token_id: row.get(0)?,
            day: row.get(1)?,
            requests: row.get(2)?,
            accepted: row.get(3)?,
            duplicates: row.get(4)?,
            refused: row.get(5)?,
        })
    })
}

/// What is noted of an action.
pub(super) struct Entry<'a> {
    pub(super) token_id: &'a str,
    pub(super) action: &'a str,
    pub(super) by: &'a str,
    pub(super) reason: &'a str,
    pub(super) metadata: serde_json::Value,
}

pub(super) fn record(db: &Connection, entry: &Entry<'_>, now: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO token_audit_log
            (token_id, action_type, operator_identity, reason, performed_at, metadata)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let metadata = entry.metadata.to_string();
    let row = (entry.token_id, entry.action, entry.by, entry.reason, now, metadata);
    execute(db, sql, row)?;
    Ok(())
}

pub(super) fn audit(
    db: &Connection,
    token_id: Option<&str>,
    limit: usize,
) -> rusqlite::Result<Vec<TokenAudit>> {
    let of = if token_id.is_some() { "token_id = ?1" } else { "?1 IS NULL" };
    let sql = format!(
        "SELECT token_id, action_type, operator_identity, reason, performed_at, metadata
        FROM token_audit_log WHERE {of} ORDER BY id DESC LIMIT ?2"
    );
    all(db, &sql, (token_id, count_of(limit)), |row| {
        Ok(TokenAudit {
            token_id: row.get(0)?,
            action_type: row.get(1)?,
            operator_identity: row.get(2)?,
            reason: row.get(3)?,
            performed_at: row.get(4)?,
            metadata: row.get(5)?,
        })
    })
}
