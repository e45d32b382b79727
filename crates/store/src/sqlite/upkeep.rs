//! Retention, forgetting duties and adopting a store, each call inside one transaction.

use std::collections::BTreeSet;

use rusqlite::Connection;
use tenure_core::store::{Adopt, Adopted, AuditKind, Forgotten, Retention};
use tenure_core::{
    Code, DutyKey, Epoch, GroupName, InstanceId, LocalInstant, Reason, StoreError, StoreResult,
};

use super::audit::record;
use super::session::ns;
use super::{execute, first, hint, hold, sql};
use crate::state::rules::LastGrant;

/// Floor of a group: every grant is above it.
pub(super) fn floor(db: &Connection, group: &GroupName) -> StoreResult<Epoch> {
    let (floor,) = first(db, sql!("floor/find"), [group.as_str()])?.ok_or_else(no_store_row)?;
    Epoch::from_i64(floor)
}

fn no_store_row() -> StoreError {
    StoreError::refused(Code::Damaged, "the table `store` is empty")
}

pub(super) fn forget(
    db: &Connection,
    duties: &[DutyKey],
    reason: &Reason,
    now: LocalInstant,
) -> StoreResult<Vec<Forgotten>> {
    let forgotten = duties.iter().map(|duty| forget_one(db, duty, reason, now));
    let forgotten: Vec<Forgotten> = forgotten.collect::<Result<_, _>>()?;
    let changed = duties.iter().zip(&forgotten);
    let changed = changed.filter(|(_, it)| matches!(it, Forgotten::Forgotten { .. }));
    let groups: BTreeSet<&GroupName> = changed.map(|(duty, _)| &duty.group).collect();
    for group in groups {
        hint(db, group)?;
    }
    Ok(forgotten)
}

fn forget_one(
    db: &Connection,
    duty: &DutyKey,
    reason: &Reason,
    now: LocalInstant,
) -> StoreResult<Forgotten> {
    if let Some(holder) = hold::find(db, duty, now)?.and_then(LastGrant::holder) {
        return Ok(Forgotten::HeldBy(Some(holder)));
    }
    let DutyKey { group, id } = duty;
    let key = (group.as_str(), id.as_str());
    let known: Option<(i64, String)> = first(db, sql!("duty/find"), key)?;
    let Some((epoch, instance)) = known else { return Ok(Forgotten::Absent) };
    let (epoch, instance) = (Epoch::from_i64(epoch)?, &InstanceId::new(instance)?);
    // The floor rises in the transaction that removes the epoch (R2).
    execute(db, sql!("floor/raise"), (group.as_str(), epoch.as_i64()))?;
    execute(db, sql!("hold/forget"), key)?;
    execute(db, sql!("checkpoint/forget"), key)?;
    execute(db, sql!("history/forget"), key)?;
    execute(db, sql!("report/forget"), key)?;
    let gone = Some((id, epoch));
    record(db, AuditKind::Forgotten, (group, instance), gone, reason.as_str())?;
    Ok(Forgotten::Forgotten { floor: floor(db, group)? })
}

pub(super) fn adopt(db: &Connection, adopt: &Adopt, now: LocalInstant) -> StoreResult<Adopted> {
    // A hold ends with its session; the next claim of the duty records that.
    let sessions = execute(db, sql!("store/end_sessions"), [ns(now)])? as u64;
    let known: Option<(i64, i64)> = first(db, sql!("store/known"), [])?;
    let (duties, newest) = known.ok_or_else(no_store_row)?;
    let floor = Epoch::from_i64(newest)?.max(adopt.floor);
    let incarnation = format!("{:032x}", adopt.entropy);
    let row = (incarnation.as_str(), floor.as_i64());
    execute(db, sql!("store/adopt"), row)?;
    execute(db, sql!("change/count_all"), [])?;
    Ok(Adopted { incarnation, sessions, duties: duties as u64, floor })
}

pub(super) fn retention(db: &Connection) -> StoreResult<Retention> {
    let row: Option<(i64, i64)> = first(db, sql!("retention/read"), [])?;
    let (slots, audit) = row.ok_or_else(no_store_row)?;
    Ok(Retention { history_slots: slots as usize, audit_kept: audit as usize })
}

/// Also rebuilds the ring, in the same transaction: a slot depends on the number of slots.
pub(super) fn retain(db: &Connection, new: Retention) -> StoreResult<()> {
    let slots = new.history_slots as i64;
    if retention(db)?.history_slots != new.history_slots {
        execute(db, sql!("history/drop"), [slots])?;
        execute(db, sql!("history/lift"), [])?;
        execute(db, sql!("history/place"), [slots])?;
    }
    execute(db, sql!("retention/save"), (slots, new.audit_kept as i64))?;
    execute(db, sql!("audit/trim"), [])?;
    Ok(())
}
