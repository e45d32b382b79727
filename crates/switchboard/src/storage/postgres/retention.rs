//! Retention of the inbox and of the history, its clock, and partitions for the days to come.
//!
//! Why: docs/decisions/0037-deletion-follows-a-slow-clock.md

use async_trait::async_trait;
use tenure_core::Code;

use super::parameter::arrival_time;
use super::row::from_micros;
use super::{Parameter, PostgresStorage, parameters, sql};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{
    ClockMeasurement, ClockReading, HistoryPruneReport, HistoryRetention, InboxRetention,
    PruneReport, Storage, TimeSource,
};

/// Maximum number of rows of a table that a statement deletes; repeated in the files.
const MAX_PRUNED_ROWS: u64 = 1_000;
/// Maximum number of days of the history dropped at a time; repeated in the function.
const MAX_DROPPED_DAYS: u64 = 10;
/// A thousand years in microseconds; the server's times reach back further.
const MAX_RETENTION: i64 = 1_000 * 365 * 24 * 3_600 * 1_000_000;

#[async_trait]
impl Storage for PostgresStorage {
    async fn tick(
        &self,
        since: Option<ClockMeasurement>,
        when: TimeSource,
    ) -> StorageResult<ClockReading> {
        let at = arrival_time(when);
        let (turn, elapsed) = (since.map(|it| it.turn), since.map(|it| it.elapsed));
        let wall = since.map(|it| from_micros(it.wall));
        self.one(sql!("clock/tick"), &parameters! { at, turn, elapsed, wall }).await
    }

    async fn prune(&self, keep: InboxRetention) -> StorageResult<PruneReport> {
        let bodies = keep.bodies.min(MAX_RETENTION);
        let keys = keep.keys.min(MAX_RETENTION).max(bodies);
        let (bodies, keys) = (parameters! { bodies }, parameters! { keys });
        let messages = self.count(sql!("inbox/prune"), &bodies).await?;
        let keys = self.delete_rows(sql!("dedupe/prune"), &keys).await?;
        let letters = self.delete_rows(sql!("letter/prune"), &bodies).await?;
        let addresses = self.delete_rows(sql!("address/prune"), &[]).await?;
        let rows = [messages, keys, letters, addresses];
        let more = rows.into_iter().any(|deleted| deleted >= MAX_PRUNED_ROWS);
        Ok(PruneReport { messages, keys, letters, addresses, more })
    }

    async fn ping(&self) -> StorageResult<()> {
        if self.one(sql!("server/takes_writes"), &[]).await? {
            return Ok(());
        }
        Err(SwitchboardError::refused(Code::ReadOnly, "the server does not accept writes"))
    }
}

impl PostgresStorage {
    /// Creates partitions for the heartbeats of today and the days to come.
    pub(super) async fn make_days(&self, when: TimeSource) -> StorageResult<()> {
        let at = arrival_time(when);
        self.query(sql!("history/make_days"), &parameters! { at }).await.map(drop)
    }

    pub(super) async fn prune_days(
        &self,
        keep: HistoryRetention,
        when: TimeSource,
    ) -> StorageResult<HistoryPruneReport> {
        self.make_days(when).await?;
        let prune = |sql, keep| self.delete_older(sql, keep, when);
        let (beats, at) = (keep.beats.min(MAX_RETENTION), arrival_time(when));
        let days = self.count(sql!("history/drop_days"), &parameters! { beats, at }).await;
        let days = days.map_err(SwitchboardError::or_happened)?;
        let beats = prune(sql!("statistics/prune_beats"), keep.beats).await?;
        let hourly = prune(sql!("statistics/prune_hours"), keep.hours).await?;
        let daily = prune(sql!("statistics/prune_days"), keep.days).await?;
        let fanout = prune(sql!("statistics/prune_fanout"), keep.days).await?;
        let outcomes = prune(sql!("outcome/prune"), keep.outcomes).await?;
        let instances = prune(sql!("registry/prune_instances"), keep.outcomes).await?;
        let rows = [beats, hourly, daily, fanout, outcomes, instances];
        let report = HistoryPruneReport::new(days, rows, MAX_PRUNED_ROWS);
        Ok(HistoryPruneReport { more: report.more || days >= MAX_DROPPED_DAYS, ..report })
    }

    /// Deletes rows older than `keep`. Errors are `Unknown`: earlier deletions have happened.
    async fn delete_older(
        &self,
        sql: &'static str,
        keep: i64,
        when: TimeSource,
    ) -> StorageResult<u64> {
        let (keep, at) = (keep.min(MAX_RETENTION), arrival_time(when));
        let deleted = self.delete_rows(sql, &parameters! { keep, at }).await;
        deleted.map_err(SwitchboardError::or_happened)
    }

    /// Deletes rows and returns how many.
    async fn delete_rows(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> StorageResult<u64> {
        Ok(self.query(sql, parameters).await?.len() as u64)
    }

    /// Runs a function that returns how much it deleted.
    async fn count(&self, sql: &'static str, parameters: &[Parameter<'_>]) -> StorageResult<u64> {
        let deleted: i64 = self.one(sql, parameters).await?;
        Ok(u64::try_from(deleted).unwrap_or(0))
    }
}
