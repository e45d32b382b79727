//! Changes by operators and consumers.

use std::time::SystemTime;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::super::row::{column, missing, to_micros};
use super::super::token::permitted;
use super::super::{Parameter, PostgresStorage};
use super::arrival_time;
use crate::error::StorageResult;
use crate::storage::{
    ConnectorKey, Decision, MessageOutcomes, OutcomeReceipt, Permitted, TimeSource,
};

/// The first parameters of whatever is decided of a connector.
fn of<'a>(name: &'a ConnectorKey, path: &'a String, decision: &'a Decision) -> [Parameter<'a>; 6] {
    let Decision { by, reason, token_id } = decision;
    [
        (&name.connector_type, Type::TEXT),
        (&name.endpoint_identity, Type::TEXT),
        (path, Type::TEXT),
        (by, Type::TEXT),
        (reason, Type::TEXT),
        (token_id, Type::TEXT),
    ]
}

impl PostgresStorage {
    pub(super) async fn make_known(&self, name: &ConnectorKey, by: &str) -> StorageResult<bool> {
        let path = name.path();
        let parameters: [Parameter<'_>; 4] = [
            (&name.connector_type, Type::TEXT),
            (&name.endpoint_identity, Type::TEXT),
            (&by, Type::TEXT),
            (&path, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.registry_register, &parameters).await?;
        column(rows.first().ok_or_else(missing)?, 0)
    }

    pub(super) async fn put_away(
        &self,
        name: &ConnectorKey,
        archived: bool,
        decision: &Decision,
    ) -> Permitted<Option<bool>> {
        let path = name.path();
        let mut parameters = of(name, &path, decision).to_vec();
        parameters.push((&archived, Type::BOOL));
        let rows = self.data.query(&self.statements.registry_archive, &parameters).await?;
        permitted(&rows, |row| {
            let (done, is_there): (bool, bool) = (column(row, 1)?, column(row, 2)?);
            Ok(is_there.then_some(done))
        })
    }

    pub(super) async fn remove(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<bool> {
        let path = name.path();
        let parameters = of(name, &path, decision);
        let rows = self.data.query(&self.statements.registry_delete, &parameters).await?;
        permitted(&rows, |row| column(row, 1))
    }

    pub(super) async fn count_again(
        &self,
        name: &ConnectorKey,
        decision: &Decision,
    ) -> Permitted<Option<i64>> {
        let path = name.path();
        let parameters = of(name, &path, decision);
        let rows = self.data.query(&self.statements.registry_recount, &parameters).await?;
        permitted(&rows, |row| Ok(column::<Option<SystemTime>>(row, 1)?.map(to_micros)))
    }

    pub(super) async fn note_outcomes(
        &self,
        outcomes: &MessageOutcomes,
        when: TimeSource,
    ) -> Permitted<OutcomeReceipt> {
        let at = arrival_time(when);
        let parameters: [Parameter<'_>; 7] = [
            (&at, Type::TIMESTAMPTZ),
            (&outcomes.request_id, Type::UUID),
            (&outcomes.connector_type, Type::TEXT),
            (&outcomes.endpoint_identity, Type::TEXT),
            (&outcomes.acked, Type::TEXT_ARRAY),
            (&outcomes.failed, Type::TEXT_ARRAY),
            (&outcomes.token_id, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.outcome_report, &parameters).await?;
        permitted(&rows, |row| {
            let changed = usize::try_from(column::<i64>(row, 1)?).unwrap_or(0);
            Ok(OutcomeReceipt { changed, found: column(row, 2)? })
        })
    }

    pub(super) async fn list_outcomes(
        &self,
        request_id: Uuid,
    ) -> StorageResult<(Vec<String>, Vec<String>)> {
        let parameters: [Parameter<'_>; 1] = [(&request_id, Type::UUID)];
        let rows = self.data.query(&self.statements.outcome_list, &parameters).await?;
        let (mut acked, mut failed) = (Vec::new(), Vec::new());
        for row in &rows {
            let list = if column(row, 1)? { &mut acked } else { &mut failed };
            list.push(column(row, 0)?);
        }
        Ok((acked, failed))
    }
}
