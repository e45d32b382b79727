//! Connectors.

mod beat;
mod change;
mod read;
mod statistics;
mod tidy;

use std::time::SystemTime;

use async_trait::async_trait;
use tenure_core::Epoch;
use uuid::Uuid;

pub(super) use beat::ConnectorLocks;

use super::Postgres;
use super::value::from_micros;
use crate::error::SwitchboardError;
use crate::storage::{
    Beat, Beaten, Bucket, ConnectorQuery, Connectors, Decision, Fanned, HistoryKeep, HistoryQuery,
    Logged, Name, Outcomes, Period, Permitted, Registry, Reported, Rolled, Shown, Step, Sum,
    Tidied, When,
};

/// A time that is told; the server's own clock where there is none.
pub(super) fn told(when: When) -> Option<SystemTime> {
    match when {
        When::Now => None,
        When::At(at) => Some(from_micros(at)),
    }
}

#[async_trait]
impl Registry for Postgres {
    async fn beat(&self, beat: &Beat, when: When) -> Result<Beaten, SwitchboardError> {
        self.take_beat(beat, when).await
    }

    async fn register(&self, name: &Name, by: &str) -> Result<bool, SwitchboardError> {
        self.make_known(name, by).await
    }

    async fn connectors(&self, query: &ConnectorQuery) -> Result<Connectors, SwitchboardError> {
        self.list_connectors(query).await
    }

    async fn connector(&self, name: &Name) -> Result<Option<Shown>, SwitchboardError> {
        self.show_connector(name).await
    }

    async fn types_of(&self, endpoint_identity: &str) -> Result<Vec<String>, SwitchboardError> {
        self.list_types(endpoint_identity).await
    }

    async fn heartbeats(
        &self,
        name: &Name,
        query: &HistoryQuery,
    ) -> Result<Vec<Logged>, SwitchboardError> {
        self.read_history(name, query).await
    }

    async fn archive(
        &self,
        name: &Name,
        archived: bool,
        decision: &Decision,
    ) -> Permitted<Option<bool>> {
        self.put_away(name, archived, decision).await
    }

    async fn delete(&self, name: &Name, decision: &Decision) -> Permitted<bool> {
        self.remove(name, decision).await
    }

    async fn recount(&self, name: &Name, decision: &Decision) -> Permitted<Option<i64>> {
        self.count_again(name, decision).await
    }

    async fn report(&self, outcomes: &Outcomes, when: When) -> Permitted<Reported> {
        self.note_outcomes(outcomes, when).await
    }

    async fn outcomes(
        &self,
        request_id: Uuid,
    ) -> Result<(Vec<String>, Vec<String>), SwitchboardError> {
        self.list_outcomes(request_id).await
    }

    async fn roll_up(&self, epoch: Epoch, when: When) -> Result<Rolled, SwitchboardError> {
        self.count(epoch, when).await
    }

    async fn series(
        &self,
        name: &Name,
        since: i64,
        step: Step,
    ) -> Result<Vec<Bucket>, SwitchboardError> {
        self.read_series(name, since, step).await
    }

    async fn sums(&self, period: Period) -> Result<(i64, Vec<Sum>), SwitchboardError> {
        self.read_sums(period).await
    }

    async fn fanout(&self, since_day: &str) -> Result<Vec<Fanned>, SwitchboardError> {
        self.read_fanout(since_day).await
    }

    async fn tidy(&self, keep: HistoryKeep, when: When) -> Result<Tidied, SwitchboardError> {
        self.take_away_history(keep, when).await
    }
}
