//! Connectors.

mod beat;

use async_trait::async_trait;
use tenure_core::Epoch;
use tokio_postgres::Row;
use uuid::Uuid;

pub(super) use beat::connector_locks;

use super::parameter::arrival_time;
use super::row::{column, count, first, from_micros, from_row, missing, to_micros};
use super::{PostgresStorage, parameters, sql};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::registry::row::with_today;
use crate::storage::row::{DatabaseRow as _, FromRow};
use crate::storage::{
    ConnectorDetail, ConnectorKey, ConnectorPage, ConnectorQuery, ConnectorSum, Decision,
    FanoutCount, HeartbeatOutcome, HistoryEntry, HistoryPruneReport, HistoryQuery,
    HistoryRetention, MessageOutcomes, OutcomeReceipt, Period, Permitted, ReceivedHeartbeat,
    Registry, RollUpReport, SeriesBucket, SeriesStep, TimeSource,
};

/// First column of the instance in `show.sql`: after the clock, the connector and its counts.
const INSTANCE_COLUMN: usize = 30;

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
        let (ConnectorKey { connector_type, endpoint_identity }, path) = (name, name.path());
        let parameters = parameters! { connector_type, endpoint_identity, by, path };
        self.one(sql!("registry/register"), &parameters).await
    }

    async fn connectors(&self, query: &ConnectorQuery) -> StorageResult<ConnectorPage> {
        let ConnectorQuery { after, archived, endpoint_identity, limit } = query;
        // Names are not empty, so this is before the first one.
        let (of, after) = after.as_ref().map_or(("", ""), |(of, endpoint)| (of, endpoint));
        let limit = count(*limit);
        let parameters = parameters! { of, after, archived, limit, endpoint_identity };
        let rows = self.query(sql!("registry/list"), &parameters).await?;
        let (now, found) = after_clock(&rows)?;
        Ok(ConnectorPage { now, connectors: found.into_iter().map(with_today).collect() })
    }

    async fn connector(&self, name: &ConnectorKey) -> StorageResult<Option<ConnectorDetail>> {
        let ConnectorKey { connector_type, endpoint_identity } = name;
        let parameters = parameters! { connector_type, endpoint_identity };
        let rows = self.query(sql!("registry/show"), &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (now, connector) = (to_micros(column(row, 0)?), with_today(from_row(row, 1)?));
        let mut instances = Vec::new();
        for row in &rows {
            if row.uuid(INSTANCE_COLUMN)?.is_some() {
                instances.push(from_row(row, INSTANCE_COLUMN)?);
            }
        }
        Ok(Some(ConnectorDetail { now, connector, instances }))
    }

    async fn connector_types(&self, endpoint_identity: &str) -> StorageResult<Vec<String>> {
        self.all(sql!("registry/types"), &parameters! { endpoint_identity }).await
    }

    async fn heartbeats(
        &self,
        ConnectorKey { connector_type, endpoint_identity }: &ConnectorKey,
        HistoryQuery { before, unhealthy, limit }: &HistoryQuery,
    ) -> StorageResult<Vec<HistoryEntry>> {
        let (before, id) = before.unwrap_or((i64::MAX, i64::MAX));
        let (before, limit) = (from_micros(before), count(*limit));
        let parameters =
            parameters! { connector_type, endpoint_identity, before, id, unhealthy, limit };
        self.all(sql!("registry/heartbeats"), &parameters).await
    }

    async fn archive(
        &self,
        name: &ConnectorKey,
        archived: bool,
        Decision { by, reason, token_id }: &Decision,
    ) -> Permitted<Option<bool>> {
        let (ConnectorKey { connector_type, endpoint_identity }, path) = (name, name.path());
        let parameters = parameters! {
            connector_type, endpoint_identity, path, by, reason, token_id, archived
        };
        let done = self.permitted::<(bool, bool)>(sql!("registry/archive"), &parameters).await?;
        Ok(done.map(|(done, is_there)| is_there.then_some(done)))
    }

    async fn delete(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<bool> {
        self.decide(sql!("registry/delete"), name, decision).await
    }

    async fn recount(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<Option<i64>> {
        self.decide(sql!("registry/recount"), name, decision).await
    }

    async fn report(&self, it: &MessageOutcomes, when: TimeSource) -> Permitted<OutcomeReceipt> {
        let at = arrival_time(when);
        let parameters = parameters! {
            at, it.request_id, it.connector_type, it.endpoint_identity, it.acked, it.failed,
            it.token_id
        };
        self.permitted(sql!("outcome/report"), &parameters).await
    }

    async fn targets(&self, request_id: Uuid) -> StorageResult<Vec<(String, bool)>> {
        self.all(sql!("outcome/list"), &parameters! { request_id }).await
    }

    async fn roll_up(&self, epoch: Epoch, when: TimeSource) -> StorageResult<RollUpReport> {
        let (epoch, at) = (epoch.as_i64(), arrival_time(when));
        // A separate statement, so that the step sees everything committed before the bound.
        self.query(sql!("statistics/bound"), &parameters! { epoch }).await?;
        let rows = self.query(sql!("statistics/roll_up"), &parameters! { epoch, at }).await?;
        first(&rows).map_err(SwitchboardError::or_happened)
    }

    async fn series(
        &self,
        ConnectorKey { connector_type, endpoint_identity }: &ConnectorKey,
        since: i64,
        step: SeriesStep,
    ) -> StorageResult<Vec<SeriesBucket>> {
        let since = from_micros(since);
        let sql = match step {
            SeriesStep::Hour => sql!("registry/hours"),
            SeriesStep::Day => sql!("registry/days"),
        };
        self.all(sql, &parameters! { connector_type, endpoint_identity, since }).await
    }

    async fn sums(&self, period: Period) -> StorageResult<(i64, Vec<ConnectorSum>)> {
        let period = period.as_str();
        let rows = self.query(sql!("registry/sums"), &parameters! { period }).await?;
        let (now, mut sums) = after_clock::<ConnectorSum>(&rows)?;
        sums.sort_unstable_by(|one, other| {
            let name = (&one.connector_type, &one.endpoint_identity);
            name.cmp(&(&other.connector_type, &other.endpoint_identity))
        });
        Ok((now, sums))
    }

    async fn fanout(&self, since_day: &str) -> StorageResult<Vec<FanoutCount>> {
        self.all(sql!("registry/fanout"), &parameters! { since_day }).await
    }

    async fn prune_history(
        &self,
        keep: HistoryRetention,
        when: TimeSource,
    ) -> StorageResult<HistoryPruneReport> {
        self.prune_days(keep, when).await
    }
}

impl PostgresStorage {
    /// Runs a statement that changes a connector and records who decided it.
    async fn decide<T: FromRow>(
        &self,
        sql: &'static str,
        name: &ConnectorKey,
        Decision { by, reason, token_id }: &Decision,
    ) -> Permitted<T> {
        let (ConnectorKey { connector_type, endpoint_identity }, path) = (name, name.path());
        let parameters =
            parameters! { connector_type, endpoint_identity, path, by, reason, token_id };
        self.permitted(sql, &parameters).await
    }
}

/// Reads rows that begin with the clock. Without records, the clock is the only row.
fn after_clock<T: FromRow>(rows: &[Row]) -> StorageResult<(i64, Vec<T>)> {
    let now = to_micros(column(rows.first().ok_or_else(missing)?, 0)?);
    let mut records = Vec::with_capacity(rows.len());
    for row in rows {
        if row.text(1)?.is_some() {
            records.push(from_row(row, 1)?);
        }
    }
    Ok((now, records))
}
