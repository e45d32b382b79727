//! Retention, forgetting duties and adopting a store.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::store::{Adopt, Adopted, AuditKind, CurrentHolder, Forgotten, Retention};
use tenure_core::{DutyKey, Epoch, GroupName, InstanceId, Reason, StoreError, StoreResult};
use tenure_etcd::{DeleteRange, KeyValue, Txn, TxnOp, TxnOutcome};

use super::call::EtcdCall;
use super::hold::Alive;
use super::key::{self, FenceRecord, StoreMarker};
use super::read::{end_of, get};
use super::record::StoreRevision;
use super::{MAX_TXN_ITEMS, PAGE_KEYS, error, revision_of, unchanged};

/// A duty that appeared free when it was read.
struct DutyRemoval {
    at: usize,
    duty: DutyKey,
    epoch: Epoch,
    last: InstanceId,
    fence_revision: i64,
    stored_revision: i64,
}

fn all_below(folder: &str) -> TxnOp {
    DeleteRange::between(folder, end_of(folder)).into()
}

impl EtcdCall<'_> {
    pub(super) async fn duty_forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> StoreResult<Vec<Forgotten>> {
        self.ready().await?;
        let mut answers: Vec<Option<Forgotten>> = vec![None; duties.len()];
        let mut groups: BTreeMap<&GroupName, Vec<usize>> = BTreeMap::new();
        for (at, duty) in duties.iter().enumerate() {
            groups.entry(&duty.group).or_default().push(at);
        }
        for (group, places) in groups {
            for part in places.chunks(MAX_TXN_ITEMS) {
                self.forget_part(group, duties, part, &mut answers, reason).await?;
            }
        }
        let missing = || error::unexpected("a duty without an answer");
        answers.into_iter().map(|answer| answer.ok_or_else(missing)).collect()
    }

    /// Forgets duties of one group, repeating until each has an answer.
    async fn forget_part(
        &self,
        group: &GroupName,
        duties: &[DutyKey],
        part: &[usize],
        answers: &mut [Option<Forgotten>],
        reason: &Reason,
    ) -> StoreResult<()> {
        loop {
            let open: Vec<usize> =
                part.iter().copied().filter(|at| answers[*at].is_none()).collect();
            if open.is_empty() {
                return Ok(());
            }
            let name = self.keys.floor(group);
            let [floors, store] = self.cluster.read([get(&name), get(&self.keys.store())]).await?;
            let before = floors.first().map(|found| key::parse_epoch(&found.value)).transpose()?;
            let before = before.unwrap_or(Epoch::ZERO);
            let gone = self.forget_look(group, duties, &open, answers).await?;
            let floor = gone.iter().map(|gone| gone.epoch).fold(before, Epoch::max);
            let mut trail = self.trail(group, reason.as_str());
            let mut ops = Vec::with_capacity(gone.len() + 1);
            for gone in &gone {
                let (fence, stored) =
                    (self.keys.fence(&gone.duty), self.keys.checkpoint(&gone.duty));
                let hold = Some((&gone.duty.id, gone.epoch));
                let compares = [
                    unchanged(&fence, gone.fence_revision),
                    unchanged(&stored, gone.stored_revision),
                ];
                let txn = Txn::new().when(compares).and_then([
                    TxnOp::delete(fence),
                    TxnOp::delete(stored),
                    TxnOp::delete(self.keys.report(&gone.duty)),
                    all_below(&self.keys.history(&gone.duty)),
                    trail.put(AuditKind::Forgotten, &gone.last, hold),
                ]);
                ops.push(TxnOp::txn(txn));
            }
            if gone.is_empty() {
                continue;
            }
            // No epoch is granted in between, because claims compare the floor's key as well.
            ops.push(TxnOp::put(name.as_str(), floor.to_string()));
            let txn = Txn::new().when([unchanged(&name, revision_of(&floors))]).and_then(ops);
            let done = self.commit(txn).await?;
            if done.unsure && !done.response.succeeded {
                return Err(error::lost(&self.cluster.address()));
            }
            let floor = floor.max(self.ground(&store)?.record.floor);
            for (gone, response) in gone.iter().zip(done.response.responses) {
                if response.succeeded() {
                    answers[gone.at] = Some(Forgotten::Forgotten { floor });
                } else if done.unsure {
                    return Err(error::lost(&self.cluster.address()));
                }
            }
        }
    }

    /// Returns the removals that may proceed; answers the other duties.
    async fn forget_look(
        &self,
        group: &GroupName,
        duties: &[DutyKey],
        open: &[usize],
        answers: &mut [Option<Forgotten>],
    ) -> StoreResult<Vec<DutyRemoval>> {
        let names = |name: &dyn Fn(&DutyKey) -> String| -> Vec<String> {
            open.iter().map(|at| name(&duties[*at])).collect()
        };
        let fences = self.cluster.read_all(&names(&|duty| self.keys.fence(duty))).await?;
        let stored = self.cluster.read_by(&names(&|duty| self.keys.checkpoint(duty)), 16).await?;
        let reports = self.cluster.read_by(&names(&|duty| self.keys.report(duty)), 16).await?;
        let parse = |found: &Option<KeyValue>| {
            found.as_ref().map(|found| FenceRecord::parse(&found.value)).transpose()
        };
        let parsed = fences.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let holding = parsed.iter().flatten().filter(|fence| fence.held);
        let holding: BTreeSet<_> = holding.map(|fence| fence.instance.clone()).collect();
        let alive = self.alive(group, &holding).await?;
        let mut all = Vec::new();
        for (n, (at, fence)) in open.iter().zip(parsed).enumerate() {
            if let Some(holder) = fence.as_ref().and_then(|fence| holder(fence, &alive)) {
                answers[*at] = Some(Forgotten::HeldBy(holder));
                continue;
            }
            let committed =
                stored[n].as_ref().map(|found| key::unpack(&found.value)).transpose()?;
            let reported =
                reports[n].as_ref().map(|found| key::unpack(&found.value)).transpose()?;
            // The first of them names the instance; the newest epoch is that of the duty.
            let records = [
                fence.map(|fence| (fence.epoch, fence.instance)),
                committed.map(|stored| (stored.epoch, stored.instance)),
                reported.map(|stored| (stored.epoch, stored.instance)),
            ];
            let records: Vec<_> = records.into_iter().flatten().collect();
            let epoch = records.iter().map(|(epoch, _)| *epoch).max().unwrap_or(Epoch::ZERO);
            let Some((_, last)) = records.into_iter().next() else {
                answers[*at] = Some(Forgotten::Absent);
                continue;
            };
            let revision =
                |found: &Option<KeyValue>| found.as_ref().map_or(0, |found| found.mod_revision);
            all.push(DutyRemoval {
                at: *at,
                duty: duties[*at].clone(),
                epoch,
                last,
                fence_revision: revision(&fences[n]),
                stored_revision: revision(&stored[n]),
            });
        }
        Ok(all)
    }

    pub(super) async fn store_retain(&self, retention: Retention) -> StoreResult<()> {
        self.ready().await?;
        self.record_change(|record| record.retention = retention).await?;
        self.known().retention = retention;
        // Commits in progress may still keep more, which is not shown; the next commit removes it.
        self.past_cut(retention.history_slots as u64).await.map_err(StoreError::or_happened)
    }

    /// Deletes the surplus of every history and audit trail.
    async fn past_cut(&self, slots: u64) -> StoreResult<()> {
        for group in self.group_list().await? {
            self.audit_trim(&group).await;
            let folder = self.keys.checkpoints(&group);
            let mut cuts: Vec<TxnOp> = Vec::new();
            for found in self.cluster.keys(&folder, PAGE_KEYS).await? {
                let newest = found.version as u64;
                if newest <= slots {
                    continue;
                }
                let duty = key::duty_at(&group, &found.key, &folder)?;
                let oldest = self.keys.history_at(&duty, newest - slots + 1);
                cuts.push(DeleteRange::between(self.keys.history(&duty), oldest).into());
            }
            for cuts in cuts.chunks(MAX_TXN_ITEMS) {
                self.commit(Txn::new().and_then(cuts)).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn store_retention(&self) -> StoreResult<Retention> {
        self.ready().await?;
        let [found] = self.cluster.read([get(&self.keys.store())]).await?;
        Ok(self.ground(&found)?.record.retention)
    }

    pub(super) async fn store_adopt(&self, adopt: &Adopt) -> StoreResult<Adopted> {
        self.ready().await?;
        let incarnation = format!("{:032x}", adopt.entropy);
        // The floor first, in one step with the incarnation: later sessions get epochs above all
        // earlier ones, in any group. Claims in progress compare the record and retry.
        let (_, before) = self.epochs().await?;
        let floor = before.max(adopt.floor);
        let renamed = |record: &mut StoreMarker| record.adopt(&incarnation, floor);
        let mut ground = self.record_change(renamed).await?;
        self.known().incarnation = Some(ground.record.incarnation.clone());
        let mut sessions = 0;
        for group in self.group_list().await? {
            sessions += self.sessions_end(&group, &incarnation, &mut ground).await?;
        }
        // Includes grants made between the first read and the change of the record.
        let (duties, floor) = self.epochs().await?;
        let floor = floor.max(ground.record.floor);
        if floor > ground.record.floor {
            let raised = |record: &mut StoreMarker| record.floor = record.floor.max(floor);
            ground = self.record_change(raised).await?;
        }
        Ok(Adopted { incarnation, sessions, duties, floor: ground.record.floor })
    }

    /// Ends the sessions of a group, unless another process has adopted the store meanwhile: then
    /// that adoption decides which sessions end.
    async fn sessions_end(
        &self,
        group: &GroupName,
        incarnation: &str,
        ground: &mut StoreRevision,
    ) -> StoreResult<u64> {
        let name = self.keys.store();
        while ground.record.incarnation == incarnation {
            let gone = [all_below(&self.keys.sessions(group)), all_below(&self.keys.notes(group))];
            let still = unchanged(&name, ground.revision);
            let txn = Txn::new().when([still]).and_then(gone).or_else([get(&name)]);
            let responses = self.commit(txn).await?.response.responses;
            match responses.into_iter().next().and_then(|response| response.outcome) {
                Some(TxnOutcome::Delete(deleted)) => return Ok(deleted.deleted as u64),
                Some(TxnOutcome::Get(got)) => *ground = self.ground(&got.kvs)?,
                _ => return Err(error::unexpected("no result of a deletion")),
            }
        }
        Ok(0)
    }

    /// Returns the number of known duties and their newest epoch.
    async fn epochs(&self) -> StoreResult<(u64, Epoch)> {
        let (mut duties, mut newest) = (0, Epoch::ZERO);
        for group in self.group_list().await? {
            let (fences, stored) = (self.keys.fences(&group), self.keys.checkpoints(&group));
            let mut known = BTreeSet::new();
            let mut of_fences = |page: Vec<KeyValue>| {
                for found in &page {
                    newest = newest.max(FenceRecord::parse(&found.value)?.epoch);
                    known.insert(key::name(&found.key, &fences)?.to_owned());
                }
                Ok(())
            };
            self.cluster.each_page(&fences, PAGE_KEYS, &mut of_fences).await?;
            // Documents are large, so only their epochs are kept in memory.
            let mut of_checkpoints = |page: Vec<KeyValue>| {
                for found in &page {
                    newest = newest.max(key::unpack(&found.value)?.epoch);
                    known.insert(key::name(&found.key, &stored)?.to_owned());
                }
                Ok(())
            };
            self.cluster.each_page(&stored, 16, &mut of_checkpoints).await?;
            let [floor] = self.cluster.read([get(&self.keys.floor(&group))]).await?;
            if let Some(floor) = floor.first() {
                newest = newest.max(key::parse_epoch(&floor.value)?);
            }
            duties += known.len() as u64;
        }
        Ok((duties, newest))
    }
}

/// Returns the holder of a duty according to its fence; `None` if nobody holds it.
fn holder(fence: &FenceRecord, alive: &Alive) -> Option<Option<CurrentHolder>> {
    let (nonce, left) = alive.get(&fence.instance)?;
    let instance = fence.instance.clone();
    (fence.held && *nonce == fence.nonce)
        .then(|| left.map(|remaining| CurrentHolder { instance, remaining }))
}
