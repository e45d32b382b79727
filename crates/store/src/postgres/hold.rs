//! Holds.

use std::sync::atomic::Ordering;

use tenure_core::store::{ClaimRequest, Claimed, CurrentHolder, Released, check};
use tenure_core::{Epoch, Hold, InstanceId, Mark, Reason, Session, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::rows::{column, damaged, micros};
use super::{Postgres, SessionKey, complete, epoch_for};
use crate::CLAIMS_PER_TRIM;

impl Postgres {
    pub(super) async fn hold_claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> Result<Vec<Claimed>, StoreError> {
        check::claim(session, wants)?;
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let duties: Vec<&str> = wants.iter().map(|want| want.duty.id.as_str()).collect();
        let floors: Vec<i64> = wants.iter().map(|want| want.floor.as_i64()).collect();
        let (duties, floors) = ((&duties as _, Type::TEXT_ARRAY), (&floors as _, Type::INT8_ARRAY));
        let reason = (&reason.as_str() as _, Type::TEXT);
        let parameters = [group, instance, nonce, duties, floors, reason];
        let rows = self.query(&self.statements.hold_claim, &parameters).await?;
        if self.claims.fetch_add(1, Ordering::Relaxed) % CLAIMS_PER_TRIM == CLAIMS_PER_TRIM - 1 {
            // What is not cut now is cut the next time; the claim has happened.
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
    ) -> Result<Vec<Released>, StoreError> {
        check::release(session, holds)?;
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let duties: Vec<&str> = holds.iter().map(|hold| hold.duty.id.as_str()).collect();
        let epochs: Vec<i64> = holds.iter().map(|hold| epoch_for(session, hold)).collect();
        let (duties, epochs) = ((&duties as _, Type::TEXT_ARRAY), (&epochs as _, Type::INT8_ARRAY));
        let reason = (&reason.as_str() as _, Type::TEXT);
        let parameters = [group, instance, nonce, duties, epochs, reason];
        let rows = self.query(&self.statements.hold_release, &parameters).await?;
        let read = |row| released(row).map_err(StoreError::or_happened);
        complete(rows, holds.len())?.iter().map(read).collect()
    }
}

fn claimed(row: &Row, session: &Session, want: &ClaimRequest) -> Result<Claimed, StoreError> {
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
            let holder = holder.map(|instance| {
                let remaining = micros(remaining.unwrap_or(0).saturating_mul(1000));
                Ok::<_, StoreError>(CurrentHolder {
                    instance: InstanceId::new(instance)?,
                    remaining,
                })
            });
            Ok(Claimed::HeldBy(holder.transpose()?))
        }
        "no_session" => Ok(Claimed::SessionEnded),
        other => Err(damaged(format!("hold_claim answered {other:?}"))),
    }
}

fn released(row: &Row) -> Result<Released, StoreError> {
    match column::<&str>(row, 1)? {
        "freed" => Ok(Released::Freed),
        "already" => Ok(Released::Already),
        "not_yours" => Ok(Released::NotYours),
        other => Err(damaged(format!("hold_release answered {other:?}"))),
    }
}
