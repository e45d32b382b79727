//! Checks during the run: what engines may never ask for, and work may never do.

use tenure_core::engine::{MemberStatus, StopReason, StoreRequest};
use tenure_core::{DutyId, Epoch, Hold};

use super::{Pid, SimWorld};
use crate::Nanos;
use crate::worker::{SimWork, WorkMode};

/// Reasons to move a duty of which only few at a time are good.
const LIMITED: &[StopReason] = &[StopReason::Balance, StopReason::Pin, StopReason::Drain];

impl SimWorld {
    /// Something is about to begin on a duty: not after its deadline (R6), and after the process
    /// stood still not before the store has confirmed the hold (R7).
    pub(super) fn watch_effect(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch) {
        let (now, woke) = (self.local(pid), self.processes[pid].woke);
        let id = self.processes[pid].id.clone();
        let Some(work) = self.processes[pid].work_of(duty, epoch) else { return };
        let unsure = |woke: Nanos| work.since < woke && work.confirmed < woke;
        if now >= work.deadline.at() {
            self.broken("late", format!("{id} acts on {duty}@{epoch} after its deadline"));
        } else if woke.is_some_and(unsure) {
            let what = format!("{id} stood still, and acts on {duty}@{epoch} before it is sure");
            self.broken("pause", what);
        }
    }

    /// A process goes on after it stood still.
    pub(super) fn watch_wake(&mut self, pid: Pid) {
        let now = self.local(pid);
        let process = &mut self.processes[pid];
        process.renewed = None;
        process.slept |= now.since(process.engine.wake_at()) > self.scenario.ttl.margin();
    }

    /// An engine has done a step: what is past its deadline is cancelled (R6), and if its process
    /// stood still it knows.
    pub(super) fn watch_step(&mut self, pid: Pid) {
        let now = self.local(pid);
        let process = &mut self.processes[pid];
        if std::mem::take(&mut process.slept) {
            process.woke = Some(self.now);
        }
        // What is suspended cannot act, and hears later how long it might have.
        let overdue = |work: &&SimWork| work.is_trusted() && now >= work.deadline.at();
        if let Some(SimWork { hold, .. }) = process.work.values().find(overdue) {
            let (id, Hold { duty, epoch, .. }) = (&process.id, hold);
            let what = format!("{id} lets the work on {duty}@{epoch} go on after its deadline");
            self.broken("overdue", what);
        }
    }

    /// An engine asks the store: keep-alives come at a third of the TTL (R7), and nothing is given
    /// back whose work may still act (R10).
    pub(super) fn watch_request(&mut self, pid: Pid, request: &StoreRequest) {
        let given_back = |work: &SimWork| match request {
            StoreRequest::Release { holds, .. } => holds
                .iter()
                .any(|hold| (&hold.duty, hold.epoch) == (&work.hold.duty, work.hold.epoch)),
            StoreRequest::Close { .. } => true,
            _ => false,
        };
        let most = self.lasts(pid, self.scenario.ttl.get() / 3 + self.scenario.ttl.margin());
        let process = &mut self.processes[pid];
        let mut acting = process.work.values().filter(|work| work.mode != WorkMode::Revoked);
        if let Some(SimWork { hold, .. }) = acting.find(|work| given_back(work)) {
            let what =
                format!("{} gives {}@{} back, and works on", process.id, hold.duty, hold.epoch);
            return self.broken("release", what);
        }
        let before = match request {
            StoreRequest::KeepAlive { .. } => process.renewed.replace(self.now),
            StoreRequest::Open(_) => {
                process.renewed = None;
                None
            }
            _ => None,
        };
        if before.is_some_and(|before| self.now - before > most) {
            let what = format!("{} lets more than a third of the TTL pass", process.id);
            self.broken("renew", what);
        }
    }

    /// Whether the session that is to be kept alive lives.
    pub(super) fn lives(&self, request: &StoreRequest) -> bool {
        let StoreRequest::KeepAlive { session, .. } = request else { return true };
        self.backend.members().iter().any(|member| member.nonce == Some(session.nonce))
    }

    /// A duty is to move: few at a time (R25), and by choice only while all others see the same
    /// (R20).
    pub(super) fn watch_move(&mut self, pid: Pid, duty: &DutyId, why: StopReason) {
        let process = &self.processes[pid];
        let moving = process.work.values().filter(|work| work.mode == WorkMode::Drains).count();
        let most = (process.targets.targets().len() / 10).max(4);
        if LIMITED.contains(&why) && moving >= most {
            let what =
                format!("{} moves {duty} while {moving} others are on their way", process.id);
            return self.broken("storm", what);
        }
        let others = self.seen_by(pid).filter(|member| member.instance != process.id);
        let said: Vec<MemberStatus> =
            others.filter_map(|member| MemberStatus::read(&member.note)).collect();
        let differ =
            said.windows(2).any(|two| two[0].only == two[1].only && two[0].view != two[1].view);
        if matches!(why, StopReason::Balance | StopReason::Pin) && differ {
            let what = format!("{} sheds {duty} while others see different groups", process.id);
            self.broken("views", what);
        }
    }

    /// Work is cancelled: if nobody had asked it to end before, then because its hold has come to
    /// its end, or it has (R18).
    pub(super) fn watch_cancel(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch, why: StopReason) {
        let now = self.local(pid);
        let process = &mut self.processes[pid];
        // Who was put out is told that its session is over, and its holds stand until their TTL.
        if process.evicted || self.scenario.is_lossy() || self.scenario.progress.is_some() {
            return;
        }
        let id = process.id.clone();
        let Some(work) = process.work_of(duty, epoch) else { return };
        // Who is fenced has been replaced, whatever the store says.
        let sound =
            work.mode == WorkMode::Runs && now < work.deadline.at() && why != StopReason::Fenced;
        let hold = work.hold.clone();
        if sound && self.backend.ends_at(&hold) > self.now {
            let what = format!("{id} cancels {duty}@{epoch} ({why}) and has not asked it to end");
            self.broken("handover", what);
        }
    }

    /// A checkpoint was taken: its cursor is not before that of the last one (R14).
    pub(super) fn watch_cursor(&mut self, duty: &DutyId, cursor: u64) {
        let before = self.cursors.insert(duty.clone(), cursor).unwrap_or(0);
        if cursor < before && !self.scenario.is_lossy() {
            self.broken("cursor", format!("{duty}: the cursor goes from {before} to {cursor}"));
        }
    }
}
