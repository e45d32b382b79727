//! Retention of the inbox and of the history, and its clock.

use async_trait::async_trait;
use rusqlite::Connection;
use uuid::Uuid;

use super::super::{
    ClockMeasurement, ClockReading, HistoryPruneReport, HistoryRetention, InboxRetention, Period,
    PruneReport, SeriesStep, Storage, TimeSource,
};
use super::registry::progress;
use super::row::{all, execute};
use super::{SqliteStorage, clock, sql};
use crate::error::{StorageResult, SwitchboardError};

/// Maximum number of rows of a table that a transaction deletes.
const MAX_PRUNED_ROWS: u64 = 1_000;

#[async_trait]
impl Storage for SqliteStorage {
    async fn tick(
        &self,
        since: Option<ClockMeasurement>,
        when: TimeSource,
    ) -> StorageResult<ClockReading> {
        let wall = move |now| if let TimeSource::At(at) = when { at } else { now };
        self.write(move |db, now| clock::tick(db, since, wall(now))).await
    }

    async fn prune(&self, keep: InboxRetention) -> StorageResult<PruneReport> {
        let delete = |sql, keep: i64| {
            self.delete(move |db| prune(db, sql, clock::reached(db)?.saturating_sub(keep)))
        };
        let messages = self.delete(move |db| messages(db, keep.bodies)).await?;
        let keys = delete(sql!("dedupe/prune"), keep.keys.max(keep.bodies)).await?;
        let letters = delete(sql!("letter/prune"), keep.bodies).await?;
        let addresses = delete(sql!("address/prune"), 0).await?;
        let more = [messages, keys, letters, addresses].into_iter().any(|it| it >= MAX_PRUNED_ROWS);
        Ok(PruneReport { messages, keys, letters, addresses, more })
    }

    async fn ping(&self) -> StorageResult<()> {
        // Takes the write lock for a moment.
        self.write(|db, _| execute(db, sql!("inbox/touch"), [])).await.map(drop)
    }
}

impl SqliteStorage {
    /// Deletes rows of a table in a transaction of its own, so that submissions and heartbeats run
    /// in between. An error is `Unknown`, because earlier deletions have happened.
    async fn delete(
        &self,
        job: impl FnOnce(&Connection) -> rusqlite::Result<usize> + Send + 'static,
    ) -> StorageResult<u64> {
        let deleted = self.write(move |db, _| job(db)).await;
        Ok(deleted.map_err(SwitchboardError::or_happened)? as u64)
    }

    pub(super) async fn prune_tables(
        &self,
        keep: HistoryRetention,
        when: TimeSource,
    ) -> StorageResult<HistoryPruneReport> {
        let before = move |db: &Connection, keep: i64| -> rusqlite::Result<i64> {
            let now = if let TimeSource::At(at) = when { at } else { clock::reached(db)? };
            Ok(now.saturating_sub(keep))
        };
        let delete = |sql, keep| self.delete(move |db| prune(db, sql, before(db, keep)?));
        let beats = move |db: &Connection| {
            let day = start_of(SeriesStep::Day, before(db, keep.beats)?);
            // Must precede the deletion.
            execute(db, sql!("statistics/raise_beats_since"), [day])?;
            prune(db, sql!("statistics/prune_beats"), day)
        };
        let hours = move |db: &Connection| {
            let end = before(db, keep.hours)?.min(still_counted(db, SeriesStep::Hour)?);
            prune(db, sql!("statistics/prune_hours"), start_of(SeriesStep::Hour, end))
        };
        let days = move |db: &Connection| {
            let end = before(db, keep.days)?.min(still_counted(db, SeriesStep::Day)?);
            prune(db, sql!("statistics/prune_days"), end)
        };
        let (beats, hours) = (self.delete(beats).await?, self.delete(hours).await?);
        let days = self.delete(days).await?;
        let fanout = delete(sql!("statistics/prune_fanout"), keep.days).await?;
        let outcomes = delete(sql!("outcome/prune"), keep.outcomes).await?;
        let instances = delete(sql!("registry/prune_instances"), keep.outcomes).await?;
        let rows = [beats, hours, days, fanout, outcomes, instances];
        Ok(HistoryPruneReport::new(0, rows, MAX_PRUNED_ROWS))
    }
}

/// Deletes rows from before a time.
fn prune(db: &Connection, sql: &str, before: i64) -> rusqlite::Result<usize> {
    execute(db, sql, (before, MAX_PRUNED_ROWS as i64))
}

/// Deletes the oldest messages by position, because there is no index by time. A message with a
/// time beyond the clock of retention is from a clock that was ahead, and is deleted with those
/// that follow.
fn messages(db: &Connection, keep: i64) -> rusqlite::Result<usize> {
    let reached = clock::reached(db)?;
    let values = (reached.saturating_sub(keep), reached, MAX_PRUNED_ROWS as i64);
    let gone: Vec<(i64, Uuid)> = all(db, sql!("inbox/prune"), values)?;
    if let Some((position, id)) = gone.iter().max() {
        execute(db, sql!("inbox/move_trimmed"), (position, id.as_bytes()))?;
    }
    Ok(gone.len())
}

/// Returns the time from which rows must stay, because a period still has to subtract them.
fn still_counted(db: &Connection, step: SeriesStep) -> rusqlite::Result<i64> {
    let since = Period::ALL.into_iter().zip(progress(db)?.since);
    let since = since.filter(|(period, _)| period.step() == step).map(|(_, since)| since);
    Ok(since.min().unwrap_or(i64::MAX))
}

fn start_of(step: SeriesStep, time: i64) -> i64 {
    time - time.rem_euclid(step.micros())
}
