//! Retention, forgetting duties and adopting a store, each call inside one transaction.

use std::collections::BTreeSet;

use rusqlite::Connection;
use tenure_core::store::{Adopt, Adopted, AuditKind, Forgotten, Retention};
use tenure_core::{Code, DutyKey, Epoch, GroupName, InstanceId, LocalInstant, Reason, StoreError};

use super::audit::{AuditRecord, record};
use super::session::ns;
use super::{execute, first, hint, hold, statements};
use crate::state::rules::LastGrant;

/// Floor of a group: every grant is above it.
pub(super) fn floor(db: &Connection, group: &GroupName) -> Result<Epoch, StoreError> {
    let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let floor = first(db, statements::FLOOR_FIND, [group.as_str()], read)?;
    Epoch::from_i64(floor.ok_or_else(no_store_row)?)
}

fn no_store_row() -> StoreError {
    StoreError::refused(Code::Damaged, "the table `store` is empty")
}

pub(super) fn forget(
    db: &Connection,
    duties: &[DutyKey],
    reason: &Reason,
    now: LocalInstant,
) -> Result<Vec<Forgotten>, StoreError> {
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
) -> Result<Forgotten, StoreError> {
    if let Some(holder) = hold::find(db, duty, now)?.and_then(LastGrant::holder) {
        return Ok(Forgotten::HeldBy(Some(holder)));
    }
    let DutyKey { group, id } = duty;
    let key = (group.as_str(), id.as_str());
    let known = first(db, statements::DUTY_FIND, key, |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
    })?;
    let Some((epoch, instance)) = known else { return Ok(Forgotten::Absent) };
    let (epoch, instance) = (Epoch::from_i64(epoch)?, &InstanceId::new(instance)?);
    // The floor rises in the transaction that takes the epoch away (R2).
    execute(db, statements::FLOOR_RAISE, (group.as_str(), epoch.as_i64()))?;
    execute(db, statements::HOLD_FORGET, key)?;
    execute(db, statements::CHECKPOINT_FORGET, key)?;
    execute(db, statements::HISTORY_FORGET, key)?;
    let (kind, gone, reason) = (AuditKind::Forgotten, Some((id, epoch)), reason.as_str());
    record(db, &AuditRecord { kind, group, instance, hold: gone, reason })?;
    Ok(Forgotten::Forgotten { floor: floor(db, group)? })
}

pub(super) fn adopt(
    db: &Connection,
    adopt: &Adopt,
    now: LocalInstant,
) -> Result<Adopted, StoreError> {
    // A hold ends with its session; who claims the duty next records that.
    let sessions = execute(db, statements::STORE_END_SESSIONS, [ns(now)])? as u64;
    let known = first(db, statements::STORE_KNOWN, [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    })?;
    let (duties, newest) = known.ok_or_else(no_store_row)?;
    let floor = Epoch::from_i64(newest)?.max(adopt.floor);
    let incarnation = format!("{:032x}", adopt.entropy);
    let row = (incarnation.as_str(), floor.as_i64());
    execute(db, statements::STORE_ADOPT, row)?;
    execute(db, statements::CHANGE_COUNT_ALL, [])?;
    Ok(Adopted { incarnation, sessions, duties: duties as u64, floor })
}

pub(super) fn retention(db: &Connection) -> Result<Retention, StoreError> {
    let row = first(db, statements::RETENTION_READ, [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    })?;
    let (slots, audit) = row.ok_or_else(no_store_row)?;
    Ok(Retention { history_slots: slots as usize, audit_kept: audit as usize })
}

/// The ring is laid anew in the same transaction: a slot means nothing without the number of slots.
pub(super) fn retain(db: &Connection, new: Retention) -> Result<(), StoreError> {
    let slots = new.history_slots as i64;
    if retention(db)?.history_slots != new.history_slots {
        execute(db, statements::HISTORY_DROP, [slots])?;
        execute(db, statements::HISTORY_LIFT, [])?;
        execute(db, statements::HISTORY_PLACE, [slots])?;
    }
    execute(db, statements::RETENTION_SAVE, (slots, new.audit_kept as i64))?;
    execute(db, statements::AUDIT_TRIM, [])?;
    Ok(())
}
