//! Instance health: whether it can hold duties, or wait for them.

use serde::Serialize;
use tenure_core::LocalInstant;
use tenure_operate::polls::FailingTarget;
use tenure_operate::timestamp;

use super::ObservedInstance;
use super::counters::InstanceCounters;

/// Response body of `/health`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct HealthReport {
    pub(super) status: &'static str,
    uptime_seconds: u64,
    timestamp: String,
    instance_id: String,
    group: String,
    /// Number of duties that it holds. Zero is healthy: other instances have them.
    holds: usize,
    pub(super) store: &'static str,
    last_renewed_at: Option<String>,
    /// Whether every poll fails here; set by `poll` only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failing: bool,
    /// Targets of the group by their last result; set by `poll` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<TargetsHealth>,
}

/// Targets of a group, whichever instance polls them.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct TargetsHealth {
    succeeding: usize,
    failing: usize,
    /// The target with the most failures in a row.
    worst: Option<FailingTarget>,
}

impl HealthReport {
    pub(super) fn is_healthy(&self) -> bool {
        self.status != "unhealthy"
    }
}

/// Judges the health of an instance. A failed request to the store does not make it unhealthy; a
/// store that is silent until the deadline does, because from then on nothing can be held.
pub(super) fn report(
    counters: &InstanceCounters,
    observed: &ObservedInstance,
    started: LocalInstant,
    now: LocalInstant,
    unix_ms: u64,
) -> HealthReport {
    let since = counters.answered_at.unwrap_or(started);
    let failing = counters.failing.is_some_and(|until| now < until);
    let lost = !observed.ttl.deadline(since).allows(now);
    let targets = counters.targets.as_ref().map(|(totals, ..)| TargetsHealth {
        succeeding: totals.succeeding,
        failing: totals.failing,
        worst: totals.worst.first().cloned(),
    });
    HealthReport {
        status: match &targets {
            _ if lost || failing => "unhealthy",
            Some(targets) if targets.failing > 0 => "degraded",
            _ => "healthy",
        },
        uptime_seconds: now.since(started).as_secs(),
        timestamp: timestamp(unix_ms),
        instance_id: observed.instance.as_str().to_owned(),
        group: observed.group.as_str().to_owned(),
        holds: counters.held(),
        store: match counters.answered {
            _ if lost => "disconnected",
            None => "unknown",
            Some(true) => "connected",
            Some(false) => "disconnected",
        },
        last_renewed_at: counters.renewed_at.map(timestamp),
        failing,
        targets,
    }
}
