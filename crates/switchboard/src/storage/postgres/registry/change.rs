//! What operators and consumers change.

use std::time::SystemTime;

use tenure_core::StoreError;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::super::value::{column, missing, to_micros};
use super::super::{Parameter, Postgres};
use super::told;
use crate::storage::{Name, Outcomes, Reported, When};

impl Postgres {
    pub(super) async fn make_known(&self, name: &Name, by: &str) -> Result<bool, StoreError> {
        let path = name.path();
        let parameters: [Parameter<'_>; 4] = [
            (&name.connector_type, Type::TEXT),
            (&name.endpoint_identity, Type::TEXT),
            (&by, Type::TEXT),
            (&path, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.connector_register, &parameters).await?;
        column(rows.first().ok_or_else(missing)?, 0)
    }

    pub(super) async fn put_away(
        &self,
        name: &Name,
        archived: bool,
        by: &str,
        reason: &str,
    ) -> Result<Option<bool>, StoreError> {
        let path = name.path();
        let parameters: [Parameter<'_>; 6] = [
            (&name.connector_type, Type::TEXT),
            (&name.endpoint_identity, Type::TEXT),
            (&archived, Type::BOOL),
            (&by, Type::TEXT),
            (&reason, Type::TEXT),
            (&path, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.connector_archive, &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        let (done, is_there): (bool, bool) = (column(row, 0)?, column(row, 1)?);
        Ok(is_there.then_some(done))
    }

    pub(super) async fn remove(
        &self,
        name: &Name,
        by: &str,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let path = name.path();
        let parameters: [Parameter<'_>; 5] = [
            (&name.connector_type, Type::TEXT),
            (&name.endpoint_identity, Type::TEXT),
            (&path, Type::TEXT),
            (&by, Type::TEXT),
            (&reason, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.connector_delete, &parameters).await?;
        column(rows.first().ok_or_else(missing)?, 0)
    }

    pub(super) async fn count_again(
        &self,
        name: &Name,
        by: &str,
        reason: &str,
    ) -> Result<Option<i64>, StoreError> {
        let path = name.path();
        let parameters: [Parameter<'_>; 5] = [
            (&name.connector_type, Type::TEXT),
            (&name.endpoint_identity, Type::TEXT),
            (&path, Type::TEXT),
            (&by, Type::TEXT),
            (&reason, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.connector_recount, &parameters).await?;
        let since: Option<SystemTime> = column(rows.first().ok_or_else(missing)?, 0)?;
        Ok(since.map(to_micros))
    }

    pub(super) async fn note_outcomes(
        &self,
        outcomes: &Outcomes,
        when: When,
    ) -> Result<Reported, StoreError> {
        let at = told(when);
        let parameters: [Parameter<'_>; 6] = [
            (&at, Type::TIMESTAMPTZ),
            (&outcomes.request_id, Type::UUID),
            (&outcomes.connector_type, Type::TEXT),
            (&outcomes.endpoint_identity, Type::TEXT),
            (&outcomes.acked, Type::TEXT_ARRAY),
            (&outcomes.failed, Type::TEXT_ARRAY),
        ];
        let rows = self.data.query(&self.statements.outcome_report, &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        let changed: i64 = column(row, 0)?;
        Ok(Reported { changed: usize::try_from(changed).unwrap_or(0), found: column(row, 1)? })
    }

    pub(super) async fn list_outcomes(
        &self,
        request_id: Uuid,
    ) -> Result<(Vec<String>, Vec<String>), StoreError> {
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
