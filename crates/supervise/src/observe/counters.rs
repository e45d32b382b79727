//! Counters of an instance, from which metrics and health are derived.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Change, Code, DutyId, DutyKey, GroupName, InstanceId, LocalInstant, Record, StoreError,
};
use tenure_duty::PutOutcome;
use tenure_duty::observe::{HeldDuty, Operation};
use tenure_operate::polls::PollTotals;
use tenure_wire::exposition::DURATIONS;

/// Time for which a duty that was given back is reported as not held.
const RELEASED_DUTY_RETENTION: Duration = Duration::from_secs(600);
const MAX_RELEASED_DUTIES: usize = 1000;

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

tenure_core::text_enum! {
    /// Reason why a duty moved to this instance.
    pub enum MoveReason {
        Join "join" "The roster assigned a share of another instance's duties."
        Leave "leave" "Another instance gave the duty back."
        Failure "failure" "Another instance failed."
    }
}

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
    /// ShardNumber of the endpoint.
    pub shard_id: String,
}

/// Lag of an endpoint behind its source.
#[derive(Clone, Debug)]
pub(super) struct SourceLag {
    pub(super) endpoint: SourceEndpoint,
    /// Age of the oldest pending event at an instant; `None` if nothing is pending.
    pub(super) oldest: Option<(LocalInstant, Duration)>,
}

tenure_core::text_enum! {
    /// Result of a write of a checkpoint.
    pub enum CommitResult {
        Stored "stored" "It is stored."
        Conflict "conflict" "Another version is stored."
        Fenced "fenced" "The hold was not valid any more."
        Refused "refused" "The store refused it or could not be reached."
        Unknown "unknown" "It may have been stored."
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct InstanceCounters {
    pub(super) renewals: u64,
    pub(super) renewals_failed: u64,
    pub(super) durations: BTreeMap<Operation, DurationHistogram>,
    pub(super) moves: BTreeMap<MoveReason, u64>,
    pub(super) fenced: u64,
    /// Polls by result; empty if this instance does not poll.
    pub(super) polls: BTreeMap<PollResult, u64>,
    /// Occurrences by result; empty if this instance has had none.
    pub(super) occurrences: BTreeMap<OccurrenceResult, u64>,
    /// Newest results of all targets of the group, and the instant and time at which they were
    /// read; `None` if this instance does not poll.
    pub(super) targets: Option<(PollTotals, LocalInstant, u64)>,
    /// End of the period in which every poll is expected to fail here.
    pub(super) failing: Option<LocalInstant>,
    pub(super) groups: BTreeMap<GroupName, GroupCounters>,
    /// Lag of each duty whose program reports it.
    pub(super) lags: BTreeMap<DutyKey, SourceLag>,
    /// Writes of checkpoints by result; empty if there was none.
    pub(super) commits: BTreeMap<CommitResult, u64>,
    /// Instance ids under which this process is a member.
    pub(super) members: BTreeSet<InstanceId>,
    /// Whether this process is asked to end.
    pub(super) leaving: bool,
    /// Whether the store answered the last request.
    pub(super) answered: Option<bool>,
    /// Time of its last answer.
    pub(super) answered_at: Option<LocalInstant>,
    /// Time of the last confirmed keep-alive, by the wall clock.
    pub(super) renewed_at: Option<u64>,
}

tenure_core::text_enum! {
    /// Result of a poll.
    pub enum PollResult {
        Done "done" "The command exited with 0."
        Failed "failed" "It exited otherwise, or could not be started."
        Killed "killed" "It took too long, or its hold was lost."
        Skipped "skipped"
            "It was not started: the previous one still ran, or the hold was about to end."
    }
}

tenure_core::text_enum! {
    /// Result of an occurrence of a schedule, or of an attempt at it.
    pub enum OccurrenceResult {
        Done "done" "The command exited with 0."
        Failed "failed" "It exited otherwise, or could not be started."
        Interrupted "interrupted" "It was ended before it was done."
        Skipped "skipped" "It was interrupted, and is not run again."
        Missed "missed" "It was not started in time."
    }
}

impl InstanceCounters {
    /// Counts a transition. A move is counted once, by the instance that gets the duty.
    pub(super) fn recorded(&mut self, record: &Record) {
        let moved = match (record.change, record.reason.as_ref()) {
            (Change::Joined, _) => {
                self.members.insert(record.instance.clone());
                return;
            }
            (Change::Left, _) => {
                self.members.remove(&record.instance);
                return;
            }
            // The response to a keep-alive may be that the session has ended.
            (Change::SessionLost, _) => {
                self.members.remove(&record.instance);
                return self.renewals_failed += 1;
            }
            (Change::TakenOver, _) => MoveReason::Failure,
            (Change::Acquired, "moved" | "unclaimed") => MoveReason::Join,
            (Change::Acquired, "released") => MoveReason::Leave,
            _ => return,
        };
        *self.moves.entry(moved).or_default() += 1;
    }

    pub(super) fn store_called(
        &mut self,
        operation: Operation,
        took: Duration,
        ok: bool,
        now: (LocalInstant, u64),
    ) {
        self.durations.entry(operation).or_default().add(took);
        // Counted here, because a member without holds also renews its session.
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

    pub(super) fn committed(&mut self, result: &Result<PutOutcome, StoreError>) {
        let result = match result {
            Ok(PutOutcome::Stored(_)) => CommitResult::Stored,
            Ok(PutOutcome::Conflict { .. }) => CommitResult::Conflict,
            Err(error) if error.is_unknown() => CommitResult::Unknown,
            Err(error) if error.code() == Code::Fenced => CommitResult::Fenced,
            Err(_) => CommitResult::Refused,
        };
        *self.commits.entry(result).or_default() += 1;
    }

    pub(super) fn held(&self) -> usize {
        self.groups.values().map(|group| group.holds.len()).sum()
    }

    pub(super) fn group(&mut self, group: &GroupName) -> &mut GroupCounters {
        self.groups.entry(group.clone()).or_default()
    }
}

/// Duties that were reported as held.
///
/// A duty that was given back is reported as zero for a while, so that an alert on the sum over all
/// instances can trigger; then it is dropped.
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
            let stays = left > 0 && now.since(sample.last) < RELEASED_DUTY_RETENTION;
            left -= usize::from(stays && !sample.held);
            stays || sample.held
        });
    }

    /// Lists each duty and whether it is held now.
    pub(super) fn duties(&self) -> impl Iterator<Item = (&GroupName, &DutyId, bool)> {
        self.0.iter().map(|((group, duty), sample)| (group, duty, sample.held))
    }
}
