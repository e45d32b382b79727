//! Connectors.

use async_trait::async_trait;
use tenure_core::{Code, Epoch, StoreError};
use uuid::Uuid;

use super::Sqlite;
use crate::storage::{
    Beat, Beaten, Bucket, ConnectorQuery, Connectors, Fanned, HistoryKeep, HistoryQuery, Logged,
    Name, Outcomes, Period, Registry, Reported, Rolled, Shown, Step, Sum, Tidied, When,
};

fn not_yet() -> StoreError {
    StoreError::refused(Code::Failed, "not yet")
}

#[async_trait]
impl Registry for Sqlite {
    async fn beat(&self, _beat: &Beat, _when: When) -> Result<Beaten, StoreError> {
        Err(not_yet())
    }
    async fn register(&self, _name: &Name, _by: &str) -> Result<bool, StoreError> {
        Err(not_yet())
    }
    async fn connectors(&self, _query: &ConnectorQuery) -> Result<Connectors, StoreError> {
        Err(not_yet())
    }
    async fn connector(&self, _name: &Name) -> Result<Option<Shown>, StoreError> {
        Err(not_yet())
    }
    async fn types_of(&self, _endpoint_identity: &str) -> Result<Vec<String>, StoreError> {
        Err(not_yet())
    }
    async fn heartbeats(
        &self,
        _name: &Name,
        _query: &HistoryQuery,
    ) -> Result<Vec<Logged>, StoreError> {
        Err(not_yet())
    }
    async fn archive(
        &self,
        _name: &Name,
        _archived: bool,
        _by: &str,
        _reason: &str,
    ) -> Result<Option<bool>, StoreError> {
        Err(not_yet())
    }
    async fn delete(&self, _name: &Name, _by: &str, _reason: &str) -> Result<bool, StoreError> {
        Err(not_yet())
    }

    async fn report(&self, _outcomes: &Outcomes, _when: When) -> Result<Reported, StoreError> {
        Err(not_yet())
    }
    async fn outcomes(&self, _request_id: Uuid) -> Result<(Vec<String>, Vec<String>), StoreError> {
        Err(not_yet())
    }

    async fn roll_up(&self, _epoch: Epoch, _when: When) -> Result<Rolled, StoreError> {
        Err(not_yet())
    }
    async fn series(
        &self,
        _name: &Name,
        _since: i64,
        _step: Step,
    ) -> Result<Vec<Bucket>, StoreError> {
        Err(not_yet())
    }
    async fn sums(&self, _period: Period) -> Result<(i64, Vec<Sum>), StoreError> {
        Err(not_yet())
    }
    async fn fanout(&self, _since_day: &str) -> Result<Vec<Fanned>, StoreError> {
        Err(not_yet())
    }
    async fn tidy(&self, _keep: HistoryKeep, _when: When) -> Result<Tidied, StoreError> {
        Err(not_yet())
    }
}
