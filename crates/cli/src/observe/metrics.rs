//! Metrics in Prometheus' text form.

use tenure_core::InstanceId;
pub(super) use tenure_wire::exposition::CONTENT_TYPE;
use tenure_wire::exposition::{DURATIONS, Histogram, Text};

use super::state::{Durations, Seen, State};

/// All metrics as they are now.
pub(super) fn text(state: &State, seen: &Seen, instance: &InstanceId) -> String {
    let mut text = Text::default();
    let me = ("instance_id", instance.as_str());

    let name = "connector_lease_renewals_total";
    text.family(name, "counter", "Keep-alives that the store answered, or did not.");
    text.sample(name, &[me, ("status", "success")], state.renewals);
    text.sample(name, &[me, ("status", "failure")], state.renewals_failed);

    let name = "connector_lease_holder";
    text.family(name, "gauge", "1 while this instance holds the duty, 0 for a while after.");
    for (group, duty, held) in seen.duties() {
        let labels = [("group", group.as_str()), ("endpoint_identity", duty.as_str()), me];
        text.sample(name, &labels, u8::from(held));
    }

    let name = "connector_coordination_operation_duration_seconds";
    text.family(name, "histogram", "How long requests to the store took.");
    for (operation, durations) in
        [("acquire", &state.acquire), ("renew", &state.renew), ("release", &state.release)]
    {
        text.histogram(name, &[("operation", operation)], told(durations));
    }

    let name = "connector_shard_rebalance_total";
    text.family(name, "counter", "Duties that came to this instance from another one.");
    let moves = &state.moves;
    for (reason, count) in
        [("join", moves.join), ("leave", moves.leave), ("failure", moves.failure)]
    {
        text.sample(name, &[("reason", reason)], count);
    }

    let name = "connector_assigned_shards";
    text.family(name, "gauge", "Duties that this instance holds.");
    text.sample(name, &[me], state.held());

    let name = "connector_checkpoint_lag_seconds";
    text.family(name, "gauge", "Age of the oldest event that is not accepted yet.");
    for (endpoint, lag) in &state.lags {
        let labels = [
            ("connector_type", endpoint.connector_type.as_str()),
            ("endpoint_identity", &endpoint.endpoint_identity),
            ("shard_id", &endpoint.shard_id),
        ];
        text.sample(name, &labels, lag.as_secs_f64());
    }

    let name = "lease_margin_seconds";
    text.family(name, "gauge", "What was left until the deadline at the last keep-alive.");
    for (group, margin) in &state.groups {
        if let Some(margin) = margin.margin {
            text.sample(name, &[("group", group.as_str()), me], margin.as_secs_f64());
        }
    }

    let name = "fence_rejections_total";
    text.family(name, "counter", "Writes that were refused because a newer epoch was there.");
    text.sample(name, &[me], state.fenced);

    if !state.polls.is_empty() {
        let name = "tenure_polls_total";
        text.family(name, "counter", "Polls, by what became of them.");
        for (how, count) in &state.polls {
            text.sample(name, &[me, ("result", how.as_str())], *count);
        }
    }
    text.finish()
}

fn told(durations: &Durations) -> Histogram<'_> {
    Histogram {
        bounds: &DURATIONS,
        buckets: &durations.buckets,
        count: durations.count,
        sum: durations.sum,
    }
}
