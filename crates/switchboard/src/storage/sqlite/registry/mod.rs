//! Connectors.

mod beat;
mod statistics;

use async_trait::async_trait;
use rusqlite::Connection;
use serde_json::json;
use tenure_core::Epoch;
use uuid::Uuid;

pub(super) use statistics::progress;

use super::row::{all, execute, execute_all, first, limit, one};
use super::{SqliteStorage, clock, sql, token};
use crate::error::StorageResult;
use crate::storage::registry::row::with_today;
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

/// Type and endpoint of a connector, as parameters.
fn key(name: &ConnectorKey) -> (&str, &str) {
    (&name.connector_type, &name.endpoint_identity)
}

#[async_trait]
impl Registry for SqliteStorage {
    async fn beat(
        &self,
        beat: &ReceivedHeartbeat,
        when: TimeSource,
    ) -> StorageResult<HeartbeatOutcome> {
        let beat = beat.clone();
        let outcome = self.write(move |db, now| beat::beat(db, &beat, now, when)).await?;
        self.wal.note(1).await;
        Ok(outcome)
    }

    async fn register(&self, name: &ConnectorKey, by: &str) -> StorageResult<bool> {
        let (name, by) = (name.clone(), by.to_owned());
        let job = move |db: &Connection, now| {
            let (of, endpoint) = key(&name);
            let is_new = execute(db, sql!("registry/register"), (of, endpoint, now))? == 1;
            if is_new {
                record(db, &name, ("connector_register", &by, ""), now)?;
            }
            Ok(is_new)
        };
        self.write(job).await
    }

    async fn connectors(&self, query: &ConnectorQuery) -> StorageResult<ConnectorPage> {
        let query = query.clone();
        let job = move |db: &Connection, now| {
            let ConnectorQuery { after, archived, endpoint_identity, .. } = &query;
            // Names are not empty, so this is before the first one.
            let (of, endpoint) = after.as_ref().map_or(("", ""), |(of, it)| (of, it));
            let values = (now, of, endpoint, limit(query.limit), endpoint_identity, archived);
            let found = all(db, sql!("registry/list"), values)?;
            Ok(ConnectorPage { now, connectors: found.into_iter().map(with_today).collect() })
        };
        self.read(job).await
    }

    async fn connector(&self, name: &ConnectorKey) -> StorageResult<Option<ConnectorDetail>> {
        let name = name.clone();
        let job = move |db: &Connection, now| {
            let (of, endpoint) = key(&name);
            let Some(found) = first(db, sql!("registry/show"), (now, of, endpoint))? else {
                return Ok(None);
            };
            let instances = all(db, sql!("registry/instances"), (of, endpoint))?;
            Ok(Some(ConnectorDetail { now, connector: with_today(found), instances }))
        };
        self.read(job).await
    }

    async fn connector_types(&self, endpoint_identity: &str) -> StorageResult<Vec<String>> {
        let endpoint_identity = endpoint_identity.to_owned();
        self.read(move |db, _| all(db, sql!("registry/types"), [endpoint_identity])).await
    }

    async fn heartbeats(
        &self,
        name: &ConnectorKey,
        query: &HistoryQuery,
    ) -> StorageResult<Vec<HistoryEntry>> {
        let (name, query) = (name.clone(), query.clone());
        let job = move |db: &Connection, _| {
            let ((of, endpoint), limit) = (key(&name), limit(query.limit));
            let (received_at, id) = query.before.unwrap_or((i64::MAX, i64::MAX));
            let values = (of, endpoint, received_at, id, limit, query.unhealthy);
            all(db, sql!("registry/heartbeats"), values)
        };
        self.read(job).await
    }

    async fn archive(
        &self,
        name: &ConnectorKey,
        archived: bool,
        decision: &Decision,
    ) -> Permitted<Option<bool>> {
        let job = move |db: &Connection, name: &ConnectorKey, now| {
            let (of, endpoint) = key(name);
            let was: Option<bool> = first(db, sql!("registry/is_archived"), key(name))?;
            if was.is_none_or(|was| was == archived) {
                return Ok((was.map(|_| false), None));
            }
            execute(db, sql!("registry/archive"), (of, endpoint, archived.then_some(now)))?;
            let action = if archived { "connector_archive" } else { "connector_unarchive" };
            Ok((Some(true), Some(action)))
        };
        self.decide(name, decision, job).await
    }

    async fn delete(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<bool> {
        let job = |db: &Connection, name: &ConnectorKey, _| {
            let (of, endpoint) = key(name);
            if execute(db, sql!("registry/delete"), key(name))? == 0 {
                return Ok((false, None));
            }
            execute_all(db, sql!("registry/delete_history"), key(name))?;
            // The outcomes of its messages stay known, but are not counted for it any more.
            let counted = progress(db)?.counted_ack;
            execute(db, sql!("outcome/uncount"), (of, endpoint, counted))?;
            Ok((true, Some("connector_delete")))
        };
        self.decide(name, decision, job).await
    }

    async fn recount(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<Option<i64>> {
        let job = |db: &Connection, name: &ConnectorKey, _| {
            let since = statistics::recount(db, name)?;
            Ok((since, since.map(|_| "connector_recount")))
        };
        self.decide(name, decision, job).await
    }

    async fn report(
        &self,
        outcomes: &MessageOutcomes,
        when: TimeSource,
    ) -> Permitted<OutcomeReceipt> {
        let (token_id, outcomes) = (outcomes.token_id.as_deref(), outcomes.clone());
        let job = move |db: &_, now| report(db, &outcomes, arrival_time(db, when, now)?);
        self.write_with(token_id, job).await
    }

    async fn targets(&self, request_id: Uuid) -> StorageResult<Vec<(String, bool)>> {
        self.read(move |db, _| all(db, sql!("outcome/list"), [request_id.as_bytes()])).await
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
        let sql = match step {
            SeriesStep::Hour => sql!("registry/hours"),
            SeriesStep::Day => sql!("registry/days"),
        };
        let job = move |db: &Connection, _| {
            all(db, sql, (name.connector_type, name.endpoint_identity, since))
        };
        self.read(job).await
    }

    async fn sums(&self, period: Period) -> StorageResult<(i64, Vec<ConnectorSum>)> {
        let period = [period.as_str()];
        self.read(move |db, now| Ok((now, all(db, sql!("registry/sums"), period)?))).await
    }

    async fn fanout(&self, since_day: &str) -> StorageResult<Vec<FanoutCount>> {
        let since_day = since_day.to_owned();
        self.read(move |db, _| all(db, sql!("registry/fanout"), [since_day])).await
    }

    async fn prune_history(
        &self,
        keep: HistoryRetention,
        when: TimeSource,
    ) -> StorageResult<HistoryPruneReport> {
        self.prune_tables(keep, when).await
    }
}

/// Result of a change, and the action to record.
type Changed<T> = rusqlite::Result<(T, Option<&'static str>)>;

impl SqliteStorage {
    /// Changes a connector, and records it if the job names an action.
    async fn decide<T, F>(&self, name: &ConnectorKey, decision: &Decision, job: F) -> Permitted<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, &ConnectorKey, i64) -> Changed<T> + Send + 'static,
    {
        let (name, decided) = (name.clone(), decision.clone());
        let job = move |db: &Connection, now| {
            let (done, action) = job(db, &name, now)?;
            if let Some(action) = action {
                record(db, &name, (action, &decided.by, &decided.reason), now)?;
            }
            Ok(done)
        };
        self.write_with(decision.token_id.as_deref(), job).await
    }
}

fn record(
    db: &Connection,
    name: &ConnectorKey,
    (action, by, reason): (&str, &str, &str),
    now: i64,
) -> rusqlite::Result<()> {
    let (connector_type, endpoint_identity) = key(name);
    let metadata =
        json!({ "connector_type": connector_type, "endpoint_identity": endpoint_identity });
    token::record(db, (&name.path(), action, by, reason, metadata), now)
}

fn report(
    db: &Connection,
    outcomes: &MessageOutcomes,
    at: i64,
) -> rusqlite::Result<OutcomeReceipt> {
    let id = outcomes.request_id.as_bytes();
    if !one::<bool>(db, sql!("inbox/exists"), [id])? {
        return Ok(OutcomeReceipt::default());
    }
    let (of, endpoint) = (&outcomes.connector_type, &outcomes.endpoint_identity);
    let mut changed = 0;
    for target in &outcomes.acked {
        let new = execute(db, sql!("outcome/ack"), (id, target, of, endpoint, at))?;
        execute(db, sql!("outcome/number"), [new as i64])?;
        changed += new;
    }
    for target in &outcomes.failed {
        changed += execute(db, sql!("outcome/fail"), (id, target, of, endpoint, at))?;
    }
    if changed > 0 {
        execute(db, sql!("inbox/judge"), [id])?;
    }
    Ok(OutcomeReceipt { changed, found: true })
}
