//! Holds: claiming, releasing, listing.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tenure_core::store::{ClaimRequest, Claimed, CurrentHolder, Holder, Released};
use tenure_core::{
    Code, DutyId, DutyKey, Epoch, GroupName, Hold, InstanceId, Mark, Reason, Session, StoreError,
    StoreResult,
};

use super::reply::RedisReply;
use super::script::Script;
use super::session::epoch_for;
use super::{MAX_SCRIPT_ITEMS, Redis, error};

/// The holder that a lease names; `None` when its value cannot be an instance's name.
pub(super) fn holder_now(name: Vec<u8>, remaining: Duration) -> Option<CurrentHolder> {
    let name = String::from_utf8(name).ok()?;
    let instance = InstanceId::new(name).ok()?;
    Some(CurrentHolder { instance, remaining })
}

impl Redis {
    pub(super) async fn hold_claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> StoreResult<Vec<Claimed>> {
        // A script sees only its own chunk; a request that refuses the whole batch is found here.
        for want in wants {
            want.floor.next()?;
        }
        let seen = self.seen.load(Ordering::Relaxed);
        let answers = self.call_chunks(&self.control, wants, |incarnation, chunk| {
            self.script(Script::HoldClaim, incarnation, &session.group)
                .session(session)
                .arg(reason.as_str())
                .arg(seen)
                .args(chunk.iter().map(|want| want.duty.id.escaped()))
                .args(chunk.iter().map(|want| want.floor.get()))
        });
        let mut claimed = Vec::with_capacity(wants.len());
        for (value, chunk) in answers.await?.into_iter().zip(wants.chunks(MAX_SCRIPT_ITEMS)) {
            if value == Value::Int(-1) {
                claimed.resize(claimed.len() + chunk.len(), Claimed::SessionEnded);
                continue;
            }
            let mut reply = RedisReply::of(value)?;
            let mark = Mark(reply.number()?);
            for want in chunk {
                claimed.push(self.claimed(session, want, mark, &mut reply)?);
            }
        }
        Ok(claimed)
    }

    fn claimed(
        &self,
        session: &Session,
        want: &ClaimRequest,
        mark: Mark,
        reply: &mut RedisReply,
    ) -> StoreResult<Claimed> {
        let outcome = reply.number()?;
        if outcome == 3 {
            let (holder, remaining) = (reply.bytes()?, reply.remaining()?);
            self.foreign.met(&want.duty);
            return Ok(Claimed::HeldBy(holder_now(holder, remaining)));
        }
        let epoch = Epoch::new(reply.number()?)?;
        reply.number()?;
        self.saw(epoch);
        let hold = Hold {
            duty: want.duty.clone(),
            epoch,
            instance: session.instance.clone(),
            nonce: session.nonce,
            mark,
        };
        match outcome {
            1 => Ok(Claimed::Granted(hold)),
            2 => Ok(Claimed::Already(hold)),
            _ => Err(error::unexpected("unknown outcome code for claim")),
        }
    }

    pub(super) async fn hold_release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> StoreResult<Vec<Released>> {
        let answers = self.call_chunks(&self.control, holds, |incarnation, chunk| {
            self.script(Script::HoldRelease, incarnation, &session.group)
                .arg(session.instance.as_str())
                .arg(session.nonce.to_string())
                .arg(reason.as_str())
                .args(chunk.iter().map(|hold| hold.duty.id.escaped()))
                .args(chunk.iter().map(|hold| epoch_for(session, hold)))
        });
        let mut released = Vec::with_capacity(holds.len());
        for value in answers.await? {
            let mut reply = RedisReply::of(value)?;
            while !reply.is_done() {
                released.push(match reply.number()? {
                    1 => Released::Freed,
                    2 => Released::Already,
                    3 => Released::NotYours,
                    _ => return Err(error::unexpected("unknown outcome code for release")),
                });
            }
        }
        match released.len() == holds.len() {
            true => Ok(released),
            false => Err(error::unexpected("wrong number of release outcomes")),
        }
    }

    pub(super) async fn group_holders(&self, group: &GroupName) -> StoreResult<Vec<Holder>> {
        let found = self.foreign.look(&self.data, group, &self.root(group)).await?;
        let granted = self
            .ask(&self.data, |incarnation| self.script(Script::GroupDuties, incarnation, group));
        let granted: BTreeSet<String> = granted.await?.texts()?.into_iter().collect();
        // A lease under a granted duty's escaped id is that duty's lease as older versions name it.
        // Keys that are not duty ids belong to other programs and must not cause an error.
        let leases = found.leases.into_iter().filter(|id| !granted.contains(id));
        let leases = leases.filter_map(|id| Some(DutyId::new(id).ok()?.escaped().into_owned()));
        let mut ids: BTreeSet<String> = leases.collect();
        ids.extend(granted);
        let ids: Vec<String> = ids.into_iter().collect();
        let answers = self.call_chunks(&self.data, &ids, |incarnation, chunk| {
            self.script(Script::HoldList, incarnation, group).args(chunk)
        });
        let mut holders = Vec::with_capacity(ids.len());
        for (value, chunk) in answers.await?.into_iter().zip(ids.chunks(MAX_SCRIPT_ITEMS)) {
            let mut reply = RedisReply::of(value)?;
            for id in chunk {
                holders.extend(self.holder(group, id, &mut reply)?);
            }
        }
        holders.sort_by(|left: &Holder, right| left.duty.cmp(&right.duty));
        Ok(holders)
    }

    /// Reads one holder; `None` for a foreign lease that has ended since the scan.
    fn holder(
        &self,
        group: &GroupName,
        id: &str,
        reply: &mut RedisReply,
    ) -> StoreResult<Option<Holder>> {
        let (epoch, name, remaining) = (reply.signed()?, reply.bytes()?, reply.remaining()?);
        let epoch = u64::try_from(epoch).ok().map(Epoch::new).transpose()?;
        self.saw(epoch.unwrap_or_default());
        let holder = holder_now(name, remaining);
        if epoch.is_none() && holder.is_none() {
            return Ok(None);
        }
        let damaged = |_| StoreError::refused(Code::Damaged, format!("{id:?} is not a duty id"));
        let duty = DutyKey { group: group.clone(), id: DutyId::unescape(id).map_err(damaged)? };
        Ok(Some(Holder { duty, epoch, holder }))
    }
}
