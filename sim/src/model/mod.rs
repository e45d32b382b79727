//! A model of claim, keep-alive, handover and commit, over the real engine.
//!
//! Every state holds the engines themselves; [`stateright`] explores all possible next steps.

mod choice;
mod member;
mod props;
mod report;
mod shared;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stateright::{Model, Property};
use tenure_core::engine::{GroupConfig, Layout, MemberSettings};
use tenure_core::store::GroupDocument;
use tenure_core::{
    DutyId, DutyKey, Epoch, GroupName, InstanceId, Listing, LocalInstant, Target, Ttl,
};

use choice::{Choice, Memo};
use member::ModelMember;
pub use report::{ModelReport, check};
use shared::SharedPart;
use store::ModelStore;

/// The local time of every member in every state: passing time shifts the instants instead.
const NOW: LocalInstant = LocalInstant::from_nanos(1_000_000_000_000);
/// A step of time: ten milliseconds more than the smallest margin. A tick that is due within a step
/// and comes at its end is no pause; a missed tick is.
const MODEL_STEP: Duration = Duration::from_millis(60);

/// Bounds of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelBounds {
    /// Number of instances.
    pub instances: usize,
    /// Number of duties.
    pub duties: usize,
    /// States with a larger epoch are not explored.
    pub epochs: u64,
    /// Limit of messages to and from the store that may be late or lost at the same time.
    pub late: usize,
    /// Limit of time steps for which they may be late.
    pub delay: u8,
    /// Limit of replies lost in one turn of an engine. The engine learns at once that their outcome
    /// is unknown; each request was executed or not.
    pub lost: usize,
    /// Limit of instances in trouble at the same time: from a lost reply until their engine knows
    /// the state of the store again.
    pub troubled: usize,
    /// Limit of replies lost on the way to a state; zero for no limit.
    pub losses: usize,
    /// Limit of instances paused at the same time.
    pub paused: usize,
    /// Limit of instances that are drained.
    pub drained: usize,
    /// The TTL in steps of time.
    pub ttl: u8,
    /// Limit of actions from the first state; zero for no limit.
    pub depth: usize,
    /// Whether the store may end a session at any moment, not only after its TTL.
    pub early: bool,
    /// Whether a late look shows the group at the time of reading, not of arrival.
    pub stale: bool,
    /// Whether cancelled work may take time to stop.
    pub lingers: bool,
    /// Whether all instances are members in the first state.
    pub joined: bool,
}

impl ModelBounds {
    /// Returns bounds for this many instances and duties, with epochs up to 3.
    pub const fn new(instances: usize, duties: usize) -> Self {
        Self {
            instances,
            duties,
            epochs: 3,
            late: 0,
            delay: 1,
            lost: 0,
            troubled: 1,
            losses: 0,
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

/// A rule to switch off, to check that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// No rule.
    Nothing,
    /// Commits are accepted under any epoch.
    Fence,
    /// Work acts after its deadline, until it is told to stop.
    Deadline,
    /// A duty is granted again under its previous epoch.
    Growth,
    /// Cancelled work is reported as stopped although it has not.
    Stopping,
}

/// Data that all states share.
#[derive(Debug)]
pub(crate) struct Setup {
    bounds: ModelBounds,
    group: GroupName,
    ttl: Ttl,
    instances: Vec<InstanceId>,
    duties: Vec<DutyId>,
    listing: Listing,
    document: GroupDocument,
    without: Without,
    /// Number of occurrences of each kind.
    counts: [AtomicU64; What::EVENT_NAMES.len()],
    memo: Mutex<Memo>,
}

/// An occurrence that is counted or judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Granted { duty: usize, before: ModelGrant, now: ModelGrant },
    Committed { duty: usize, newest: ModelGrant, under: ModelGrant },
    Released,
    Expired,
    HandedOver,
    TakenOver,
    CommitRefused,
    UnknownClaimResolved,
    PauseNoticed,
}

impl What {
    const EVENT_NAMES: [&str; 9] = [
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

/// An epoch and the instance that it was granted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ModelGrant {
    epoch: Epoch,
    to: usize,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModelState {
    members: Vec<SharedPart<ModelMember>>,
    store: SharedPart<ModelStore>,
    /// Remaining TTL of each session, in steps of time.
    left: Vec<u8>,
    /// Number of replies lost, if that is limited.
    losses: usize,
    /// The invariants that the last action broke.
    broken: Vec<&'static str>,
}

/// An action of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelAction {
    /// A step of time passes. Members that were due and did not tick were paused.
    Pass,
    /// Something happens to an instance.
    One(usize, Arc<Choice>),
}

impl fmt::Display for ModelAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("a step of time passes"),
            Self::One(at, choice) => write!(f, "i{at}: {choice}"),
        }
    }
}

impl Setup {
    pub(crate) fn new(bounds: ModelBounds, without: Without) -> Self {
        // Short words and a TTL within the limits are always valid.
        let group = GroupName::new("g").expect("a valid name");
        let ttl = Ttl::new(MODEL_STEP * u32::from(bounds.ttl)).expect("a valid TTL");
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
            document: store::settled(&GroupConfig { settings, ..GroupConfig::default() }),
            without,
            counts: Default::default(),
            memo: Mutex::default(),
        }
    }

    fn settings(&self, at: usize) -> MemberSettings {
        let id = self.instances[at].clone();
        let settings = MemberSettings::new(self.group.clone(), id, self.ttl, Layout::Targets);
        MemberSettings { window: Duration::ZERO, look_every: MODEL_STEP, ..settings }
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
        let at = What::EVENT_NAMES.iter().position(|one| *one == name).expect("a name of the list");
        self.counts[at].load(Ordering::Relaxed)
    }

    /// Advances time for all members. A member that was due and has not ticked was paused.
    fn pass(&self, state: &ModelState) -> ModelState {
        let members = state.members.iter().enumerate();
        ModelState {
            members: members.map(|(at, member)| self.later(at, member)).collect(),
            store: state.store.clone(),
            left: state.left.iter().map(|left| left.saturating_sub(1)).collect(),
            losses: state.losses,
            broken: Vec::new(),
        }
    }

    fn follow(&self, state: &ModelState, at: usize, choice: &Choice) -> ModelState {
        let mut next = ModelState {
            store: choice.store.clone(),
            broken: choice.broken.clone(),
            ..state.clone()
        };
        next.members[at] = choice.member.clone();
        if !choice.store.get().has_session(at) {
            next.left[at] = 0;
        } else if choice.renewed && !self.bounds.early {
            next.left[at] = self.bounds.ttl;
        }
        if self.bounds.losses > 0 {
            next.losses += choice.faults().0;
        }
        for (at, shared) in next.members.iter_mut().enumerate() {
            if let Some(tidied) = shared.get().tidy(next.store.get(), at) {
                *shared = self.share(tidied);
            }
        }
        next
    }
}

impl Model for Setup {
    type State = ModelState;
    type Action = ModelAction;

    fn init_states(&self) -> Vec<ModelState> {
        let members = (0..self.instances.len()).map(|at| self.share(ModelMember::new(self, at)));
        let mut state = ModelState {
            members: members.collect(),
            store: self.share_store(ModelStore::new(self)),
            left: vec![0; self.instances.len()],
            losses: 0,
            broken: Vec::new(),
        };
        let joined = if self.bounds.joined { self.instances.len() } else { 0 };
        for at in 0..joined {
            // The first choice is a tick without faults.
            let choices = self.choices(at, &state.members[at], &state.store);
            state = self.follow(&state, at, &choices[0]);
        }
        vec![state]
    }

    fn actions(&self, state: &ModelState, actions: &mut Vec<ModelAction>) {
        let bounds = &self.bounds;
        // States after a broken rule are not explored.
        if !state.broken.is_empty() {
            return;
        }
        let late: usize = state.members.iter().map(|one| one.get().late_messages()).sum();
        let troubled = state.members.iter().filter(|one| one.get().troubled).count();
        let left = match bounds.losses {
            0 => bounds.lost,
            most => bounds.lost.min(most - state.losses),
        };
        for (at, member) in state.members.iter().enumerate() {
            let may_lose = member.get().troubled || troubled < bounds.troubled;
            let lost = if may_lose { left } else { 0 };
            for choice in self.choices(at, member, &state.store).iter() {
                let (loses, delays) = choice.faults();
                let stands = choice.is_expiry() && !bounds.early && state.left[at] > 0;
                if stands || loses > lost || delays && late >= bounds.late {
                    continue;
                }
                choice.happened.iter().for_each(|what| self.count(*what));
                if !choice.idle {
                    actions.push(ModelAction::One(at, Arc::clone(choice)));
                }
            }
        }
        let due = state.members.iter().filter(|one| one.get().is_due()).count();
        let urgent = state.members.iter().any(|one| one.get().is_urgent(bounds.delay));
        if due <= bounds.paused && !urgent {
            actions.push(ModelAction::Pass);
        }
    }

    fn next_state(&self, state: &ModelState, action: ModelAction) -> Option<ModelState> {
        Some(match action {
            ModelAction::Pass => self.pass(state),
            ModelAction::One(at, choice) => self.follow(state, at, &choice),
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.rules()
    }

    fn within_boundary(&self, state: &ModelState) -> bool {
        // A broken rule is judged even outside the bounds.
        !state.broken.is_empty() || state.store.get().is_within(&self.bounds)
    }
}
