//! Work under holds: effects at the resource, checkpoints in the store.

use tenure_core::engine::{EngineEvent, WorkOutcome};
use tenure_core::invariant::Step;
use tenure_core::store::{Commit, Committed};
use tenure_core::{Document, DutyId, Epoch, InstanceId, Mutant, Nonce, Session, Version};

use super::{Pid, ScheduledItem, SimWorld, WorkReply, WorkRequest};
use crate::Nanos;
use crate::link::Fate;
use crate::scenario::Fault;
use crate::sink::EffectVerdict;
use crate::worker::{NextStep, WorkMode};

impl SimWorld {
    /// Lets the work check its guard and take the next step.
    pub(super) fn work_on(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch, turn: u64) {
        let now = self.local(pid);
        let pace = self.pace();
        let Some(work) = self.processes[pid].work_of(duty, epoch) else {
            return;
        };
        if work.turn != turn || work.mode == WorkMode::Revoked {
            return;
        }
        work.turn += 1;
        let turn = work.turn;
        if !work.may_act(now) {
            return self.after(pace, ScheduledItem::Work(pid, duty.clone(), epoch, turn));
        }
        let draining = work.mode == WorkMode::Drains;
        let nonce = work.hold.nonce;
        let data = match work.next {
            NextStep::Announce => WorkRequest::Take { event: 0, nonce },
            NextStep::Load => WorkRequest::Load,
            // Work that was asked to finish starts nothing new and saves its progress.
            NextStep::Effect if !draining => {
                let event = work.cursor + 1;
                if Mutant::R16Early.is_on() {
                    work.cursor = event;
                }
                WorkRequest::Take { event, nonce }
            }
            NextStep::Commit | NextStep::Effect if work.cursor > work.saved => {
                // A few digits are always a valid document.
                let document = Document::new(work.cursor.to_string()).expect("a short document");
                let (hold, expected) = (work.hold.clone(), work.version);
                WorkRequest::Commit(Commit { hold, expected, document })
            }
            NextStep::Commit | NextStep::Effect | NextStep::Rest => {
                work.next =
                    if work.next == NextStep::Rest { NextStep::Rest } else { NextStep::Effect };
                return self.after(pace, ScheduledItem::Work(pid, duty.clone(), epoch, turn));
            }
        };
        if self.fails(pid, duty, epoch) {
            return;
        }
        self.watch_effect(pid, duty, epoch);
        let fate = match data {
            WorkRequest::Take { .. } => Fate::Arrives(self.link.takes(self.now, &mut self.rng)),
            _ => {
                let slot = self.processes[pid].slot;
                self.link.request(slot, self.now, &mut self.rng)
            }
        };
        if let Fate::Arrives(takes) = fate {
            self.after(takes, ScheduledItem::ArriveData(pid, duty.clone(), epoch, turn, data));
        }
        // It is repeated, whatever the result.
        let again = self.scenario.ttl_ns() / 5;
        self.after(again, ScheduledItem::Work(pid, duty.clone(), epoch, turn));
    }

    fn pace(&mut self) -> Nanos {
        let ttl = self.scenario.ttl_ns();
        self.rng.between(ttl / 40, ttl / 8)
    }

    fn fails(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch) -> bool {
        if self.quiet || !self.scenario.has(Fault::FailingWork) || !self.rng.chance(10) {
            return false;
        }
        self.coverage.count("fault", Fault::FailingWork.as_str());
        let how = if self.rng.chance(700) { WorkOutcome::Failed } else { WorkOutcome::Done };
        self.rests(pid, duty);
        self.stopped(pid, duty.clone(), epoch, how);
        true
    }

    /// Delivers a request of work to the store or the resource, even if its process is gone.
    pub(super) fn arrive_data(
        &mut self,
        pid: Pid,
        duty: DutyId,
        epoch: Epoch,
        turn: u64,
        data: WorkRequest,
    ) {
        let slot = self.processes[pid].slot;
        let fate = self.link.reply(slot, self.now, &mut self.rng);
        let reply = match data {
            WorkRequest::Take { event, nonce } => self.take(pid, &duty, epoch, nonce, event),
            _ if !self.backend.is_up(self.now) => WorkReply::Failed,
            WorkRequest::Load => {
                let found = self.backend.load(&self.key(&duty));
                let (version, cursor) = found.map_or((Version::ZERO, 0), |found| {
                    (found.version, cursor_of(&found.document))
                });
                WorkReply::Loaded(version, cursor)
            }
            WorkRequest::Commit(commit) => self.commit(pid, commit),
        };
        if let Fate::Arrives(takes) = fate {
            self.after(takes, ScheduledItem::Data(pid, duty, epoch, turn, reply));
        }
    }

    fn take(
        &mut self,
        pid: Pid,
        duty: &DutyId,
        epoch: Epoch,
        nonce: Nonce,
        event: u64,
    ) -> WorkReply {
        let instance = session_name(&self.processes[pid].id, nonce);
        let last = self.sink.last(duty);
        let verdict = self.sink.take(duty, epoch, nonce, event);
        if verdict == EffectVerdict::Accepted {
            let (key, event_name) = (self.key(duty), event.to_string());
            self.story.history.push(Step::Effect { duty: key, epoch, instance, event: event_name });
            // With no gap before it, an event that is not new is a repetition, which D1 judges.
            if event > last + 1 {
                self.broken("skipped", format!("{duty}: event {event} came after {last}"));
            }
        }
        if let EffectVerdict::Fenced { .. } = verdict {
            self.coverage.count("effect", "fenced");
        } else {
            self.coverage.count("effect", "taken");
        }
        self.say(pid, || format!("* {duty}@{epoch} event {event}: {verdict:?}"));
        WorkReply::Taken { event, verdict }
    }

    fn commit(&mut self, pid: Pid, commit: Commit) -> WorkReply {
        let mut seen = self.processes[pid].incarnation;
        let reset = self.backend.is_reset(&mut seen);
        self.processes[pid].incarnation = seen;
        if reset {
            return WorkReply::Failed;
        }
        let (duty, epoch) = (commit.hold.duty.clone(), commit.hold.epoch);
        let session = Session {
            group: self.group.clone(),
            instance: commit.hold.instance.clone(),
            nonce: commit.hold.nonce,
            ttl: self.scenario.ttl,
        };
        let cursor = cursor_of(&commit.document);
        let Ok(committed) = self.backend.commit(&session, commit) else {
            return WorkReply::Failed;
        };
        if let Committed::Saved(version) = committed {
            self.watch_cursor(&duty.id, cursor);
            let duty = duty.clone();
            self.story.history.push(Step::Committed { duty, epoch, version });
        }
        self.say(pid, || format!("* {}@{epoch} commits {cursor}: {committed:?}", duty.id));
        WorkReply::Committed { cursor, committed }
    }

    /// Delivers the response to the work.
    pub(super) fn data(
        &mut self,
        pid: Pid,
        duty: &DutyId,
        epoch: Epoch,
        turn: u64,
        reply: WorkReply,
    ) {
        let commits = self.rng.chance(400);
        let Some(work) = self.processes[pid].work_of(duty, epoch) else {
            return;
        };
        if work.turn != turn {
            return;
        }
        let mut fenced = None;
        match reply {
            WorkReply::Failed => {}
            WorkReply::Taken { verdict: EffectVerdict::Fenced { newest }, .. } => {
                fenced = Some(newest);
            }
            WorkReply::Taken { event: 0, .. } => work.next = NextStep::Load,
            WorkReply::Taken { event, .. } => {
                work.cursor = work.cursor.max(event);
                work.next = if commits { NextStep::Commit } else { NextStep::Effect };
            }
            WorkReply::Loaded(version, cursor) => {
                (work.version, work.cursor, work.saved) = (version, cursor, cursor);
                work.next = NextStep::Effect;
            }
            WorkReply::Committed { cursor, committed: Committed::Saved(version) } => {
                (work.version, work.saved) = (version, cursor);
                work.next = NextStep::Effect;
            }
            // Its own commit, whose response was lost: read again.
            WorkReply::Committed { committed: Committed::Conflict { .. }, .. } => {
                work.next = NextStep::Load;
            }
            WorkReply::Committed { committed: Committed::Fenced { .. }, .. } => {
                work.next = NextStep::Rest;
            }
        }
        if let Some(newest) = fenced {
            work.next = NextStep::Rest;
            return self.step(pid, EngineEvent::Fenced { duty: duty.clone(), epoch, newest });
        }
        let pace = self.pace();
        self.after(pace, ScheduledItem::Work(pid, duty.clone(), epoch, turn));
        if self.scenario.progress.is_some() && !self.hangs() {
            self.step(pid, EngineEvent::Progress { duty: duty.clone(), epoch });
        }
    }

    fn hangs(&mut self) -> bool {
        let hangs = !self.quiet && self.scenario.has(Fault::HangingWork) && self.rng.chance(200);
        if hangs {
            self.coverage.count("fault", Fault::HangingWork.as_str());
        }
        hangs
    }

    /// Schedules the actual end of work that was asked to finish or cancelled.
    pub(super) fn stop_later(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch, cancelled: bool) {
        let ttl = self.scenario.ttl_ns();
        let mut takes = self.rng.between(1_000_000, ttl / 50);
        if !self.quiet {
            if self.scenario.has(Fault::SlowWork) && !cancelled {
                self.coverage.count("fault", Fault::SlowWork.as_str());
                takes = self.rng.below(self.lasts(pid, self.scenario.drain) * 2);
            }
            if self.scenario.has(Fault::HangingWork) && self.rng.chance(300) {
                self.coverage.count("fault", Fault::HangingWork.as_str());
                takes = self.rng.below(2 * ttl);
            }
            takes = takes.min(self.scenario.quiet_from.saturating_sub(self.now) + ttl / 50);
        }
        self.after(takes, ScheduledItem::Stopped(pid, duty.clone(), epoch, WorkOutcome::Asked));
    }

    /// Removes ended work and informs the engine.
    pub(super) fn stopped(&mut self, pid: Pid, duty: DutyId, epoch: Epoch, how: WorkOutcome) {
        self.doubt(pid, &duty, epoch);
        if self.processes[pid].work.remove(&(duty.clone(), epoch)).is_some() {
            self.step(pid, EngineEvent::Stopped { duty, epoch, how });
        }
    }
}

/// Returns a name for one session of an instance: an epoch belongs to a session, not to an
/// instance.
pub(super) fn session_name(instance: &InstanceId, nonce: Nonce) -> InstanceId {
    // Letters, digits, a dot and a dash are always a valid id.
    InstanceId::new(format!("{instance}-{nonce}")).expect("a valid id")
}

fn cursor_of(document: &Document) -> u64 {
    let text = str::from_utf8(document.as_bytes()).unwrap_or_default();
    text.parse().unwrap_or(0)
}
