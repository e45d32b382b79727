//! Engine of one member of a group: joins, claims, renews, hands over, stops in time.
//!
//! A pure state machine: [`Engine::step`] takes an event and the local time, and returns effects.
//! It reads no clock and does no I/O; its randomness comes from the seed. The driver answers every
//! [`Effect::Ask`] once, steps the engine at [`Engine::wake_at`], and lets work have effects only
//! before its deadline, by the same clock.
//!
//! | file | decides |
//! |---|---|
//! | `join` | joining and leaving |
//! | `agree` | the TTL and the layout of the group |
//! | `renew` | renewing the session, pauses, losing the session |
//! | `work` | starting, draining, cancelling and releasing work |
//! | `look` | reading the group |
//! | `snapshot` | the input of the roster |
//! | `balance` | which duties to release and to claim |
//! | `claim` | claiming duties and handling the results |
//! | `foreign` | releasing duties to foreign members |
//! | `fold` | nothing: it makes states comparable for the model checker |

mod agree;
mod balance;
mod claim;
mod effect;
mod event;
mod fold;
mod foreign;
mod group;
mod history;
mod join;
mod look;
mod random;
mod renew;
mod settings;
mod snapshot;
mod status;
#[cfg(test)]
mod tests;
mod work;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use effect::{Effect, EngineExit, StopReason, StoreRequest};
pub use event::{EngineEvent, GroupView, StoreResponse, Ticket, WorkOutcome};
#[doc(hidden)]
pub use fold::Fold;
pub use group::{DrainMode, GroupConfig};
pub use history::{PastConfig, Sha256Fn};
pub use settings::{Layout, MemberSettings};
pub use snapshot::GroupSnapshot;
pub use status::MemberStatus;

use crate::{
    Change, Code, Deadline, DutyId, Epoch, InstanceId, Label, Listing, LocalInstant, Note, Problem,
    Record, Session, StoreError,
};
use agree::GroupTtl;
use claim::ClaimBackoff;
use foreign::ForeignMembers;
use join::MemberPhase;
use look::{LookSchedule, ObservedGroup};
use random::SplitMix64;
use work::{EngineHold, RestPeriod};

/// Limit of duties per claim. It is small, so that the first member leaves duties for members that
/// start a moment later.
const MAX_CLAIM_DUTIES: usize = 100;
const MAX_RELEASE_DUTIES: usize = 500;

/// One member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Engine {
    settings: MemberSettings,
    random: SplitMix64,
    tickets: u64,
    out: Vec<Effect>,
    wake: LocalInstant,
    phase: MemberPhase,
    live: Option<LiveSession>,
    /// Name that it publishes: that of the settings, or the same with a number.
    name: Option<Label>,
    keeping: Option<PendingKeepAlive>,
    /// The store returned errors since it last confirmed the session.
    trouble: bool,
    group_ttl: GroupTtl,
    /// Nothing is claimed before this instant: the store was unreachable or reset (R21).
    waiting: Option<LocalInstant>,
    /// When a pause suspended all effects; `None` while they are allowed.
    suspended: Option<LocalInstant>,
    draining: bool,
    /// Until when this member publishes that its work fails, whatever the duty.
    failing: Option<LocalInstant>,
    /// When leaving: the instant by which everything must be released.
    leaving: Option<LocalInstant>,
    holds: BTreeMap<DutyId, EngineHold>,
    /// Holds that can be released.
    ready: BTreeSet<DutyId>,
    /// No hold has a timer before this instant.
    due: LocalInstant,
    /// Cancelled work whose hold is gone and that has not stopped yet.
    stopping: BTreeMap<DutyId, Epoch>,
    /// Duties that are not claimed for a while because their work ended by itself.
    resting: BTreeMap<DutyId, RestPeriod>,
    /// Duties that looked free but whose claim was refused.
    refused: BTreeMap<DutyId, ClaimBackoff>,
    foreign: ForeignMembers,
    /// The newest known epochs; grants must be above.
    floors: BTreeMap<DutyId, Epoch>,
    listing: Option<Listing>,
    listed: u64,
    looking: LookSchedule,
    seen: Option<ObservedGroup>,
    /// Since when duties are free, as far as this member knows.
    free: BTreeMap<DutyId, LocalInstant>,
    /// Last holder of a duty, and when its session would have ended.
    last: BTreeMap<DutyId, (InstanceId, LocalInstant)>,
    /// When a mixture of revisions was first seen.
    mixed: Option<LocalInstant>,
    view: u64,
    todo: VecDeque<ClaimCandidate>,
    claiming: Option<PendingClaim>,
    releasing: Option<(Ticket, Vec<(DutyId, Epoch)>)>,
    release_again: LocalInstant,
    /// Duties claimed or released, with the last ticket at that time: an earlier look is stale.
    touched: BTreeMap<DutyId, Ticket>,
    /// Duties that this member released because it was above its share, and when.
    shed: BTreeMap<DutyId, LocalInstant>,
    fallback: Option<LocalInstant>,
    standing_by: bool,
    unheld: usize,
    /// The problem that makes it leave.
    failed: Option<Problem>,
    /// Failures that were recorded and still last.
    complaints: BTreeMap<(Change, Option<DutyId>), String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClaimCandidate {
    duty: DutyId,
    /// The plan assigns it to another member, which did not take it. It stays here for the window.
    beyond: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PendingClaim {
    ticket: Ticket,
    /// Session deadline when the claim was sent: later keep-alives do not name the new holds.
    deadline: Deadline,
    wishes: Vec<ClaimCandidate>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LiveSession {
    session: Session,
    deadline: Deadline,
    renew_at: LocalInstant,
    /// The note that the store has.
    said: Note,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PendingKeepAlive {
    ticket: Ticket,
    sent: LocalInstant,
    note: Option<Note>,
    holds: Vec<(DutyId, Epoch)>,
}

impl Engine {
    /// Creates a member that has not joined yet. `seed` is 128 random bits of its own.
    pub fn new(settings: MemberSettings, seed: u128, now: LocalInstant) -> Self {
        Self {
            group_ttl: GroupTtl { longest: settings.ttl, is_known: false, written: None },
            name: settings.name.clone(),
            settings,
            random: SplitMix64::new(seed),
            tickets: 0,
            out: Vec::new(),
            wake: now,
            phase: MemberPhase::first(now),
            live: None,
            keeping: None,
            trouble: false,
            waiting: None,
            suspended: None,
            draining: false,
            failing: None,
            leaving: None,
            holds: BTreeMap::new(),
            ready: BTreeSet::new(),
            due: now,
            stopping: BTreeMap::new(),
            resting: BTreeMap::new(),
            refused: BTreeMap::new(),
            foreign: ForeignMembers::default(),
            floors: BTreeMap::new(),
            listing: None,
            listed: 0,
            looking: LookSchedule::new(now),
            seen: None,
            free: BTreeMap::new(),
            last: BTreeMap::new(),
            mixed: None,
            view: 0,
            todo: VecDeque::new(),
            claiming: None,
            releasing: None,
            release_again: now,
            touched: BTreeMap::new(),
            shed: BTreeMap::new(),
            fallback: None,
            standing_by: false,
            unheld: 0,
            failed: None,
            complaints: BTreeMap::new(),
        }
    }

    /// Processes one event and returns the effects.
    pub fn step(&mut self, event: EngineEvent, now: LocalInstant) -> Vec<Effect> {
        if matches!(self.phase, MemberPhase::Over) {
            return Vec::new();
        }
        self.notice_pause(now);
        self.expire(now);
        match event {
            EngineEvent::Tick => {}
            EngineEvent::Hint => self.hinted(now),
            EngineEvent::Answered(ticket, answer) => self.answered(ticket, answer, now),
            EngineEvent::Listed(listing) => self.take_listing(listing, now),
            EngineEvent::Unlisted(error) => {
                self.complain(now, Change::ListFailed, error.problem().to_string());
            }
            EngineEvent::Stopped { duty, epoch, how } => self.stopped(&duty, epoch, how, now),
            EngineEvent::Progress { duty, epoch } => self.progressed(&duty, epoch, now),
            EngineEvent::Fenced { duty, epoch, newest } => self.fenced(&duty, epoch, newest, now),
            EngineEvent::Doubted => self.renew_now(now),
            EngineEvent::Failing { rest } => self.give_way(rest, now),
            EngineEvent::Drain => self.drain(now),
            EngineEvent::Leave => self.leave(now),
        }
        self.advance(now);
        self.wake = self.next_wake(now);
        std::mem::take(&mut self.out)
    }

    /// Returns when [`EngineEvent::Tick`] is due, if no other event comes first.
    pub fn wake_at(&self) -> LocalInstant {
        self.wake
    }

    /// Whether this engine is a member of its group now.
    pub fn is_member(&self) -> bool {
        self.live.is_some()
    }

    fn advance(&mut self, now: LocalInstant) {
        if self.waiting.is_some_and(|until| now >= until) {
            self.waiting = None;
            self.say_status(now);
            self.look_now(now);
        }
        if self.failing.is_some_and(|until| now >= until) {
            self.give_way(Duration::ZERO, now);
        }
        if !matches!(self.phase, MemberPhase::Member) {
            return self.go_on(now);
        }
        if self.fallback.is_some_and(|at| now >= at) {
            self.balance(false, now);
        }
        self.release_next(now);
        self.claim_next(now);
        self.renew_if_due(now);
        self.look_if_due(now);
        self.finish_if_done(now);
    }

    fn next_wake(&mut self, now: LocalInstant) -> LocalInstant {
        // There is a step for each look, so a much later step means a pause.
        let mut wake = now.plus(self.settings.look_every);
        let mut by = |at: LocalInstant| wake = wake.min(at);
        if matches!(self.phase, MemberPhase::Member) {
            if let (Some(live), None) = (&self.live, &self.keeping) {
                by(live.renew_at);
            }
            if !self.looking.is_on_its_way() {
                by(self.looking.at);
            }
            let gives_back = !self.ready.is_empty() && !self.closes_with_all();
            if self.releasing.is_none() && gives_back {
                by(self.release_again);
            }
            self.fallback.into_iter().for_each(&mut by);
        } else {
            by(self.phase.next(now));
        }
        let due = (!self.holds.is_empty()).then_some(self.due);
        let timers = [self.waiting, self.leaving, self.failing, due];
        timers.into_iter().flatten().for_each(by);
        // Avoids a busy loop when something is due but cannot be done yet.
        wake.max(now.plus(Duration::from_millis(1)))
    }

    /// Publishes that all work fails here, or no longer does, and plans accordingly.
    fn give_way(&mut self, rest: Duration, now: LocalInstant) {
        self.failing = (!rest.is_zero()).then(|| now.plus(rest));
        self.balance(false, now);
        self.look_now(now);
    }

    fn answered(&mut self, ticket: Ticket, answer: StoreResponse, now: LocalInstant) {
        match answer {
            StoreResponse::KeepAlive(result) => self.kept_alive(ticket, result, now),
            StoreResponse::Claim(result) => self.claimed(ticket, result, now),
            StoreResponse::Release(result) => self.released(ticket, result, now),
            StoreResponse::Look(result) => self.looked(ticket, result, now),
            StoreResponse::Open(result) => self.opened(ticket, result, now),
            StoreResponse::Settle(result) => self.settled(ticket, result.map(|_| ()), now),
            StoreResponse::Close(result) => self.closed(ticket, result, now),
        }
    }

    fn ask(&mut self, request: StoreRequest, within: Duration) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.out.push(Effect::Ask { ticket, request, within });
        ticket
    }

    fn record(
        &mut self,
        at: LocalInstant,
        change: Change,
        duty: Option<(&DutyId, Epoch)>,
        other: Option<InstanceId>,
        reason: impl Into<Cow<'static, str>>,
    ) {
        let instance = self.settings.instance.clone();
        let (duty, epoch) = duty.map(|(duty, epoch)| (duty.clone(), epoch)).unzip();
        // Epoch zero means that there is no grant.
        let epoch = epoch.filter(|epoch| *epoch > Epoch::ZERO);
        let reason = reason.into();
        self.out.push(Effect::Record(Record { at, change, instance, duty, epoch, other, reason }));
    }

    /// Records a failure, unless the last one of its kind had the same reason.
    fn complain(&mut self, at: LocalInstant, change: Change, reason: String) {
        let before = self.complaints.insert((change, None), reason.clone());
        if before.as_ref() != Some(&reason) {
            self.record(at, change, None, None, reason);
        }
    }

    /// Records a failure once per duty, until it is over.
    fn complain_of(
        &mut self,
        at: LocalInstant,
        change: Change,
        duties: &[(DutyId, Epoch)],
        reason: String,
    ) {
        for (duty, epoch) in duties {
            let about = (change, Some(duty.clone()));
            if self.complaints.insert(about, String::new()).is_none() {
                self.record(at, change, Some((duty, *epoch)), None, reason.clone());
            }
        }
        if duties.is_empty() {
            self.complain(at, change, reason);
        }
    }

    /// Clears the failures of this kind.
    fn no_complaint(&mut self, change: Change) {
        self.complaints.retain(|(about, _), _| *about != change);
    }

    /// Releases everything and ends with a problem.
    fn fail(&mut self, problem: Problem, now: LocalInstant) {
        if self.failed.is_some() {
            return;
        }
        self.record(now, Change::JoinFailed, None, None, problem.to_string());
        self.failed = Some(problem);
        self.leave(now);
        if self.live.is_none() {
            self.end("failed", now);
        }
    }

    /// Returns the timeout of requests other than renewals: a third of the TTL.
    fn request_timeout(&self) -> Duration {
        self.settings.ttl.get() / 3
    }

    /// Returns the pause before a failed request is repeated.
    fn pause(&self) -> Duration {
        (self.settings.ttl.get() / 20).max(Duration::from_millis(20))
    }

    /// Notes that the store has answered a claim or a release of this duty.
    fn touch(&mut self, duty: &DutyId) {
        self.touched.insert(duty.clone(), Ticket(self.tickets));
    }

    fn raise_floor(&mut self, duty: &DutyId, epoch: Epoch) {
        let floor = self.floors.entry(duty.clone()).or_insert(epoch);
        *floor = epoch.max(*floor);
    }

    fn see_holder(&mut self, duty: &DutyId, holder: Option<InstanceId>) {
        if let Some(seen) = &mut self.seen {
            seen.holders.insert(duty.clone(), holder);
        }
    }

    fn is_going(&self) -> bool {
        self.draining || self.leaving.is_some()
    }

    /// Whether the error says that the store has lost its state.
    fn is_reset(error: &StoreError) -> bool {
        error.code() == Code::Reset
    }
}
