//! Metrics in the Prometheus text format.

use std::time::Duration;

use tenure_core::{InstanceId, LocalInstant};
use tenure_duty::observe::Operation;
use tenure_operate::polls::{FailingTarget, PollTotals};
pub(super) use tenure_wire::exposition::CONTENT_TYPE;
use tenure_wire::exposition::{DURATIONS, Histogram, MetricsText};

use super::counters::{DurationHistogram, DutyHistory, InstanceCounters, MoveReason, SourceLag};

pub(super) fn text(
    counters: &InstanceCounters,
    history: &DutyHistory,
    instance: &InstanceId,
    now: LocalInstant,
) -> String {
    let mut text = MetricsText::default();
    let me = ("instance_id", instance.as_str());

    let name = "connector_lease_renewals_total";
    text.family(name, "counter", "Keep-alive requests to the store, by status.");
    text.sample(name, &[me, ("status", "success")], counters.renewals);
    text.sample(name, &[me, ("status", "failure")], counters.renewals_failed);

    let name = "connector_lease_holder";
    text.family(name, "gauge", "1 while this instance holds the duty, 0 for 10 minutes after.");
    for (group, duty, held) in history.duties() {
        let labels = [("group", group.as_str()), ("endpoint_identity", duty.as_str()), me];
        text.sample(name, &labels, u8::from(held));
    }

    let name = "connector_coordination_operation_duration_seconds";
    text.family(name, "histogram", "Duration of requests to the store.");
    for operation in [Operation::Acquire, Operation::Renew, Operation::Release] {
        let durations = counters.durations.get(&operation).cloned().unwrap_or_default();
        let labels = [("operation", operation.as_str())];
        let DurationHistogram { buckets, count, sum } = durations;
        text.histogram(
            name,
            &labels,
            Histogram { bounds: &DURATIONS, buckets: &buckets, count, sum },
        );
    }

    let name = "connector_shard_rebalance_total";
    text.family(name, "counter", "Duties that moved to this instance, by reason.");
    for reason in MoveReason::ALL {
        let count = counters.moves.get(reason).copied().unwrap_or_default();
        text.sample(name, &[("reason", reason.as_str())], count);
    }

    let name = "connector_assigned_shards";
    text.family(name, "gauge", "Duties that this instance holds.");
    text.sample(name, &[me], counters.held());

    let name = "connector_checkpoint_lag_seconds";
    text.family(name, "gauge", "Age of the oldest event that is not accepted yet.");
    for SourceLag { endpoint, oldest } in counters.lags.values() {
        let labels = [
            ("connector_type", endpoint.connector_type.as_str()),
            ("endpoint_identity", &endpoint.endpoint_identity),
            ("shard_id", &endpoint.shard_id),
        ];
        let lag = oldest.map_or(Duration::ZERO, |(at, age)| age + now.since(at));
        text.sample(name, &labels, lag.as_secs_f64());
    }

    own_metrics(&mut text, counters, me);
    if let Some((totals, read, unix_ms)) = &counters.targets {
        target_metrics(&mut text, totals, *unix_ms, now.since(*read));
    }
    text.finish()
}

/// Prints the metrics whose names are Tenure's own.
fn own_metrics(text: &mut MetricsText, counters: &InstanceCounters, me: (&str, &str)) {
    let name = "tenure_lease_margin_seconds";
    text.family(name, "gauge", "Time left until the deadline at the last confirmed keep-alive.");
    for (group, margin) in &counters.groups {
        if let Some(margin) = margin.margin {
            text.sample(name, &[("group", group.as_str()), me], margin.as_secs_f64());
        }
    }

    let name = "tenure_fence_rejections_total";
    text.family(name, "counter", "Writes rejected because of a newer epoch.");
    text.sample(name, &[me], counters.fenced);

    if !counters.commits.is_empty() {
        let name = "tenure_checkpoint_commits_total";
        text.family(name, "counter", "Writes of checkpoints, by result.");
        for (result, count) in &counters.commits {
            text.sample(name, &[me, ("result", result.as_str())], *count);
        }
    }

    if !counters.occurrences.is_empty() {
        let name = "tenure_occurrences_total";
        text.family(name, "counter", "Occurrences of a schedule, by result.");
        for (result, count) in &counters.occurrences {
            text.sample(name, &[me, ("result", result.as_str())], *count);
        }
    }

    if !counters.polls.is_empty() {
        let name = "tenure_polls_total";
        text.family(name, "counter", "Polls, by result.");
        for (result, count) in &counters.polls {
            text.sample(name, &[me, ("result", result.as_str())], *count);
        }
    }
}

/// Prints the results of all targets of the group: a bounded number of series, and the same on each
/// instance. `unix_ms` is when they were read, `since` the time since then.
fn target_metrics(text: &mut MetricsText, totals: &PollTotals, unix_ms: u64, since: Duration) {
    let name = "tenure_poll_targets";
    text.family(name, "gauge", "Targets of the group, by the result of their last poll.");
    text.sample(name, &[("result", "succeeding")], totals.succeeding);
    text.sample(name, &[("result", "failing")], totals.failing);

    if let Some(oldest) = totals.oldest_success_unix_ms {
        let name = "tenure_poll_oldest_success_age_seconds";
        text.family(name, "gauge", "Longest time since a target was polled with success.");
        let age = Duration::from_millis(unix_ms.saturating_sub(oldest)) + since;
        text.sample(name, &[], age.as_secs_f64());
    }

    if !totals.worst.is_empty() {
        let name = "tenure_poll_failures";
        text.family(name, "gauge", "Failed polls in a row, of the 20 targets with most of them.");
        for FailingTarget { target, failures, .. } in &totals.worst {
            text.sample(name, &[("target", target)], *failures);
        }
    }
}
