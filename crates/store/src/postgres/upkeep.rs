//! Retention, forgetting duties and adopting a store.

use std::sync::atomic::Ordering;

use tenure_core::store::{Adopt, Adopted, Forgotten, Retention};
use tenure_core::{Code, DutyKey, Epoch, Reason, StoreError, StoreResult};
use tokio_postgres::Row;

use super::rows::{column, current_holder, damaged, index, micros};
use super::{Postgres, parameters};

fn no_row() -> StoreError {
    StoreError::refused(Code::Damaged, "the table `store` is empty")
}

impl Postgres {
    pub(super) async fn duty_forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> StoreResult<Vec<Forgotten>> {
        let groups: Vec<&str> = duties.iter().map(|duty| duty.group.as_str()).collect();
        let ids: Vec<&str> = duties.iter().map(|duty| duty.id.as_str()).collect();
        let parameters =
            parameters![groups => TEXT_ARRAY, ids => TEXT_ARRAY, reason.as_str() => TEXT];
        let mut answers = vec![Forgotten::Absent; duties.len()];
        for row in self.query(&self.statements.duty_forget, &parameters).await? {
            let item = index(&row).map_err(StoreError::or_happened)?;
            if let Some(answer) = answers.get_mut(item) {
                *answer = forgotten(&row).map_err(StoreError::or_happened)?;
            }
        }
        Ok(answers)
    }

    pub(super) async fn store_adopt(&self, adopt: &Adopt) -> StoreResult<Adopted> {
        let incarnation = format!("{:032x}", adopt.entropy);
        let floor = adopt.floor.as_i64();
        let parameters = parameters![incarnation => TEXT, floor => INT8];
        let rows = self.query(&self.statements.store_adopt, &parameters).await?;
        let read = || {
            let row = rows.first().ok_or_else(no_row)?;
            let (sessions, duties): (i64, i64) = (column(row, 0)?, column(row, 1)?);
            // Without its one row the store has no floor.
            let floor: Option<i64> = column(row, 2)?;
            let floor = Epoch::from_i64(floor.ok_or_else(no_row)?)?;
            Ok::<_, StoreError>((sessions as u64, duties as u64, floor))
        };
        let (sessions, duties, floor) = read().map_err(StoreError::or_happened)?;
        Ok(Adopted { incarnation, sessions, duties, floor })
    }

    pub(super) async fn store_retain(&self, new: Retention) -> StoreResult<()> {
        // Both are within their limits, so they fit.
        let (slots, audit) = (new.history_slots as i32, new.audit_kept as i64);
        let parameters = parameters![slots => INT4, audit => INT8];
        self.query(&self.statements.store_retain, &parameters).await?;
        self.history_slots.store(new.history_slots, Ordering::Relaxed);
        // The change has happened; the next trim removes what this one did not.
        let _ = self.audit_trim().await;
        Ok(())
    }

    pub(super) async fn store_retention(&self) -> StoreResult<Retention> {
        let rows = self.query(&self.statements.store_retention, &[]).await?;
        let row = rows.first().ok_or_else(no_row)?;
        let (slots, audit): (i64, i64) = (column(row, 0)?, column(row, 1)?);
        let retention = Retention { history_slots: slots as usize, audit_kept: audit as usize };
        self.history_slots.store(retention.history_slots, Ordering::Relaxed);
        Ok(retention)
    }
}

fn forgotten(row: &Row) -> StoreResult<Forgotten> {
    match column::<&str>(row, 1)? {
        "forgotten" => Ok(Forgotten::Forgotten { floor: Epoch::from_i64(column(row, 2)?)? }),
        "held" => {
            let remaining = micros(column::<i64>(row, 4)?.saturating_mul(1000));
            Ok(Forgotten::HeldBy(Some(current_holder(column(row, 3)?, remaining)?)))
        }
        other => Err(damaged(format!("duty_forget returned {other:?}"))),
    }
}
