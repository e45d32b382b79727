//! Checks during the run: requests that engines must not send, and actions that work must not take.

use tenure_core::engine::{MemberStatus, StopReason, StoreRequest};
use tenure_core::{DutyId, Epoch, Hold};

use super::{Pid, SimWorld};
use crate::Nanos;
use crate::worker::{SimWork, WorkMode};

/// Reasons for moves of which only few may happen at a time.
const LIMITED: &[StopReason] = &[StopReason::Balance, StopReason::Pin, StopReason::Drain];

impl SimWorld {
    /// Checks an effect that is about to begin: not after its deadline (R6), and after a pause only
    /// once the store has confirmed the hold (R7).
    pub(super) fn watch_effect(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch) {
        let (now, woke) = (self.local(pid), self.processes[pid].woke);
        let id = self.processes[pid].id.clone();
        let Some(work) = self.processes[pid].work_of(duty, epoch) else { return };
        let unsure = |woke: Nanos| work.since < woke && work.confirmed < woke;
        if now >= work.deadline.at() {
            self.broken("late", format!("{id} acts on {duty}@{epoch} after its deadline"));
        } else if woke.is_some_and(unsure) {
            let what = format!(
                "{id} was paused and acts on {duty}@{epoch} before the store confirmed the hold"
            );
            self.broken("pause", what);
        }
    }

    /// Notes that a process was resumed.
    pub(super) fn watch_wake(&mut self, pid: Pid) {
        let now = self.local(pid);
        let process = &mut self.processes[pid];
        process.renewed = None;
        process.slept |= now.since(process.engine.wake_at()) > process.ttl.margin();
    }

    /// Checks after a step of an engine that work past its deadline is cancelled (R6). The engine
    /// now knows of any pause.
    pub(super) fn watch_step(&mut self, pid: Pid) {
        let now = self.local(pid);
        let process = &mut self.processes[pid];
        if std::mem::take(&mut process.slept) {
            process.woke = Some(self.now);
        }
        // Suspended work cannot act; it gets its deadline when it is resumed.
        let overdue = |work: &&SimWork| work.is_trusted() && now >= work.deadline.at();
        if let Some(SimWork { hold, .. }) = process.work.values().find(overdue) {
            let (id, Hold { duty, epoch, .. }) = (&process.id, hold);
            let what = format!("{id} does not cancel the work on {duty}@{epoch} at its deadline");
            self.broken("overdue", what);
        }
    }

    /// Checks a request: keep-alives come at a third of the TTL (R7), and no duty is released whose
    /// work may still act (R10).
    pub(super) fn watch_request(&mut self, pid: Pid, request: &StoreRequest) {
        let given_back = |work: &SimWork| match request {
            StoreRequest::Release { holds, .. } => holds
                .iter()
                .any(|hold| (&hold.duty, hold.epoch) == (&work.hold.duty, work.hold.epoch)),
            StoreRequest::Close { .. } => true,
            _ => false,
        };
        let ttl = self.processes[pid].ttl;
        let most = self.lasts(pid, ttl.get() / 3 + ttl.margin());
        let process = &mut self.processes[pid];
        let mut acting = process.work.values().filter(|work| work.mode != WorkMode::Revoked);
        if let Some(SimWork { hold, .. }) = acting.find(|work| given_back(work)) {
            let what =
                format!("{} releases {}@{} while its work runs", process.id, hold.duty, hold.epoch);
            return self.broken("release", what);
        }
        let before = match request {
            StoreRequest::KeepAlive { .. } => {
                // Its answer tells of a reset.
                process.forgotten = None;
                process.renewed.replace(self.now)
            }
            StoreRequest::Open(_) => {
                process.renewed = None;
                None
            }
            _ => None,
        };
        if before.is_some_and(|before| self.now - before > most) {
            let what = format!("{} does not renew within a third of the TTL", process.id);
            self.broken("renew", what);
        }
    }

    /// Whether the session named in a keep-alive is alive.
    pub(super) fn lives(&self, request: &StoreRequest) -> bool {
        let StoreRequest::KeepAlive { session, .. } = request else { return true };
        self.backend.members().iter().any(|member| member.nonce == Some(session.nonce))
    }

    /// Checks a move: few at a time (R25), and voluntary ones only while all other members see the
    /// same (R20).
    pub(super) fn watch_move(&mut self, pid: Pid, duty: &DutyId, why: StopReason) {
        let process = &self.processes[pid];
        let moving = process.work.values().filter(|work| work.mode == WorkMode::Drains).count();
        let most = (process.targets.targets().len() / 10).max(4);
        if LIMITED.contains(&why) && moving >= most {
            let what =
                format!("{} moves {duty} while {moving} other moves are in progress", process.id);
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

    /// Checks a cancellation: the work was asked to finish before, or its hold has ended (R18).
    pub(super) fn watch_cancel(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch, why: StopReason) {
        let now = self.local(pid);
        let process = &mut self.processes[pid];
        // An evicted member's session is over, but its holds are valid until their TTL.
        if process.evicted || self.scenario.is_lossy() || self.scenario.progress.is_some() {
            return;
        }
        let id = process.id.clone();
        let Some(work) = process.work_of(duty, epoch) else { return };
        // A fenced hold has been replaced, whatever the store says.
        let sound =
            work.mode == WorkMode::Runs && now < work.deadline.at() && why != StopReason::Fenced;
        let hold = work.hold.clone();
        if sound && self.backend.ends_at(&hold) > self.now {
            let what = format!("{id} cancels {duty}@{epoch} ({why}) without asking it to stop");
            self.broken("handover", what);
        }
    }

    /// Checks that the cursor of a saved checkpoint is not before that of the last one (R14).
    pub(super) fn watch_cursor(&mut self, duty: &DutyId, cursor: u64) {
        let before = self.cursors.insert(duty.clone(), cursor).unwrap_or(0);
        if cursor < before && !self.scenario.is_lossy() {
            self.broken(
                "cursor",
                format!("{duty}: the cursor goes back from {before} to {cursor}"),
            );
        }
    }
}
