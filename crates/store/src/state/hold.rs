//! Holds.

use tenure_core::store::{AuditKind, ClaimRequest, Claimed, Released};
use tenure_core::{
    DutyKey, GroupName, Hold, InstanceId, LocalInstant, Mark, Mutant, Nonce, Reason, Session,
    StoreResult,
};

use super::rules::{self, ClaimDecision};
use super::{GroupRows, HoldRow, StoreState};

impl StoreState {
    pub(crate) fn claim(
        &mut self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
        now: LocalInstant,
    ) -> StoreResult<Vec<Claimed>> {
        let group = self.group(&session.group);
        // An evicted member may keep what it has until its TTL, but gets nothing new.
        let live = group.live(&session.instance, session.nonce, now);
        let Some(mark) = live.filter(|row| !row.evicted).map(|row| Mark(row.left)) else {
            return Ok(vec![Claimed::SessionEnded; wants.len()]);
        };
        // All decisions first: an exhausted epoch refuses the batch before anything is written.
        let decide = |want: &ClaimRequest| {
            let last = group.last_grant(&want.duty.id, now);
            let known = group.newest_epoch(&want.duty.id).max(want.floor).max(group.floor);
            rules::claim(last, known, session)
        };
        let decided: StoreResult<Vec<ClaimDecision>> = wants.iter().map(decide).collect();
        let claims = wants.iter().zip(decided?);
        let claims = claims.map(|(want, decision)| match decision {
            ClaimDecision::Already(epoch) => {
                Claimed::Already(rules::hold(session, &want.duty, epoch, mark))
            }
            ClaimDecision::HeldBy(holder) => Claimed::HeldBy(Some(holder)),
            ClaimDecision::Grant { epoch, expired } => {
                if let Some((instance, epoch)) = expired {
                    let before = Some((want.duty.clone(), epoch));
                    group.record(AuditKind::Expired, &instance, before, reason.as_str(), now);
                }
                let (instance, nonce) = (session.instance.clone(), session.nonce);
                let row = HoldRow { epoch, instance, nonce, held: true };
                group.holds.insert(want.duty.id.clone(), row);
                let granted = Some((want.duty.clone(), epoch));
                group.record(AuditKind::Granted, &session.instance, granted, reason.as_str(), now);
                Claimed::Granted(rules::hold(session, &want.duty, epoch, mark))
            }
        });
        Ok(claims.collect())
    }

    pub(crate) fn release(
        &mut self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
        now: LocalInstant,
    ) -> Vec<Released> {
        let group = self.group(&session.group);
        holds.iter().map(|hold| group.release(session, hold, reason, now)).collect()
    }
}

impl GroupRows {
    fn release(
        &mut self,
        session: &Session,
        hold: &Hold,
        reason: &Reason,
        now: LocalInstant,
    ) -> Released {
        let last = self.last_grant(&hold.duty.id, now);
        let released = rules::release(last.as_ref(), session, hold);
        if released != Released::Freed {
            return released;
        }
        if let Some(row) = self.holds.get_mut(&hold.duty.id) {
            row.held = false;
        }
        if Mutant::R2Forget.is_on() {
            self.holds.remove(&hold.duty.id);
        }
        if let Some(session) = self.sessions.get_mut(&session.instance) {
            session.left += 1;
        }
        let freed = Some((hold.duty.clone(), hold.epoch));
        self.record(AuditKind::Released, &session.instance, freed, reason.as_str(), now);
        Released::Freed
    }

    /// Frees every hold of a session and returns their number.
    pub(super) fn free_all(
        &mut self,
        group: &GroupName,
        (instance, nonce): (&InstanceId, Nonce),
        (kind, reason): (AuditKind, &Reason),
        now: LocalInstant,
    ) -> u64 {
        let mut freed = Vec::new();
        for (id, row) in &mut self.holds {
            if row.held && row.nonce == nonce && &row.instance == instance {
                row.held = false;
                freed.push((DutyKey { group: group.clone(), id: id.clone() }, row.epoch));
            }
        }
        let count = freed.len() as u64;
        for hold in freed {
            self.record(kind, instance, Some(hold), reason.as_str(), now);
        }
        count
    }
}
