//! Retention of the inbox and of the history.

use rusqlite::Connection;

use super::super::{
    HistoryPruneReport, HistoryRetention, InboxRetention, Period, PruneReport, SeriesStep,
};
use super::registry::progress;
use super::row::{all, execute};
use super::{clock, statements as sql};

/// One transaction deletes at most this many rows of a table.
const MAX_PRUNED_ROWS: i64 = 1_000;

/// Whether a table may have more rows to delete.
fn has_more(deleted: usize) -> bool {
    deleted as i64 >= MAX_PRUNED_ROWS
}

/// Tables that [`prune`] deletes from.
#[derive(Clone, Copy)]
pub(super) enum PrunedTable {
    Messages,
    Keys,
    Letters,
    Addresses,
}

impl PrunedTable {
    pub(super) const ALL: [Self; 4] = [Self::Messages, Self::Keys, Self::Letters, Self::Addresses];
}

/// Deletes rows of a table and returns how many.
pub(super) fn prune(
    db: &Connection,
    table: PrunedTable,
    keep: InboxRetention,
) -> rusqlite::Result<usize> {
    let now = clock::reached(db)?;
    let bodies = now.saturating_sub(keep.bodies);
    let keys = now.saturating_sub(keep.keys.max(keep.bodies));
    let (sql, before) = match table {
        PrunedTable::Messages => return messages(db, bodies, now),
        PrunedTable::Keys => (sql::DEDUPE_PRUNE, keys),
        PrunedTable::Letters => (sql::LETTER_PRUNE, bodies),
        PrunedTable::Addresses => (sql::ADDRESS_PRUNE, now),
    };
    execute(db, sql, (before, MAX_PRUNED_ROWS))
}

/// The oldest messages have the smallest positions: there is no other order to look them up by.
/// A time beyond the clock of retention comes from a clock that was ahead: such messages go with
/// those that follow.
fn messages(db: &Connection, before: i64, reached: i64) -> rusqlite::Result<usize> {
    let gone: Vec<(i64, uuid::Uuid)> =
        all(db, sql::INBOX_PRUNE, (before, reached, MAX_PRUNED_ROWS))?;
    if let Some((position, id)) = gone.iter().max() {
        execute(db, sql::INBOX_MOVE_TRIMMED, (position, id.as_bytes()))?;
    }
    Ok(gone.len())
}

/// Adds deleted rows to the total.
pub(super) fn add_pruned(pruned: &mut PruneReport, table: PrunedTable, deleted: usize) {
    let count = match table {
        PrunedTable::Messages => &mut pruned.messages,
        PrunedTable::Keys => &mut pruned.keys,
        PrunedTable::Letters => &mut pruned.letters,
        PrunedTable::Addresses => &mut pruned.addresses,
    };
    *count += deleted as u64;
    pruned.more |= has_more(deleted);
}

/// Tables that [`prune_history`] deletes from.
#[derive(Clone, Copy)]
pub(super) enum HistoryTable {
    Beats,
    Hours,
    Days,
    Fanout,
    Outcomes,
    Instances,
}

impl HistoryTable {
    pub(super) const ALL: [Self; 6] =
        [Self::Beats, Self::Hours, Self::Days, Self::Fanout, Self::Outcomes, Self::Instances];
}

/// Deletes rows of a table and returns how many.
pub(super) fn prune_history(
    db: &Connection,
    table: HistoryTable,
    keep: HistoryRetention,
    now: i64,
) -> rusqlite::Result<usize> {
    let progress = progress(db)?;
    let before = |keep: i64| now.saturating_sub(keep);
    // Rows that are still in a period will be taken off it: until then they stay.
    let held = |step: SeriesStep| {
        let of = Period::ALL.iter().zip(progress.since).filter(|it| it.0.step() == step);
        of.map(|it| it.1).min().unwrap_or(i64::MAX)
    };
    let (sql, before) = match table {
        HistoryTable::Beats => {
            let day = start_of(SeriesStep::Day, before(keep.beats));
            // Before anything is deleted.
            execute(db, sql::STATISTICS_RAISE_BEATS_SINCE, [day])?;
            (sql::STATISTICS_PRUNE_BEATS, day)
        }
        HistoryTable::Hours => {
            let hour = start_of(SeriesStep::Hour, before(keep.hours).min(held(SeriesStep::Hour)));
            (sql::STATISTICS_PRUNE_HOURS, hour)
        }
        HistoryTable::Days => {
            (sql::STATISTICS_PRUNE_DAYS, before(keep.days).min(held(SeriesStep::Day)))
        }
        HistoryTable::Fanout => (sql::STATISTICS_PRUNE_FANOUT, before(keep.days)),
        HistoryTable::Outcomes => (sql::OUTCOME_PRUNE, before(keep.outcomes)),
        HistoryTable::Instances => (sql::REGISTRY_PRUNE_INSTANCES, before(keep.outcomes)),
    };
    execute(db, sql, (before, MAX_PRUNED_ROWS))
}

fn start_of(step: SeriesStep, time: i64) -> i64 {
    time - time.rem_euclid(step.micros())
}

/// Adds deleted rows to the total.
pub(super) fn add_tidied(tidied: &mut HistoryPruneReport, table: HistoryTable, deleted: usize) {
    let count = match table {
        HistoryTable::Beats => &mut tidied.heartbeat_rows_deleted,
        HistoryTable::Hours => &mut tidied.hourly_rows_deleted,
        HistoryTable::Days => &mut tidied.daily_rows_deleted,
        HistoryTable::Fanout => &mut tidied.fanout_rows_deleted,
        HistoryTable::Outcomes => &mut tidied.outcome_rows_deleted,
        HistoryTable::Instances => &mut tidied.instances_deleted,
    };
    *count += deleted as u64;
    tidied.more |= has_more(deleted);
}
