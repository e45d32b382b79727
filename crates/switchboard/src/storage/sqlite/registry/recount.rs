//! Counting a connector again.

use rusqlite::Connection;

use super::super::{execute, first};
use super::change::record;
use super::progress::progress;
use super::statistics::{Part, count_beats};
use crate::storage::{Decision, Name, Period, Step};

/// What was counted of a connector from a day on: ingested, failed, calls and duplicates.
type Done = (i64, i64, i64, i64);

fn done(db: &Connection, name: &Name, since: i64) -> rusqlite::Result<Done> {
    let sql = "SELECT coalesce(sum(messages_ingested), 0), coalesce(sum(messages_failed), 0),
            coalesce(sum(source_api_calls), 0), coalesce(sum(dedupe_accepted), 0)
        FROM connector_stats_daily WHERE connector_type = ?1 AND endpoint_identity = ?2
            AND day >= date(?3 / 1000000, 'unixepoch')";
    let key = (&name.connector_type, &name.endpoint_identity, since);
    db.prepare_cached(sql)?
        .query_row(key, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
}

/// Counts a connector again, from the first day on of which the history has every beat.
pub(super) fn recount(
    db: &Connection,
    name: &Name,
    Decision { by, reason, .. }: &Decision,
    now: i64,
) -> rusqlite::Result<Option<i64>> {
    let (of, endpoint) = (&name.connector_type, &name.endpoint_identity);
    let sql =
        "SELECT 1 FROM connector_registry WHERE connector_type = ?1 AND endpoint_identity = ?2";
    if first(db, sql, (of, endpoint), |_| Ok(()))?.is_none() {
        return Ok(None);
    }
    let was = progress(db)?;
    let from = was.beats_since;
    let before = done(db, name, from)?;
    for rows in [
        "connector_stats_hourly WHERE hour >= ?3",
        "connector_stats_daily WHERE day >= date(?3 / 1000000, 'unixepoch')",
        "connector_stats_window WHERE ?3 = ?3",
    ] {
        let sql = format!("DELETE FROM {rows} AND connector_type = ?1 AND endpoint_identity = ?2");
        execute(db, &sql, (of, endpoint, from))?;
    }
    for (period, since) in Period::ALL.into_iter().zip(was.since) {
        let rows = match period.step() {
            Step::Hour => "connector_stats_hourly WHERE hour >= ?4",
            Step::Day => "connector_stats_daily WHERE day >= date(?4 / 1000000, 'unixepoch')",
        };
        let sql = format!(
            "INSERT INTO connector_stats_window
                (connector_type, endpoint_identity, period, messages_ingested, messages_failed)
            SELECT ?1, ?2, ?3, coalesce(sum(messages_ingested), 0),
                coalesce(sum(messages_failed), 0)
            FROM {rows} AND connector_type = ?1 AND endpoint_identity = ?2"
        );
        execute(db, &sql, (of, endpoint, period.as_str(), since))?;
    }
    let part = Part { after: 0, upto: was.counted_beat, name: Some(name), from };
    count_beats(db, &part, &was.since)?;
    let after = done(db, name, from)?;
    let sql = "UPDATE connector_registry SET
            counter_messages_ingested = max(counter_messages_ingested + ?3, 0),
            counter_messages_failed = max(counter_messages_failed + ?4, 0),
            counter_source_api_calls = max(counter_source_api_calls + ?5, 0),
            counter_dedupe_accepted = max(counter_dedupe_accepted + ?6, 0)
        WHERE connector_type = ?1 AND endpoint_identity = ?2";
    let by_how_much =
        (after.0 - before.0, after.1 - before.1, after.2 - before.2, after.3 - before.3);
    let (ingested, failed, calls, dedupe) = by_how_much;
    execute(db, sql, (of, endpoint, ingested, failed, calls, dedupe))?;
    record(db, name, ("connector_recount", by, reason), now)?;
    Ok(Some(from))
}
