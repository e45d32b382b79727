//! Counters of an instance, from which metrics and health are derived.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Change, DutyId, GroupName, LocalInstant, Record};
use tenure_duty::observe::{HeldDuty, Operation};
use tenure_wire::exposition::DURATIONS;

/// Time for which a duty that was given back is reported as not held.
const RELEASED_DUTY_RETENTION: Duration = Duration::from_secs(600);
/// Number of such duties.
const MAX_RELEASED_DUTIES: usize = 1000;

/// Histogram of request durations.
#[derive(Clone, Debug, Default)]
pub(super) struct DurationHistogram {
    /// For each bound, the number of requests above the previous bound and not above this one.
    pub(super) buckets: [u64; DURATIONS.len()],
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl DurationHistogram {
    fn add(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        if let Some(at) = DURATIONS.iter().position(|bound| took <= *bound) {
            self.buckets[at] += 1;
        }
        self.count += 1;
        self.sum += took;
    }
}

/// Duties that moved to this instance, by reason.
#[derive(Clone, Debug, Default)]
pub(super) struct MoveCounts {
    /// The roster assigned a share of another instance's duties.
    pub(super) join: u64,
    /// Another instance gave the duty back.
    pub(super) leave: u64,
    /// Another instance failed.
    pub(super) failure: u64,
}

/// Counters of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupCounters {
    pub(super) holds: Arc<[HeldDuty]>,
    /// Time left until the deadline when a keep-alive was confirmed last.
    pub(super) margin: Option<Duration>,
}

/// An endpoint that a connector fetches events from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceEndpoint {
    /// Type of the connector.
    pub connector_type: String,
    /// Identity of the endpoint.
    pub endpoint_identity: String,
    /// Shard of the endpoint.
    pub shard_id: String,
}

/// All counters of an instance.
#[derive(Clone, Debug, Default)]
pub(super) struct InstanceCounters {
    pub(super) renewals: u64,
    pub(super) renewals_failed: u64,
    pub(super) acquire: DurationHistogram,
    pub(super) renew: DurationHistogram,
    pub(super) release: DurationHistogram,
    pub(super) moves: MoveCounts,
    pub(super) fenced: u64,
    /// Polls by result; empty where nothing is polled.
    pub(super) polls: BTreeMap<PollResult, u64>,
    /// Until when every poll is expected to fail here.
    pub(super) failing: Option<LocalInstant>,
    pub(super) groups: BTreeMap<GroupName, GroupCounters>,
    pub(super) lags: BTreeMap<SourceEndpoint, Duration>,
    /// Whether the store answered the last request.
    pub(super) answered: Option<bool>,
    /// Time of its last answer.
    pub(super) answered_at: Option<LocalInstant>,
    /// Time of the last confirmed keep-alive, by the wall clock.
    pub(super) renewed_at: Option<u64>,
}

/// Result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PollResult {
    /// The command exited with 0.
    Done,
    /// It exited otherwise, or could not be started.
    Failed,
    /// It took too long, or its hold was lost.
    Killed,
    /// It was not started: the previous poll still ran, or too little time was left of the hold.
    Skipped,
}

impl PollResult {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::Skipped => "skipped",
        }
    }
}

impl InstanceCounters {
    pub(super) fn count_poll(&mut self, result: PollResult) {
        *self.polls.entry(result).or_default() += 1;
    }

    /// Counts a transition. A move is counted once, by the instance that gets the duty.
    pub(super) fn recorded(&mut self, record: &Record) {
        match (record.change, record.reason.as_ref()) {
            // The store may answer a keep-alive that the session has ended.
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
        // Counted here, because a member that holds nothing renews its session, too.
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

    pub(super) fn set_lag(&mut self, endpoint: SourceEndpoint, lag: Option<Duration>) {
        match lag {
            Some(lag) => self.lags.insert(endpoint, lag),
            None => self.lags.remove(&endpoint),
        };
    }

    /// Number of duties held.
    pub(super) fn held(&self) -> usize {
        self.groups.values().map(|group| group.holds.len()).sum()
    }

    fn group(&mut self, group: &GroupName) -> &mut GroupCounters {
        self.groups.entry(group.clone()).or_default()
    }
}

/// Duties that were reported as held.
///
/// A duty that was given back is reported as zero for a while, so that the sum over all instances
/// can become zero and trigger an alert; then it is dropped, so that their number is bounded.
#[derive(Debug, Default)]
pub(super) struct DutyHistory(BTreeMap<(GroupName, DutyId), DutySample>);

#[derive(Clone, Copy, Debug)]
struct DutySample {
    held: bool,
    /// Time at which it was held last.
    last: LocalInstant,
}

impl DutyHistory {
    /// Adds the duties held now, and drops those given back long ago.
    pub(super) fn update(&mut self, counters: &InstanceCounters, now: LocalInstant) {
        for sample in self.0.values_mut() {
            sample.held = false;
        }
        for (name, group) in &counters.groups {
            for hold in group.holds.iter() {
                let key = (name.clone(), hold.duty.clone());
                self.0.insert(key, DutySample { held: true, last: now });
            }
        }
        let mut left = MAX_RELEASED_DUTIES;
        self.0.retain(|_, sample| {
            if !sample.held {
                let stays = left > 0 && now.since(sample.last) < RELEASED_DUTY_RETENTION;
                left -= usize::from(stays);
                return stays;
            }
            true
        });
    }

    /// Lists each duty and whether it is held now.
    pub(super) fn duties(&self) -> impl Iterator<Item = (&GroupName, &DutyId, bool)> {
        self.0.iter().map(|((group, duty), sample)| (group, duty, sample.held))
    }
}
