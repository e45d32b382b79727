//! Holds: claiming, releasing, and who holds what.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::Value;
use tenure_core::store::{ClaimRequest, Claimed, CurrentHolder, Holder, Released, check};
use tenure_core::{
    Code, DutyId, DutyKey, Epoch, GroupName, Hold, InstanceId, Mark, Reason, Session, StoreError,
};

use super::client::settle;
use super::reply::RedisReply;
use super::script::Script;
use super::session::epoch_for;
use super::{MAX_SCRIPT_ITEMS, Redis, error};
use std::sync::atomic::Ordering;

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
    ) -> Result<Vec<Claimed>, StoreError> {
        check::claim(session, wants)?;
        // A script sees only its own chunk: what can be refused for all of them is refused here.
        for want in wants {
            want.floor.next()?;
        }
        let nonce = session.nonce.to_string();
        let seen = self.seen.load(Ordering::Relaxed);
        let answers = self.call(&self.control, |incarnation| {
            let commands = wants.chunks(MAX_SCRIPT_ITEMS).map(|chunk| {
                let mut command = self.script(Script::HoldClaim, incarnation, &session.group);
                command
                    .arg(session.instance.as_str())
                    .arg(&*session.instance.escaped())
                    .arg(&nonce)
                    .arg(reason.as_str())
                    .arg(seen);
                for want in chunk {
                    command.arg(&*want.duty.id.escaped());
                }
                for want in chunk {
                    command.arg(want.floor.get());
                }
                command
            });
            commands.collect()
        });
        let mut claimed = Vec::with_capacity(wants.len());
        for (value, chunk) in
            settle(answers.await?)?.into_iter().zip(wants.chunks(MAX_SCRIPT_ITEMS))
        {
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
    ) -> Result<Claimed, StoreError> {
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
            _ => Err(error::unexpected("no outcome of a claim")),
        }
    }

    pub(super) async fn hold_release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> Result<Vec<Released>, StoreError> {
        check::release(session, holds)?;
        let nonce = session.nonce.to_string();
        let answers = self.call(&self.control, |incarnation| {
            let commands = holds.chunks(MAX_SCRIPT_ITEMS).map(|chunk| {
                let mut command = self.script(Script::HoldRelease, incarnation, &session.group);
                command.arg(session.instance.as_str()).arg(&nonce).arg(reason.as_str());
                for hold in chunk {
                    command.arg(&*hold.duty.id.escaped());
                }
                for hold in chunk {
                    command.arg(epoch_for(session, hold));
                }
                command
            });
            commands.collect()
        });
        let mut released = Vec::with_capacity(holds.len());
        for value in settle(answers.await?)? {
            let mut reply = RedisReply::of(value)?;
            while !reply.is_done() {
                released.push(match reply.number()? {
                    1 => Released::Freed,
                    2 => Released::Already,
                    3 => Released::NotYours,
                    _ => return Err(error::unexpected("no outcome of a release")),
                });
            }
        }
        match released.len() == holds.len() {
            true => Ok(released),
            false => Err(error::unexpected("not one outcome for each hold")),
        }
    }

    pub(super) async fn group_holders(&self, group: &GroupName) -> Result<Vec<Holder>, StoreError> {
        let found = self.foreign.look(&self.data, group, &self.root(group)).await?;
        let granted = self.call_one(&self.data, |incarnation| {
            self.script(Script::GroupDuties, incarnation, group)
        });
        let granted: BTreeSet<String> =
            RedisReply::of(granted.await?)?.texts()?.into_iter().collect();
        // What is granted under that very name is the lease of another duty, of an older version.
        // What others keep under names that are no duty's is theirs, and must not stop us.
        let leases = found.leases.into_iter().filter(|id| !granted.contains(id));
        let leases = leases.filter_map(|id| Some(DutyId::new(id).ok()?.escaped().into_owned()));
        let mut ids: BTreeSet<String> = leases.collect();
        ids.extend(granted);
        let ids: Vec<String> = ids.into_iter().collect();
        let answers = self.call(&self.data, |incarnation| {
            let commands = ids.chunks(MAX_SCRIPT_ITEMS).map(|chunk| {
                let mut command = self.script(Script::HoldList, incarnation, group);
                command.arg(chunk);
                command
            });
            commands.collect()
        });
        let mut holders = Vec::with_capacity(ids.len());
        for (value, chunk) in settle(answers.await?)?.into_iter().zip(ids.chunks(MAX_SCRIPT_ITEMS))
        {
            let mut reply = RedisReply::of(value)?;
            for id in chunk {
                holders.extend(self.holder(group, id, &mut reply)?);
            }
        }
        holders.sort_by(|left: &Holder, right| left.duty.cmp(&right.duty));
        Ok(holders)
    }

    /// `None` for a foreign lease that is gone by now.
    fn holder(
        &self,
        group: &GroupName,
        id: &str,
        reply: &mut RedisReply,
    ) -> Result<Option<Holder>, StoreError> {
        let (epoch, name, remaining) = (reply.signed()?, reply.bytes()?, reply.remaining()?);
        let epoch = match u64::try_from(epoch) {
            Ok(epoch) => Some(Epoch::new(epoch)?),
            Err(_) => None,
        };
        if let Some(epoch) = epoch {
            self.saw(epoch);
        }
        let holder = holder_now(name, remaining);
        if epoch.is_none() && holder.is_none() {
            return Ok(None);
        }
        let damaged = |_| StoreError::refused(Code::Damaged, format!("a duty named {id:?}"));
        let duty = DutyKey { group: group.clone(), id: DutyId::unescape(id).map_err(damaged)? };
        Ok(Some(Holder { duty, epoch, holder }))
    }
}
