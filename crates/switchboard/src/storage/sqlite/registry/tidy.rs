//! Retention of what connectors have told.

use rusqlite::Connection;

use super::super::execute;
use super::progress::progress;
use crate::storage::{HistoryKeep, Period, Step, Tidied};

/// So many rows of a kind are taken away at a time.
const STEP: i64 = 1_000;

/// What is taken away.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Beats,
    Hours,
    Days,
    Fanout,
    Outcomes,
    Instances,
}

pub(super) const KINDS: [Kind; 6] =
    [Kind::Beats, Kind::Hours, Kind::Days, Kind::Fanout, Kind::Outcomes, Kind::Instances];

/// Takes a step of one kind and says how many rows it took.
pub(super) fn tidy(
    db: &Connection,
    kind: Kind,
    keep: HistoryKeep,
    now: i64,
) -> rusqlite::Result<usize> {
    let progress = progress(db)?;
    let before = |keep: i64| now.saturating_sub(keep);
    // What has not left a period yet will be taken off it.
    let held = |step: Step| {
        let of = Period::ALL.iter().zip(progress.since).filter(|it| it.0.step() == step);
        of.map(|it| it.1).min().unwrap_or(i64::MAX)
    };
    if let Kind::Beats = kind {
        // Before anything goes.
        let sql = "UPDATE connector_stats_progress SET beats_since = max(beats_since, ?1)";
        execute(db, sql, [start_of(Step::Day, before(keep.beats))])?;
    }
    let (sql, before) = match kind {
        Kind::Beats => (
            "DELETE FROM connector_heartbeat_log WHERE id IN (SELECT id
                FROM connector_heartbeat_log WHERE received_at < ?1
                    AND id <= (SELECT counted_beat FROM connector_stats_progress)
                ORDER BY received_at LIMIT ?2)",
            start_of(Step::Day, before(keep.beats)),
        ),
        Kind::Hours => (
            "DELETE FROM connector_stats_hourly WHERE rowid IN (SELECT rowid
                FROM connector_stats_hourly WHERE hour < ?1 ORDER BY hour LIMIT ?2)",
            start_of(Step::Hour, before(keep.hours).min(held(Step::Hour))),
        ),
        Kind::Days => (
            "DELETE FROM connector_stats_daily WHERE rowid IN (SELECT rowid
                FROM connector_stats_daily WHERE day < date(?1 / 1000000, 'unixepoch')
                ORDER BY day LIMIT ?2)",
            before(keep.days).min(held(Step::Day)),
        ),
        Kind::Fanout => (
            "DELETE FROM connector_fanout_daily WHERE rowid IN (SELECT rowid
                FROM connector_fanout_daily WHERE day < date(?1 / 1000000, 'unixepoch')
                ORDER BY day LIMIT ?2)",
            before(keep.days),
        ),
        Kind::Outcomes => (
            "DELETE FROM inbox_outcome WHERE rowid IN (SELECT rowid
                FROM inbox_outcome WHERE reported_at < ?1 AND (arrival IS NULL
                    OR arrival <= (SELECT counted_ack FROM connector_stats_progress))
                ORDER BY reported_at LIMIT ?2)",
            before(keep.outcomes),
        ),
        Kind::Instances => (
            "DELETE FROM connector_instances WHERE rowid IN (SELECT i.rowid
                FROM connector_instances i WHERE i.last_heartbeat_at < ?1 AND NOT EXISTS
                    (SELECT 1 FROM connector_registry r
                    WHERE r.connector_type = i.connector_type
                        AND r.endpoint_identity = i.endpoint_identity
                        AND r.instance_id = i.instance_id)
                ORDER BY i.last_heartbeat_at LIMIT ?2)",
            before(keep.outcomes),
        ),
    };
    execute(db, sql, (before, STEP))
}

fn start_of(step: Step, time: i64) -> i64 {
    time - time.rem_euclid(step.micros())
}

/// Adds a step to what was taken away.
pub(super) fn add(tidied: &mut Tidied, kind: Kind, taken: usize) {
    let count = match kind {
        Kind::Beats => &mut tidied.heartbeat_rows_deleted,
        Kind::Hours => &mut tidied.hourly_rows_deleted,
        Kind::Days => &mut tidied.daily_rows_deleted,
        Kind::Fanout => &mut tidied.fanout_rows_deleted,
        Kind::Outcomes => &mut tidied.outcome_rows_deleted,
        Kind::Instances => &mut tidied.instances_deleted,
    };
    *count += taken as u64;
    tidied.more |= taken as i64 >= STEP;
}
