//! Counting heartbeats and outcomes.

use rusqlite::Connection;
use tenure_core::Epoch;

use super::super::row::{all, execute, execute_all, first, one};
use super::super::statements as sql;
use super::change::record;
use crate::storage::row::{DatabaseRow, FromRow, RowReader};
use crate::storage::{ConnectorKey, Decision, Period, RollUpReport, SeriesBucket, SeriesStep};

/// A step counts at most this many heartbeats, and as many acknowledgements.
const MAX_STEP_ROWS: i64 = 10_000;
/// After every hour and day, in microseconds: the end of the year 9999.
const END_OF_TIME: i64 = 253_402_300_799 * 1_000_000;

/// The one row of progress.
pub(in super::super) struct CountingProgress {
    /// Heartbeats up to this id were counted.
    counted_beat: i64,
    /// Acknowledgements up to this number were counted.
    pub(super) counted_ack: i64,
    /// Epoch of the hold under which the last step was counted.
    epoch: i64,
    /// Starts of the periods when they were counted last, in the order of `Period::ALL`.
    pub(in super::super) since: [i64; 3],
    /// From this day on the history has every heartbeat.
    beats_since: i64,
    last_ack: i64,
    last_beat: i64,
}

impl FromRow for CountingProgress {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            counted_beat: row.get()?,
            counted_ack: row.get()?,
            epoch: row.get()?,
            since: [row.get()?, row.get()?, row.get()?],
            beats_since: row.get()?,
            last_ack: row.get()?,
            last_beat: row.get()?,
        })
    }
}

pub(in super::super) fn progress(db: &Connection) -> rusqlite::Result<CountingProgress> {
    one(db, sql::STATISTICS_PROGRESS, [])
}

/// Counts a step, in periods that end now.
pub(super) fn roll_up(db: &Connection, epoch: Epoch, now: i64) -> rusqlite::Result<RollUpReport> {
    let was = progress(db)?;
    if epoch.as_i64() < was.epoch {
        return Ok(RollUpReport { fenced: true, ..RollUpReport::default() });
    }
    let (last_beat, last_ack) = (was.last_beat, was.last_ack);
    let upto = |last: i64, counted: i64| last.clamp(counted, counted + MAX_STEP_ROWS);
    let beats = upto(last_beat, was.counted_beat);
    let acks = upto(last_ack, was.counted_ack);
    let since = Period::ALL.map(|period| period.since(now));
    // Before anything is added: a period loses only what was in it.
    move_periods(db, &was, &since)?;
    let range = CountedRange { after: was.counted_beat, upto: beats, name: None, from: i64::MIN };
    let rolled = RollUpReport {
        fenced: false,
        beats: count_beats(db, &range, &since)?,
        outcomes: count_outcomes(db, (was.counted_ack, acks))?,
        behind: if beats < last_beat { age(db, beats, now)? } else { 0 },
        more: beats < last_beat || acks < last_ack,
    };
    let row = (beats, acks, epoch.as_i64(), since[0], since[1], since[2]);
    execute(db, sql::STATISTICS_SAVE_PROGRESS, row)?;
    Ok(rolled)
}

/// Returns the age of the newest heartbeat up to an id.
fn age(db: &Connection, id: i64, now: i64) -> rusqlite::Result<i64> {
    let received_at: Option<i64> = first(db, sql::STATISTICS_NEWEST_BEAT, [id])?;
    Ok(received_at.map_or(0, |at| now.saturating_sub(at).max(0)))
}

/// Moves the periods to where they begin now. Usually a little leaves them; when the clock has
/// stepped, they are added up again.
fn move_periods(db: &Connection, was: &CountingProgress, since: &[i64; 3]) -> rusqlite::Result<()> {
    for (number, period) in Period::ALL.into_iter().enumerate() {
        let (from, upto) = (was.since[number], since[number]);
        if upto > from && upto < from + period.steps() * period.step().micros() {
            execute(db, sql::STATISTICS_SHRINK_WINDOW, (period.as_str(), from, upto))?;
        } else if upto != from {
            execute(db, sql::STATISTICS_CLEAR_WINDOW, [period.as_str()])?;
            fill_window(db, period, upto, None)?;
        }
    }
    Ok(())
}

fn fill_window(
    db: &Connection,
    period: Period,
    since: i64,
    name: Option<&ConnectorKey>,
) -> rusqlite::Result<()> {
    let (of, endpoint) = name.map(|it| (&it.connector_type, &it.endpoint_identity)).unzip();
    let values = (period.as_str(), since, END_OF_TIME, of, endpoint);
    execute(db, sql::STATISTICS_FILL_WINDOW, values).map(drop)
}

/// Heartbeats that are counted together: those with numbers after one and up to another, or those
/// of a connector from a time on.
struct CountedRange<'a> {
    after: i64,
    upto: i64,
    name: Option<&'a ConnectorKey>,
    from: i64,
}

fn count_beats(
    db: &Connection,
    range: &CountedRange<'_>,
    since: &[i64; 3],
) -> rusqlite::Result<i64> {
    let CountedRange { after, upto, name, from } = range;
    let (of, endpoint) = name.map(|it| (&it.connector_type, &it.endpoint_identity)).unzip();
    let range = (after, upto, of, endpoint, from);
    let beats: i64 = one(db, sql::STATISTICS_COUNT, range)?;
    if beats > 0 {
        execute(db, sql::STATISTICS_ADD_HOURS, range)?;
        execute(db, sql::STATISTICS_ADD_DAYS, range)?;
        for (period, since) in Period::ALL.into_iter().zip(since) {
            let values = (after, upto, of, endpoint, from, period.as_str(), since);
            execute(db, sql::STATISTICS_ADD_WINDOW, values)?;
        }
    }
    Ok(beats)
}

fn count_outcomes(db: &Connection, range: (i64, i64)) -> rusqlite::Result<i64> {
    let outcomes = one(db, sql::OUTCOME_COUNT, range)?;
    if outcomes > 0 {
        execute(db, sql::STATISTICS_ADD_FANOUT, range)?;
    }
    Ok(outcomes)
}

/// Counts a connector again, from the first day on of which the history has every heartbeat.
pub(super) fn recount(
    db: &Connection,
    name: &ConnectorKey,
    Decision { by, reason, .. }: &Decision,
    now: i64,
) -> rusqlite::Result<Option<i64>> {
    let (of, endpoint) = (&name.connector_type, &name.endpoint_identity);
    if first::<bool>(db, sql::REGISTRY_IS_ARCHIVED, (of, endpoint))?.is_none() {
        return Ok(None);
    }
    let was = progress(db)?;
    let from = was.beats_since;
    let sums =
        || one::<((i64, i64), (i64, i64))>(db, sql::STATISTICS_SUM_DAYS, (of, endpoint, from));
    let ((ingested, failed), (calls, dedupe)) = sums()?;
    execute_all(db, sql::STATISTICS_CLEAR_CONNECTOR, (of, endpoint, from))?;
    for (period, since) in Period::ALL.into_iter().zip(was.since) {
        fill_window(db, period, since, Some(name))?;
    }
    let range = CountedRange { after: 0, upto: was.counted_beat, name: Some(name), from };
    count_beats(db, &range, &was.since)?;
    let after = sums()?;
    let growth = (of, endpoint, after.0.0 - ingested, after.0.1 - failed);
    let growth = (growth.0, growth.1, growth.2, growth.3, after.1.0 - calls, after.1.1 - dedupe);
    execute(db, sql::REGISTRY_ADJUST_COUNTERS, growth)?;
    record(db, name, ("connector_recount", by, reason), now)?;
    Ok(Some(from))
}

pub(super) fn series(
    db: &Connection,
    name: &ConnectorKey,
    since: i64,
    step: SeriesStep,
) -> rusqlite::Result<Vec<SeriesBucket>> {
    let sql = match step {
        SeriesStep::Hour => sql::REGISTRY_HOURS,
        SeriesStep::Day => sql::REGISTRY_DAYS,
    };
    all(db, sql, (&name.connector_type, &name.endpoint_identity, since))
}
