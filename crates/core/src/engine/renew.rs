//! Renewing the session, detecting pauses, and losing the session.

use super::join::MemberPhase;
use super::work::{EngineHold, WorkState};
use super::{Effect, Engine, PendingKeepAlive, StopReason, StoreRequest, Ticket};
use crate::store::{HoldFate, KeptAlive};
use crate::{Change, DutyId, Hold, LocalInstant, Mark, Mutant, StoreError, is_pause};

impl Engine {
    /// Treats a late step as a pause: holds are verified before any further effect (R7).
    pub(super) fn notice_pause(&mut self, now: LocalInstant) {
        if self.suspended.is_some() || !is_pause(self.wake, now, self.settings.ttl) {
            return;
        }
        if !self.holds.values().any(EngineHold::may_act) {
            return;
        }
        self.suspended = Some(now);
        self.holds.values_mut().for_each(|held| held.progress = now);
        self.out.push(Effect::Suspend);
        self.record(now, Change::Suspended, None, None, "this process was paused");
        if let Some(live) = &mut self.live {
            live.renew_at = now;
        }
    }

    /// Sends a changed status with an immediate keep-alive.
    pub(super) fn say_status(&mut self, now: LocalInstant) {
        let note = self.status().note().ok();
        if let (Some(live), Some(note)) = (&mut self.live, note)
            && note != live.said
        {
            live.renew_at = live.renew_at.min(now);
        }
    }

    pub(super) fn renew_now(&mut self, now: LocalInstant) {
        if let Some(live) = &mut self.live {
            live.renew_at = live.renew_at.min(now);
        }
    }

    pub(super) fn renew_if_due(&mut self, now: LocalInstant) {
        let Some(live) = &self.live else { return };
        if self.keeping.is_some() || now < live.renew_at {
            return;
        }
        let note = self.status().note().ok().filter(|note| *note != live.said);
        let session = live.session.clone();
        // Duties that are being released need no extension.
        let kept = self.holds.iter().filter(|(duty, _)| !self.ready.contains(*duty));
        let holds: Vec<Hold> = kept.map(|(_, held)| held.hold.clone()).collect();
        let named = holds.iter().map(|hold| (hold.duty.id.clone(), hold.epoch)).collect();
        let request = StoreRequest::KeepAlive { session, note: note.clone(), holds };
        let ticket = self.ask(request, self.settings.ttl.attempt_timeout());
        self.keeping = Some(PendingKeepAlive { ticket, sent: now, note, holds: named });
    }

    pub(super) fn kept_alive(
        &mut self,
        ticket: Ticket,
        result: Result<KeptAlive, StoreError>,
        now: LocalInstant,
    ) {
        let Some(keeping) = self.keeping.take_if(|keeping| keeping.ticket == ticket) else {
            return;
        };
        match result {
            Ok(KeptAlive::Kept { mark, holds }) => self.kept(keeping, mark, &holds, now),
            // This member may have closed it; the answer to that request is on its way.
            Ok(KeptAlive::Ended) if matches!(self.phase, MemberPhase::Closing(_)) => {}
            Ok(KeptAlive::Ended) => self.session_ended(keeping.sent, false, now),
            Err(error) => {
                self.trouble = true;
                let why = error.problem().to_string();
                self.complain_of(now, Change::RenewFailed, &keeping.holds, why);
                if Self::is_reset(&error) {
                    return self.session_ended(keeping.sent, true, now);
                }
                if Mutant::R23Open.is_on() {
                    let fates = vec![HoldFate::Kept; keeping.holds.len()];
                    return self.kept(keeping, Mark::default(), &fates, now);
                }
                let pause = self.pause();
                if let Some(live) = &mut self.live {
                    live.renew_at = now.plus(pause);
                }
            }
        }
    }

    fn kept(
        &mut self,
        keeping: PendingKeepAlive,
        mark: Mark,
        fates: &[HoldFate],
        now: LocalInstant,
    ) {
        let ttl = self.settings.ttl;
        let from = if Mutant::R5Answer.is_on() { now } else { keeping.sent };
        let deadline = ttl.deadline(from);
        let every = ttl.renew_every(self.random.jitter());
        let Some(live) = &mut self.live else { return };
        live.deadline = live.deadline.max(deadline);
        live.renew_at = keeping.sent.plus(every);
        if let Some(note) = keeping.note {
            live.said = note;
        }
        self.trouble = false;
        // A request sent before the pause does not confirm the hold after it.
        let resumed = self.suspended.is_some_and(|since| keeping.sent >= since);
        if resumed {
            self.suspended = None;
            self.record(now, Change::Resumed, None, None, "the store confirmed the holds");
        } else if self.suspended.is_some() {
            live.renew_at = now;
        }
        for ((duty, epoch), fate) in keeping.holds.iter().zip(fates) {
            let Some(held) = self.holds.get_mut(duty).filter(|held| held.epoch() == *epoch) else {
                continue;
            };
            match fate {
                HoldFate::Kept => {
                    held.hold.mark = mark;
                    if !held.may_act() {
                        continue;
                    }
                    held.deadline = held.deadline.max(deadline);
                    if self.suspended.is_none() {
                        let (duty, epoch, deadline) = (duty.clone(), *epoch, held.deadline);
                        self.out.push(Effect::Extend { duty, epoch, deadline });
                    }
                    if self.settings.record_renewals {
                        self.record(now, Change::Renewed, Some((duty, *epoch)), None, "keep-alive");
                    }
                }
                HoldFate::Lost => self.lose(duty, StopReason::Lost, now),
                HoldFate::Unknown => {}
            }
        }
        self.no_complaint(Change::RenewFailed);
        self.say_status(now);
    }

    /// Drops the session and every hold with it (R9). `reset`: the store reported that it lost it.
    pub(super) fn session_ended(&mut self, asked: LocalInstant, reset: bool, now: LocalInstant) {
        let Some(live) = self.live.take() else { return };
        // By the local count it should be alive: the store lost it, or an operator ended it.
        let early = live.deadline.allows(asked);
        self.lose_everything(StopReason::SessionEnded, now);
        let why = match early || reset {
            true => "the store ended the session early",
            false => "the session was not renewed in time",
        };
        self.record(now, Change::SessionLost, None, None, why);
        if (early || reset || self.trouble) && !Mutant::R21Wait.is_on() {
            // By then earlier holders have stopped by themselves, even if their clocks run slow.
            let own = Mutant::R21Own.is_on().then_some(self.settings.ttl);
            let until = now.plus(own.unwrap_or(self.group_ttl.to_outlast()).get() * 51 / 50);
            self.waiting = self.waiting.max(Some(until));
        }
        self.keeping = None;
        self.claiming = None;
        self.releasing = None;
        self.suspended = None;
        self.fallback = None;
        self.todo.clear();
        self.touched.clear();
        self.looking.forget();
        self.seen = None;
        self.free.clear();
        match self.is_going() {
            true => self.end("the session had ended", now),
            false => self.open(true, now),
        }
    }

    /// Drops a hold and cancels its work.
    pub(super) fn lose(&mut self, duty: &DutyId, why: StopReason, now: LocalInstant) {
        let Some(held) = self.drop_hold(duty) else { return };
        let epoch = held.epoch();
        self.raise_floor(duty, epoch);
        self.touch(duty);
        self.see_holder(duty, None);
        if held.may_act() {
            self.out.push(Effect::Revoke { duty: duty.clone(), epoch, why });
            self.record(now, Change::Revoked, Some((duty, epoch)), None, why.as_str());
        } else if !held.end_recorded {
            // It was being released.
            let why = held.release.unwrap_or(why);
            self.record(now, Change::Released, Some((duty, epoch)), None, why.as_str());
        }
        if !matches!(held.work, WorkState::Stopped) {
            self.stopping.insert(duty.clone(), epoch);
        }
        if matches!(self.phase, MemberPhase::Member) {
            self.look_now(now);
        }
    }

    pub(super) fn lose_everything(&mut self, why: StopReason, now: LocalInstant) {
        let duties: Vec<_> = self.holds.keys().cloned().collect();
        for duty in duties {
            self.lose(&duty, why, now);
        }
    }
}
