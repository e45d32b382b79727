//! Starting, draining, cancelling and releasing the work on a duty.

use std::time::Duration;

use super::join::reason;
use super::{
    Effect, Engine, MAX_RELEASE_DUTIES, MemberSettings, StopReason, StoreRequest, Ticket,
    WorkOutcome,
};
use crate::store::Released;
use crate::{Change, Deadline, DutyId, Epoch, Hold, LocalInstant, Mutant, StoreError};

/// The shortest and the longest rest of a duty whose work ended by itself.
const REST_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A duty that the store has granted to this session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EngineHold {
    pub(super) hold: Hold,
    pub(super) deadline: Deadline,
    pub(super) work: WorkState,
    pub(super) since: LocalInstant,
    /// It came from a member that could have kept it.
    pub(super) moved: bool,
    /// Why it is to be released as soon as its work has stopped.
    pub(super) release: Option<StopReason>,
    /// Whether the end of the hold was recorded.
    pub(super) end_recorded: bool,
    pub(super) progress: LocalInstant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WorkState {
    Running,
    /// Asked to finish; it is cancelled at that instant.
    Asked(LocalInstant),
    /// Cancelled at that instant; it has not stopped yet.
    Cancelled(LocalInstant),
    Stopped,
}

/// A time in which a duty, or a foreign member, is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RestPeriod {
    pub(super) until: LocalInstant,
    pub(super) length: Duration,
}

impl EngineHold {
    pub(super) fn new(hold: Hold, deadline: Deadline, now: LocalInstant, moved: bool) -> Self {
        let work = WorkState::Running;
        Self {
            hold,
            deadline,
            work,
            since: now,
            moved,
            release: None,
            end_recorded: false,
            progress: now,
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.hold.epoch
    }

    /// Whether the work may still have effects, by the orders it was given.
    pub(super) fn may_act(&self) -> bool {
        matches!(self.work, WorkState::Running | WorkState::Asked(_))
    }

    /// Returns when the next action for this hold is due.
    pub(super) fn timer(&self, settings: &MemberSettings) -> Option<LocalInstant> {
        match self.work {
            WorkState::Running => {
                let most = settings.progress.filter(|_| !Mutant::R22Progress.is_on());
                let stuck = most.map(|most| self.progress.plus(most));
                Some(stuck.map_or(self.deadline.at(), |stuck| stuck.min(self.deadline.at())))
            }
            WorkState::Asked(until) => Some(until.min(self.deadline.at())),
            WorkState::Cancelled(at) => Some(at.plus(settings.ttl.get())),
            WorkState::Stopped => None,
        }
    }
}

impl Engine {
    pub(super) fn drop_hold(&mut self, duty: &DutyId) -> Option<EngineHold> {
        self.ready.remove(duty);
        self.holds.remove(duty)
    }

    /// Cancels work past its deadline (R6), past its drain time, or without progress. Releases the
    /// duty of work that was cancelled a TTL ago and has not stopped: the fence must protect it.
    pub(super) fn expire(&mut self, now: LocalInstant) {
        if now < self.due {
            return;
        }
        let settings = &self.settings;
        let due = |held: &EngineHold| held.timer(settings).is_some_and(|at| now >= at);
        let duties: Vec<_> =
            self.holds.iter().filter(|(_, held)| due(held)).map(|(d, _)| d.clone()).collect();
        for duty in duties {
            let Some(held) = self.holds.get_mut(&duty) else { continue };
            let (change, why) = match held.work {
                WorkState::Cancelled(_) | WorkState::Stopped => {
                    self.ready.insert(duty);
                    continue;
                }
                _ if !held.deadline.allows(now) => {
                    if Mutant::R6Work.is_on() {
                        continue;
                    }
                    (Change::Expired, StopReason::Deadline)
                }
                WorkState::Asked(_) => (Change::Revoked, StopReason::DrainTimeout),
                WorkState::Running => (Change::Revoked, StopReason::NoProgress),
            };
            let since = held.since;
            self.cancel(&duty, change, why, now);
            if why == StopReason::NoProgress {
                self.rest(&duty, since, now);
            }
        }
        let timers = self.holds.values().filter_map(|held| held.timer(&self.settings));
        let next = timers.filter(|at| *at > now).min();
        self.due = next.unwrap_or(now.plus(self.settings.ttl.get()));
    }

    /// Schedules the next check of the holds.
    // Why: docs/decisions/0010-step-cost-independent-of-holds.md
    pub(super) fn due_at(&mut self, at: Option<LocalInstant>) {
        self.due = at.map_or(self.due, |at| at.min(self.due));
    }

    /// Cancels the work; the hold is released when it has stopped.
    fn cancel(&mut self, duty: &DutyId, change: Change, why: StopReason, now: LocalInstant) {
        let Some(held) = self.holds.get_mut(duty).filter(|held| held.may_act()) else { return };
        held.work = WorkState::Cancelled(now);
        held.end_recorded = true;
        held.release.get_or_insert(why);
        let (epoch, next) = (held.epoch(), held.timer(&self.settings));
        self.due_at(next);
        self.out.push(Effect::Revoke { duty: duty.clone(), epoch, why });
        self.record(now, change, Some((duty, epoch)), None, why.as_str());
        self.renew_now(now);
    }

    /// Asks the work to finish; the duty is released after that (R18).
    pub(super) fn ask_to_stop(&mut self, duty: &DutyId, why: StopReason, now: LocalInstant) {
        let until = now.plus(self.settings.drain);
        let Some(held) = self.holds.get_mut(duty) else { return };
        held.release.get_or_insert(why);
        if held.work != WorkState::Running {
            return;
        }
        if Mutant::R18Cancel.is_on() {
            return self.cancel(duty, Change::Revoked, why, now);
        }
        if Mutant::R10Early.is_on() {
            self.ready.insert(duty.clone());
        }
        held.work = WorkState::Asked(until);
        let epoch = held.epoch();
        self.due_at(Some(until));
        self.out.push(Effect::Drain { duty: duty.clone(), epoch, why, until });
        self.record(now, Change::Draining, Some((duty, epoch)), None, why.as_str());
    }

    pub(super) fn stopped(
        &mut self,
        duty: &DutyId,
        epoch: Epoch,
        how: WorkOutcome,
        now: LocalInstant,
    ) {
        if self.stopping.get(duty) == Some(&epoch) {
            self.stopping.remove(duty);
            self.look_now(now);
        }
        let Some(held) = self.holds.get_mut(duty).filter(|held| held.epoch() == epoch) else {
            return;
        };
        let by_itself = held.work == WorkState::Running;
        held.work = WorkState::Stopped;
        let failed = how == WorkOutcome::Failed;
        held.release.get_or_insert(if failed { StopReason::Failed } else { StopReason::Done });
        let since = held.since;
        self.ready.insert(duty.clone());
        if by_itself || failed {
            self.rest(duty, since, now);
        }
    }

    /// Leaves a duty alone, longer each time, so that work that fails at once is not restarted in a
    /// loop.
    fn rest(&mut self, duty: &DutyId, since: LocalInstant, now: LocalInstant) {
        let (least, most) = REST_RANGE;
        let before = self.resting.get(duty).map(|rest| rest.length);
        let length = match before {
            Some(before) if now.since(since) < most => (before * 2).min(most),
            _ => least,
        };
        self.resting.insert(duty.clone(), RestPeriod { until: now.plus(length), length });
    }

    pub(super) fn progressed(&mut self, duty: &DutyId, epoch: Epoch, now: LocalInstant) {
        if let Some(held) = self.holds.get_mut(duty).filter(|held| held.epoch() == epoch) {
            held.progress = now;
        }
    }

    /// Gives up a hold that a resource fenced; the next claim asks for an epoch above `newest`.
    pub(super) fn fenced(&mut self, duty: &DutyId, epoch: Epoch, newest: Epoch, now: LocalInstant) {
        self.raise_floor(duty, newest);
        if self.holds.get(duty).is_some_and(|held| held.epoch() == epoch) {
            self.cancel(duty, Change::Revoked, StopReason::Fenced, now);
        }
    }

    /// Whether closing the session releases everything.
    pub(super) fn closes_with_all(&self) -> bool {
        self.leaving.is_some() && self.ready.len() == self.holds.len()
    }

    /// Releases the holds that are ready (R10). If all holds go, closing the session does it.
    pub(super) fn release_next(&mut self, now: LocalInstant) {
        if self.releasing.is_some() || now < self.release_again || self.closes_with_all() {
            return;
        }
        let mut ready = self.ready.iter().filter_map(|duty| self.holds.get(duty)).peekable();
        let (Some(live), Some(first)) = (&self.live, ready.peek()) else { return };
        // A request has one reason for all its holds.
        let why = first.release.unwrap_or(StopReason::Done);
        let holds: Vec<_> = ready
            .filter(|held| held.release == Some(why))
            .map(|held| held.hold.clone())
            .take(MAX_RELEASE_DUTIES)
            .collect();
        let duties = holds.iter().map(|hold| (hold.duty.id.clone(), hold.epoch)).collect();
        let session = live.session.clone();
        let request = StoreRequest::Release { session, holds, reason: reason(why.as_str()) };
        let ticket = self.ask(request, self.request_timeout());
        self.releasing = Some((ticket, duties));
    }

    pub(super) fn released(
        &mut self,
        ticket: Ticket,
        result: Result<Vec<Released>, StoreError>,
        now: LocalInstant,
    ) {
        let Some((_, duties)) = self.releasing.take_if(|(sent, _)| *sent == ticket) else {
            return;
        };
        let error = result.err();
        if error.as_ref().is_some_and(Self::is_reset) {
            return self.session_ended(now, true, now);
        }
        if let Some(error) = &error {
            // The release may have succeeded: it is repeated until the store confirms it (R17).
            let why = error.problem().to_string();
            self.complain_of(now, Change::ReleaseFailed, &duties, why);
        }
        for (duty, epoch) in &duties {
            self.touch(duty);
            // It may have been lost in the meantime and granted again under another epoch.
            let held = self.holds.get(duty).filter(|held| held.epoch() == *epoch);
            let Some(held) = held.filter(|_| error.is_none()) else { continue };
            let (epoch, why) = (*epoch, held.release.unwrap_or(StopReason::Done));
            let stopped = held.work == WorkState::Stopped;
            self.drop_hold(duty);
            self.raise_floor(duty, epoch);
            if !stopped {
                self.stopping.insert(duty.clone(), epoch);
            }
            self.see_holder(duty, None);
            self.record(now, Change::Released, Some((duty, epoch)), None, why.as_str());
        }
        if error.is_none() {
            self.no_complaint(Change::ReleaseFailed);
        } else {
            self.trouble = true;
            self.release_again = now.plus(self.pause());
        }
        self.after_release(now);
    }
}
