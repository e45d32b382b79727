//! Claiming duties and handling the results.

use std::time::Duration;

use super::join::reason;
use super::work::{EngineHold, WorkState};
use super::{
    ClaimCandidate, Effect, Engine, MAX_CLAIM_DUTIES, MemberStatus, PendingClaim, StopReason,
    StoreRequest, Ticket,
};
use crate::store::{ClaimRequest, Claimed};
use crate::text::counted;
use crate::{
    Change, Deadline, DutyId, DutyKey, Epoch, Hold, InstanceId, LocalInstant, Mark, Mutant,
    StoreError,
};

/// Initial backoff for a duty that looked free and was refused.
const MIN_CLAIM_BACKOFF: Duration = Duration::from_millis(50);

/// Backoff for a duty that another member holds although looks show it as free.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClaimBackoff {
    pub(super) until: LocalInstant,
    length: Duration,
    holder: Option<InstanceId>,
}

impl Engine {
    pub(super) fn claim_next(&mut self, now: LocalInstant) {
        // Anything granted during a pause would be released at once (R7).
        let paused = self.waiting.is_some() || self.suspended.is_some();
        let early = paused || !self.group_ttl.is_known && !Mutant::R21Early.is_on();
        let busy = self.is_going() || early || self.claiming.is_some();
        let Some(live) = self.live.as_ref().filter(|_| !busy) else { return };
        // Work under a session that is about to end would be cancelled at once.
        if !live.deadline.leaves(now, self.settings.ttl.attempt_timeout()) {
            return;
        }
        let (session, deadline) = (live.session.clone(), live.deadline);
        let room = self.settings.room.saturating_sub(self.holds.len()).min(MAX_CLAIM_DUTIES);
        let (mut wants, mut wishes) = (Vec::new(), Vec::new());
        while wants.len() < room
            && let Some(wish) = self.todo.pop_front()
        {
            let duty = wish.duty.clone();
            if self.holds.contains_key(&duty) || self.stopping.contains_key(&duty) {
                continue;
            }
            let floor = self.floors.get(&duty).copied().unwrap_or(Epoch::ZERO);
            let duty = DutyKey { group: self.settings.group.clone(), id: duty };
            wants.push(ClaimRequest { duty, floor });
            wishes.push(wish);
        }
        if wants.is_empty() {
            return;
        }
        let request = StoreRequest::Claim { session, wants, reason: reason("roster") };
        let ticket = self.ask(request, self.request_timeout());
        self.claiming = Some(PendingClaim { ticket, deadline, wishes });
    }

    pub(super) fn claimed(
        &mut self,
        ticket: Ticket,
        result: Result<Vec<Claimed>, StoreError>,
        now: LocalInstant,
    ) {
        let claiming = self.claiming.take_if(|claiming| claiming.ticket == ticket);
        let Some(PendingClaim { deadline, wishes, .. }) = claiming else { return };
        wishes.iter().for_each(|wish| self.touch(&wish.duty));
        let claims = match result {
            Ok(claims) => claims,
            Err(error) => return self.claim_failed(&wishes, &error, now),
        };
        for (ClaimCandidate { duty, beyond }, claimed) in wishes.into_iter().zip(claims) {
            match claimed {
                Claimed::Granted(hold) => self.granted(hold, deadline, beyond, now),
                Claimed::Already(hold) if Mutant::R17Already.is_on() => {
                    self.granted(hold, deadline, beyond, now);
                }
                // From a claim whose response was lost: its deadline is unknown.
                Claimed::Already(hold) => self.give_back_unstarted(duty, hold.epoch, now),
                Claimed::HeldBy(holder) => {
                    let holder = holder.map(|holder| holder.instance);
                    if holder.is_some() {
                        self.see_holder(&duty, holder.clone());
                    }
                    self.free.remove(&duty);
                    self.claim_refused(duty, holder, now);
                    self.look_now(now);
                }
                Claimed::SessionEnded => return self.session_ended(now, false, now),
            }
        }
        if self.todo.is_empty() {
            self.look_now(now);
        }
    }

    /// Backs off, because looks may still show the duty as free. Recorded once per holder.
    fn claim_refused(&mut self, duty: DutyId, holder: Option<InstanceId>, now: LocalInstant) {
        let before = self.refused.remove(&duty);
        let most = self.settings.look_every;
        let length =
            before.as_ref().map_or(MIN_CLAIM_BACKOFF, |before| (before.length * 2).min(most));
        if before.is_none_or(|before| before.holder != holder) {
            let about = Some((&duty, Epoch::ZERO));
            self.record(
                now,
                Change::AcquireFailed,
                about,
                holder.clone(),
                "held by another member",
            );
        }
        self.refused.insert(duty, ClaimBackoff { until: now.plus(length), length, holder });
    }

    fn claim_failed(&mut self, wishes: &[ClaimCandidate], error: &StoreError, now: LocalInstant) {
        if let [ClaimCandidate { duty, .. }, more @ ..] = wishes {
            let mut why = error.problem().to_string();
            if !more.is_empty() {
                why = format!("{why}; {} with it", counted(more.len() as u64, "duty", "duties"));
            }
            self.record(now, Change::ClaimFailed, Some((duty, Epoch::ZERO)), None, why);
        }
        if Self::is_reset(error) {
            return self.session_ended(now, true, now);
        }
        // The claim may have succeeded: the next look shows it (R17).
        self.trouble = true;
        self.todo.clear();
        self.look_now(now);
        self.looking.at = self.looking.at.max(now.plus(self.pause()));
    }

    fn granted(&mut self, hold: Hold, deadline: Deadline, beyond: bool, now: LocalInstant) {
        let Some(live) = self.live.as_ref().filter(|live| hold.is_of(&live.session)) else {
            return;
        };
        let (duty, epoch) = (hold.duty.id.clone(), hold.epoch);
        let deadline = deadline.min(live.deadline);
        if self.holds.contains_key(&duty) {
            return;
        }
        if self.is_going() || !deadline.allows(now) || self.suspended.is_some() {
            return self.give_back_unstarted(duty, epoch, now);
        }
        self.raise_floor(&duty, epoch);
        self.free.remove(&duty);
        self.refused.remove(&duty);
        self.standing_by = false;
        let before = self.last.remove(&duty);
        let seen = self.seen.as_ref();
        let stayed = |instance: &InstanceId| {
            let there = seen.and_then(|s| s.members.iter().find(|m| &m.instance == instance));
            there.and_then(|member| MemberStatus::read(&member.note)).is_some_and(|said| said.keeps)
        };
        let back = self.shed.contains_key(&duty);
        let moved = beyond || back || before.as_ref().is_some_and(|(instance, _)| stayed(instance));
        let (change, why) = match &before {
            _ if beyond => (Change::Acquired, "unclaimed"),
            _ if moved => (Change::Acquired, "moved"),
            Some((_, until)) if now >= *until => (Change::TakenOver, "expired"),
            Some(_) => (Change::Acquired, "released"),
            None => (Change::Acquired, "free"),
        };
        self.see_holder(&duty, Some(self.settings.instance.clone()));
        let other = before.map(|(instance, _)| instance);
        self.record(now, change, Some((&duty, epoch)), other, why);
        self.out.push(Effect::Assign { hold: hold.clone(), deadline });
        let held = EngineHold::new(hold, deadline, now, moved);
        self.due_at(held.timer(&self.settings));
        self.holds.insert(duty, held);
    }

    /// Releases a hold without having started its work.
    pub(super) fn give_back_unstarted(&mut self, duty: DutyId, epoch: Epoch, now: LocalInstant) {
        let Some(live) = self.live.as_ref().filter(|_| !self.holds.contains_key(&duty)) else {
            return;
        };
        let hold = Hold {
            duty: DutyKey { group: self.settings.group.clone(), id: duty.clone() },
            epoch,
            instance: self.settings.instance.clone(),
            nonce: live.session.nonce,
            mark: Mark::default(),
        };
        let mut held = EngineHold::new(hold, live.deadline, now, false);
        held.work = WorkState::Stopped;
        held.release = Some(StopReason::NotStarted);
        self.ready.insert(duty.clone());
        self.holds.insert(duty, held);
    }
}
