//! To whom messages went.

use rusqlite::Connection;
use uuid::Uuid;

use super::super::{all, execute, first};
use crate::storage::{Outcomes, Reported};

pub(super) fn report(db: &Connection, outcomes: &Outcomes, at: i64) -> rusqlite::Result<Reported> {
    let id = outcomes.request_id.as_bytes();
    let found = first(db, "SELECT 1 FROM message_inbox WHERE request_id = ?1", [id], |_| Ok(()))?;
    if found.is_none() {
        return Ok(Reported::default());
    }
    let (of, endpoint) = (&outcomes.connector_type, &outcomes.endpoint_identity);
    let acked = "INSERT INTO inbox_outcome (request_id, target, connector_type,
            endpoint_identity, reported_at, acked_at, arrival)
        VALUES (?1, ?2, ?3, ?4, ?5, ?5, (SELECT last_ack + 1 FROM connector_stats_progress))
        ON CONFLICT (request_id, target) DO UPDATE SET reported_at = excluded.reported_at,
            acked_at = excluded.acked_at, arrival = excluded.arrival
            WHERE acked_at IS NULL";
    let failed = "INSERT INTO inbox_outcome (request_id, target, connector_type,
            endpoint_identity, reported_at) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (request_id, target) DO NOTHING";
    let mut changed = 0;
    for (sql, targets, acks) in [(acked, &outcomes.acked, 1), (failed, &outcomes.failed, 0)] {
        for target in targets {
            let new = execute(db, sql, (id, target, of, endpoint, at))?;
            let sql = "UPDATE connector_stats_progress SET last_ack = last_ack + ?1";
            execute(db, sql, [new as i64 * acks])?;
            changed += new;
        }
    }
    let state = "UPDATE message_inbox SET lifecycle_state = CASE WHEN EXISTS
            (SELECT 1 FROM inbox_outcome WHERE request_id = ?1 AND acked_at IS NULL)
            THEN 'failed' ELSE 'dispatched' END
        WHERE request_id = ?1";
    if changed > 0 {
        execute(db, state, [id])?;
    }
    Ok(Reported { changed, found: true })
}

/// Those who have acknowledged a message, and those who have failed.
pub(super) fn outcomes(
    db: &Connection,
    request_id: Uuid,
) -> rusqlite::Result<(Vec<String>, Vec<String>)> {
    let of = |acked: &str| {
        let sql = format!(
            "SELECT target FROM inbox_outcome WHERE request_id = ?1 AND acked_at IS {acked}
            ORDER BY target"
        );
        all(db, &sql, [request_id.as_bytes()], |row| row.get(0))
    };
    Ok((of("NOT NULL")?, of("NULL")?))
}
