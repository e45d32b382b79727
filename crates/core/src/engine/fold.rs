//! State folding for the model checker: makes states with equal behaviour equal.

use std::time::Duration;

use super::join::MemberPhase;
use super::random::SplitMix64;
use super::work::{EngineHold, WorkState};
use super::{Engine, MemberStatus, Ticket};
use crate::{Deadline, LocalInstant, Nonce, Note};

/// Parameters of folding an engine. Time advances in steps: the engine is stepped at `now` plus
/// whole steps.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    /// The local time, which stays the same in all states.
    pub now: LocalInstant,
    /// Elapsed time, by which every instant moves closer.
    pub passed: Duration,
    /// Interval between two instants at which anything can happen.
    pub step: Duration,
    /// Seed for all further randomness.
    pub seed: u128,
}

impl Fold {
    fn shift(&self, at: LocalInstant) -> LocalInstant {
        LocalInstant::from_nanos(at.as_nanos().saturating_sub(self.passed.as_nanos() as u64))
    }

    /// Rounds an instant up to a whole step from `now`; all past instants become `now`.
    pub fn timer(&self, at: LocalInstant) -> LocalInstant {
        let left = self.shift(at).since(self.now).as_nanos() as u64;
        let step = self.step.as_nanos() as u64;
        self.now.plus(Duration::from_nanos(left.div_ceil(step) * step))
    }

    /// Rounds a deadline like [`Fold::timer`].
    pub fn deadline(&self, deadline: Deadline) -> Deadline {
        Deadline::from_instant(self.timer(deadline.at()))
    }

    /// Maps an instant to `now` or, if it is earlier, to the clock's origin.
    pub(super) fn fresh(&self, at: LocalInstant) -> LocalInstant {
        if self.shift(at) >= self.now { self.now } else { LocalInstant::from_nanos(0) }
    }

    /// Caps an age at `most`.
    fn since(&self, at: LocalInstant, most: Duration) -> LocalInstant {
        let now = self.now.as_nanos();
        let first = LocalInstant::from_nanos(now.saturating_sub(most.as_nanos() as u64));
        self.shift(at).max(first)
    }
}

impl Engine {
    /// Makes equal states comparable: moves every instant to the same `now`, renumbers pending
    /// requests and drops data that no later decision uses. Simplifications: every look reads the
    /// holders and plans again; a duty that stayed free for a step counts as free for long; the
    /// views of other members are dropped, so that duties are shed only after a fresh look.
    ///
    /// Returns the old and the new ticket of every pending request.
    #[doc(hidden)]
    pub fn fold(&mut self, fold: &Fold) -> Vec<(Ticket, Ticket)> {
        self.fold_session(fold);
        self.fold_timers(fold);
        self.fold_holds(fold);
        self.random = SplitMix64::new(fold.seed);
        self.last.clear();
        self.shed.clear();
        self.floors.clear();
        self.refused.clear();
        self.complaints.clear();
        (self.standing_by, self.unheld) = (false, 0);
        self.looking.fold(fold);
        self.free.values_mut().for_each(|since| *since = fold.fresh(*since));
        self.fold_seen();
        self.fold_tickets()
    }

    fn fold_seen(&mut self) {
        let mine = self.live.as_ref().map(|live| live.session.nonce);
        for member in self.seen.iter_mut().flat_map(|seen| &mut seen.members) {
            match member.nonce {
                nonce if nonce == mine => member.note = Note::default(),
                Some(_) => {
                    member.nonce = Some(Nonce::from_entropy(0));
                    let said = MemberStatus::read(&member.note)
                        .map(|said| MemberStatus { view: 0, ..said });
                    if let Some(Ok(note)) = said.map(|said| said.note()) {
                        member.note = note;
                    }
                }
                None => {}
            }
        }
    }

    /// Replaces the session's nonce.
    #[doc(hidden)]
    pub fn rename(&mut self, from: Nonce, to: Nonce) {
        let live = self.live.iter_mut().map(|live| &mut live.session.nonce);
        let holds = self.holds.values_mut().map(|held| &mut held.hold.nonce);
        let seen = self.seen.iter_mut().flat_map(|seen| &mut seen.members);
        let seen = seen.filter_map(|member| member.nonce.as_mut());
        let opening = match &mut self.phase {
            MemberPhase::Opening { nonce, .. } => Some(nonce),
            _ => None,
        };
        let nonces = live.chain(holds).chain(seen).chain(opening);
        nonces.filter(|nonce| **nonce == from).for_each(|nonce| *nonce = to);
    }

    /// Whether it has a hold under another session than this one.
    #[doc(hidden)]
    pub fn holds_beside(&self, nonce: Nonce) -> bool {
        self.holds.values().any(|held| held.hold.nonce != nonce)
    }

    /// Whether it is or was a member and knows of no trouble with the store.
    #[doc(hidden)]
    pub fn is_settled(&self) -> bool {
        let there = matches!(self.phase, MemberPhase::Member | MemberPhase::Over);
        there && !self.trouble && self.waiting.is_none()
    }

    /// Keeps the order of deadline, keep-alive and pause, which are compared with each other.
    fn fold_session(&mut self, fold: &Fold) {
        let (now, ttl) = (fold.now, self.settings.ttl);
        // Lateness beyond the margin makes no further difference. It is irrelevant when no work may
        // act or the pause was already noticed.
        let asks = self.suspended.is_none() && self.holds.values().any(EngineHold::may_act);
        let late = asks && crate::is_pause(fold.shift(self.wake), now, ttl);
        self.wake = match late {
            true => fold.since(self.wake, ttl.margin() + Duration::from_millis(1)),
            false => fold.timer(self.wake),
        };
        let sent = self.keeping.as_ref().map(|keeping| keeping.sent);
        let folded = sent.map(|sent| fold.since(sent, ttl.get()));
        if let (Some(keeping), Some(folded)) = (&mut self.keeping, folded) {
            keeping.sent = folded;
        }
        if let Some(live) = &mut self.live {
            let ended = sent.filter(|sent| !live.deadline.allows(*sent)).and(folded);
            live.deadline = match ended {
                Some(sent) => Deadline::from_instant(sent),
                None => fold.deadline(live.deadline),
            };
            live.renew_at = fold.timer(live.renew_at);
        }
        self.suspended = self.suspended.map(|since| match (sent, folded) {
            (Some(sent), Some(folded)) if sent >= since => folded,
            _ => now,
        });
    }

    fn fold_timers(&mut self, fold: &Fold) {
        let timers = [&mut self.waiting, &mut self.leaving, &mut self.failing];
        for at in timers.into_iter().flatten() {
            *at = fold.timer(*at);
        }
        self.fallback = None;
        let timers = self.holds.values().filter_map(|held| held.timer(&self.settings));
        self.due = timers.map(|at| fold.timer(at)).min().unwrap_or(fold.now);
        self.release_again = fold.timer(self.release_again);
        if let MemberPhase::Opening { since: Some(since), .. } = &mut self.phase {
            *since = fold.since(*since, self.settings.ttl.get() * 2);
        }
        // Backoffs that end at the same step are equivalent.
        let steps = |pause: Duration| pause.as_nanos().div_ceil(fold.step.as_nanos());
        let longest = steps(self.settings.look_every);
        let grows = |failed: &u32| steps(self.pause() * 2u32.pow(*failed)) < longest;
        let most = (0..8).find(|failed| !grows(failed)).unwrap_or(8);
        self.phase.fold(fold, most);
        if let Some(claiming) = &mut self.claiming {
            claiming.deadline = fold.deadline(claiming.deadline);
        }
    }

    fn fold_holds(&mut self, fold: &Fold) {
        let ttl = self.settings.ttl.get();
        for held in self.holds.values_mut() {
            held.deadline = fold.deadline(held.deadline);
            (held.since, held.progress, held.moved) = (fold.now, fold.now, false);
            held.work = match held.work {
                WorkState::Asked(until) => WorkState::Asked(fold.timer(until)),
                WorkState::Cancelled(at) => WorkState::Cancelled(fold.since(at, ttl)),
                work => work,
            };
        }
    }

    /// Gives each kind of request a fixed ticket.
    fn fold_tickets(&mut self) -> Vec<(Ticket, Ticket)> {
        let look = self.looking.ticket().copied();
        self.touched.retain(|_, at| look.is_some_and(|look| *at >= look));
        let mut last = 0;
        let mut pairs = Vec::new();
        let mut number = |ticket: Option<&mut Ticket>| {
            last += 1;
            if let Some(ticket) = ticket {
                pairs.push((*ticket, Ticket(last)));
                *ticket = Ticket(last);
            }
        };
        number(self.phase.ticket());
        number(self.keeping.as_mut().map(|keeping| &mut keeping.ticket));
        number(self.claiming.as_mut().map(|claiming| &mut claiming.ticket));
        number(self.releasing.as_mut().map(|(ticket, _)| ticket));
        number(self.looking.ticket());
        self.tickets = last;
        self.touched.values_mut().for_each(|at| *at = Ticket(last));
        pairs
    }
}
