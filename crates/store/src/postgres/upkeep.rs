//! Retention, forgetting duties and adopting a store.

use std::sync::atomic::Ordering;

use tenure_core::store::{Adopt, Adopted, CurrentHolder, Forgotten, Retention, check};
use tenure_core::{Code, DutyKey, Epoch, InstanceId, Reason, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Postgres;
use super::connect::Parameter;
use super::rows::{column, damaged, index, micros};

fn no_row() -> StoreError {
    StoreError::refused(Code::Damaged, "the table `store` is empty")
}

impl Postgres {
    pub(super) async fn duty_forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> Result<Vec<Forgotten>, StoreError> {
        check::forget(duties)?;
        let groups: Vec<&str> = duties.iter().map(|duty| duty.group.as_str()).collect();
        let ids: Vec<&str> = duties.iter().map(|duty| duty.id.as_str()).collect();
        let parameters: [Parameter<'_>; 3] =
            [(&groups, Type::TEXT_ARRAY), (&ids, Type::TEXT_ARRAY), (&reason.as_str(), Type::TEXT)];
        let mut answers = vec![Forgotten::Absent; duties.len()];
        for row in self.query(&self.statements.duty_forget, &parameters).await? {
            let item = index(&row).map_err(StoreError::or_happened)?;
            if let Some(answer) = answers.get_mut(item) {
                *answer = forgotten(&row).map_err(StoreError::or_happened)?;
            }
        }
        Ok(answers)
    }

    pub(super) async fn store_adopt(&self, adopt: &Adopt) -> Result<Adopted, StoreError> {
        check::adopt(adopt)?;
        let incarnation = format!("{:032x}", adopt.entropy);
        let floor = adopt.floor.as_i64();
        let parameters: [Parameter<'_>; 2] = [(&incarnation, Type::TEXT), (&floor, Type::INT8)];
        let rows = self.query(&self.statements.store_adopt, &parameters).await?;
        let read = || {
            let row = rows.first().ok_or_else(no_row)?;
            let (sessions, duties): (i64, i64) = (column(row, 0)?, column(row, 1)?);
            // Without its one row the store has not got a floor.
            let floor: Option<i64> = column(row, 2)?;
            let floor = Epoch::from_i64(floor.ok_or_else(no_row)?)?;
            Ok::<_, StoreError>((sessions as u64, duties as u64, floor))
        };
        let (sessions, duties, floor) = read().map_err(StoreError::or_happened)?;
        Ok(Adopted { incarnation, sessions, duties, floor })
    }

    pub(super) async fn store_retain(&self, retention: Retention) -> Result<(), StoreError> {
        let new = retention.check()?;
        // Both are within their limits, so they fit.
        let (slots, audit) = (new.history_slots as i32, new.audit_kept as i64);
        let parameters: [Parameter<'_>; 2] = [(&slots, Type::INT4), (&audit, Type::INT8)];
        self.query(&self.statements.store_retain, &parameters).await?;
        self.history_slots.store(new.history_slots, Ordering::Relaxed);
        // What is not cut now is cut the next time; the change has happened.
        let _ = self.audit_trim().await;
        Ok(())
    }

    pub(super) async fn store_retention(&self) -> Result<Retention, StoreError> {
        let rows = self.query(&self.statements.store_retention, &[]).await?;
        let row = rows.first().ok_or_else(no_row)?;
        let (slots, audit): (i64, i64) = (column(row, 0)?, column(row, 1)?);
        let retention = Retention { history_slots: slots as usize, audit_kept: audit as usize };
        self.history_slots.store(retention.history_slots, Ordering::Relaxed);
        Ok(retention)
    }
}

fn forgotten(row: &Row) -> Result<Forgotten, StoreError> {
    match column::<&str>(row, 1)? {
        "forgotten" => Ok(Forgotten::Forgotten { floor: Epoch::from_i64(column(row, 2)?)? }),
        "held" => {
            let instance = InstanceId::new(column::<String>(row, 3)?)?;
            let remaining = micros(column::<i64>(row, 4)?.saturating_mul(1000));
            Ok(Forgotten::HeldBy(Some(CurrentHolder { instance, remaining })))
        }
        other => Err(damaged(format!("duty_forget answered {other:?}"))),
    }
}
