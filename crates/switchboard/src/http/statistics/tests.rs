use tenure_wire::heartbeat::Counters;

use super::*;
use crate::storage::Connector;

const SECOND: i64 = 1_000_000;
/// 2026-02-15T10:30:00Z.
const NOW: i64 = 1_771_151_400 * SECOND;
const USUAL: Policy = Policy::Usual;

fn shown(first_seen_at: i64, interval: Option<i64>) -> ConnectorDetail {
    let connector = Connector {
        connector_type: "telegram_bot".to_owned(),
        endpoint_identity: "a/b".to_owned(),
        instance_id: None,
        labels: Default::default(),
        state: "healthy".to_owned(),
        error_message: None,
        uptime_s: None,
        last_heartbeat_at: Some(NOW),
        first_seen_at,
        registered_via: "self".to_owned(),
        counters: Counters::default(),
        checkpoint_cursor: None,
        checkpoint_updated_at: None,
        archived_at: None,
        interval,
        drift: None,
        today: Measures::default(),
        more: Default::default(),
    };
    ConnectorDetail { now: NOW, connector, instances: Vec::new() }
}

fn bucket(start: i64, messages_ingested: i64, messages_failed: i64, beats: i64) -> SeriesBucket {
    let measures = Measures {
        messages_ingested,
        messages_failed,
        heartbeat_count: beats,
        healthy_count: beats - 1,
        error_count: 1,
        ..Measures::default()
    };
    SeriesBucket { start, measures }
}

#[test]
fn every_step_of_a_period_is_there() {
    let hour = Period::Day.since(NOW);
    let found = [bucket(hour, 300, 5, 30), bucket(hour + 3 * 3600 * SECOND, 42, 0, 30)];
    let told = stats(&shown(0, Some(120 * SECOND)), Period::Day, &found, USUAL);
    let series = told["timeseries"].as_array().unwrap();
    assert_eq!(series.len(), 24);
    assert_eq!(series[0]["bucket"], "2026-02-14T11:00:00Z");
    assert_eq!(series[23]["bucket"], "2026-02-15T10:00:00Z");
    let third = json!({
        "bucket": "2026-02-14T14:00:00Z", "messages_ingested": 42, "messages_failed": 0,
        "healthy_count": 29, "degraded_count": 0, "error_count": 1
    });
    assert_eq!((&series[3], &series[4]["error_count"]), (&third, &json!(0)));
    let summary = json!({
        "messages_ingested": 342, "messages_failed": 5, "error_rate_pct": 1.4,
        "uptime_pct": 96.67, "avg_messages_per_hour": 14.3, "heartbeat_coverage_pct": 8.51
    });
    assert_eq!(told["summary"], summary);
    let month = stats(&shown(0, None), Period::Month, &[], USUAL);
    let series = month["timeseries"].as_array().unwrap();
    assert_eq!((series.len(), &series[29]["bucket"]), (30, &json!("2026-02-15")));
    assert_eq!(series[0]["bucket"], "2026-01-17");
    assert_eq!(month["summary"]["uptime_pct"], Value::Null);
    assert_eq!(
        stats(&shown(0, None), Period::Week, &[], USUAL)["timeseries"][167]["error_count"],
        0
    );
}

#[test]
fn coverage_is_of_what_could_have_come() {
    let hour = NOW / (3600 * SECOND) * 3600 * SECOND;
    let judged = |policy, first_seen_at, interval, beats| {
        let found = [bucket(hour, 0, 0, beats)];
        let told = stats(&shown(first_seen_at, interval), Period::Day, &found, policy);
        told["summary"]["heartbeat_coverage_pct"].clone()
    };
    let covered = |first_seen_at, interval, beats| judged(USUAL, first_seen_at, interval, beats);
    // Known for ten minutes: five heartbeats at two minutes were due, or twenty at half a minute.
    let known = NOW - 600 * SECOND;
    assert_eq!(covered(known, None, 4), json!(80.0));
    assert_eq!(covered(known, Some(30 * SECOND), 4), json!(20.0));
    // Several instances send more heartbeats than one.
    assert_eq!(covered(known, None, 40), json!(100.0));
    assert_eq!(covered(NOW - 60 * SECOND, None, 1), Value::Null);
    // An interval of ten minutes exceeds the protocol's maximum, so two heartbeats were due, unless
    // the policy allows such intervals.
    assert_eq!(covered(known, Some(600 * SECOND), 1), json!(50.0));
    assert_eq!(judged(Policy::Observed, known, Some(600 * SECOND), 1), json!(100.0));
    // A clock that was set back.
    assert_eq!(covered(NOW + 60 * SECOND, None, 1), Value::Null);
}

#[test]
fn connectors_are_counted_by_the_same_liveness_as_they_are_shown() {
    let sum = |last_heartbeat_at, messages_ingested| ConnectorSum {
        connector_type: "x".to_owned(),
        endpoint_identity: "y".to_owned(),
        last_heartbeat_at,
        interval: None,
        messages_ingested,
        messages_failed: 1,
    };
    let sums = [sum(Some(NOW), 7), sum(Some(NOW - 301 * SECOND), 0), sum(None, 0), sum(Some(0), 1)];
    let judge = |sum: &ConnectorSum| Policy::Usual.judge(NOW, sum.last_heartbeat_at, sum.interval);
    let told: Value = serde_json::from_str(&totals(Period::Week, &sums, judge)).unwrap();
    assert_eq!(told["by_connector"][2]["liveness"], "unknown");
    let mut rest = told;
    rest.as_object_mut().unwrap().remove("by_connector");
    let expected = json!({
        "period": "7d", "total_connectors": 4, "connectors_online": 1, "connectors_stale": 1,
        "connectors_offline": 1, "connectors_unknown": 1, "total_messages_ingested": 8,
        "total_messages_failed": 4, "overall_error_rate_pct": 33.3
    });
    assert_eq!(rest, expected);
}

#[test]
fn fanout_is_one_row_for_each_connector() {
    let fanned = |identity: &str, target: &str, messages| FanoutCount {
        connector_type: "telegram_bot".to_owned(),
        endpoint_identity: identity.to_owned(),
        target: target.to_owned(),
        messages,
    };
    let found = [fanned("b", "health", 2), fanned("a", "general", 1), fanned("b", "general", 3)];
    let told = matrix(Period::Week, &found);
    let row = json!({
        "connector_type": "telegram_bot", "endpoint_identity": "b",
        "targets": { "general": 3, "health": 2 }
    });
    assert_eq!((told["matrix"].as_array().unwrap().len(), &told["matrix"][1]), (2, &row));
    assert_eq!(first_day(Period::Week, NOW), "2026-02-09");
    assert_eq!(first_day(Period::Month, NOW), "2026-01-17");
}
