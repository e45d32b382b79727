//! Changes by operators and consumers.

use rusqlite::Connection;
use serde_json::json;
use uuid::Uuid;

use super::super::row::{all, execute, execute_all, first, one};
use super::super::{statements as sql, token};
use super::statistics::progress;
use crate::storage::{ConnectorKey, Decision, MessageOutcomes, OutcomeReceipt};

pub(super) fn record(
    db: &Connection,
    name: &ConnectorKey,
    (action, by, reason): (&str, &str, &str),
    now: i64,
) -> rusqlite::Result<()> {
    let metadata = json!({
        "connector_type": name.connector_type,
        "endpoint_identity": name.endpoint_identity,
    });
    let entry = token::TokenAuditRecord { token_id: &name.path(), action, by, reason, metadata };
    token::record(db, &entry, now)
}

pub(super) fn register(
    db: &Connection,
    name: &ConnectorKey,
    by: &str,
    now: i64,
) -> rusqlite::Result<bool> {
    let row = (&name.connector_type, &name.endpoint_identity, now);
    let is_new = execute(db, sql::REGISTRY_REGISTER, row)? == 1;
    if is_new {
        record(db, name, ("connector_register", by, ""), now)?;
    }
    Ok(is_new)
}

pub(super) fn archive(
    db: &Connection,
    name: &ConnectorKey,
    archived: bool,
    Decision { by, reason, .. }: &Decision,
    now: i64,
) -> rusqlite::Result<Option<bool>> {
    let key = (&name.connector_type, &name.endpoint_identity);
    let Some(was) = first::<bool>(db, sql::REGISTRY_IS_ARCHIVED, key)? else { return Ok(None) };
    if was == archived {
        return Ok(Some(false));
    }
    execute(db, sql::REGISTRY_ARCHIVE, (key.0, key.1, archived.then_some(now)))?;
    let action = if archived { "connector_archive" } else { "connector_unarchive" };
    record(db, name, (action, by, reason), now)?;
    Ok(Some(true))
}

pub(super) fn delete(
    db: &Connection,
    name: &ConnectorKey,
    Decision { by, reason, .. }: &Decision,
    now: i64,
) -> rusqlite::Result<bool> {
    let key = (&name.connector_type, &name.endpoint_identity);
    if execute(db, sql::REGISTRY_DELETE, key)? == 0 {
        return Ok(false);
    }
    execute_all(db, sql::REGISTRY_DELETE_HISTORY, key)?;
    // The outcomes of its messages stay known, but are not counted for it any more.
    execute(db, sql::OUTCOME_UNCOUNT, (key.0, key.1, progress(db)?.counted_ack))?;
    record(db, name, ("connector_delete", by, reason), now)?;
    Ok(true)
}

pub(super) fn report(
    db: &Connection,
    outcomes: &MessageOutcomes,
    at: i64,
) -> rusqlite::Result<OutcomeReceipt> {
    let id = outcomes.request_id.as_bytes();
    if !one::<bool>(db, sql::INBOX_EXISTS, [id])? {
        return Ok(OutcomeReceipt::default());
    }
    let (of, endpoint) = (&outcomes.connector_type, &outcomes.endpoint_identity);
    let mut changed = 0;
    for target in &outcomes.acked {
        let new = execute(db, sql::OUTCOME_ACK, (id, target, of, endpoint, at))?;
        execute(db, sql::OUTCOME_NUMBER, [new as i64])?;
        changed += new;
    }
    for target in &outcomes.failed {
        changed += execute(db, sql::OUTCOME_FAIL, (id, target, of, endpoint, at))?;
    }
    if changed > 0 {
        execute(db, sql::INBOX_JUDGE, [id])?;
    }
    Ok(OutcomeReceipt { changed, found: true })
}

/// Lists the targets that have acknowledged a message, and those that have failed.
pub(super) fn outcomes(
    db: &Connection,
    request_id: Uuid,
) -> rusqlite::Result<(Vec<String>, Vec<String>)> {
    let targets: Vec<(String, bool)> = all(db, sql::OUTCOME_LIST, [request_id.as_bytes()])?;
    let (acked, failed): (Vec<_>, Vec<_>) = targets.into_iter().partition(|(_, acked)| *acked);
    let names = |targets: Vec<(String, bool)>| targets.into_iter().map(|(name, _)| name).collect();
    Ok((names(acked), names(failed)))
}
