//! Connectors.

mod beat;
mod change;
mod read;
mod statistics;

use async_trait::async_trait;
use rusqlite::Connection;
use tenure_core::Epoch;
use uuid::Uuid;

pub(super) use statistics::progress;

use super::retention::{self, HistoryTable};
use super::{SqliteStorage, clock, row, statements as sql};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{
    ConnectorDetail, ConnectorKey, ConnectorPage, ConnectorQuery, ConnectorSum, Decision,
    FanoutCount, HeartbeatOutcome, HistoryEntry, HistoryPruneReport, HistoryQuery,
    HistoryRetention, MessageOutcomes, OutcomeReceipt, Period, Permitted, ReceivedHeartbeat,
    Registry, RollUpReport, SeriesBucket, SeriesStep, TimeSource,
};

/// Returns the time of an arrival.
fn arrival_time(db: &Connection, when: TimeSource, now: i64) -> rusqlite::Result<i64> {
    match when {
        TimeSource::Now => clock::stamp(db, now),
        TimeSource::At(at) => Ok(at),
    }
}

#[async_trait]
impl Registry for SqliteStorage {
    async fn beat(
        &self,
        beat: &ReceivedHeartbeat,
        when: TimeSource,
    ) -> StorageResult<HeartbeatOutcome> {
        let beat = beat.clone();
        let job = move |db: &_, now| beat::beat(db, &beat, now, when);
        let beaten = self.write(job).await?;
        self.wal.note(1).await;
        Ok(beaten)
    }

    async fn register(&self, name: &ConnectorKey, by: &str) -> StorageResult<bool> {
        let (name, by) = (name.clone(), by.to_owned());
        self.write(move |db, now| change::register(db, &name, &by, now)).await
    }

    async fn connectors(&self, query: &ConnectorQuery) -> StorageResult<ConnectorPage> {
        let query = query.clone();
        self.read(move |db, now| read::list(db, &query, now)).await
    }

    async fn connector(&self, name: &ConnectorKey) -> StorageResult<Option<ConnectorDetail>> {
        let name = name.clone();
        self.read(move |db, now| read::show(db, &name, now)).await
    }

    async fn connector_types(&self, endpoint_identity: &str) -> StorageResult<Vec<String>> {
        let endpoint_identity = endpoint_identity.to_owned();
        self.read(move |db, _| row::all(db, sql::REGISTRY_TYPES, [endpoint_identity])).await
    }

    async fn heartbeats(
        &self,
        name: &ConnectorKey,
        query: &HistoryQuery,
    ) -> StorageResult<Vec<HistoryEntry>> {
        let (name, query) = (name.clone(), query.clone());
        self.read(move |db, _| read::history(db, &name, &query)).await
    }

    async fn archive(
        &self,
        name: &ConnectorKey,
        archived: bool,
        decision: &Decision,
    ) -> Permitted<Option<bool>> {
        let (name, why) = (name.clone(), decision.clone());
        let job = move |db: &_, now| change::archive(db, &name, archived, &why, now);
        self.write_with(decision.token_id.as_deref(), job).await
    }

    async fn delete(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<bool> {
        let (name, why) = (name.clone(), decision.clone());
        let job = move |db: &_, now| change::delete(db, &name, &why, now);
        self.write_with(decision.token_id.as_deref(), job).await
    }

    async fn recount(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<Option<i64>> {
        let (name, why) = (name.clone(), decision.clone());
        let job = move |db: &_, now| statistics::recount(db, &name, &why, now);
        self.write_with(decision.token_id.as_deref(), job).await
    }

    async fn report(
        &self,
        outcomes: &MessageOutcomes,
        when: TimeSource,
    ) -> Permitted<OutcomeReceipt> {
        let (token_id, outcomes) = (outcomes.token_id.as_deref(), outcomes.clone());
        let job = move |db: &_, now| change::report(db, &outcomes, arrival_time(db, when, now)?);
        self.write_with(token_id, job).await
    }

    async fn outcomes(&self, request_id: Uuid) -> StorageResult<(Vec<String>, Vec<String>)> {
        self.read(move |db, _| change::outcomes(db, request_id)).await
    }

    async fn roll_up(&self, epoch: Epoch, when: TimeSource) -> StorageResult<RollUpReport> {
        let job = move |db: &_, now| statistics::roll_up(db, epoch, arrival_time(db, when, now)?);
        self.write(job).await
    }

    async fn series(
        &self,
        name: &ConnectorKey,
        since: i64,
        step: SeriesStep,
    ) -> StorageResult<Vec<SeriesBucket>> {
        let name = name.clone();
        self.read(move |db, _| statistics::series(db, &name, since, step)).await
    }

    async fn sums(&self, period: Period) -> StorageResult<(i64, Vec<ConnectorSum>)> {
        self.read(move |db, now| Ok((now, row::all(db, sql::REGISTRY_SUMS, [period.as_str()])?)))
            .await
    }

    async fn fanout(&self, since_day: &str) -> StorageResult<Vec<FanoutCount>> {
        let since_day = since_day.to_owned();
        self.read(move |db, _| row::all(db, sql::REGISTRY_FANOUT, [since_day])).await
    }

    async fn prune_history(
        &self,
        keep: HistoryRetention,
        when: TimeSource,
    ) -> StorageResult<HistoryPruneReport> {
        // A transaction for each table: heartbeats get in between.
        let mut tidied = HistoryPruneReport::default();
        for table in HistoryTable::ALL {
            let step = move |db: &_, _| {
                let now = if let TimeSource::At(at) = when { at } else { clock::reached(db)? };
                retention::prune_history(db, table, keep, now)
            };
            let deleted = self.write(step).await.map_err(SwitchboardError::or_happened)?;
            retention::add_tidied(&mut tidied, table, deleted);
        }
        Ok(tidied)
    }
}
