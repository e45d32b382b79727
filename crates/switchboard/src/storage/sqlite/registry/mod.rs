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
use super::{Sqlite, clock, row, statements as sql};
use crate::error::SwitchboardError;
use crate::storage::{
    Beat, Beaten, Bucket, ConnectorQuery, Connectors, Decision, Fanned, HistoryKeep, HistoryQuery,
    Logged, Name, Outcomes, Period, Permitted, Registry, Reported, Rolled, Shown, Step, Sum,
    Tidied, When,
};

/// Returns the time of an arrival.
fn told(db: &Connection, when: When, now: i64) -> rusqlite::Result<i64> {
    match when {
        When::Now => clock::stamp(db, now),
        When::At(at) => Ok(at),
    }
}

#[async_trait]
impl Registry for Sqlite {
    async fn beat(&self, beat: &Beat, when: When) -> Result<Beaten, SwitchboardError> {
        let beat = beat.clone();
        let job = move |db: &_, now| beat::beat(db, &beat, now, when);
        let beaten = self.write(job).await?;
        self.wal.note(1).await;
        Ok(beaten)
    }

    async fn register(&self, name: &Name, by: &str) -> Result<bool, SwitchboardError> {
        let (name, by) = (name.clone(), by.to_owned());
        self.write(move |db, now| change::register(db, &name, &by, now)).await
    }

    async fn connectors(&self, query: &ConnectorQuery) -> Result<Connectors, SwitchboardError> {
        let query = query.clone();
        self.read(move |db, now| read::list(db, &query, now)).await
    }

    async fn connector(&self, name: &Name) -> Result<Option<Shown>, SwitchboardError> {
        let name = name.clone();
        self.read(move |db, now| read::show(db, &name, now)).await
    }

    async fn types_of(&self, endpoint_identity: &str) -> Result<Vec<String>, SwitchboardError> {
        let endpoint_identity = endpoint_identity.to_owned();
        self.read(move |db, _| row::all(db, sql::REGISTRY_TYPES, [endpoint_identity])).await
    }

    async fn heartbeats(
        &self,
        name: &Name,
        query: &HistoryQuery,
    ) -> Result<Vec<Logged>, SwitchboardError> {
        let (name, query) = (name.clone(), query.clone());
        self.read(move |db, _| read::history(db, &name, &query)).await
    }

    async fn archive(
        &self,
        name: &Name,
        archived: bool,
        decision: &Decision,
    ) -> Permitted<Option<bool>> {
        let (name, why) = (name.clone(), decision.clone());
        let job = move |db: &_, now| change::archive(db, &name, archived, &why, now);
        self.write_with(decision.token_id.as_deref(), job).await
    }

    async fn delete(&self, name: &Name, decision: &Decision) -> Permitted<bool> {
        let (name, why) = (name.clone(), decision.clone());
        let job = move |db: &_, now| change::delete(db, &name, &why, now);
        self.write_with(decision.token_id.as_deref(), job).await
    }

    async fn recount(&self, name: &Name, decision: &Decision) -> Permitted<Option<i64>> {
        let (name, why) = (name.clone(), decision.clone());
        let job = move |db: &_, now| statistics::recount(db, &name, &why, now);
        self.write_with(decision.token_id.as_deref(), job).await
    }

    async fn report(&self, outcomes: &Outcomes, when: When) -> Permitted<Reported> {
        let (token_id, outcomes) = (outcomes.token_id.as_deref(), outcomes.clone());
        let job = move |db: &_, now| change::report(db, &outcomes, told(db, when, now)?);
        self.write_with(token_id, job).await
    }

    async fn outcomes(
        &self,
        request_id: Uuid,
    ) -> Result<(Vec<String>, Vec<String>), SwitchboardError> {
        self.read(move |db, _| change::outcomes(db, request_id)).await
    }

    async fn roll_up(&self, epoch: Epoch, when: When) -> Result<Rolled, SwitchboardError> {
        let job = move |db: &_, now| statistics::roll_up(db, epoch, told(db, when, now)?);
        self.write(job).await
    }

    async fn series(
        &self,
        name: &Name,
        since: i64,
        step: Step,
    ) -> Result<Vec<Bucket>, SwitchboardError> {
        let name = name.clone();
        self.read(move |db, _| statistics::series(db, &name, since, step)).await
    }

    async fn sums(&self, period: Period) -> Result<(i64, Vec<Sum>), SwitchboardError> {
        self.read(move |db, now| Ok((now, row::all(db, sql::REGISTRY_SUMS, [period.as_str()])?)))
            .await
    }

    async fn fanout(&self, since_day: &str) -> Result<Vec<Fanned>, SwitchboardError> {
        let since_day = since_day.to_owned();
        self.read(move |db, _| row::all(db, sql::REGISTRY_FANOUT, [since_day])).await
    }

    async fn tidy(&self, keep: HistoryKeep, when: When) -> Result<Tidied, SwitchboardError> {
        // A transaction for each table: heartbeats get in between.
        let mut tidied = Tidied::default();
        for table in HistoryTable::ALL {
            let step = move |db: &_, _| {
                let now = if let When::At(at) = when { at } else { clock::reached(db)? };
                retention::prune_history(db, table, keep, now)
            };
            let deleted = self.write(step).await.map_err(SwitchboardError::or_happened)?;
            retention::add_tidied(&mut tidied, table, deleted);
        }
        Ok(tidied)
    }
}
