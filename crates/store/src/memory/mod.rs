//! Store in process memory, for tests, simulation and a single instance.
//!
//! One lock around one [`StoreState`], so each call is one atomic step. The clock is an argument.
//! This store is the reference for the others.

use std::fmt;
use std::sync::Arc;

use tenure_core::guarantee::Survey;
use tenure_core::store::{
    Abilities, Adopt, Adopted, AuditEntry, AuditRange, Checkpoint, ClaimRequest, Claimed, Closed,
    Commit, Committed, DutyReport, Evict, Evicted, Forgotten, GroupDocument, Holder, KeptAlive,
    Member, OpenSession, Opened, Released, Replaced, Report, Reported, Retention, Watch,
};
use tenure_core::{
    Clock, Document, DutyKey, GroupName, Hold, InstanceId, LocalInstant, Note, Reason, Session,
    StoreResult, Version,
};

use crate::delegate::{impl_store, own_method};
use crate::state::{LiveState, StoreState};

/// A store in memory.
pub struct Memory(pub(crate) LiveState);

impl Memory {
    /// Creates an empty store that judges expiry by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(LiveState::new(clock, || None))
    }

    /// Makes one step on a group and notifies its watchers.
    fn change<T>(
        &self,
        group: &GroupName,
        step: impl FnOnce(&mut StoreState, LocalInstant) -> T,
    ) -> StoreResult<T> {
        let changed = self.0.step(step);
        self.0.hints.send(group);
        Ok(changed)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    fn store_abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: true,
            durable: false,
            atomic_batch: usize::MAX,
            history_slots: self.0.step(|state, _| state.retention()).history_slots,
            exclusive_effects: false,
            shared: false,
        }
    }

    async fn session_open(&self, open: &OpenSession) -> StoreResult<Opened> {
        self.change(&open.group, |state, now| state.open(open, now))
    }

    async fn session_close(&self, session: &Session, reason: &Reason) -> StoreResult<Closed> {
        self.change(&session.group, |state, now| state.close(session, reason, now))
    }

    async fn session_keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> StoreResult<KeptAlive> {
        let kept = self.0.step(|state, now| state.keep_alive(session, note, holds, now));
        if note.is_some() {
            self.0.hints.send(&session.group);
        }
        Ok(kept)
    }

    async fn hold_claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> StoreResult<Vec<Claimed>> {
        self.change(&session.group, |state, now| state.claim(session, wants, reason, now))?
    }

    async fn hold_release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> StoreResult<Vec<Released>> {
        self.change(&session.group, |state, now| state.release(session, holds, reason, now))
    }

    async fn session_evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> StoreResult<Evicted> {
        self.change(group, |state, now| state.evict(group, instance, when, reason, now))
    }

    async fn group_list(&self) -> StoreResult<Vec<GroupName>> {
        Ok(self.0.step(|state, _| state.groups()))
    }

    async fn group_members(&self, group: &GroupName) -> StoreResult<Vec<Member>> {
        Ok(self.0.step(|state, now| state.members(group, now)))
    }

    async fn group_holders(&self, group: &GroupName) -> StoreResult<Vec<Holder>> {
        Ok(self.0.step(|state, now| state.holders(group, now)))
    }

    async fn checkpoint_load(&self, duties: &[DutyKey]) -> StoreResult<Vec<Option<Checkpoint>>> {
        Ok(self.0.step(|state, _| duties.iter().map(|duty| state.load(duty)).collect()))
    }

    async fn checkpoint_commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> StoreResult<Vec<Committed>> {
        self.0.step(|state, now| state.commit(session, commits, now))
    }

    async fn checkpoint_history(&self, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
        Ok(self.0.step(|state, _| state.history(duty)))
    }

    async fn report_store(
        &self,
        session: &Session,
        reports: &[Report],
    ) -> StoreResult<Vec<Reported>> {
        Ok(self.0.step(|state, now| state.report(session, reports, now)))
    }

    async fn report_load(&self, duties: &[DutyKey]) -> StoreResult<Vec<Option<DutyReport>>> {
        Ok(self.0.step(|state, _| state.reports(duties)))
    }

    async fn document_read(&self, group: &GroupName) -> StoreResult<GroupDocument> {
        Ok(self.0.step(|state, _| state.document(group)))
    }

    async fn document_replace(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> StoreResult<Replaced> {
        self.change(group, |state, _| state.replace_document(group, expected, document))?
    }

    async fn group_watch(&self, group: &GroupName) -> StoreResult<Box<dyn Watch>> {
        Ok(self.0.hints.watch(group, ()))
    }

    async fn audit_read(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> StoreResult<Vec<AuditEntry>> {
        Ok(self.0.step(|state, _| state.audit(group, range)))
    }

    async fn duty_forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> StoreResult<Vec<Forgotten>> {
        let forget = |duty| self.0.step(|state, now| state.forget(duty, reason, now));
        let forgotten = duties.iter().map(forget).collect();
        duties.iter().for_each(|duty| self.0.hints.send(&duty.group));
        Ok(forgotten)
    }

    async fn store_adopt(&self, adopt: &Adopt) -> StoreResult<Adopted> {
        let (adopted, groups) = self.0.step(|state, now| (state.adopt(adopt, now), state.groups()));
        groups.iter().for_each(|group| self.0.hints.send(group));
        Ok(adopted)
    }

    async fn store_retain(&self, retention: Retention) -> StoreResult<()> {
        self.0.step(|state, _| state.retain(retention));
        Ok(())
    }

    async fn store_retention(&self) -> StoreResult<Retention> {
        Ok(self.0.step(|state, _| state.retention()))
    }

    async fn store_survey(&self) -> StoreResult<Survey> {
        Ok(Survey { backend: "memory", facts: Vec::new(), unix_ms: None })
    }

    /// Its times come from the clock that judges expiry, which may be any.
    async fn store_wall_clock(&self) -> StoreResult<Option<u64>> {
        Ok(None)
    }
}

impl_store!(Memory by own_method);
