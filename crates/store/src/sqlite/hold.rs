//! Holds, each call inside one transaction.

use std::time::Duration;

use rusqlite::Connection;
use tenure_core::store::{AuditKind, ClaimRequest, Claimed, CurrentHolder, Released};
use tenure_core::{
    DutyId, DutyKey, Epoch, Hold, InstanceId, LocalInstant, Mark, Reason, Session, StoreError,
};

use super::session::{claimant, ns};
use super::{AuditRecord, all, checkpoint, execute, first, hint, record, statements, upkeep};

/// The last grant of a duty.
pub(super) struct Row {
    pub(super) epoch: Epoch,
    instance: InstanceId,
    nonce: String,
    held: bool,
    /// What is left of it while it is live.
    remaining_ns: Option<i64>,
}

impl Row {
    /// Whether this grant is that hold, live or not.
    fn is(&self, hold: &Hold) -> bool {
        self.epoch == hold.epoch && self.nonce == hold.nonce.to_string()
    }

    pub(super) fn is_live(&self, hold: &Hold) -> bool {
        self.is(hold) && self.remaining_ns.is_some()
    }

    /// Who holds the duty, if this grant is live.
    pub(super) fn holder(self) -> Option<CurrentHolder> {
        let remaining = Duration::from_nanos(self.remaining_ns?.max(0) as u64);
        Some(CurrentHolder { instance: self.instance, remaining })
    }
}

pub(super) fn find(
    db: &Connection,
    duty: &DutyKey,
    now: LocalInstant,
) -> Result<Option<Row>, StoreError> {
    let key = (duty.group.as_str(), duty.id.as_str(), ns(now));
    let row = first(db, statements::HOLD_FIND, key, |row| {
        let expires: Option<i64> = row.get(4)?;
        let (epoch, instance): (i64, String) = (row.get(0)?, row.get(1)?);
        let remaining_ns = expires.map(|expires| expires - ns(now));
        Ok((epoch, instance, row.get(2)?, row.get(3)?, remaining_ns))
    })?;
    let Some((epoch, instance, nonce, held, remaining_ns)) = row else {
        return Ok(None);
    };
    let (epoch, instance) = (Epoch::from_i64(epoch)?, InstanceId::new(instance)?);
    Ok(Some(Row { epoch, instance, nonce, held, remaining_ns }))
}

pub(super) fn stands(db: &Connection, hold: &Hold, now: LocalInstant) -> Result<bool, StoreError> {
    Ok(find(db, &hold.duty, now)?.is_some_and(|row| row.is_live(hold)))
}

pub(super) fn claim(
    db: &Connection,
    session: &Session,
    wants: &[ClaimRequest],
    reason: &Reason,
    now: LocalInstant,
) -> Result<Vec<Claimed>, StoreError> {
    let Some(mark) = claimant(db, session, now)? else {
        return Ok(vec![Claimed::SessionEnded; wants.len()]);
    };
    // An error here rolls back the whole batch.
    let claim = |want| claim_one(db, session, mark, want, reason, now);
    let claimed: Result<Vec<_>, _> = wants.iter().map(claim).collect();
    hint(db, &session.group)?;
    claimed
}

fn claim_one(
    db: &Connection,
    session: &Session,
    mark: Mark,
    want: &ClaimRequest,
    reason: &Reason,
    now: LocalInstant,
) -> Result<Claimed, StoreError> {
    let DutyKey { group, id } = &want.duty;
    let row = find(db, &want.duty, now)?;
    let hold = |epoch| Hold {
        duty: want.duty.clone(),
        epoch,
        instance: session.instance.clone(),
        nonce: session.nonce,
        mark,
    };
    let newest = row.as_ref().map_or(Epoch::ZERO, |row| row.epoch);
    let reason = reason.as_str();
    if let Some(row) = row.filter(|row| row.held) {
        if row.remaining_ns.is_some() {
            if row.nonce == session.nonce.to_string() {
                return Ok(Claimed::Already(hold(row.epoch)));
            }
            return Ok(Claimed::HeldBy(row.holder()));
        }
        let (kind, instance) = (AuditKind::Expired, &row.instance);
        let hold = Some((id, row.epoch));
        record(db, &AuditRecord { kind, group, instance, hold, reason })?;
    }
    let committed = checkpoint::find(db, &want.duty)?.map_or(Epoch::ZERO, |(_, epoch)| epoch);
    let floor = upkeep::floor(db, group)?;
    let epoch = newest.max(committed).max(want.floor).max(floor).next()?;
    let instance = &session.instance;
    let nonce = session.nonce.to_string();
    let row = (group.as_str(), id.as_str(), epoch.as_i64(), instance.as_str(), nonce);
    execute(db, statements::HOLD_GRANT, row)?;
    let (kind, granted) = (AuditKind::Granted, Some((id, epoch)));
    record(db, &AuditRecord { kind, group, instance, hold: granted, reason })?;
    Ok(Claimed::Granted(hold(epoch)))
}

pub(super) fn release(
    db: &Connection,
    session: &Session,
    holds: &[Hold],
    reason: &Reason,
    now: LocalInstant,
) -> Result<Vec<Released>, StoreError> {
    let Session { group, instance, .. } = session;
    let mut answers = Vec::with_capacity(holds.len());
    for hold in holds {
        let row = find(db, &hold.duty, now)?.filter(|row| hold.is_of(session) && row.is(hold));
        answers.push(match row {
            None => Released::NotYours,
            Some(row) if !row.is_live(hold) => Released::Already,
            Some(_) => {
                let id = &hold.duty.id;
                execute(db, statements::HOLD_FREE, (group.as_str(), id.as_str()))?;
                let (kind, freed) = (AuditKind::Released, Some((id, hold.epoch)));
                let reason = reason.as_str();
                record(db, &AuditRecord { kind, group, instance, hold: freed, reason })?;
                Released::Freed
            }
        });
    }
    let freed = answers.iter().filter(|answer| **answer == Released::Freed).count();
    if freed > 0 {
        let key = (group.as_str(), instance.as_str(), freed as i64);
        execute(db, statements::SESSION_LOSE, key)?;
        hint(db, group)?;
    }
    Ok(answers)
}

/// Frees every hold of a session and says how many there were.
pub(super) fn free_all(
    db: &Connection,
    session: &Session,
    kind: AuditKind,
    reason: &Reason,
) -> Result<u64, StoreError> {
    let Session { group, instance, nonce, .. } = session;
    let key = (group.as_str(), instance.as_str(), nonce.to_string());
    let mut freed = all(db, statements::HOLD_FREE_ALL, key, |row| {
        let (duty, epoch): (String, i64) = (row.get(0)?, row.get(1)?);
        Ok(DutyId::new(duty).and_then(|duty| Ok((duty, Epoch::from_i64(epoch)?))))
    })?;
    freed.sort();
    for (duty, epoch) in &freed {
        let (hold, reason) = (Some((duty, *epoch)), reason.as_str());
        record(db, &AuditRecord { kind, group, instance, hold, reason })?;
    }
    Ok(freed.len() as u64)
}
