//! Holds, each call inside one transaction.

use rusqlite::Connection;
use tenure_core::store::{AuditKind, ClaimRequest, Claimed, Released};
use tenure_core::{
    DutyId, DutyKey, Epoch, Hold, InstanceId, LocalInstant, Mark, Nonce, Reason, Session,
    StoreError,
};

use super::audit::{AuditRecord, record};
use super::session::{claimant, nanos, ns};
use super::{all, checkpoint, execute, first, hint, statements, upkeep};
use crate::state::rules::{self, ClaimDecision, LastGrant};

/// Finds the last grant of a duty.
pub(super) fn find(
    db: &Connection,
    duty: &DutyKey,
    now: LocalInstant,
) -> Result<Option<LastGrant>, StoreError> {
    let key = (duty.group.as_str(), duty.id.as_str(), ns(now));
    let row = first(db, statements::HOLD_FIND, key, |row| {
        let expires: Option<i64> = row.get(4)?;
        let (epoch, instance): (i64, String) = (row.get(0)?, row.get(1)?);
        let remaining = expires.map(|expires| nanos(expires - ns(now)));
        let nonce: String = row.get(2)?;
        Ok((epoch, instance, nonce, row.get(3)?, remaining))
    })?;
    let Some((epoch, instance, nonce, held, remaining)) = row else { return Ok(None) };
    let (epoch, instance) = (Epoch::from_i64(epoch)?, InstanceId::new(instance)?);
    let nonce = Nonce::parse(&nonce)?;
    Ok(Some(LastGrant { epoch, instance, nonce, held, remaining }))
}

pub(super) fn stands(db: &Connection, hold: &Hold, now: LocalInstant) -> Result<bool, StoreError> {
    Ok(find(db, &hold.duty, now)?.is_some_and(|last| last.stands(hold)))
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
    let last = find(db, &want.duty, now)?;
    let committed = checkpoint::find(db, &want.duty)?.map_or(Epoch::ZERO, |(_, epoch)| epoch);
    let known = committed.max(want.floor).max(upkeep::floor(db, group)?);
    let (epoch, expired) = match rules::claim(last, known, session)? {
        ClaimDecision::Already(epoch) => {
            return Ok(Claimed::Already(rules::hold(session, &want.duty, epoch, mark)));
        }
        ClaimDecision::HeldBy(holder) => return Ok(Claimed::HeldBy(Some(holder))),
        ClaimDecision::Grant { epoch, expired } => (epoch, expired),
    };
    let reason = reason.as_str();
    if let Some((instance, epoch)) = &expired {
        let (kind, hold) = (AuditKind::Expired, Some((id, *epoch)));
        record(db, &AuditRecord { kind, group, instance, hold, reason })?;
    }
    let instance = &session.instance;
    let nonce = session.nonce.to_string();
    let row = (group.as_str(), id.as_str(), epoch.as_i64(), instance.as_str(), nonce);
    execute(db, statements::HOLD_GRANT, row)?;
    let (kind, granted) = (AuditKind::Granted, Some((id, epoch)));
    record(db, &AuditRecord { kind, group, instance, hold: granted, reason })?;
    Ok(Claimed::Granted(rules::hold(session, &want.duty, epoch, mark)))
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
        let last = find(db, &hold.duty, now)?;
        let released = rules::release(last.as_ref(), session, hold);
        if released == Released::Freed {
            let id = &hold.duty.id;
            execute(db, statements::HOLD_FREE, (group.as_str(), id.as_str()))?;
            let (kind, freed, reason) =
                (AuditKind::Released, Some((id, hold.epoch)), reason.as_str());
            record(db, &AuditRecord { kind, group, instance, hold: freed, reason })?;
        }
        answers.push(released);
    }
    let freed = answers.iter().filter(|answer| **answer == Released::Freed).count();
    if freed > 0 {
        let key = (group.as_str(), instance.as_str(), freed as i64);
        execute(db, statements::SESSION_LOSE, key)?;
        hint(db, group)?;
    }
    Ok(answers)
}

/// Frees every hold of a session and returns their number.
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
