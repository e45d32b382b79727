//! Claims and releases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::store::{AuditKind, ClaimRequest, Claimed, CurrentHolder, Released};
use tenure_core::{
    DutyKey, Epoch, GroupName, Hold, InstanceId, Mark, Mutant, Nonce, Reason, Session, StoreResult,
};
use tenure_etcd::{KeyValue, Put, Txn, TxnOp, TxnOutcome};
use tokio::time::sleep;

use super::cluster::RETRY_PAUSE;
use super::key::{self, FenceRecord};
use super::read::{found, get};
use super::{
    EtcdCall, MAX_CONCURRENT_TXNS, MAX_TXN_ITEMS, absent, equals, error, keep_alive, revision_of,
    unchanged,
};

/// State that every grant of a claim depends on; compared in the granting transaction.
struct ClaimBasis {
    floor: Epoch,
    floor_revision: i64,
    store_revision: i64,
    mark: Mark,
}

/// Decision about one claim.
enum ClaimPlan {
    Answer(Claimed),
    ClaimGrant(ClaimGrant),
}

/// A duty that appeared free when it was read.
struct ClaimGrant {
    at: usize,
    duty: DutyKey,
    /// Revision of the last write to its fence; zero if there was none.
    revision: i64,
    epoch: Epoch,
    /// Previous holder, whose session has ended.
    expired: Option<FenceRecord>,
}

/// Live sessions of the instances that are named in fences.
pub(super) type Alive = BTreeMap<InstanceId, (Nonce, Option<Duration>)>;

impl EtcdCall<'_> {
    pub(super) async fn hold_claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> StoreResult<Vec<Claimed>> {
        if wants.is_empty() {
            return Ok(Vec::new());
        }
        self.ready().await?;
        let mut answers: Vec<Option<Claimed>> = vec![None; wants.len()];
        // Epochs of grants whose answer was lost.
        let mut proposed: BTreeMap<usize, Epoch> = BTreeMap::new();
        loop {
            let open: Vec<usize> = (0..wants.len()).filter(|at| answers[*at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let Some(basis) = self.claim_basis(session).await? else {
                open.iter().for_each(|at| answers[*at] = Some(Claimed::SessionEnded));
                break;
            };
            wants.iter().for_each(|want| self.saw(want.floor));
            let mut takes = Vec::new();
            for (at, plan) in self.claim_plans(session, wants, &open, &basis).await? {
                if let ClaimPlan::Answer(Claimed::Already(hold)) = &plan {
                    self.saw(hold.epoch);
                }
                match plan {
                    // The grant of an earlier attempt whose answer was lost.
                    ClaimPlan::Answer(Claimed::Already(hold))
                        if proposed.get(&at) == Some(&hold.epoch) =>
                    {
                        answers[at] = Some(Claimed::Granted(hold));
                    }
                    ClaimPlan::Answer(claimed) => answers[at] = Some(claimed),
                    ClaimPlan::ClaimGrant(take) => takes.push(take),
                }
            }
            for wave in takes.chunks(MAX_CONCURRENT_TXNS * MAX_TXN_ITEMS) {
                let parts = wave.chunks(MAX_TXN_ITEMS);
                let taking = parts.map(|part| self.claim_part(session, part, &basis, reason));
                for taken in join_all(taking).await {
                    let (granted, unsure) = taken?;
                    proposed.extend(unsure);
                    for (at, hold) in granted {
                        self.saw(hold.epoch);
                        answers[at] = Some(Claimed::Granted(hold));
                    }
                }
            }
            if answers.iter().any(Option::is_none) {
                sleep(RETRY_PAUSE / 5).await;
            }
        }
        self.audit_tend(&session.group).await;
        let missing = || error::unexpected("a claim without an answer");
        answers.into_iter().map(|answer| answer.ok_or_else(missing)).collect()
    }

    /// Reads the state that grants depend on; `None` if the session has ended or was evicted.
    async fn claim_basis(&self, session: &Session) -> StoreResult<Option<ClaimBasis>> {
        let (group, instance) = (&session.group, &session.instance);
        let [live, barred, floor, store] = self
            .cluster
            .read([
                get(&self.keys.session(group, instance)),
                get(&self.keys.barred(group, instance)),
                get(&self.keys.floor(group)),
                get(&self.keys.store()),
            ])
            .await?;
        let ground = self.ground(&store)?;
        let nonce = session.nonce.to_string();
        let alive = live.first().filter(|live| live.value == nonce.as_bytes());
        let Some(live) = alive.filter(|_| barred.is_empty()) else { return Ok(None) };
        let of_group = floor.first().map(|floor| key::parse_epoch(&floor.value)).transpose()?;
        Ok(Some(ClaimBasis {
            floor: ground.record.floor.max(of_group.unwrap_or(Epoch::ZERO)),
            floor_revision: revision_of(&floor),
            store_revision: ground.revision,
            mark: keep_alive::mark(session, live),
        }))
    }

    /// Plans every claim before anything is written, because an exhausted epoch refuses the batch.
    async fn claim_plans(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        open: &[usize],
        basis: &ClaimBasis,
    ) -> StoreResult<Vec<(usize, ClaimPlan)>> {
        let names: Vec<String> = open.iter().map(|at| self.keys.fence(&wants[*at].duty)).collect();
        let found = self.cluster.read_all(&names).await?;
        let fences = found
            .iter()
            .map(|found| found.as_ref().map(|found| FenceRecord::parse(&found.value)).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let others = fences.iter().flatten().filter(|fence| fence.held && !fence.is_of(session));
        let others: BTreeSet<InstanceId> = others.map(|fence| fence.instance.clone()).collect();
        let alive = self.alive(&session.group, &others).await?;
        // A duty without a fence may still have a checkpoint; its epoch counts as well.
        let lost: Vec<usize> = (0..open.len()).filter(|n| fences[*n].is_none()).collect();
        let names: Vec<String> =
            lost.iter().map(|n| self.keys.checkpoint(&wants[open[*n]].duty)).collect();
        let mut committed = BTreeMap::new();
        for (n, found) in lost.iter().zip(self.cluster.read_by(&names, 16).await?) {
            if let Some(found) = found {
                committed.insert(*n, key::unpack(&found.value)?.epoch);
            }
        }
        let mut plans = Vec::with_capacity(open.len());
        for (n, (at, fence)) in open.iter().zip(fences).enumerate() {
            let want = &wants[*at];
            let standing = fence.as_ref().filter(|fence| fence.held);
            if let Some(answer) =
                standing.and_then(|fence| held(session, want, fence, &alive, basis))
            {
                plans.push((*at, ClaimPlan::Answer(answer)));
                continue;
            }
            let granted = fence.as_ref().map_or(Epoch::ZERO, |fence| fence.epoch);
            let stored = committed.get(&n).copied().unwrap_or(Epoch::ZERO);
            let newest = granted.max(stored).max(want.floor).max(basis.floor);
            let epoch = match Mutant::R2Same.is_on() && newest > Epoch::ZERO {
                true => newest,
                false => newest.next()?,
            };
            let revision = found[n].as_ref().map_or(0, |found| found.mod_revision);
            let (duty, expired) = (want.duty.clone(), fence.filter(|fence| fence.held));
            plans.push((
                *at,
                ClaimPlan::ClaimGrant(ClaimGrant { at: *at, duty, revision, epoch, expired }),
            ));
        }
        Ok(plans)
    }

    /// Returns which instances have a live session, and its remaining time.
    pub(super) async fn alive(
        &self,
        group: &GroupName,
        instances: &BTreeSet<InstanceId>,
    ) -> StoreResult<Alive> {
        let names: Vec<String> =
            instances.iter().map(|instance| self.keys.session(group, instance)).collect();
        let sessions = self.cluster.read_all(&names).await?;
        let leases = sessions.iter().flatten().map(|found| found.lease).collect();
        let left = self.cluster.remaining(&leases).await?;
        let mut alive = Alive::new();
        for (instance, session) in instances.iter().zip(&sessions) {
            if let Some(session) = session {
                let nonce = key::parse_nonce(&session.value)?;
                alive.insert(instance.clone(), (nonce, left.get(&session.lease).copied()));
            }
        }
        Ok(alive)
    }

    /// Grants free duties, each independently, all under a live session that was not evicted. The
    /// caller must plan again for duties that were not granted. Also returns the grants that a lost
    /// attempt may have made.
    async fn claim_part(
        &self,
        session: &Session,
        part: &[ClaimGrant],
        basis: &ClaimBasis,
        reason: &Reason,
    ) -> StoreResult<(Vec<(usize, Hold)>, Vec<(usize, Epoch)>)> {
        let (group, instance) = (&session.group, &session.instance);
        let name = self.keys.session(group, instance);
        let mut trail = self.trail(group, reason.as_str());
        let mut ops = vec![get(&name)];
        let hold = |take: &ClaimGrant, mark| Hold {
            duty: take.duty.clone(),
            epoch: take.epoch,
            instance: instance.clone(),
            nonce: session.nonce,
            mark,
        };
        for take in part {
            let fence = self.keys.fence(&take.duty);
            let mut writes = Vec::with_capacity(3);
            if let Some(old) = &take.expired {
                let ended = Some((&take.duty.id, old.epoch));
                writes.push(trail.put(AuditKind::Expired, &old.instance, ended));
            }
            let value = FenceRecord::of(&hold(take, basis.mark)).text();
            let granted = Some((&take.duty.id, take.epoch));
            writes.push(trail.put(AuditKind::Granted, instance, granted));
            writes.push(TxnOp::put(fence.as_str(), value));
            let still = unchanged(&fence, take.revision);
            ops.push(TxnOp::txn(Txn::new().when([still]).and_then(writes)));
        }
        let compares = [
            equals(&name, session.nonce.to_string()),
            absent(&self.keys.barred(group, instance)),
            unchanged(&self.keys.floor(group), basis.floor_revision),
            unchanged(&self.keys.store(), basis.store_revision),
        ];
        let txn = Txn::new().when(compares).and_then(ops);
        let done = self.weighed(txn).await?;
        let unsure = match done.unsure {
            true => part.iter().map(|take| (take.at, take.epoch)).collect(),
            false => Vec::new(),
        };
        let mut responses = done.response.responses.into_iter();
        let Some(live) = responses.next().map(found).and_then(|mut live| live.pop()) else {
            return Ok((Vec::new(), unsure));
        };
        let mark = keep_alive::mark(session, &live);
        let taken = part.iter().zip(responses).filter(|(_, response)| response.succeeded());
        Ok((taken.map(|(take, _)| (take.at, hold(take, mark))).collect(), unsure))
    }

    pub(super) async fn hold_release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> StoreResult<Vec<Released>> {
        let mut answers = vec![Released::NotYours; holds.len()];
        let ours: Vec<usize> = (0..holds.len()).filter(|at| holds[*at].is_of(session)).collect();
        let parts: Vec<&[usize]> = ours.chunks(MAX_TXN_ITEMS).collect();
        for wave in parts.chunks(MAX_CONCURRENT_TXNS) {
            let releasing = wave.iter().map(|part| self.release_part(session, holds, part, reason));
            for (part, released) in wave.iter().zip(join_all(releasing).await) {
                for (at, released) in part.iter().zip(released?) {
                    answers[*at] = released;
                }
            }
        }
        self.audit_tend(&session.group).await;
        Ok(answers)
    }

    async fn release_part(
        &self,
        session: &Session,
        holds: &[Hold],
        part: &[usize],
        reason: &Reason,
    ) -> StoreResult<Vec<Released>> {
        let name = self.keys.session(&session.group, &session.instance);
        let nonce = session.nonce.to_string();
        let mut trail = self.trail(&session.group, reason.as_str());
        // Writing the session's key increments its version, which counts releases (see [`Mark`]).
        let (key, value) = (name.clone().into_bytes(), nonce.clone().into_bytes());
        let counted = Put { key, value, ignore_lease: true, ..Put::default() };
        let mut ops = vec![TxnOp::from(counted)];
        let mut looks = Vec::with_capacity(part.len());
        for at in part {
            let (hold, fence) = (&holds[*at], FenceRecord::of(&holds[*at]));
            let key = self.keys.fence(&hold.duty);
            let record =
                trail.put(AuditKind::Released, &hold.instance, Some((&hold.duty.id, hold.epoch)));
            let free = match Mutant::R2Forget.is_on() {
                true => TxnOp::delete(key.as_str()),
                false => TxnOp::put(key.as_str(), fence.freed().text()),
            };
            let mut compares = vec![equals(&key, fence.text())];
            compares.retain(|_| !Mutant::R9Release.is_on());
            let txn = Txn::new().when(compares).and_then([free, record]);
            ops.push(TxnOp::txn(txn.or_else([get(&key)])));
            looks.push(get(&key));
        }
        let txn = Txn::new().when([equals(&name, nonce)]).and_then(ops).or_else(looks);
        let done = self.commit(txn).await?;
        let skipped = usize::from(done.response.succeeded);
        let responses = done.response.responses.into_iter().skip(skipped);
        part.iter()
            .zip(responses)
            .map(|(at, response)| {
                if response.succeeded() {
                    return Ok(Released::Freed);
                }
                let look = match response.outcome {
                    Some(TxnOutcome::Txn(txn)) => txn.responses.into_iter().next(),
                    _ => Some(response),
                };
                released(&holds[*at], look.map(found).unwrap_or_default().first())
            })
            .collect()
    }
}

/// Returns the answer for a duty that is held; `None` if its holder's session has ended.
fn held(
    session: &Session,
    want: &ClaimRequest,
    fence: &FenceRecord,
    alive: &Alive,
    basis: &ClaimBasis,
) -> Option<Claimed> {
    if fence.is_of(session) {
        return Some(Claimed::Already(Hold {
            duty: want.duty.clone(),
            epoch: fence.epoch,
            instance: session.instance.clone(),
            nonce: session.nonce,
            mark: basis.mark,
        }));
    }
    let (nonce, left) = alive.get(&fence.instance)?;
    let holder = |remaining| CurrentHolder { instance: fence.instance.clone(), remaining };
    (*nonce == fence.nonce).then(|| Claimed::HeldBy(left.map(holder)))
}

/// Returns the result for a hold that this release did not free.
fn released(hold: &Hold, found: Option<&KeyValue>) -> StoreResult<Released> {
    let fence = found.map(|found| FenceRecord::parse(&found.value)).transpose()?;
    let same = |fence: &FenceRecord| {
        fence.epoch == hold.epoch && fence.nonce == hold.nonce && fence.instance == hold.instance
    };
    Ok(if fence.is_some_and(|fence| same(&fence)) { Released::Already } else { Released::NotYours })
}
