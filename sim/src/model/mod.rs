//! A model of claim, keep-alive, handover and commit, over the real engine.
//!
//! Every state holds the engines themselves; [`stateright`] tries all that can happen next.

mod member;
mod props;
mod report;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stateright::{Model, Property};
use tenure_core::engine::{Event, Group, Layout, Settings};
use tenure_core::store::GroupDocument;
use tenure_core::{
    DutyId, DutyKey, Epoch, GroupName, InstanceId, Listing, LocalInstant, Target, Ttl,
};

pub use member::Kind;
use member::{Member, Mode, Shared};
pub use report::{Outcome, check};
use store::Store;

/// The local time of every member, in every state: what passes moves the instants instead.
const NOW: LocalInstant = LocalInstant::from_nanos(1_000_000_000_000);
/// A step of time. Ten milliseconds more than the smallest margin: a tick that is due within a
/// step and comes at its end is no pause, and one that is missed is.
const STEP: Duration = Duration::from_millis(60);

/// What is modelled, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many instances there are.
    pub instances: usize,
    /// How many duties there are.
    pub duties: usize,
    /// States with a larger epoch are not explored.
    pub epochs: u64,
    /// How many messages to and from the store may be late or lost at the same time.
    pub late: usize,
    /// For how many steps of time they may be on their way.
    pub delay: u8,
    /// How many instances may be paused at the same time.
    pub paused: usize,
    /// How many instances may be told to hand over and go.
    pub drained: usize,
    /// The TTL in steps of time.
    pub ttl: u8,
    /// How many actions a state may be away from the first; zero for any number.
    pub depth: usize,
    /// The store may end a session at any moment, not only when its TTL is over.
    pub early: bool,
    /// A late look shows the group as it was when it was read, not as it is when it comes.
    pub stale: bool,
    /// Cancelled work may take its time to stop.
    pub lingers: bool,
    /// The first state has all instances as members.
    pub joined: bool,
}

impl Bounds {
    /// So many instances and duties, with epochs up to 3.
    pub const fn new(instances: usize, duties: usize) -> Self {
        Self {
            instances,
            duties,
            epochs: 3,
            late: 0,
            delay: 1,
            paused: 1,
            drained: 0,
            ttl: 4,
            depth: 0,
            early: false,
            stale: false,
            lingers: false,
            joined: false,
        }
    }
}

/// A rule that is taken out, to see that something notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// Nothing is.
    Nothing,
    /// Commits are accepted whatever their epoch.
    Fence,
    /// Work acts on after its deadline, until it is told to stop.
    Deadline,
    /// A duty is granted again under the epoch that it had.
    Growth,
}

/// What all states share.
#[derive(Debug)]
pub(crate) struct Setup {
    bounds: Bounds,
    group: GroupName,
    ttl: Ttl,
    instances: Vec<InstanceId>,
    duties: Vec<DutyId>,
    listing: Listing,
    document: GroupDocument,
    without: Without,
    /// How often each thing happened.
    counts: [AtomicU64; What::NAMES.len()],
}

/// Something that is counted, or judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Granted { duty: usize, before: Grant, now: Grant },
    Committed { duty: usize, newest: Grant, under: Grant },
    Released,
    Expired,
    HandedOver,
    TakenOver,
    CommitRefused,
    UnknownClaimResolved,
    PauseNoticed,
}

impl What {
    const NAMES: [&str; 9] = [
        "grants",
        "commits",
        "releases",
        "expiries",
        "handovers",
        "takeovers after expiry",
        "stale commits refused",
        "unknown claims resolved",
        "pauses noticed",
    ];

    fn index(self) -> usize {
        match self {
            Self::Granted { .. } => 0,
            Self::Committed { .. } => 1,
            Self::Released => 2,
            Self::Expired => 3,
            Self::HandedOver => 4,
            Self::TakenOver => 5,
            Self::CommitRefused => 6,
            Self::UnknownClaimResolved => 7,
            Self::PauseNoticed => 8,
        }
    }
}

/// An epoch, and to whom it was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Grant {
    epoch: Epoch,
    to: usize,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    members: Vec<Shared>,
    store: Store,
    /// The invariants that the last action broke.
    broken: Vec<&'static str>,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A step of time passes. Members that were due and did not tick were paused.
    Pass,
    /// The engine of an instance is stepped; requests of a kind may go late.
    Step(usize, Cause, Option<Kind>),
    /// A late request reaches the store.
    Arrive(usize, usize),
    /// A request that nobody waits for reaches the store.
    Haunt(usize),
    /// It never does.
    Vanish(usize),
    /// The store ends the session of an instance.
    Expire(usize),
    /// A commit reaches the store that work has sent at some time since it began.
    Commit(usize, usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("a step of time passes"),
            Self::Step(at, cause, None) => write!(f, "i{at}: {cause:?}"),
            Self::Step(at, cause, Some(kind)) => write!(f, "i{at}: {cause:?}; {kind:?} is late"),
            Self::Arrive(at, late) => write!(f, "i{at}: late request {late} arrives"),
            Self::Haunt(at) => write!(f, "i{at}: the request that was given up arrives"),
            Self::Vanish(at) => write!(f, "i{at}: the request that was given up is lost"),
            Self::Expire(at) => write!(f, "i{at}: the store ends its session"),
            Self::Commit(at, work) => write!(f, "i{at}: a commit of its work {work} arrives"),
        }
    }
}

/// Why an engine is stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its time to wake has come.
    Tick,
    /// The answer to a late request comes.
    Answer(usize),
    /// A request is given up: its outcome is unknown.
    GiveUp(usize),
    /// Work that was asked to has stopped.
    Stopped(usize),
    /// It is told to hand over and go.
    Drain,
}

impl Setup {
    pub(crate) fn new(bounds: Bounds, without: Without) -> Self {
        // Short words and a TTL within the limits: always valid.
        let group = GroupName::new("g").expect("a valid name");
        let ttl = Ttl::new(STEP * u32::from(bounds.ttl)).expect("a valid TTL");
        let instance = |at: usize| InstanceId::new(format!("i{at}")).expect("a valid id");
        let duty = |at: usize| DutyId::new(format!("{at}")).expect("a valid id");
        let duties: Vec<_> = (0..bounds.duties).map(duty).collect();
        let settings = Some((ttl, Layout::Targets));
        Self {
            bounds,
            group,
            ttl,
            instances: (0..bounds.instances).map(instance).collect(),
            listing: Listing::new(duties.iter().cloned().map(Target::new)),
            duties,
            document: store::settled(&Group { settings, ..Group::default() }),
            without,
            counts: Default::default(),
        }
    }

    fn settings(&self, at: usize) -> Settings {
        let id = self.instances[at].clone();
        let settings = Settings::new(self.group.clone(), id, self.ttl, Layout::Targets);
        Settings { window: Duration::ZERO, look_every: STEP, ..settings }
    }

    /// How many steps a session lasts from now.
    fn left(&self) -> u8 {
        if self.bounds.early { 0 } else { self.bounds.ttl }
    }

    fn key(&self, duty: usize) -> DutyKey {
        DutyKey { group: self.group.clone(), id: self.duties[duty].clone() }
    }

    fn duty(&self, id: &DutyId) -> usize {
        self.duties.iter().position(|duty| duty == id).expect("a duty of the list")
    }

    fn count(&self, what: What) {
        self.counts[what.index()].fetch_add(1, Ordering::Relaxed);
    }

    fn counted(&self, name: &str) -> u64 {
        let at = What::NAMES.iter().position(|one| *one == name).expect("a name of the list");
        self.counts[at].load(Ordering::Relaxed)
    }

    fn step(&self, state: &State, at: usize, cause: Cause, late: Option<Kind>) -> Option<State> {
        let mut next = state.clone();
        let mut member = state.members[at].get().clone();
        let event = match cause {
            Cause::Tick => member.tick(self),
            Cause::Answer(message) => {
                member.arrive(self, &mut next.store, at, message);
                member.deliver(self, &mut next.store, message)?
            }
            Cause::GiveUp(message) => member.give_up(message),
            Cause::Stopped(work) => member.stop(self, work),
            Cause::Drain => {
                member.drained = true;
                Event::Drain
            }
        };
        let turn = member.turn(self, &mut next.store, at, event, late);
        next.members[at] = Shared::new(member);
        self.judge(&mut next, &turn.happened);
        Some(next)
    }

    /// The kinds of requests that a step would send.
    fn asked(&self, state: &State, at: usize, cause: Cause) -> Vec<Kind> {
        let mut store = state.store.clone();
        let mut member = state.members[at].get().clone();
        let event = match cause {
            Cause::Tick => Some(member.tick(self)),
            Cause::Answer(message) => {
                member.arrive(self, &mut store, at, message);
                member.deliver(self, &mut store, message)
            }
            Cause::GiveUp(message) => Some(member.give_up(message)),
            Cause::Stopped(work) => Some(member.stop(self, work)),
            Cause::Drain => Some(Event::Drain),
        };
        let Some(event) = event else { return Vec::new() };
        let mut asked = member.turn(self, &mut store, at, event, None).asked;
        asked.sort();
        asked.dedup();
        asked
    }

    fn causes(&self, state: &State, at: usize) -> Vec<Cause> {
        let member = state.members[at].get();
        let mut causes = Vec::new();
        if member.is_due() {
            causes.push(Cause::Tick);
        }
        for (at, message) in member.late.iter().enumerate() {
            if message.answer.is_some() || message.kind == Kind::Look && !self.bounds.stale {
                causes.push(Cause::Answer(at));
            }
            causes.push(Cause::GiveUp(at));
        }
        let stopping = |(_, work): &(usize, &member::Work)| work.mode != Mode::Runs;
        let works = member.works.iter().enumerate().filter(stopping);
        causes.extend(works.map(|(at, _)| Cause::Stopped(at)));
        if at < self.bounds.drained && !member.drained && !member.over {
            causes.push(Cause::Drain);
        }
        causes
    }

    /// Time passes for all. What was due and has not ticked was paused.
    fn pass(&self, state: &State) -> State {
        let mut next = state.clone();
        next.store.pass();
        for (at, shared) in next.members.iter_mut().enumerate() {
            let mut member = shared.get().clone();
            member.pass(at, self.bounds.delay);
            *shared = Shared::new(member);
        }
        next
    }

    fn change(
        &self,
        state: &State,
        at: usize,
        change: impl FnOnce(&mut Member, &mut Store) -> Vec<What>,
    ) -> State {
        let mut next = state.clone();
        let mut member = state.members[at].get().clone();
        let happened = change(&mut member, &mut next.store);
        next.members[at] = Shared::new(member);
        self.judge(&mut next, &happened);
        next
    }

    /// Something that no member sees.
    fn change_store(&self, state: &State, change: impl FnOnce(&mut Store) -> What) -> State {
        let mut next = state.clone();
        let happened = change(&mut next.store);
        self.judge(&mut next, &[happened]);
        next
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let members = (0..self.instances.len()).map(|at| Shared::new(Member::new(self, at)));
        let mut state =
            State { members: members.collect(), store: Store::new(self), broken: Vec::new() };
        let joined = if self.bounds.joined { self.instances.len() } else { 0 };
        for at in 0..joined {
            // A tick has no answer that could be missing.
            state = self.step(&state, at, Cause::Tick, None).expect("a first step");
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let bounds = &self.bounds;
        // What a broken state leads to is of no interest.
        if !state.broken.is_empty() {
            return;
        }
        let late: usize = state.members.iter().map(|one| one.get().late_messages()).sum();
        for at in 0..self.instances.len() {
            let member = state.members[at].get();
            for cause in self.causes(state, at) {
                actions.push(Action::Step(at, cause, None));
                if late < bounds.late {
                    let asked = self.asked(state, at, cause);
                    actions
                        .extend(asked.into_iter().map(|kind| Action::Step(at, cause, Some(kind))));
                }
            }
            let waiting = member.late.iter().enumerate().filter(|(_, late)| {
                late.answer.is_none() && (bounds.stale || late.kind != Kind::Look)
            });
            actions.extend(waiting.map(|(late, _)| Action::Arrive(at, late)));
            if member.ghost.is_some() {
                actions.extend([Action::Haunt(at), Action::Vanish(at)]);
            }
            if state.store.is_over(at).is_some_and(|over| over || bounds.early) {
                actions.push(Action::Expire(at));
            }
            actions.extend((0..member.works.len()).map(|work| Action::Commit(at, work)));
        }
        let due = state.members.iter().filter(|one| one.get().is_due()).count();
        let urgent = state.members.iter().any(|one| one.get().is_urgent(bounds.delay));
        if due <= bounds.paused && !urgent {
            actions.push(Action::Pass);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = match action {
            Action::Pass => self.pass(state),
            Action::Step(at, cause, late) => self.step(state, at, cause, late)?,
            Action::Arrive(at, late) => {
                self.change(state, at, |member, store| member.arrive(self, store, at, late))
            }
            Action::Haunt(at) => {
                self.change(state, at, |member, store| member.haunt(self, store, at))
            }
            Action::Vanish(at) => self.change(state, at, |member, _| {
                member.ghost = None;
                Vec::new()
            }),
            Action::Expire(at) => self.change_store(state, |store| {
                store.end(at, What::Expired);
                What::Expired
            }),
            Action::Commit(at, work) => {
                let commit = state.members[at].get().works[work].commit();
                self.change_store(state, |store| store.commit(self, at, &commit))
            }
        };
        for at in 0..next.members.len() {
            if let Some(tidied) = next.members[at].get().tidy(&next.store, at) {
                next.members[at] = Shared::new(tidied);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.rules()
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.store.is_within(&self.bounds)
    }
}
