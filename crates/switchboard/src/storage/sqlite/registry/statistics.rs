//! Counting heartbeats and outcomes.

use std::ops::Range;

use rusqlite::Connection;
use tenure_core::{Epoch, Mutant};

use super::super::row::{execute, execute_all, first, one};
use super::super::sql;
use super::key;
use crate::storage::row::from_row;
use crate::storage::{ConnectorKey, Period, RollUpReport};

/// Maximum number of heartbeats, and of acknowledgements, in a step.
const MAX_STEP_ROWS: i64 = 10_000;
/// End of the year 9999 in microseconds: after every hour and day.
const END_OF_TIME: i64 = 253_402_300_799 * 1_000_000;

/// Counting progress: the only row of its table.
pub(in super::super) struct CountingProgress {
    /// Heartbeats up to this id were counted.
    counted_beat: i64,
    /// Acknowledgements up to this number were counted.
    pub(super) counted_ack: i64,
    /// Epoch of the hold under which the last step was counted.
    epoch: i64,
    /// Starts of the periods when they were counted last, in the order of `Period::ALL`.
    pub(in super::super) since: [i64; 3],
    /// First day from which the history has every heartbeat.
    beats_since: i64,
    last_ack: i64,
    last_beat: i64,
}

from_row! { CountingProgress, |row|
    counted_beat, counted_ack, epoch, since, beats_since,
    last_ack, last_beat,
}

pub(in super::super) fn progress(db: &Connection) -> rusqlite::Result<CountingProgress> {
    one(db, sql!("statistics/progress"), [])
}

/// Counts a step, in periods that end now.
pub(super) fn roll_up(db: &Connection, epoch: Epoch, now: i64) -> rusqlite::Result<RollUpReport> {
    let was = progress(db)?;
    if epoch.as_i64() < was.epoch && !Mutant::S11Epoch.is_on() {
        return Ok(RollUpReport { fenced: true, ..RollUpReport::default() });
    }
    let (last_beat, last_ack) = (was.last_beat, was.last_ack);
    let upto = |last: i64, counted: i64| last.clamp(counted, counted + MAX_STEP_ROWS);
    let beats = upto(last_beat, was.counted_beat);
    let acks = upto(last_ack, was.counted_ack);
    let since = Period::ALL.map(|period| period.since(now));
    // Before counts are added: a period must lose only what it contained.
    move_periods(db, &was, &since)?;
    let outcomes = one(db, sql!("outcome/count"), (was.counted_ack, acks))?;
    if outcomes > 0 {
        execute(db, sql!("statistics/add_fanout"), (was.counted_ack, acks))?;
    }
    let newest: Option<i64> = first(db, sql!("statistics/newest_beat"), [beats])?;
    let rolled = RollUpReport {
        fenced: false,
        beats: count_beats(db, (was.counted_beat, beats), None, &since)?,
        outcomes,
        behind: newest.filter(|_| beats < last_beat).map_or(0, |at| now.saturating_sub(at).max(0)),
        more: beats < last_beat || acks < last_ack,
    };
    let row = (beats, acks, epoch.as_i64(), since[0], since[1], since[2]);
    execute(db, sql!("statistics/save_progress"), row)?;
    Ok(rolled)
}

/// Moves the periods to their current start. Usually some steps leave them; after a step of the
/// clock the sums are computed again.
fn move_periods(db: &Connection, was: &CountingProgress, since: &[i64; 3]) -> rusqlite::Result<()> {
    for (number, period) in Period::ALL.into_iter().enumerate() {
        let (from, upto) = (was.since[number], since[number]);
        if upto > from && upto < from + period.steps() * period.step().micros() {
            move_window(db, period, from..upto, None, true)?;
        } else if upto != from {
            execute(db, sql!("statistics/clear_window"), [period.as_str()])?;
            move_window(db, period, upto..END_OF_TIME, None, false)?;
        }
    }
    Ok(())
}

/// Sets a period to the sum of its hours or days, or subtracts them; of all connectors or of one.
fn move_window(
    db: &Connection,
    period: Period,
    times: Range<i64>,
    name: Option<&ConnectorKey>,
    takes_off: bool,
) -> rusqlite::Result<()> {
    let (of, endpoint) = name.map(key).unzip();
    let values = (period.as_str(), times.start, times.end, of, endpoint, takes_off);
    execute(db, sql!("statistics/move_window"), values).map(drop)
}

/// Counts heartbeats with ids in a range: all, or those of a connector from a time on.
fn count_beats(
    db: &Connection,
    (after, upto): (i64, i64),
    of: Option<(&ConnectorKey, i64)>,
    since: &[i64; 3],
) -> rusqlite::Result<i64> {
    let (name, from) = of.unzip();
    let (of, endpoint) = name.map(key).unzip();
    let range = (after, upto, of, endpoint, from);
    let beats: i64 = one(db, sql!("statistics/count"), range)?;
    if beats > 0 {
        execute(db, sql!("statistics/add_hours"), range)?;
        execute(db, sql!("statistics/add_days"), range)?;
        for (period, since) in Period::ALL.into_iter().zip(since) {
            let values = (after, upto, of, endpoint, from, period.as_str(), since);
            execute(db, sql!("statistics/add_window"), values)?;
        }
    }
    Ok(beats)
}

/// Recounts a connector from the first day that is complete in the history; returns that day.
pub(super) fn recount(db: &Connection, name: &ConnectorKey) -> rusqlite::Result<Option<i64>> {
    let (of, endpoint) = key(name);
    if first::<bool>(db, sql!("registry/is_archived"), (of, endpoint))?.is_none() {
        return Ok(None);
    }
    let was = progress(db)?;
    let from = was.beats_since;
    let sums = || one::<[i64; 4]>(db, sql!("statistics/sum_days"), (of, endpoint, from));
    let before = sums()?;
    execute_all(db, sql!("statistics/clear_connector"), (of, endpoint, from))?;
    for (period, since) in Period::ALL.into_iter().zip(was.since) {
        move_window(db, period, since..END_OF_TIME, Some(name), false)?;
    }
    count_beats(db, (0, was.counted_beat), Some((name, from)), &was.since)?;
    let after = sums()?;
    let [ingested, failed, calls, dedupe] = std::array::from_fn(|n| after[n] - before[n]);
    let growth = (of, endpoint, ingested, failed, calls, dedupe);
    execute(db, sql!("registry/adjust_counters"), growth)?;
    Ok(Some(from))
}
