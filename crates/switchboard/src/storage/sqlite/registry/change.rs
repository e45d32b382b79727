//! What operators change.

use rusqlite::Connection;
use serde_json::json;

use super::super::{execute, first, token};
use super::progress::progress;
use crate::storage::{Decision, Name};

/// Everything that is kept of a connector.
const TABLES: [&str; 7] = [
    "connector_registry",
    "connector_instances",
    "connector_heartbeat_log",
    "connector_stats_hourly",
    "connector_stats_daily",
    "connector_fanout_daily",
    "connector_stats_window",
];

pub(super) fn record(
    db: &Connection,
    name: &Name,
    (action, by, reason): (&str, &str, &str),
    now: i64,
) -> rusqlite::Result<()> {
    let metadata = json!({
        "connector_type": name.connector_type,
        "endpoint_identity": name.endpoint_identity,
    });
    let entry = token::Entry { token_id: &name.path(), action, by, reason, metadata };
    token::record(db, &entry, now)
}

pub(super) fn register(db: &Connection, name: &Name, by: &str, now: i64) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO connector_registry
            (connector_type, endpoint_identity, first_seen_at, registered_via)
        VALUES (?1, ?2, ?3, 'operator')
        ON CONFLICT (connector_type, endpoint_identity) DO NOTHING";
    let is_new = execute(db, sql, (&name.connector_type, &name.endpoint_identity, now))? == 1;
    if is_new {
        record(db, name, ("connector_register", by, ""), now)?;
    }
    Ok(is_new)
}

pub(super) fn archive(
    db: &Connection,
    name: &Name,
    archived: bool,
    Decision { by, reason, .. }: &Decision,
    now: i64,
) -> rusqlite::Result<Option<bool>> {
    let key = (&name.connector_type, &name.endpoint_identity);
    let sql = "SELECT archived_at IS NOT NULL FROM connector_registry
        WHERE connector_type = ?1 AND endpoint_identity = ?2";
    let Some(was) = first(db, sql, key, |row| row.get::<_, bool>(0))? else { return Ok(None) };
    if was == archived {
        return Ok(Some(false));
    }
    let sql = "UPDATE connector_registry SET archived_at = ?3
        WHERE connector_type = ?1 AND endpoint_identity = ?2";
    execute(db, sql, (key.0, key.1, archived.then_some(now)))?;
    let action = if archived { "connector_archive" } else { "connector_unarchive" };
    record(db, name, (action, by, reason), now)?;
    Ok(Some(true))
}

pub(super) fn delete(
    db: &Connection,
    name: &Name,
    Decision { by, reason, .. }: &Decision,
    now: i64,
) -> rusqlite::Result<bool> {
    let delete = |table: &str| {
        let sql =
            format!("DELETE FROM {table} WHERE connector_type = ?1 AND endpoint_identity = ?2");
        execute(db, &sql, (&name.connector_type, &name.endpoint_identity))
    };
    let [registry, others @ ..] = TABLES;
    if delete(registry)? == 0 {
        return Ok(false);
    }
    for table in others {
        delete(table)?;
    }
    // What became of its messages stays known, but is not counted for it any more.
    let sql = "UPDATE inbox_outcome SET arrival = NULL
        WHERE arrival > ?3 AND connector_type = ?1 AND endpoint_identity = ?2";
    let counted = progress(db)?.counted_ack;
    execute(db, sql, (&name.connector_type, &name.endpoint_identity, counted))?;
    record(db, name, ("connector_delete", by, reason), now)?;
    Ok(true)
}
