//! Clock of retention.

use rusqlite::Connection;
use tenure_core::Mutant;

use super::super::{ClockMeasurement, ClockReading};
use super::row::{execute, one};
use super::sql;

const SECOND: i64 = 1_000_000;
/// Maximum difference between two readings of the wall clock that agree.
const MAX_CLOCK_DIFFERENCE: i64 = 5 * SECOND;
/// A stored time further ahead of the wall clock than this comes from a clock that was wrong.
const MAX_TIME_AHEAD: i64 = 60 * SECOND;

fn read(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    one(db, sql!("clock/read"), [])
}

/// Reads the clock.
pub(super) fn reached(db: &Connection) -> rusqlite::Result<i64> {
    Ok(read(db)?.1)
}

/// Returns the time to store for an arrival: never before the clock of retention, so that no row
/// looks old because the wall clock stepped back.
pub(super) fn stamp(db: &Connection, now: i64) -> rusqlite::Result<i64> {
    Ok(if Mutant::S6Stamp.is_on() { now } else { now.max(reached(db)?) })
}

/// Moves the clock towards the wall clock, by at most twice the time measured since the last turn.
pub(super) fn tick(
    db: &Connection,
    since: Option<ClockMeasurement>,
    wall: i64,
) -> rusqlite::Result<ClockReading> {
    if let Some(since) = since {
        execute(db, sql!("clock/move"), (wall, since.elapsed.saturating_mul(2), since.turn))?;
        let difference = wall.abs_diff(since.wall.saturating_add(since.elapsed));
        // A wall clock behind the clock of retention is wrong, even if two readings agree.
        if difference <= MAX_CLOCK_DIFFERENCE as u64 && wall >= reached(db)? {
            let ahead = wall.saturating_add(MAX_TIME_AHEAD);
            execute(db, sql!("clock/correct_connectors"), (wall, ahead))?;
            execute(db, sql!("clock/correct_instances"), (wall, ahead))?;
        }
    }
    let (turn, reached) = read(db)?;
    Ok(ClockReading { turn, wall, reached })
}
