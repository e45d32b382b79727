//! Requests and responses between engines and the store.

use tenure_core::engine::{EngineEvent, GroupView, StoreRequest, StoreResponse, Ticket};
use tenure_core::invariant::Step;
use tenure_core::store::{Claimed, KeptAlive, Opened};
use tenure_core::{Code, StoreError};

use super::process::{ProcessKind, ProcessState};
use super::work::session_name;
use super::{Pid, ScheduledItem, SimWorld, describe};
use crate::link::Fate;
use crate::scenario::Fault;

impl SimWorld {
    /// Sends a request of an engine.
    pub(super) fn ask(&mut self, pid: Pid, ticket: Ticket, request: StoreRequest, within: u64) {
        let slot = self.processes[pid].slot;
        self.processes[pid].asked.insert(ticket, (kind_of(&request), self.now));
        self.watch_request(pid, &request);
        let (again, fate) = (
            self.link.again(self.now, &mut self.rng),
            self.link.request(slot, self.now, &mut self.rng),
        );
        if let (Some(after), Fate::Arrives(_)) = (again, fate) {
            self.coverage.count("fault", Fault::Duplicate.as_str());
            let request = request.clone();
            self.after(after, ScheduledItem::Arrive { pid, ticket, request, echo: true });
        }
        match fate {
            Fate::Arrives(takes) => {
                self.count_late(takes);
                self.after(takes, ScheduledItem::Arrive { pid, ticket, request, echo: false });
            }
            Fate::Lost => {}
            Fate::Refused => {
                let takes = self.link.takes(self.now, &mut self.rng);
                let answer = failed(kind_of(&request), unreachable());
                self.after(takes, ScheduledItem::Answer(pid, ticket, answer));
            }
        }
        self.after(within, ScheduledItem::Timeout(pid, ticket));
    }

    fn count_late(&mut self, takes: u64) {
        if takes > 2 * self.scenario.delay {
            self.coverage.count("fault", Fault::Reorder.as_str());
        }
    }

    /// Delivers a request to the store.
    pub(super) fn arrive(&mut self, pid: Pid, ticket: Ticket, request: StoreRequest, echo: bool) {
        if !self.backend.is_up(self.now) {
            if !echo && self.rng.chance(500) {
                self.reply(pid, ticket, failed(kind_of(&request), unreachable()));
            }
            return;
        }
        let mut seen = self.processes[pid].incarnation;
        let lived = self.lives(&request);
        let answer = self.backend.perform(&request, &mut seen);
        self.processes[pid].incarnation = seen;
        if let (false, StoreResponse::KeepAlive(Ok(KeptAlive::Kept { .. }))) = (lived, &answer) {
            let id = self.processes[pid].id.clone();
            self.broken("revived", format!("an ended session of {id} was renewed"));
        }
        if echo {
            self.say(pid, || format!("= #{} again {}", ticket.0, describe::request(&request)));
        }
        self.remember(pid, &answer);
        let changes = match &request {
            StoreRequest::Look { .. } => false,
            StoreRequest::KeepAlive { note, .. } => note.is_some(),
            _ => true,
        };
        if changes {
            self.hint_all();
        }
        match (request, answer) {
            (StoreRequest::Look { holders, .. }, StoreResponse::Look(Ok(view))) => {
                let item = ScheduledItem::LookOn { pid, ticket, view, holders, echo };
                let takes = self.rng.below(self.scenario.delay);
                self.after(takes, item);
            }
            (_, answer) if !echo => self.reply(pid, ticket, answer),
            _ => {}
        }
    }

    /// Records grants for the checkers, and new sessions, even if the response is lost.
    fn remember(&mut self, pid: Pid, answer: &StoreResponse) {
        match answer {
            StoreResponse::Claim(Ok(claimed)) => {
                for claimed in claimed {
                    if let Claimed::Granted(hold) = claimed {
                        let (duty, epoch) = (hold.duty.clone(), hold.epoch);
                        let instance = session_name(&hold.instance, hold.nonce);
                        self.story.history.push(Step::Granted { duty, epoch, instance });
                    }
                }
            }
            StoreResponse::Open(Ok(Opened::Open(session))) => {
                self.processes[pid].session = Some(session.clone());
            }
            _ => {}
        }
    }

    pub(super) fn hint_all(&mut self) {
        for slot in 0..self.slots.len() {
            if let Some(pid) = self.slots[slot]
                && !self.link.is_cut(slot)
            {
                self.hint(pid);
            }
        }
    }

    /// Reads the second half of a look a moment later, as in real stores.
    pub(super) fn look_on(
        &mut self,
        pid: Pid,
        ticket: Ticket,
        mut view: GroupView,
        holders: bool,
        echo: bool,
    ) {
        if echo || !self.backend.is_up(self.now) {
            return;
        }
        let read = self.backend.look_on(&mut view, holders);
        self.reply(pid, ticket, StoreResponse::Look(read.map(|()| view)));
    }

    fn reply(&mut self, pid: Pid, ticket: Ticket, answer: StoreResponse) {
        let slot = self.processes[pid].slot;
        match self.link.reply(slot, self.now, &mut self.rng) {
            Fate::Arrives(takes) => {
                self.count_late(takes);
                self.after(takes, ScheduledItem::Answer(pid, ticket, answer));
            }
            Fate::Lost | Fate::Refused => {
                self.coverage.count("fault", Fault::ReplyLost.as_str());
                self.say(pid, || format!("= #{} lost {}", ticket.0, describe::answer(&answer)));
            }
        }
    }

    /// Delivers a response to its engine, if that still waits for it.
    pub(super) fn answer(&mut self, pid: Pid, ticket: Ticket, answer: StoreResponse) {
        let Some((_, sent)) = self.processes[pid].asked.remove(&ticket) else {
            return;
        };
        self.processes[pid].heard = sent;
        if let StoreResponse::Look(Ok(view)) = &answer {
            // Holders that were not read stay as they were.
            let before = self.processes[pid].view.take();
            let mut view = view.clone();
            view.holders = view.holders.or_else(|| before.and_then(|before| before.holders));
            self.processes[pid].view = Some(view);
        }
        self.step(pid, EngineEvent::Answered(ticket, answer));
    }

    /// Lets a request time out.
    pub(super) fn time_out(&mut self, pid: Pid, ticket: Ticket) {
        if self.processes[pid].life == ProcessState::Gone {
            return;
        }
        if let Some((kind, sent)) = self.processes[pid].asked.remove(&ticket) {
            self.processes[pid].heard = sent;
            let error = StoreError::unknown(Code::Lost, "no answer");
            self.step(pid, EngineEvent::Answered(ticket, failed(kind, error)));
        }
    }
}

fn unreachable() -> StoreError {
    StoreError::refused(Code::Unreachable, "unreachable")
}

fn kind_of(request: &StoreRequest) -> ProcessKind {
    match request {
        StoreRequest::Open(_) => ProcessKind::Open,
        StoreRequest::KeepAlive { .. } => ProcessKind::KeepAlive,
        StoreRequest::Claim { .. } => ProcessKind::Claim,
        StoreRequest::Release { .. } => ProcessKind::Release,
        StoreRequest::Close { .. } => ProcessKind::Close,
        StoreRequest::Look { .. } => ProcessKind::Look,
        StoreRequest::Settle { .. } => ProcessKind::Settle,
    }
}

fn failed(kind: ProcessKind, error: StoreError) -> StoreResponse {
    match kind {
        ProcessKind::Open => StoreResponse::Open(Err(error)),
        ProcessKind::KeepAlive => StoreResponse::KeepAlive(Err(error)),
        ProcessKind::Claim => StoreResponse::Claim(Err(error)),
        ProcessKind::Release => StoreResponse::Release(Err(error)),
        ProcessKind::Close => StoreResponse::Close(Err(error)),
        ProcessKind::Look => StoreResponse::Look(Err(error)),
        ProcessKind::Settle => StoreResponse::Settle(Err(error)),
    }
}
