//! Heartbeats of connectors.

use std::process::Command;

use serde_json::{Value, json};

use super::access::SCOPE;
use super::{CONNECTORS, HEARTBEAT, Place, Server, heartbeat, on_both_stores};

on_both_stores! {
    a_connector_registers_itself_and_is_followed
    bad_beats_are_refused_and_change_nothing
    a_token_beats_for_its_scope
    liveness_beats_history
}

/// A heartbeat sent with curl.
const CURL: &str = r#"
curl -sS "$URL/api/switchboard/heartbeat" -H 'Content-Type: application/json' -d @- <<END
{
  "schema_version": "connector.heartbeat.v1",
  "connector": {
    "connector_type": "telegram_bot",
    "endpoint_identity": "test_bot",
    "instance_id": "00000000-0000-0000-0000-000000000001"
  },
  "status": {"state": "healthy", "uptime_s": 60},
  "counters": {
    "messages_ingested": 5, "messages_failed": 0, "source_api_calls": 5, "checkpoint_saves": 0
  },
  "checkpoint": {"cursor": "update 41"},
  "sent_at": "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
}
END
"#;

fn shown(server: &Server, identity: &str) -> Value {
    server.get(&format!("{CONNECTORS}/telegram_bot/{identity}")).is(200)["data"].clone()
}

fn a_connector_registers_itself_and_is_followed(place: &Place) {
    let server = place.serve(&[]);
    let ran = Command::new("sh").args(["-c", CURL]).env("URL", server.url("")).output().unwrap();
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!(answer["status"], "accepted", "{answer}");
    answer["server_time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(answer.get("warnings"), None);

    // The same process continues without a checkpoint, then another one begins.
    let first = heartbeat("test_bot", 1, 120, 8);
    server.beat(&first).is(200);
    let connector = shown(&server, "test_bot");
    assert_eq!(connector["counters"]["messages_ingested"], 8);
    assert_eq!(connector["checkpoint"]["cursor"], "update 41");
    assert_eq!(connector["registered_via"], "self");
    let mut second = heartbeat("test_bot", 2, 0, 1);
    second["status"] = json!({ "state": "degraded", "uptime_s": 1 });
    let warned = server.beat(&second).is(200);
    assert_eq!(warned["warnings"].as_array().unwrap().len(), 1, "{warned}");
    let connector = shown(&server, "test_bot");
    assert_eq!(connector["instance_id"], second["connector"]["instance_id"]);
    assert_eq!((&connector["state"], &connector["uptime_s"]), (&json!("degraded"), &json!(1)));
    assert_eq!(connector["counters"]["messages_ingested"], 9);
    assert_eq!(connector["instances"].as_array().unwrap().len(), 2);

    // A delayed heartbeat changes nothing, but is in the history.
    let mut late = first.clone();
    late["status"]["uptime_s"] = json!(90);
    late["counters"]["messages_ingested"] = json!(6);
    server.beat(&late).is(200);
    assert_eq!(shown(&server, "test_bot")["counters"]["messages_ingested"], 9);
    // A counter decreases, and the connector's clock is wrong.
    server.beat(&heartbeat("test_bot", 2, 2, 0)).is(200);
    for (uptime, sent_at, word) in
        [(3, "1970-01-01T00:00:00Z", "behind"), (4, "2200-01-01T00:00:00Z", "ahead")]
    {
        let mut off = heartbeat("test_bot", 2, uptime, 0);
        off["sent_at"] = json!(sent_at);
        let told = server.beat(&off).is(200)["warnings"].to_string();
        assert!(told.contains(word), "{told}");
    }
    assert_eq!(server.beat(&heartbeat("test_bot", 2, 5, 0)).is(200).get("warnings"), None);

    what_was_heard_is_told(place, &server);
}

fn what_was_heard_is_told(place: &Place, server: &Server) {
    let history = format!("{CONNECTORS}/telegram_bot/test_bot/heartbeats");
    let page = server.get(&format!("{history}?limit=4")).is(200);
    let next = page["meta"]["next_before"].as_str().unwrap();
    let rest = server.get(&format!("{history}?limit=5&before={next}")).is(200);
    assert_eq!(rest["meta"]["next_before"], Value::Null);
    let pages = [&page, &rest].into_iter().flat_map(|page| page["data"].as_array().unwrap());
    let beats: Vec<_> = pages.map(|it| (it["uptime_s"].clone(), it["late"].clone())).collect();
    let expected = [5, 4, 3, 2, 90, 1, 120, 60].map(|uptime| (json!(uptime), json!(uptime == 90)));
    assert_eq!(beats, expected);
    let unhealthy = server.get(&format!("{history}?unhealthy=true")).is(200);
    assert_eq!(unhealthy["data"].as_array().unwrap().len(), 1);
    assert_eq!(unhealthy["data"][0]["deltas"]["messages_ingested"], 1);

    for (outcome, count) in [("accepted", 7.0), ("late", 1.0), ("refused", 0.0)] {
        let name = format!("tenure_switchboard_heartbeats_total{{outcome=\"{outcome}\"}}");
        assert_eq!(server.metric(&name), Some(count), "{outcome}");
    }
    let [one, two] = [1, 2].map(uuid::Uuid::from_u128);
    for line in [
        "telegram_bot test_bot: registered by its first heartbeat",
        &format!("telegram_bot test_bot: instance {two} replaced {one}"),
        "a counter decreased",
        "s behind",
        "s ahead",
        "its clock is right again",
    ] {
        place.tenure.said(&server.running, line);
        let said = place.said(server);
        assert_eq!(said.matches(line).count(), 1, "{line} in {said}");
    }
}

fn bad_beats_are_refused_and_change_nothing(place: &Place) {
    let server = place.serve(&[]);
    let cases: [(&str, Value, &str); 18] = [
        ("/schema_version", json!("connector.heartbeat.v2"), "schema_version"),
        ("/more", json!(1), "more"),
        ("/connector/more", json!(1), "more"),
        ("/status/more", json!(1), "more"),
        ("/counters/more", json!(1), "more"),
        ("/checkpoint", json!({ "offset": 1 }), "offset"),
        ("/counters/messages_ingested", json!(-1), "messages_ingested"),
        ("/counters/messages_failed", json!(1.5), "messages_failed"),
        ("/counters/source_api_calls", json!("1"), "source_api_calls"),
        ("/counters/checkpoint_saves", json!(9_007_199_254_740_992_u64), "checkpoint_saves"),
        ("/status/uptime_s", json!(-1), "uptime_s"),
        ("/status/state", json!("fine"), "state"),
        ("/connector/instance_id", json!("1"), "instance_id"),
        ("/connector/connector_type", json!(" "), "connector_type"),
        ("/connector/connector_type", json!("x".repeat(10_000)), "connector_type"),
        ("/connector/endpoint_identity", json!("x".repeat(10_000)), "endpoint_identity"),
        ("/connector/endpoint_identity", json!("a\0b"), "endpoint_identity"),
        ("/sent_at", json!("2026-02-15T10:30:00"), "sent_at"),
    ];
    for (at, value, named) in &cases {
        let mut bad = heartbeat("test_bot", 1, 1, 1);
        let (parent, key) = at.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[key] = value.clone();
        let told = server.beat(&bad).refused(422, "validation_error");
        let text = told["message"].as_str().unwrap();
        assert!(text.starts_with("Invalid connector.heartbeat.v1 envelope: "), "{told}");
        let errors = told["errors"].as_array().unwrap();
        let names = |error: &Value| error["loc"].as_array().unwrap().contains(&json!(named));
        assert!(errors.iter().any(names), "{at}: {told}");
        assert!(text.len() < 1000, "{text}");
    }
    let kind = [("content-type", "application/json")];
    server.post_with(HEARTBEAT, b"{", &kind).refused(422, "validation_error");
    server.post_with(HEARTBEAT, b"{}", &[]).refused(415, "unsupported_media_type");
    server.post_with(HEARTBEAT, &vec![b' '; (1 << 20) + 1], &kind).refused(413, "too_large");
    server.get(HEARTBEAT).refused(405, "method_not_allowed");
    assert_eq!(server.get(CONNECTORS).is(200)["data"], json!([]));
    let refused = server.metric("tenure_switchboard_heartbeats_total{outcome=\"refused\"}");
    assert_eq!(refused, Some(cases.len() as f64 + 3.0));

    // Other characters of a name are accepted, work in paths, and are escaped in the log.
    let odd = "gmail:user/a@b.c?<script>\u{1b}[2J%2F";
    server.beat(&heartbeat(odd, 1, 1, 1)).is(200);
    let path = "gmail:user%2Fa@b.c%3F%3Cscript%3E%1B%5B2J%252F";
    let detail = shown(&server, path);
    assert_eq!(
        (&detail["endpoint_identity"], &detail["liveness"]),
        (&json!(odd), &json!("online"))
    );
    server.get(&format!("{CONNECTORS}/telegram_bot/{path}/stats")).is(200);
    server.get(&format!("{CONNECTORS}/telegram_bot/gmail:user/a")).fails(404, "not_found");
    place.tenure.said(&server.running, "<script>\\u{1b}[2J%2F: registered by its first");
    let said = place.said(&server);
    assert!(!said.contains('\u{1b}'), "{said}");
}

fn a_token_beats_for_its_scope(place: &Place) {
    let (secret, id) = place.token(&SCOPE);
    let (read, _) = place.token(&["--role", "read"]);
    let mut server = place.serve(&[]);
    server.token = Some(secret.clone());
    server.beat(&heartbeat("test_bot", 1, 1, 1)).is(200);
    let other = server.beat(&heartbeat("other_bot", 1, 1, 1)).refused(403, "forbidden");
    assert_eq!(other["message"], "Token scope does not permit heartbeats for endpoint 'other_bot'");
    let mut mail = heartbeat("test_bot", 1, 1, 1);
    mail["connector"]["connector_type"] = json!("gmail");
    server.beat(&mail).refused(403, "forbidden");
    server.get(CONNECTORS).fails(403, "forbidden");
    server.token = Some(read);
    server.beat(&heartbeat("test_bot", 1, 2, 1)).refused(403, "forbidden");
    server.token = None;
    server.beat(&heartbeat("test_bot", 1, 2, 1)).refused(401, "invalid_token");
    // This replica has cached the token that is revoked.
    server.token = Some(secret);
    let words = ["token", "revoke", &id, "--reason", "test", "--force"];
    assert_eq!(place.tenure(&words).code, Some(0));
    server.beat(&heartbeat("test_bot", 1, 3, 7)).refused(401, "invalid_token");
    let (admin, _) = place.token(&["--role", "admin"]);
    server.token = Some(admin);
    let list = server.get(CONNECTORS).is(200);
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    assert_eq!(list["data"][0]["uptime_s"], 1);
}

/// A heartbeat missing in the history causes a warning; the next one includes its counts.
fn liveness_beats_history(place: &Place) {
    let server = place.serve(&["--statistics-every", "200ms"]);
    server.beat(&heartbeat("test_bot", 1, 1, 1)).is(200);
    let (break_it, mend_it) = match place.url.starts_with("sqlite:") {
        true => (
            "CREATE TRIGGER broken BEFORE INSERT ON connector_heartbeat_log
             BEGIN SELECT RAISE(ABORT, 'history is broken'); END",
            "DROP TRIGGER broken",
        ),
        false => (
            "ALTER TABLE connector_heartbeat_log ADD CONSTRAINT broken CHECK (false) NOT VALID",
            "ALTER TABLE connector_heartbeat_log DROP CONSTRAINT broken",
        ),
    };
    place.execute(break_it);
    for (uptime, ingested) in [(2, 5), (3, 9)] {
        let told = server.beat(&heartbeat("test_bot", 1, uptime, ingested)).is(200);
        assert!(told["warnings"][0].as_str().unwrap().contains("history"), "{told}");
    }
    let connector = shown(&server, "test_bot");
    assert_eq!(
        (&connector["uptime_s"], &connector["counters"]["messages_ingested"]),
        (&json!(3), &json!(9))
    );
    assert_eq!(server.metric("tenure_switchboard_heartbeat_history_lost_total"), Some(2.0));
    place.tenure.said(&server.running, "is not in the history");
    assert_eq!(place.said(&server).matches("is not in the history").count(), 1);
    place.execute(mend_it);
    assert_eq!(server.beat(&heartbeat("test_bot", 1, 4, 10)).is(200).get("warnings"), None);
    let page = server.get(&format!("{CONNECTORS}/telegram_bot/test_bot/heartbeats")).is(200);
    let deltas = page["data"].as_array().unwrap().iter();
    let deltas: Vec<_> = deltas.map(|it| it["deltas"]["messages_ingested"].clone()).collect();
    assert_eq!(deltas, [json!(9), json!(1)]);
    let counted = || {
        let summary = server.get(&format!("{CONNECTORS}/summary")).is(200);
        summary["data"]["total_messages_ingested"] == 10
    };
    testkit::wait_until("everything is counted", crate::running::LIMIT, counted).unwrap();
}
