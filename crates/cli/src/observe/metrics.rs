//! Metrics in Prometheus' text form, version 0.0.4.
//!
//! Written here and by no library, because series must go with their duties: `metrics` and its
//! exporter remove none by name, and `prometheus-client` writes OpenMetrics, where a counter's type
//! line lacks `_total` and an older scraper sees no type. What is written is drawn from the
//! counters at each request, so there is no registry that could keep what is gone.

use std::fmt::Write;

use tenure_core::InstanceId;

use super::state::{BOUNDS, Durations, Seen, State};

/// What the text is.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics as they are now.
pub(super) fn text(state: &State, seen: &Seen, instance: &InstanceId) -> String {
    let mut text = Text(String::new());
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
        text.histogram(name, operation, durations);
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
    text.0
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String never fails.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (n, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if n == 0 { '{' } else { ',' });
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn histogram(&mut self, name: &str, operation: &str, durations: &Durations) {
        let operation = ("operation", operation);
        let bucket = format!("{name}_bucket");
        let mut up_to = 0;
        for (bound, count) in BOUNDS.iter().zip(durations.buckets) {
            up_to += count;
            self.sample(&bucket, &[operation, ("le", &bound.to_string())], up_to);
        }
        self.sample(&bucket, &[operation, ("le", "+Inf")], durations.count);
        self.sample(&format!("{name}_sum"), &[operation], durations.sum);
        self.sample(&format!("{name}_count"), &[operation], durations.count);
    }
}
