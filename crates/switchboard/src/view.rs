//! JSON views of connectors and dead letters, for HTTP, MCP and commands.

use serde_json::{Value, json};
use tenure_wire::heartbeat::{COUNTER_NAMES, Counters, LABEL_NAMES, Labels};

use crate::liveness::Policy;
use crate::storage::{Connector, ConnectorDetail, ConnectorInstance, Measures, StoredLetter};

/// Formats microseconds since 1970.
pub fn time(micros: i64) -> String {
    // Not `jiff::Timestamp`, whose range ends a day before the last day that connectors may send.
    let start = jiff::civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    format!("{}Z", start.saturating_add(jiff::SignedDuration::from_micros(micros)))
}

/// Returns a dead letter without its envelope.
pub fn letter(kept: &StoredLetter) -> Value {
    let letter = &kept.letter;
    json!({
        "id": letter.id.to_string(),
        "posted_at": time(kept.posted_at),
        "source": {
            "channel": letter.channel,
            "provider": letter.provider,
            "endpoint_identity": letter.endpoint_identity,
        },
        "external_event_id": letter.external_event_id,
        "error_class": letter.error_class,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "duty": kept.duty,
        "authenticated_token_id": kept.token_id,
        "state": kept.state,
        "resolved_at": kept.resolved_at.map(time),
        "resolved_by": kept.resolved_by,
        "resolution": kept.resolution,
        "request_id": kept.request_id.map(|id| id.to_string()),
    })
}

/// Returns a connector as an entry of a list, at `now` by the store's clock.
pub fn summary(connector: &Connector, now: i64, policy: Policy) -> Value {
    let liveness = policy.judge(now, connector.last_heartbeat_at, connector.interval);
    let shown = json!({
        "connector_type": connector.connector_type,
        "endpoint_identity": connector.endpoint_identity,
        "liveness": liveness.as_str(),
        "state": connector.state,
        "error_message": connector.error_message,
        "uptime_s": connector.uptime_s,
        "last_heartbeat_at": connector.last_heartbeat_at.map(time),
        "first_seen_at": time(connector.first_seen_at),
        "archived_at": connector.archived_at.map(time),
        "today": {
            "messages_ingested": connector.today.messages_ingested,
            "messages_failed": connector.today.messages_failed,
            "uptime_pct": uptime_pct(&connector.today),
        },
    });
    with_labels(shown, &connector.labels)
}

/// Returns the counters as JSON.
pub fn counters(counters: &Counters) -> Value {
    COUNTER_NAMES.into_iter().zip(counters.fields().map(|count| *count)).collect()
}

/// Returns the details of a connector.
pub fn detail(shown: &ConnectorDetail, policy: Policy) -> Value {
    let ConnectorDetail { now, connector, instances } = shown;
    let mut detail = summary(connector, *now, policy);
    let more = json!({
        "instance_id": connector.instance_id.map(|id| id.to_string()),
        "registered_via": connector.registered_via,
        "checkpoint": {
            "cursor": connector.checkpoint_cursor,
            "updated_at": connector.checkpoint_updated_at.map(time),
        },
        "counters": counters(&connector.counters),
        "heartbeat_interval_s": connector.interval.map(seconds),
        "clock_drift_s": connector.drift.map(seconds),
        "instances": instances.iter().map(|it| instance(it, *now, policy)).collect::<Vec<_>>(),
    });
    if let (Value::Object(detail), Value::Object(more)) = (&mut detail, more) {
        detail.extend(more);
    }
    detail
}

fn instance(instance: &ConnectorInstance, now: i64, policy: Policy) -> Value {
    let liveness = policy.judge(now, Some(instance.last_heartbeat_at), instance.interval);
    let capabilities: Option<Value> =
        instance.capabilities.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let shown = json!({
        "instance_id": instance.instance_id.to_string(),
        "liveness": liveness.as_str(),
        "state": instance.state,
        "error_message": instance.error_message,
        "uptime_s": instance.uptime_s,
        "started_at": time(instance.started_at),
        "first_seen_at": time(instance.first_seen_at),
        "last_heartbeat_at": time(instance.last_heartbeat_at),
        "stopped_at": instance.stopped_at.map(time),
        "counters": counters(&instance.counters),
        "checkpoint": {
            "cursor": instance.checkpoint_cursor,
            "updated_at": instance.checkpoint_updated_at.map(time),
        },
        "capabilities": capabilities,
        "heartbeat_interval_s": instance.interval.map(seconds),
        "clock_drift_s": seconds(instance.drift),
        "heartbeats": instance.beats,
        "late_heartbeats": instance.late,
        "counter_resets": instance.resets,
        "counter_jumps": instance.jumps,
    });
    with_labels(shown, &instance.labels)
}

fn with_labels(mut shown: Value, labels: &Labels) -> Value {
    for (name, label) in LABEL_NAMES.into_iter().zip(labels.fields()) {
        shown[name] = json!(label);
    }
    shown
}

fn seconds(micros: i64) -> f64 {
    (micros as f64 / 1e3).round() / 1e3
}

/// Returns the share of healthy heartbeats in percent, to two digits; `None` without heartbeats.
pub fn uptime_pct(measures: &Measures) -> Option<f64> {
    percent(measures.healthy_count, measures.heartbeat_count, 2)
}

/// Returns a share in percent, rounded to `digits`; `None` if the whole is 0.
pub fn percent(part: i64, whole: i64, digits: i32) -> Option<f64> {
    let scale = 10_f64.powi(digits);
    (whole > 0).then(|| (part as f64 / whole as f64 * 100.0 * scale).round() / scale)
}

/// Returns the share of failed messages in percent, to one digit; 0 without messages.
pub fn error_rate_pct(ingested: i64, failed: i64) -> f64 {
    percent(failed, ingested.saturating_add(failed), 1).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_that_may_be_told_is_printed() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(1_771_151_400_120_000), "2026-02-15T10:30:00.12Z");
        assert_eq!(time(-62_135_596_800_000_000), "0001-01-01T00:00:00Z");
        assert_eq!(time(253_402_300_799_999_999), "9999-12-31T23:59:59.999999Z");
        assert_eq!(time(i64::MAX), "9999-12-31T23:59:59.999999999Z");
    }

    #[test]
    fn rates_are_rounded_and_never_divide_by_nothing() {
        assert_eq!(error_rate_pct(342, 5), 1.4);
        assert_eq!(error_rate_pct(0, 0), 0.0);
        assert_eq!(error_rate_pct(0, 3), 100.0);
        let beats = |healthy_count, heartbeat_count| Measures {
            healthy_count,
            heartbeat_count,
            ..Measures::default()
        };
        assert_eq!(uptime_pct(&beats(2, 3)), Some(66.67));
        assert_eq!(uptime_pct(&beats(0, 0)), None);
    }
}
