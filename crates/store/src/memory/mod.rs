//! The store that lives in the process: for tests, simulation and a single instance.
//!
//! One lock around one [`StoreState`], so each call is one atomic step. The clock is an argument:
//! this store is the reference that the others are compared with.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tenure_core::guarantee::Survey;
use tenure_core::store::{
    Abilities, Adopt, Adopted, AuditEntry, AuditRange, Checkpoint, ClaimRequest, Claimed, Closed,
    Commit, Committed, Evict, Evicted, Forgotten, GroupDocument, Holder, KeptAlive, Member,
    OpenSession, Opened, Released, Replaced, Retention, Watch, check,
};
use tenure_core::{
    Clock, Document, DutyKey, GroupName, Hold, InstanceId, LocalInstant, Note, Reason, Session,
    Store, StoreError, Version,
};
#[cfg(feature = "conformance")]
use tenure_core::{Epoch, Ttl};

use crate::hints::Hints;
use crate::state::StoreState;

/// A store in memory.
pub struct Memory {
    clock: Arc<dyn Clock>,
    state: Mutex<StoreState>,
    hints: Hints,
}

impl Memory {
    /// An empty store that judges expiry by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default(), hints: Hints::default() }
    }

    /// Runs one atomic step. A poisoned lock is taken over: no step leaves the state half
    /// changed, because each one decides before it writes.
    fn step<T>(&self, step: impl FnOnce(&mut StoreState, LocalInstant) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that time does not go back from one step to the next.
        let now = self.clock.now();
        step(&mut state, now)
    }

    fn hint(&self, group: &GroupName) {
        self.hints.send(group);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

#[async_trait]
impl Store for Memory {
    fn abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: true,
            durable: false,
            atomic_batch: usize::MAX,
            history_slots: self.step(|state, _| state.retention()).history_slots,
            exclusive_effects: false,
            shared: false,
        }
    }

    async fn open_session(&self, open: &OpenSession) -> Result<Opened, StoreError> {
        let opened = self.step(|state, now| state.open(open, now));
        self.hint(&open.group);
        Ok(opened)
    }

    async fn close_session(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> Result<Closed, StoreError> {
        let closed = self.step(|state, now| state.close(session, reason, now));
        self.hint(&session.group);
        Ok(closed)
    }

    async fn keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError> {
        check::keep_alive(holds)?;
        let kept = self.step(|state, now| state.keep_alive(session, note, holds, now));
        if note.is_some() {
            self.hint(&session.group);
        }
        Ok(kept)
    }

    async fn claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> Result<Vec<Claimed>, StoreError> {
        check::claim(session, wants)?;
        let claimed = self.step(|state, now| state.claim(session, wants, reason, now))?;
        self.hint(&session.group);
        Ok(claimed)
    }

    async fn release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> Result<Vec<Released>, StoreError> {
        check::release(session, holds)?;
        let released = self.step(|state, now| state.release(session, holds, reason, now));
        self.hint(&session.group);
        Ok(released)
    }

    async fn evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> Result<Evicted, StoreError> {
        let evicted = self.step(|state, now| state.evict(group, instance, when, reason, now));
        self.hint(group);
        Ok(evicted)
    }

    async fn groups(&self) -> Result<Vec<GroupName>, StoreError> {
        Ok(self.step(|state, _| state.groups()))
    }

    async fn members(&self, group: &GroupName) -> Result<Vec<Member>, StoreError> {
        Ok(self.step(|state, now| state.members(group, now)))
    }

    async fn holders(&self, group: &GroupName) -> Result<Vec<Holder>, StoreError> {
        Ok(self.step(|state, now| state.holders(group, now)))
    }

    async fn load(&self, duties: &[DutyKey]) -> Result<Vec<Option<Checkpoint>>, StoreError> {
        check::load(duties)?;
        Ok(self.step(|state, _| duties.iter().map(|duty| state.load(duty)).collect()))
    }

    async fn commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> Result<Vec<Committed>, StoreError> {
        check::commit(session, commits)?;
        self.step(|state, now| state.commit(session, commits, now))
    }

    async fn history(&self, duty: &DutyKey) -> Result<Vec<Checkpoint>, StoreError> {
        Ok(self.step(|state, _| state.history(duty)))
    }

    async fn group_document(&self, group: &GroupName) -> Result<GroupDocument, StoreError> {
        Ok(self.step(|state, _| state.document(group)))
    }

    async fn replace_group_document(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> Result<Replaced, StoreError> {
        let replaced = self.step(|state, _| state.replace_document(group, expected, document))?;
        self.hint(group);
        Ok(replaced)
    }

    async fn watch(&self, group: &GroupName) -> Result<Box<dyn Watch>, StoreError> {
        Ok(self.hints.watch(group))
    }

    async fn audit(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        Ok(self.step(|state, _| state.audit(group, range)))
    }

    async fn forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> Result<Vec<Forgotten>, StoreError> {
        check::forget(duties)?;
        let forget = |duty| self.step(|state, now| state.forget(duty, reason, now));
        let forgotten = duties.iter().map(forget).collect();
        duties.iter().for_each(|duty| self.hint(&duty.group));
        Ok(forgotten)
    }

    async fn adopt(&self, adopt: &Adopt) -> Result<Adopted, StoreError> {
        check::adopt(adopt)?;
        let (adopted, groups) = self.step(|state, now| (state.adopt(adopt, now), state.groups()));
        groups.iter().for_each(|group| self.hint(group));
        Ok(adopted)
    }

    async fn retain(&self, retention: Retention) -> Result<(), StoreError> {
        let retention = retention.check()?;
        self.step(|state, _| state.retain(retention));
        Ok(())
    }

    async fn retention(&self) -> Result<Retention, StoreError> {
        Ok(self.step(|state, _| state.retention()))
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        Ok(Survey { backend: "memory", facts: Vec::new(), unix_ms: None })
    }
}

/// State of a store in memory at one moment.
#[cfg(feature = "conformance")]
#[derive(Clone, Default)]
pub struct Snapshot(StoreState);

#[cfg(feature = "conformance")]
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}

/// Faults for the conformance suite and the simulation.
#[cfg(feature = "conformance")]
impl Memory {
    /// Copies the current state.
    pub fn snapshot(&self) -> Snapshot {
        self.step(|state, _| Snapshot(state.clone()))
    }

    /// Makes it what it was: everything since is forgotten, as in a failover to a replica that was
    /// behind. No epoch up to `floor` is granted from now on.
    pub fn restore(&self, snapshot: Snapshot, floor: Epoch) {
        self.step(|state, _| {
            *state = snapshot.0;
            state.floor = state.floor.max(floor);
        });
    }

    /// Gives every live session of a group a whole TTL, as a new leader of etcd does.
    pub fn extend(&self, group: &GroupName, ttl: Ttl) {
        self.step(|state, now| state.extend(group, ttl.get(), now));
    }

    /// Ends the TTL of a session.
    pub fn lapse(&self, session: &Session) {
        self.step(|state, now| state.lapse(session, now));
    }

    /// Until when a hold stands if nobody extends it; `None` when it does not.
    pub fn ends_at(&self, hold: &Hold) -> Option<LocalInstant> {
        self.step(|state, now| state.ends_at(hold, now))
    }

    /// Puts an older checkpoint of a duty in the place of its newest, as somebody with a pen would.
    pub fn put_back(&self, duty: &DutyKey, version: Version) {
        self.step(|state, _| state.put_back(duty, version));
    }

    /// Forgets who held a duty.
    pub fn lose_epoch(&self, duty: &DutyKey) {
        self.step(|state, _| state.lose_epoch(duty));
    }
}
