//! The clock of retention.

use rusqlite::Connection;

use super::super::{Measured, Tick};
use super::execute;

const SECOND: i64 = 1_000_000;
/// Two readings of the wall clock agree if they are off by no more than this.
const AGREE: i64 = 5 * SECOND;
/// What lies further ahead of the wall clock than this was stored under a clock that was wrong.
const AHEAD: i64 = 60 * SECOND;

/// Where it is.
pub(super) fn reached(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT reached FROM switchboard_clock")?.query_row([], |row| row.get(0))
}

/// The time that is stored with what arrives: never before the clock of retention, so that a wall
/// clock that steps back makes nothing look old.
pub(super) fn stamp(db: &Connection, now: i64) -> rusqlite::Result<i64> {
    Ok(now.max(reached(db)?))
}

/// Moves it towards the wall clock, by at most twice what was measured since the last turn.
pub(super) fn tick(db: &Connection, since: Option<Measured>, wall: i64) -> rusqlite::Result<Tick> {
    if let Some(since) = since {
        let sql = "UPDATE switchboard_clock SET turn = turn + 1,
                reached = max(reached, min(?1, reached + ?2)) WHERE turn = ?3";
        execute(db, sql, (wall, since.elapsed.saturating_mul(2), since.turn))?;
        let agrees = wall.abs_diff(since.wall.saturating_add(since.elapsed)) <= AGREE as u64;
        // A wall clock that is behind the clock of retention is wrong, however often it is read.
        if agrees && wall >= reached(db)? {
            recall(db, wall)?;
        }
    }
    let sql = "SELECT turn, reached FROM switchboard_clock";
    db.prepare_cached(sql)?
        .query_row([], |row| Ok(Tick { turn: row.get(0)?, wall, reached: row.get(1)? }))
}

/// What was heard under a clock that was ahead was heard by now.
fn recall(db: &Connection, wall: i64) -> rusqlite::Result<()> {
    let ahead = wall.saturating_add(AHEAD);
    let sql = "UPDATE connector_registry SET last_heartbeat_at = min(last_heartbeat_at, ?1),
            first_seen_at = min(first_seen_at, ?1)
        WHERE last_heartbeat_at > ?2 OR first_seen_at > ?2";
    execute(db, sql, (wall, ahead))?;
    let sql = "UPDATE connector_instances SET last_heartbeat_at = ?1,
            first_seen_at = min(first_seen_at, ?1), last_sent_at = min(last_sent_at, ?1),
            started_at = min(started_at, ?1), stopped_at = min(stopped_at, ?1)
        WHERE last_heartbeat_at > ?2";
    execute(db, sql, (wall, ahead))?;
    Ok(())
}
