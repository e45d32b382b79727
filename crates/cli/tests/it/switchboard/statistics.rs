//! Statistics of connectors, and outcomes of messages.

use serde_json::{Value, json};
use testkit::wait_until;

use super::{CONNECTORS, INBOX, Place, Server, envelope, heartbeat, on_both_stores};
use crate::running::LIMIT;

on_both_stores! {
    counting_goes_on_where_it_was
    one_replica_counts_at_a_time
    outcomes_are_kept_and_counted
}

const HERE: &str = "this replica counts the statistics";

fn summary(server: &Server, period: &str) -> Value {
    server.get(&format!("{CONNECTORS}/summary?period={period}")).is(200)["data"].clone()
}

#[track_caller]
fn counts(server: &Server, period: &str, ingested: u64) {
    let counted = || summary(server, period)["total_messages_ingested"] == ingested;
    wait_until("it is counted", LIMIT, counted).unwrap();
}

/// A replica is killed before it counts; a day later, the next one counts that day once.
fn counting_goes_on_where_it_was(place: &Place) {
    let server = place.serve(&["--statistics-every", "1h"]);
    let counted = || server.metric("tenure_switchboard_statistics_lag_seconds").is_some();
    wait_until("it has counted what there was: nothing", LIMIT, counted).unwrap();
    server.beat(&heartbeat("a", 1, 1, 300)).is(200);
    let mut failing = heartbeat("a", 1, 2, 342);
    failing["counters"]["messages_failed"] = json!(5);
    failing["status"]["state"] = json!("error");
    server.beat(&failing).is(200);
    server.beat(&heartbeat("b", 1, 1, 1)).is(200);
    assert_eq!(summary(&server, "7d")["total_messages_ingested"], 0);
    server.kill();
    let day = 24 * 60;
    place.age("connector_heartbeat_log", &["received_at", "sent_at"], day);
    place.age("connector_registry", &["last_heartbeat_at", "first_seen_at"], day);
    place.age(
        "connector_instances",
        &["last_heartbeat_at", "first_seen_at", "started_at", "last_sent_at"],
        day,
    );
    let progress = ["since_24h", "since_7d", "since_30d"];
    place.age("connector_stats_progress", &progress, day);

    let server = place.serve(&["--statistics-every", "100ms"]);
    counts(&server, "7d", 343);
    assert_eq!(summary(&server, "24h")["total_messages_ingested"], 0);
    let mut expected = summary(&server, "30d");
    expected.as_object_mut().unwrap().remove("by_connector");
    let told = json!({
        "period": "30d", "total_connectors": 2, "connectors_online": 0, "connectors_stale": 0,
        "connectors_offline": 2, "connectors_unknown": 0, "total_messages_ingested": 343,
        "total_messages_failed": 5, "overall_error_rate_pct": 1.4
    });
    assert_eq!(expected, told);
    // The same process sends again: the increase counts for today.
    server.beat(&heartbeat("a", 1, 90_000, 352)).is(200);
    counts(&server, "24h", 10);
    server.stop();
    let server = place.serve(&["--statistics-every", "100ms"]);
    server.beat(&heartbeat("a", 1, 90_001, 353)).is(200);
    counts(&server, "24h", 11);
    assert_eq!(summary(&server, "7d")["total_messages_ingested"], 354);

    let stats = |query: &str| {
        server.get(&format!("{CONNECTORS}/telegram_bot/a/stats{query}")).is(200)["data"].clone()
    };
    let week = stats("?period=7d");
    let series = week["timeseries"].as_array().unwrap();
    assert_eq!(series.len(), 168);
    // The current hour, and the one before if the hour has changed since.
    let newest = series[166..].iter().filter_map(|it| it["messages_ingested"].as_u64());
    assert_eq!(newest.sum::<u64>(), 11);
    // 24 hours before the current one, or 25 if the hour has changed since the first heartbeats.
    let old = series.iter().rev().skip(24).take(2).find(|it| it["messages_ingested"] == 342);
    let old = old.unwrap_or_else(|| panic!("{series:?}"));
    assert_eq!((&old["healthy_count"], &old["error_count"]), (&json!(1), &json!(1)));
    assert_eq!((&old["messages_failed"], &old["degraded_count"]), (&json!(5), &json!(0)));
    assert_eq!(week["summary"]["messages_ingested"], 353);
    assert_eq!(week["summary"]["uptime_pct"], 75.0);
    assert_eq!(week["summary"]["avg_messages_per_hour"], 2.1);
    let day = stats("");
    assert_eq!((&day["period"], day["timeseries"].as_array().unwrap().len()), (&json!("24h"), 24));
    assert_eq!(stats("?period=30d")["timeseries"].as_array().unwrap().len(), 30);
    let list = server.get(CONNECTORS).is(200);
    assert!(list["data"][0]["today"]["messages_ingested"].is_u64());
}

fn one_replica_counts_at_a_time(place: &Place) {
    let words = ["--statistics-every", "100ms"];
    let one = place.serve(&words);
    wait_until("one counts", LIMIT, || place.said(&one).contains(HERE)).unwrap();
    let two = place.serve(&words);
    let group = || place.tenure(&["ls", "--json"]).json()["groups"][0].clone();
    let both = || group()["members"].as_array().is_some_and(|members| members.len() == 2);
    wait_until("both could count", LIMIT, both).unwrap();
    two.beat(&heartbeat("a", 1, 1, 7)).is(200);
    counts(&two, "24h", 7);
    assert!(!place.said(&two).contains(HERE), "{}", place.said(&two));
    assert_eq!(two.metric("tenure_switchboard_statistics_lag_seconds"), None);
    one.kill();
    two.beat(&heartbeat("a", 1, 2, 9)).is(200);
    wait_until("the other counts", LIMIT, || place.said(&two).contains(HERE)).unwrap();
    counts(&two, "24h", 9);
    // A replica that stops releases the duty; no other one waits for the TTL.
    two.stop();
    let group = group();
    assert_eq!(group["group"], "tenure-switchboard", "{group}");
    assert_eq!(group["duties"][0]["duty"], "tenure-switchboard/statistics", "{group}");
    assert_eq!(group["duties"][0]["holder"], Value::Null, "{group}");
}

fn with_id(mut value: Value, id: &str) -> Value {
    value["request_id"] = json!(id);
    value
}

fn outcomes_are_kept_and_counted(place: &Place) {
    let (ingest, _) = place.token(&super::access::SCOPE);
    let (read, _) = place.token(&["--role", "read"]);
    let (consume, _) = place.token(&["--role", "consume"]);
    let mut server = place.serve(&["--statistics-every", "100ms"]);
    server.token = Some(ingest);
    // Register a type other than the default for the channel.
    let mut beat = heartbeat("test_bot", 1, 1, 1);
    beat["connector"]["connector_type"] = json!("telegram_user_client");
    server.beat(&beat).is(200);
    let id = server.ingest(&envelope("1")).is(202)["request_id"].as_str().unwrap().to_owned();
    let path = format!("{INBOX}/{id}/outcome");
    let first = json!({ "acked": ["health"], "failed": ["general"] });
    server.post(&path, &first).refused(403, "forbidden");
    server.token = Some(read);
    server.post(&path, &first).refused(403, "forbidden");
    server.token = Some(consume);
    let shown = || server.get(&format!("{INBOX}/{id}")).is(200)["data"].clone();
    let nobody = with_id(json!({ "acked": [], "failed": [] }), &id);
    assert_eq!(shown()["dispatch_outcomes"], nobody);

    let known = |acked: &[&str], failed: &[&str], changed: usize| {
        let known = json!({ "acked": acked, "failed": failed, "changed": changed });
        with_id(known, &id)
    };
    assert_eq!(server.post(&path, &first).is(200), known(&["health"], &["general"], 2));
    assert_eq!(shown()["lifecycle_state"], "failed");
    assert_eq!(server.post(&path, &first).is(200), known(&["health"], &["general"], 0));
    // An acknowledged target stays so; a failed one may be acknowledged later.
    let second = json!({ "acked": ["general"], "failed": ["health"] });
    assert_eq!(server.post(&path, &second).is(200), known(&["general", "health"], &[], 1));
    assert_eq!(shown()["lifecycle_state"], "dispatched");
    assert_eq!(shown()["dispatch_outcomes"]["acked"], json!(["general", "health"]));
    for bad in [json!({}), json!({ "acked": [] }), json!({ "acked": ["x"], "to": 1 }), json!([])] {
        server.post(&path, &bad).refused(422, "validation_error");
    }
    let other = format!("{INBOX}/{}/outcome", uuid::Uuid::now_v7());
    server.post(&other, &first).refused(404, "not_found");

    let fanout = || server.get(&format!("{CONNECTORS}/fanout")).is(200)["data"].clone();
    let row = json!({
        "connector_type": "telegram_user_client", "endpoint_identity": "test_bot",
        "targets": { "general": 1, "health": 1 }
    });
    let counted = || fanout()["matrix"] == json!([row]);
    wait_until("it is counted", LIMIT, counted).unwrap();
    assert_eq!(fanout()["period"], "7d");
    assert_eq!(
        server.get(&format!("{CONNECTORS}/fanout?period=30d")).is(200)["data"]["matrix"],
        json!([row])
    );
    place.execute("DELETE FROM message_inbox");
    server.post(&path, &first).refused(410, "gone");
}
