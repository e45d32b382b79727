//! Checkpoints and their history.

use futures_util::future::join_all;
use tenure_core::store::{Checkpoint, Commit, Committed};
use tenure_core::{DutyKey, Epoch, Mutant, Session, StoreResult, Version};
use tenure_etcd::{Compare, DeleteRange, KeyValue, Range, Txn, TxnOp, TxnOpResponse, TxnOutcome};

use super::call::EtcdCall;
use super::key::{self, FenceRecord};
use super::read::{found, get};
use super::{MAX_CONCURRENT_TXNS, MAX_TXN_BYTES, MAX_TXN_ITEMS, equals, error};
use crate::clock::unix_ms;

/// Maximum number of documents in one page or one read transaction.
const MAX_READ_DOCUMENTS: usize = 16;

/// A commit as it is sent to etcd.
struct Write<'a> {
    at: usize,
    commit: &'a Commit,
    version: Version,
    value: Vec<u8>,
}

/// State of an item that a transaction did not write.
struct CommitOutcome {
    fence: Option<FenceRecord>,
    /// `None` when the session has ended.
    stored: Option<Version>,
}

fn versioned(found: &KeyValue) -> StoreResult<Checkpoint> {
    let version = Version::from_i64(found.version)?;
    Ok(Checkpoint { version, ..key::unpack(&found.value)? })
}

impl EtcdCall<'_> {
    pub(super) async fn checkpoint_load(
        &self,
        duties: &[DutyKey],
    ) -> StoreResult<Vec<Option<Checkpoint>>> {
        let names: Vec<String> = duties.iter().map(|duty| self.keys.checkpoint(duty)).collect();
        let stored = self.cluster.read_by(&names, MAX_READ_DOCUMENTS).await?;
        let stored = stored.iter().map(|found| found.as_ref().map(versioned).transpose());
        let stored = stored.collect::<Result<Vec<_>, _>>()?;
        stored.iter().flatten().for_each(|stored| self.saw(stored.epoch));
        Ok(stored)
    }

    pub(super) async fn checkpoint_history(&self, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
        self.ready().await?;
        // Other clients may have changed the retention.
        let [store] = self.cluster.read([get(&self.keys.store())]).await?;
        let slots = self.ground(&store)?.record.retention.history_slots;
        let kept = self.cluster.range(&self.keys.history(duty), MAX_READ_DOCUMENTS as i64).await?;
        let newest_first = kept.iter().rev().take(slots);
        newest_first.map(|found| key::unpack(&found.value)).collect()
    }

    pub(super) async fn checkpoint_commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> StoreResult<Vec<Committed>> {
        self.saw_holds(commits.iter().map(|commit| &commit.hold));
        let mut answers = vec![None; commits.len()];
        let mut parts: Vec<Vec<Write>> = Vec::new();
        let (mut bytes, unix_ms) = (usize::MAX, unix_ms());
        for (at, commit) in commits.iter().enumerate() {
            if !commit.hold.is_of(session) {
                let newest = self.newest_epoch(&commit.hold.duty).await?;
                answers[at] = Some(Committed::Fenced { newest });
                continue;
            }
            // The largest version is never stored, so it conflicts.
            let version = commit.expected.next().unwrap_or(Version::MAX_VALUE);
            let value = key::pack(version, &commit.hold, &commit.document, unix_ms);
            // Both copies; [`MAX_TXN_BYTES`] leaves room for the names.
            let size = 2 * value.len();
            match parts.last_mut() {
                Some(part) if part.len() < MAX_TXN_ITEMS && bytes + size <= MAX_TXN_BYTES => {
                    bytes += size;
                    part.push(Write { at, commit, version, value });
                }
                _ => {
                    bytes = size;
                    parts.push(vec![Write { at, commit, version, value }]);
                }
            }
        }
        for wave in parts.chunks(MAX_CONCURRENT_TXNS) {
            let writing = wave.iter().map(|part| self.commit_part(session, part));
            for (part, committed) in wave.iter().zip(join_all(writing).await) {
                for (write, committed) in part.iter().zip(committed?) {
                    answers[write.at] = Some(committed);
                }
            }
        }
        let missing = || error::unexpected("a commit without an answer");
        answers.into_iter().map(|answer| answer.ok_or_else(missing)).collect()
    }

    /// Returns the newest epoch of a duty, from its fence and its checkpoint.
    pub(super) async fn newest_epoch(&self, duty: &DutyKey) -> StoreResult<Epoch> {
        let keys = [get(&self.keys.fence(duty)), get(&self.keys.checkpoint(duty))];
        let [fence, stored] = self.cluster.read(keys).await?;
        let granted = fence.first().map(|found| FenceRecord::parse(&found.value)).transpose()?;
        let stored = stored.first().map(versioned).transpose()?;
        let granted = granted.map_or(Epoch::ZERO, |fence| fence.epoch);
        Ok(granted.max(stored.map_or(Epoch::ZERO, |stored| stored.epoch)))
    }

    /// Writes documents if the session is alive, each if its hold is valid and its version matches.
    async fn commit_part(
        &self,
        session: &Session,
        part: &[Write<'_>],
    ) -> StoreResult<Vec<Committed>> {
        let slots = self.retention().history_slots as u64;
        let (mut ops, mut looks) = (Vec::new(), Vec::new());
        for write in part {
            let duty = &write.commit.hold.duty;
            let (fence, name) = (self.keys.fence(duty), self.keys.checkpoint(duty));
            let is_held = equals(&fence, FenceRecord::of(&write.commit.hold).text());
            let is_expected = Compare::version(name.as_str(), write.commit.expected.as_i64());
            let compares =
                [(is_held, Mutant::R14Fence.is_on()), (is_expected, Mutant::R14Version.is_on())];
            let compares = compares.into_iter().filter(|(_, is_off)| !is_off);
            let compares: Vec<Compare> = compares.map(|(compare, _)| compare).collect();
            let number = write.version.get();
            let mut writes = vec![
                // Without a lease: a checkpoint outlives every session.
                TxnOp::put(name.as_str(), write.value.clone()),
                TxnOp::put(self.keys.history_at(duty, number), write.value.clone()),
            ];
            if number > slots {
                let oldest = self.keys.history_at(duty, number - slots + 1);
                writes.push(DeleteRange::between(self.keys.history(duty), oldest).into());
            }
            let version = TxnOp::get(Range { keys_only: true, ..Range::of(name) });
            let look = [get(&fence), version];
            looks.extend(look.clone());
            ops.push(TxnOp::txn(Txn::new().when(compares).and_then(writes).or_else(look)));
        }
        // Reads the retention for the next commit of this handle.
        ops.push(get(&self.keys.store()));
        let name = self.keys.session(&session.group, &session.instance);
        // If the session has ended, only the fences are read: two reads per item could be too many.
        let fences = looks.into_iter().step_by(2).collect::<Vec<_>>();
        let txn = Txn::new()
            .when([equals(&name, session.nonce.to_string())])
            .and_then(ops)
            .or_else(fences);
        let done = self.weighed(txn).await?;
        let responses = done.response.responses;
        if let Some(TxnOutcome::Get(store)) =
            responses.get(part.len()).and_then(|r| r.outcome.as_ref())
        {
            // The commit has happened; a replaced store is reported by the next call.
            let _ = self.ground(&store.kvs);
        }
        let mut committed = Vec::with_capacity(part.len());
        for (write, response) in part.iter().zip(responses) {
            committed.push(match seen(response)? {
                None => Committed::Saved(write.version),
                Some(seen) if done.unsure => self.settle(write, seen).await?,
                Some(seen) => self.refusal(write, seen).await?,
            });
        }
        Ok(committed)
    }

    /// Returns why an item was not written.
    async fn refusal(&self, write: &Write<'_>, seen: CommitOutcome) -> StoreResult<Committed> {
        let hold = &write.commit.hold;
        match seen.fence {
            // If the fence was lost, the checkpoint may still have the epoch.
            None => Ok(Committed::Fenced { newest: self.newest_epoch(&hold.duty).await? }),
            Some(fence) => match seen.stored {
                Some(stored) if fence == FenceRecord::of(hold) => {
                    Ok(Committed::Conflict { stored })
                }
                _ => Ok(Committed::Fenced { newest: fence.epoch }),
            },
        }
    }

    /// Returns the result of an item that the last attempt did not write, but an earlier one may
    /// have. The stored checkpoint decides, unless it was overwritten since.
    async fn settle(&self, write: &Write<'_>, seen: CommitOutcome) -> StoreResult<Committed> {
        let [stored] =
            self.cluster.read([get(&self.keys.checkpoint(&write.commit.hold.duty))]).await?;
        let version = stored.first().map_or(0, |found| found.version);
        if version <= write.commit.expected.as_i64() {
            return self.refusal(write, seen).await;
        }
        match stored.first() {
            Some(stored) if stored.value == write.value => Ok(Committed::Saved(write.version)),
            _ => Err(error::lost(&self.cluster.address())),
        }
    }
}

/// Returns what an item that was not written met; `None` if it was written.
fn seen(response: TxnOpResponse) -> StoreResult<Option<CommitOutcome>> {
    let (looks, alive) = match response.outcome {
        Some(TxnOutcome::Txn(txn)) if txn.succeeded => return Ok(None),
        Some(TxnOutcome::Txn(txn)) => (txn.responses, true),
        _ => (vec![response], false),
    };
    let mut looks = looks.into_iter();
    let mut next = || looks.next().map(found).and_then(|mut found| found.pop());
    let fence = next().map(|found| FenceRecord::parse(&found.value)).transpose()?;
    let stored = next().map_or(0, |found| found.version);
    Ok(Some(CommitOutcome { fence, stored: alive.then(|| Version::from_i64(stored)).transpose()? }))
}
