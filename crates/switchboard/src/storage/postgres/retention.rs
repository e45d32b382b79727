//! Retention of the inbox and of the history, and partitions for the days to come.

use tokio_postgres::types::Type;

use super::registry::arrival_time;
use super::row::{column, missing};
use super::{Parameter, PostgresStorage};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{
    HistoryPruneReport, HistoryRetention, InboxRetention, PruneReport, TimeSource,
};

/// A statement deletes at most this many rows of a table; the files say the same.
const MAX_PRUNED_ROWS: u64 = 1_000;
/// At most this many days of the history are dropped at a time; the function says the same.
const MAX_DROPPED_DAYS: u64 = 10;
/// A thousand years in microseconds: times of the server go back further than that.
const MAX_RETENTION: i64 = 1_000 * 365 * 24 * 3_600 * 1_000_000;

impl PostgresStorage {
    pub(super) async fn prune_inbox(&self, keep: InboxRetention) -> StorageResult<PruneReport> {
        let statements = &self.statements;
        let bodies = keep.bodies.min(MAX_RETENTION);
        let keys = keep.keys.min(MAX_RETENTION).max(bodies);
        let (bodies, keys) = ([(&bodies as _, Type::INT8)], [(&keys as _, Type::INT8)]);
        let messages = self.delete_rows(&statements.inbox_prune, &bodies).await?;
        let keys = self.delete_rows(&statements.dedupe_prune, &keys).await?;
        let letters = self.delete_rows(&statements.letter_prune, &bodies).await?;
        let addresses = self.delete_rows(&statements.address_prune, &[]).await?;
        let rows = [messages, keys, letters, addresses];
        let more = rows.into_iter().any(|deleted| deleted >= MAX_PRUNED_ROWS);
        Ok(PruneReport { messages, keys, letters, addresses, more })
    }

    /// Makes partitions for the heartbeats of today and the days to come.
    pub(super) async fn make_days(&self, when: TimeSource) -> StorageResult<()> {
        let at = arrival_time(when);
        let parameters: [Parameter<'_>; 1] = [(&at, Type::TIMESTAMPTZ)];
        self.data.query(&self.statements.history_make_days, &parameters).await?;
        Ok(())
    }

    pub(super) async fn prune_days(
        &self,
        keep: HistoryRetention,
        when: TimeSource,
    ) -> StorageResult<HistoryPruneReport> {
        self.make_days(when).await?;
        let statements = &self.statements;
        let prune = |sql, keep| self.delete_older(sql, keep, when);
        let days = prune(&statements.history_drop_days, keep.beats).await?;
        let beats = prune(&statements.statistics_prune_beats, keep.beats).await?;
        let hourly = prune(&statements.statistics_prune_hours, keep.hours).await?;
        let daily = prune(&statements.statistics_prune_days, keep.days).await?;
        let fanout = prune(&statements.statistics_prune_fanout, keep.days).await?;
        let outcomes = prune(&statements.outcome_prune, keep.outcomes).await?;
        let instances = prune(&statements.registry_prune_instances, keep.outcomes).await?;
        let rows = [beats, hourly, daily, fanout, outcomes, instances];
        Ok(HistoryPruneReport {
            heartbeat_partitions_dropped: days,
            heartbeat_rows_deleted: beats,
            hourly_rows_deleted: hourly,
            daily_rows_deleted: daily,
            fanout_rows_deleted: fanout,
            outcome_rows_deleted: outcomes,
            instances_deleted: instances,
            more: days >= MAX_DROPPED_DAYS || rows.into_iter().any(|it| it >= MAX_PRUNED_ROWS),
        })
    }

    /// Deletes rows older than `keep` and returns how many. The deletions before have happened.
    async fn delete_older(&self, sql: &str, keep: i64, when: TimeSource) -> StorageResult<u64> {
        let (keep, at) = (keep.min(MAX_RETENTION), arrival_time(when));
        let parameters: [Parameter<'_>; 2] = [(&keep, Type::INT8), (&at, Type::TIMESTAMPTZ)];
        self.delete_rows(sql, &parameters).await.map_err(SwitchboardError::or_happened)
    }

    /// Deletes rows and returns how many.
    async fn delete_rows(&self, sql: &str, parameters: &[Parameter<'_>]) -> StorageResult<u64> {
        let rows = self.data.query(sql, parameters).await?;
        let deleted: i64 = column(rows.first().ok_or_else(missing)?, 0)?;
        Ok(u64::try_from(deleted).unwrap_or(0))
    }
}
