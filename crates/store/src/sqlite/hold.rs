//! Holds, each call inside one transaction.

use rusqlite::Connection;
use tenure_core::store::{AuditKind, ClaimRequest, Claimed, Released};
use tenure_core::{
    DutyId, DutyKey, Epoch, Hold, InstanceId, LocalInstant, Mark, Nonce, Reason, Session,
    StoreResult,
};

use super::audit::record;
use super::session::{claimant, nanos, ns};
use super::{all, checkpoint, execute, first, hint, sql, upkeep};
use crate::state::rules::{self, ClaimDecision, LastGrant};

/// Finds the last grant of a duty.
pub(super) fn find(
    db: &Connection,
    duty: &DutyKey,
    now: LocalInstant,
) -> StoreResult<Option<LastGrant>> {
    let key = (duty.group.as_str(), duty.id.as_str(), ns(now));
    let row: Option<(i64, String, String, bool, Option<i64>)> = first(db, sql!("hold/find"), key)?;
    let Some((epoch, instance, nonce, held, expires)) = row else { return Ok(None) };
    let remaining = expires.map(|expires| nanos(expires - ns(now)));
    let (epoch, instance) = (Epoch::from_i64(epoch)?, InstanceId::new(instance)?);
    let nonce = Nonce::parse(&nonce)?;
    Ok(Some(LastGrant { epoch, instance, nonce, held, remaining }))
}

pub(super) fn stands(db: &Connection, hold: &Hold, now: LocalInstant) -> StoreResult<bool> {
    Ok(find(db, &hold.duty, now)?.is_some_and(|last| last.stands(hold)))
}

pub(super) fn claim(
    db: &Connection,
    session: &Session,
    wants: &[ClaimRequest],
    reason: &Reason,
    now: LocalInstant,
) -> StoreResult<Vec<Claimed>> {
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
) -> StoreResult<Claimed> {
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
        record(db, AuditKind::Expired, (group, instance), Some((id, *epoch)), reason)?;
    }
    let instance = &session.instance;
    let nonce = session.nonce.to_string();
    let row = (group.as_str(), id.as_str(), epoch.as_i64(), instance.as_str(), nonce);
    execute(db, sql!("hold/grant"), row)?;
    record(db, AuditKind::Granted, (group, instance), Some((id, epoch)), reason)?;
    Ok(Claimed::Granted(rules::hold(session, &want.duty, epoch, mark)))
}

pub(super) fn release(
    db: &Connection,
    session: &Session,
    holds: &[Hold],
    reason: &Reason,
    now: LocalInstant,
) -> StoreResult<Vec<Released>> {
    let Session { group, instance, .. } = session;
    let mut answers = Vec::with_capacity(holds.len());
    for hold in holds {
        let last = find(db, &hold.duty, now)?;
        let released = rules::release(last.as_ref(), session, hold);
        if released == Released::Freed {
            let id = &hold.duty.id;
            execute(db, sql!("hold/free"), (group.as_str(), id.as_str()))?;
            let freed = Some((id, hold.epoch));
            record(db, AuditKind::Released, (group, instance), freed, reason.as_str())?;
        }
        answers.push(released);
    }
    let freed = answers.iter().filter(|answer| **answer == Released::Freed).count();
    if freed > 0 {
        let key = (group.as_str(), instance.as_str(), freed as i64);
        execute(db, sql!("session/lose"), key)?;
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
) -> StoreResult<u64> {
    let Session { group, instance, nonce, .. } = session;
    let key = (group.as_str(), instance.as_str(), nonce.to_string());
    let read = |(duty, epoch): (String, i64)| Ok((DutyId::new(duty)?, Epoch::from_i64(epoch)?));
    let mut freed = all(db, sql!("hold/free_all"), key, read)?;
    freed.sort();
    for (duty, epoch) in &freed {
        record(db, kind, (group, instance), Some((duty, *epoch)), reason.as_str())?;
    }
    Ok(freed.len() as u64)
}
