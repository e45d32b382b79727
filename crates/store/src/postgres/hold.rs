//! Holds.

use std::sync::atomic::Ordering;

use tenure_core::store::{ClaimRequest, Claimed, Released};
use tenure_core::{Epoch, Hold, Mark, Reason, Session, StoreError, StoreResult};
use tokio_postgres::Row;

use super::rows::{column, current_holder, damaged, micros};
use super::{Postgres, complete, epoch_for, parameters};
use crate::CLAIMS_PER_TRIM;

impl Postgres {
    // Why: docs/decisions/0018-postgres-claim-locking.md
    pub(super) async fn hold_claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> StoreResult<Vec<Claimed>> {
        let duties: Vec<&str> = wants.iter().map(|want| want.duty.id.as_str()).collect();
        let floors: Vec<i64> = wants.iter().map(|want| want.floor.as_i64()).collect();
        let parameters = parameters![
            of session, duties => TEXT_ARRAY, floors => INT8_ARRAY, reason.as_str() => TEXT
        ];
        let rows = self.query(&self.statements.hold_claim, &parameters).await?;
        if self.claims.fetch_add(1, Ordering::Relaxed) % CLAIMS_PER_TRIM == CLAIMS_PER_TRIM - 1 {
            // The claim has happened; the next trim removes what this one did not.
            let _ = self.audit_trim().await;
        }
        let rows = complete(rows, wants.len())?;
        let read = |(row, want)| claimed(row, session, want).map_err(StoreError::or_happened);
        rows.iter().zip(wants).map(read).collect()
    }

    pub(super) async fn hold_release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> StoreResult<Vec<Released>> {
        let duties: Vec<&str> = holds.iter().map(|hold| hold.duty.id.as_str()).collect();
        let epochs: Vec<i64> = holds.iter().map(|hold| epoch_for(session, hold)).collect();
        let parameters = parameters![
            of session, duties => TEXT_ARRAY, epochs => INT8_ARRAY, reason.as_str() => TEXT
        ];
        let rows = self.query(&self.statements.hold_release, &parameters).await?;
        let read = |row| released(row).map_err(StoreError::or_happened);
        complete(rows, holds.len())?.iter().map(read).collect()
    }
}

fn claimed(row: &Row, session: &Session, want: &ClaimRequest) -> StoreResult<Claimed> {
    let hold = || {
        Ok::<_, StoreError>(Hold {
            duty: want.duty.clone(),
            epoch: Epoch::from_i64(column(row, 2)?)?,
            instance: session.instance.clone(),
            nonce: session.nonce,
            mark: Mark(column::<i64>(row, 3)? as u64),
        })
    };
    match column::<&str>(row, 1)? {
        "granted" => Ok(Claimed::Granted(hold()?)),
        "already" => Ok(Claimed::Already(hold()?)),
        "held" => {
            let holder: Option<String> = column(row, 4)?;
            let remaining: Option<i64> = column(row, 5)?;
            let remaining = micros(remaining.unwrap_or(0).saturating_mul(1000));
            let holder = holder.map(|instance| current_holder(instance, remaining));
            Ok(Claimed::HeldBy(holder.transpose()?))
        }
        "no_session" => Ok(Claimed::SessionEnded),
        other => Err(damaged(format!("hold_claim returned {other:?}"))),
    }
}

fn released(row: &Row) -> StoreResult<Released> {
    match column::<&str>(row, 1)? {
        "freed" => Ok(Released::Freed),
        "already" => Ok(Released::Already),
        "not_yours" => Ok(Released::NotYours),
        other => Err(damaged(format!("hold_release returned {other:?}"))),
    }
}
