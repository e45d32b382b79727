//! Connectors.

mod beat;
mod change;
mod read;
mod statistics;

use std::time::SystemTime;

use async_trait::async_trait;
use tenure_core::Epoch;
use uuid::Uuid;

pub(super) use beat::ConnectorLocks;

use super::PostgresStorage;
use super::row::from_micros;
use crate::error::StorageResult;
use crate::storage::{
    ConnectorDetail, ConnectorKey, ConnectorPage, ConnectorQuery, ConnectorSum, Decision,
    FanoutCount, HeartbeatOutcome, HistoryEntry, HistoryPruneReport, HistoryQuery,
    HistoryRetention, MessageOutcomes, OutcomeReceipt, Period, Permitted, ReceivedHeartbeat,
    Registry, RollUpReport, SeriesBucket, SeriesStep, TimeSource,
};

/// A time that is told; the server's own clock where there is none.
pub(super) fn arrival_time(when: TimeSource) -> Option<SystemTime> {
    match when {
        TimeSource::Now => None,
        TimeSource::At(at) => Some(from_micros(at)),
    }
}

#[async_trait]
impl Registry for PostgresStorage {
    async fn beat(
        &self,
        beat: &ReceivedHeartbeat,
        when: TimeSource,
    ) -> StorageResult<HeartbeatOutcome> {
        self.take_beat(beat, when).await
    }

    async fn register(&self, name: &ConnectorKey, by: &str) -> StorageResult<bool> {
        self.make_known(name, by).await
    }

    async fn connectors(&self, query: &ConnectorQuery) -> StorageResult<ConnectorPage> {
        self.list_connectors(query).await
    }

    async fn connector(&self, name: &ConnectorKey) -> StorageResult<Option<ConnectorDetail>> {
        self.show_connector(name).await
    }

    async fn connector_types(&self, endpoint_identity: &str) -> StorageResult<Vec<String>> {
        self.list_types(endpoint_identity).await
    }

    async fn heartbeats(
        &self,
        name: &ConnectorKey,
        query: &HistoryQuery,
    ) -> StorageResult<Vec<HistoryEntry>> {
        self.read_history(name, query).await
    }

    async fn archive(
        &self,
        name: &ConnectorKey,
        archived: bool,
        decision: &Decision,
    ) -> Permitted<Option<bool>> {
        self.put_away(name, archived, decision).await
    }

    async fn delete(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<bool> {
        self.remove(name, decision).await
    }

    async fn recount(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<Option<i64>> {
        self.count_again(name, decision).await
    }

    async fn report(
        &self,
        outcomes: &MessageOutcomes,
        when: TimeSource,
    ) -> Permitted<OutcomeReceipt> {
        self.note_outcomes(outcomes, when).await
    }

    async fn outcomes(&self, request_id: Uuid) -> StorageResult<(Vec<String>, Vec<String>)> {
        self.list_outcomes(request_id).await
    }

    async fn roll_up(&self, epoch: Epoch, when: TimeSource) -> StorageResult<RollUpReport> {
        self.count(epoch, when).await
    }

    async fn series(
        &self,
        name: &ConnectorKey,
        since: i64,
        step: SeriesStep,
    ) -> StorageResult<Vec<SeriesBucket>> {
        self.read_series(name, since, step).await
    }

    async fn sums(&self, period: Period) -> StorageResult<(i64, Vec<ConnectorSum>)> {
        self.read_sums(period).await
    }

    async fn fanout(&self, since_day: &str) -> StorageResult<Vec<FanoutCount>> {
        self.read_fanout(since_day).await
    }

    async fn prune_history(
        &self,
        keep: HistoryRetention,
        when: TimeSource,
    ) -> StorageResult<HistoryPruneReport> {
        self.prune_days(keep, when).await
    }
}
