//! What is known of connectors.

use rusqlite::{Connection, Row};
use tenure_wire::heartbeat::Counters;
use uuid::Uuid;

use super::super::commit::uuid;
use super::super::{all, count_of, first};
use crate::storage::{
    Connector, ConnectorQuery, Connectors, HistoryQuery, Instance, Logged, Measures, Name, Shown,
};

/// So many instances are shown of a connector.
const INSTANCES: i64 = 100;

/// Connectors and what they did today, which is `?1`.
const CONNECTORS: &str = "SELECT r.connector_type, r.endpoint_identity, r.instance_id, r.version,
        r.state, r.error_message, r.uptime_s, r.last_heartbeat_at, r.first_seen_at,
        r.registered_via, r.checkpoint_cursor, r.checkpoint_updated_at, r.archived_at,
        r.interval_micros, r.drift_micros, r.counter_messages_ingested,
        r.counter_messages_failed, r.counter_source_api_calls, r.counter_checkpoint_saves,
        r.counter_dedupe_accepted, coalesce(d.messages_ingested, 0),
        coalesce(d.messages_failed, 0), coalesce(d.source_api_calls, 0),
        coalesce(d.dedupe_accepted, 0), coalesce(d.heartbeat_count, 0),
        coalesce(d.healthy_count, 0), coalesce(d.degraded_count, 0), coalesce(d.error_count, 0)
    FROM connector_registry r LEFT JOIN connector_stats_daily d
        ON d.connector_type = r.connector_type AND d.endpoint_identity = r.endpoint_identity
            AND d.day = date(?1 / 1000000, 'unixepoch')";

/// Five columns.
pub(super) fn counters(row: &Row<'_>, from: usize) -> rusqlite::Result<Counters> {
    Ok(Counters {
        messages_ingested: row.get(from)?,
        messages_failed: row.get(from + 1)?,
        source_api_calls: row.get(from + 2)?,
        checkpoint_saves: row.get(from + 3)?,
        dedupe_accepted: row.get(from + 4)?,
    })
}

/// Eight columns.
pub(super) fn measures(row: &Row<'_>, from: usize) -> rusqlite::Result<Measures> {
    Ok(Measures {
        messages_ingested: row.get(from)?,
        messages_failed: row.get(from + 1)?,
        source_api_calls: row.get(from + 2)?,
        dedupe_accepted: row.get(from + 3)?,
        heartbeat_count: row.get(from + 4)?,
        healthy_count: row.get(from + 5)?,
        degraded_count: row.get(from + 6)?,
        error_count: row.get(from + 7)?,
    })
}

fn read(row: &Row<'_>) -> rusqlite::Result<Connector> {
    Ok(Connector {
        connector_type: row.get(0)?,
        endpoint_identity: row.get(1)?,
        instance_id: row.get::<_, Option<[u8; 16]>>(2)?.map(Uuid::from_bytes),
        version: row.get(3)?,
        state: row.get(4)?,
        error_message: row.get(5)?,
        uptime_s: row.get(6)?,
        last_heartbeat_at: row.get(7)?,
        first_seen_at: row.get(8)?,
        registered_via: row.get(9)?,
        checkpoint_cursor: row.get(10)?,
        checkpoint_updated_at: row.get(11)?,
        archived_at: row.get(12)?,
        interval: row.get(13)?,
        drift: row.get(14)?,
        counters: counters(row, 15)?,
        today: measures(row, 20)?,
    })
}

pub(super) fn list(
    db: &Connection,
    query: &ConnectorQuery,
    now: i64,
) -> rusqlite::Result<Connectors> {
    let not = if query.archived { "NOT" } else { "" };
    let sql = format!(
        "{CONNECTORS} WHERE (r.connector_type, r.endpoint_identity) > (?2, ?3)
            AND r.archived_at IS {not} NULL AND (?5 IS NULL OR r.endpoint_identity = ?5)
        ORDER BY r.connector_type, r.endpoint_identity LIMIT ?4"
    );
    // No name is empty.
    let (of, endpoint) = query.after.as_ref().map_or(("", ""), |(of, it)| (of, it));
    let only = &query.endpoint_identity;
    let connectors = all(db, &sql, (now, of, endpoint, count_of(query.limit), only), read)?;
    Ok(Connectors { now, connectors })
}

pub(super) fn show(db: &Connection, name: &Name, now: i64) -> rusqlite::Result<Option<Shown>> {
    let (of, endpoint) = (&name.connector_type, &name.endpoint_identity);
    let sql = format!("{CONNECTORS} WHERE r.connector_type = ?2 AND r.endpoint_identity = ?3");
    let Some(connector) = first(db, &sql, (now, of, endpoint), read)? else { return Ok(None) };
    let sql = "SELECT instance_id, version, state, error_message, uptime_s, started_at,
            first_seen_at, last_heartbeat_at, stopped_at, checkpoint_cursor,
            checkpoint_updated_at, capabilities, interval_micros, drift_micros, beats, late,
            resets, jumps, counter_messages_ingested, counter_messages_failed,
            counter_source_api_calls, counter_checkpoint_saves, counter_dedupe_accepted
        FROM connector_instances WHERE connector_type = ?1 AND endpoint_identity = ?2
        ORDER BY last_heartbeat_at DESC, instance_id LIMIT ?3";
    let instances = all(db, sql, (of, endpoint, INSTANCES), instance)?;
    Ok(Some(Shown { now, connector, instances }))
}

fn instance(row: &Row<'_>) -> rusqlite::Result<Instance> {
    Ok(Instance {
        instance_id: uuid(row, 0)?,
        version: row.get(1)?,
        state: row.get(2)?,
        error_message: row.get(3)?,
        uptime_s: row.get(4)?,
        started_at: row.get(5)?,
        first_seen_at: row.get(6)?,
        last_heartbeat_at: row.get(7)?,
        stopped_at: row.get(8)?,
        checkpoint_cursor: row.get(9)?,
        checkpoint_updated_at: row.get(10)?,
        capabilities: row.get(11)?,
        interval: row.get(12)?,
        drift: row.get(13)?,
        beats: row.get(14)?,
        late: row.get(15)?,
        resets: row.get(16)?,
        jumps: row.get(17)?,
        counters: counters(row, 18)?,
    })
}

pub(super) fn types_of(db: &Connection, endpoint_identity: &str) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT connector_type FROM connector_registry WHERE endpoint_identity = ?1
        ORDER BY connector_type";
    all(db, sql, [endpoint_identity], |row| row.get(0))
}

pub(super) fn history(
    db: &Connection,
    name: &Name,
    query: &HistoryQuery,
) -> rusqlite::Result<Vec<Logged>> {
    let healthy = if query.unhealthy { "AND state <> 'healthy'" } else { "" };
    let sql = format!(
        "SELECT id, instance_id, state, error_message, uptime_s, late, received_at, sent_at,
            counter_messages_ingested, counter_messages_failed, counter_source_api_calls,
            counter_checkpoint_saves, counter_dedupe_accepted, delta_messages_ingested,
            delta_messages_failed, delta_source_api_calls, delta_checkpoint_saves,
            delta_dedupe_accepted
        FROM connector_heartbeat_log WHERE connector_type = ?1 AND endpoint_identity = ?2
            AND (received_at, id) < (?3, ?4) {healthy}
        ORDER BY received_at DESC, id DESC LIMIT ?5"
    );
    let (received_at, id) = query.before.unwrap_or((i64::MAX, i64::MAX));
    let (of, endpoint) = (&name.connector_type, &name.endpoint_identity);
    all(db, &sql, (of, endpoint, received_at, id, count_of(query.limit)), |row| {
        Ok(Logged {
            id: row.get(0)?,
            instance_id: uuid(row, 1)?,
            state: row.get(2)?,
            error_message: row.get(3)?,
            uptime_s: row.get(4)?,
            late: row.get(5)?,
            received_at: row.get(6)?,
            sent_at: row.get(7)?,
            counters: counters(row, 8)?,
            deltas: counters(row, 13)?,
        })
    })
}
