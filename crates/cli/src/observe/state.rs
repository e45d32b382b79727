//! What is counted. Plain numbers: metrics and health are both made from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Change, DutyId, GroupName, LocalInstant, Record};
use tenure_duty::observe::{HeldDuty, Operation};
use tenure_wire::exposition::DURATIONS;

/// How long a duty that is not held any more is shown as such.
const SHOWN: Duration = Duration::from_secs(600);
/// How many of them are.
const MOST_GONE: usize = 1000;

/// How long requests took.
#[derive(Clone, Debug, Default)]
pub(super) struct Durations {
    /// For each bound, how many took longer than the one before and not longer than it.
    pub(super) buckets: [u64; DURATIONS.len()],
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl Durations {
    fn add(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        if let Some(at) = DURATIONS.iter().position(|bound| took <= *bound) {
            self.buckets[at] += 1;
        }
        self.count += 1;
        self.sum += took;
    }
}

/// Why duties came to this instance from another one.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    /// The roster gave it a share of what others had.
    pub(super) join: u64,
    /// Another one gave it back.
    pub(super) leave: u64,
    /// Another one vanished.
    pub(super) failure: u64,
}

/// One group.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) holds: Arc<[HeldDuty]>,
    /// What was left until the deadline when a keep-alive was confirmed last.
    pub(super) margin: Option<Duration>,
}

/// Whose checkpoint it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) connector_type: String,
    pub(crate) endpoint_identity: String,
    pub(crate) shard_id: String,
}

/// Everything that is counted.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) renewals: u64,
    pub(super) renewals_failed: u64,
    pub(super) acquire: Durations,
    pub(super) renew: Durations,
    pub(super) release: Durations,
    pub(super) moves: Moves,
    pub(super) fenced: u64,
    /// How many polls ended in each way; empty where nothing is polled.
    pub(super) polls: BTreeMap<Polled, u64>,
    /// Until when every poll is taken to fail here.
    pub(super) failing: Option<LocalInstant>,
    pub(super) groups: BTreeMap<GroupName, Group>,
    pub(super) lags: BTreeMap<Endpoint, Duration>,
    /// Whether the store gave an answer, when it was asked last.
    pub(super) answered: Option<bool>,
    /// When it gave one.
    pub(super) answered_at: Option<LocalInstant>,
    /// When a keep-alive was answered last, on the wall clock.
    pub(super) renewed_at: Option<u64>,
}

/// What became of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Polled {
    /// The command ended with 0.
    Done,
    /// It ended otherwise, or could not be started.
    Failed,
    /// It took too long, or its hold was lost.
    Killed,
    /// It was not started: the one before still ran, or too little was left of the hold.
    Skipped,
}

impl Polled {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::Skipped => "skipped",
        }
    }
}

impl State {
    pub(super) fn polled(&mut self, how: Polled) {
        *self.polls.entry(how).or_default() += 1;
    }

    /// Each move is counted once, by the one who gets the duty.
    pub(super) fn recorded(&mut self, record: &Record) {
        match (record.change, record.reason.as_ref()) {
            // The answer to a keep-alive can be that there is nothing left to keep.
            (Change::SessionLost, _) => self.renewals_failed += 1,
            (Change::TakenOver, _) => self.moves.failure += 1,
            (Change::Acquired, "moved" | "unclaimed") => self.moves.join += 1,
            (Change::Acquired, "released") => self.moves.leave += 1,
            _ => {}
        }
    }

    pub(super) fn asked(
        &mut self,
        operation: Operation,
        took: Duration,
        ok: bool,
        now: (LocalInstant, u64),
    ) {
        match operation {
            Operation::Acquire => self.acquire.add(took),
            Operation::Renew => self.renew.add(took),
            Operation::Release => self.release.add(took),
            Operation::Session | Operation::Look => {}
        }
        // Counted here, because also a member that holds nothing renews its session.
        match (operation, ok) {
            (Operation::Renew, true) => {
                self.renewals += 1;
                self.renewed_at = Some(now.1);
            }
            (Operation::Renew, false) => self.renewals_failed += 1,
            _ => {}
        }
        self.answered = Some(ok);
        if ok {
            self.answered_at = Some(now.0);
        }
    }

    pub(super) fn renewed(&mut self, group: &GroupName, margin_left: Duration) {
        self.group(group).margin = Some(margin_left);
    }

    pub(super) fn holding(&mut self, group: &GroupName, holds: Arc<[HeldDuty]>) {
        self.group(group).holds = holds;
    }

    pub(super) fn lag(&mut self, endpoint: Endpoint, lag: Option<Duration>) {
        match lag {
            Some(lag) => self.lags.insert(endpoint, lag),
            None => self.lags.remove(&endpoint),
        };
    }

    /// How many duties are held.
    pub(super) fn held(&self) -> usize {
        self.groups.values().map(|group| group.holds.len()).sum()
    }

    fn group(&mut self, group: &GroupName) -> &mut Group {
        self.groups.entry(group.clone()).or_default()
    }
}

/// The duties that were shown as held, and when they were last.
///
/// A duty that is given back stays at zero for a while, so that a sum over all instances can be
/// zero and somebody notices; then it goes, so that there is an end to their number.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<(GroupName, DutyId), Shown>);

#[derive(Clone, Copy, Debug)]
struct Shown {
    held: bool,
    /// When it was held last.
    last: LocalInstant,
}

impl Seen {
    /// Takes in what is held now, and forgets what is gone for long.
    pub(super) fn look(&mut self, state: &State, now: LocalInstant) {
        for shown in self.0.values_mut() {
            shown.held = false;
        }
        for (name, group) in &state.groups {
            for hold in group.holds.iter() {
                let key = (name.clone(), hold.duty.clone());
                self.0.insert(key, Shown { held: true, last: now });
            }
        }
        let mut room = MOST_GONE;
        self.0.retain(|_, shown| {
            if !shown.held {
                let stays = room > 0 && now.since(shown.last) < SHOWN;
                room -= usize::from(stays);
                return stays;
            }
            true
        });
    }

    /// Each duty, and whether it is held now.
    pub(super) fn duties(&self) -> impl Iterator<Item = (&GroupName, &DutyId, bool)> {
        self.0.iter().map(|((group, duty), shown)| (group, duty, shown.held))
    }
}
