//! Rows as answers.

use std::time::Duration;

use tenure_core::store::{
    AuditEntry, AuditKind, Checkpoint, ClaimRequest, Claimed, Committed, CurrentHolder, Forgotten,
    Holder, Member, Released,
};
use tenure_core::{
    Code, Document, DutyId, DutyKey, Epoch, GroupName, Hold, InstanceId, Mark, Nonce, Note,
    Session, StoreError, Version,
};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

fn damaged(detail: impl Into<String>) -> StoreError {
    StoreError::refused(Code::Damaged, detail)
}

/// A column by position, or an error instead of the driver's panic.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(|error| damaged(error.to_string()))
}

/// A position that counts from 1, as an index.
pub(super) fn index(row: &Row) -> Result<usize, StoreError> {
    let item: i64 = column(row, 0)?;
    usize::try_from(item - 1).map_err(|_| damaged(format!("item {item}")))
}

fn micros(remaining: i64) -> Duration {
    Duration::from_micros(u64::try_from(remaining).unwrap_or(0))
}

pub(super) fn claimed(
    row: &Row,
    session: &Session,
    want: &ClaimRequest,
) -> Result<Claimed, StoreError> {
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

pub(super) fn released(row: &Row) -> Result<Released, StoreError> {
    match column::<&str>(row, 1)? {
        "freed" => Ok(Released::Freed),
        "already" => Ok(Released::Already),
        "not_yours" => Ok(Released::NotYours),
        other => Err(damaged(format!("hold_release answered {other:?}"))),
    }
}

pub(super) fn committed(row: &Row) -> Result<Committed, StoreError> {
    let number: i64 = column(row, 2)?;
    match column::<&str>(row, 1)? {
        "saved" => Ok(Committed::Saved(Version::from_i64(number)?)),
        "fenced" => Ok(Committed::Fenced { newest: Epoch::from_i64(number)? }),
        "conflict" => Ok(Committed::Conflict { stored: Version::from_i64(number)? }),
        other => Err(damaged(format!("checkpoint_commit answered {other:?}"))),
    }
}

pub(super) fn forgotten(row: &Row) -> Result<Forgotten, StoreError> {
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

pub(super) fn checkpoint(row: &Row) -> Result<Checkpoint, StoreError> {
    Ok(Checkpoint {
        version: Version::from_i64(column(row, 1)?)?,
        epoch: Epoch::from_i64(column(row, 2)?)?,
        instance: InstanceId::new(column::<String>(row, 3)?)?,
        document: Document::from_store(column::<Vec<u8>>(row, 4)?)?,
        unix_ms: column::<i64>(row, 5)?.max(0) as u64,
    })
}

pub(super) fn member(row: &Row) -> Result<Member, StoreError> {
    Ok(Member {
        instance: InstanceId::new(column::<String>(row, 0)?)?,
        nonce: Some(Nonce::parse(column(row, 1)?)?),
        note: Note::from_bytes(column(row, 2)?)?,
        evicted: column(row, 3)?,
        remaining: micros(column(row, 4)?),
    })
}

pub(super) fn holder(row: &Row, group: &GroupName) -> Result<Holder, StoreError> {
    let instance: Option<String> = column(row, 2)?;
    let remaining: Option<i64> = column(row, 3)?;
    let holder = instance.zip(remaining).map(|(instance, remaining)| {
        let instance = InstanceId::new(instance)?;
        Ok::<_, StoreError>(CurrentHolder { instance, remaining: micros(remaining) })
    });
    let id = DutyId::new(column::<String>(row, 0)?)?;
    Ok(Holder {
        duty: DutyKey { group: group.clone(), id },
        epoch: Some(Epoch::from_i64(column(row, 1)?)?),
        holder: holder.transpose()?,
    })
}

pub(super) fn audit_entry(row: &Row, group: &GroupName) -> Result<AuditEntry, StoreError> {
    let kind: &str = column(row, 2)?;
    let duty: Option<String> = column(row, 4)?;
    let duty =
        duty.map(|id| Ok::<_, StoreError>(DutyKey { group: group.clone(), id: DutyId::new(id)? }));
    Ok(AuditEntry {
        seq: column::<i64>(row, 0)? as u64,
        unix_ms: column::<i64>(row, 1)?.max(0) as u64,
        kind: AuditKind::parse(kind).ok_or_else(|| damaged(format!("audit kind {kind:?}")))?,
        instance: InstanceId::new(column::<String>(row, 3)?)?,
        duty: duty.transpose()?,
        epoch: column::<Option<i64>>(row, 5)?.map(Epoch::from_i64).transpose()?,
        reason: column(row, 6)?,
    })
}
