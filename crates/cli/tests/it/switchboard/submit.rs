//! Submissions: single and in batches, by one client and by many.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::{BATCH, INGEST, Place, envelope, envelopes, holds_each_once, on_both_stores, soaking};

on_both_stores! {
    an_event_gets_an_id_and_its_copy_the_same_one
    every_outcome_of_a_batch_is_told
    lines_are_a_batch_too
    many_clients_with_the_same_events
    opposite_orders_on_two_replicas
    what_cannot_be_taken_is_said
}

fn an_event_gets_an_id_and_its_copy_the_same_one(place: &Place) {
    let server = place.serve(&[]);
    let first = server.ingest(&envelope("1")).is(202);
    assert_eq!((&first["status"], &first["duplicate"]), (&json!("accepted"), &json!(false)));
    let id = first["request_id"].as_str().unwrap();
    assert_eq!(uuid::Uuid::parse_str(id).unwrap().get_version_num(), 7);

    let mut copy = envelope(" 1 ");
    copy["payload"]["normalized_text"] = json!("something else");
    let second = server.ingest(&copy).is(202);
    assert_eq!(second, json!({ "request_id": id, "status": "accepted", "duplicate": true }));

    // The same update of another bot is another event. A key overrides the event's id.
    let mut other = envelope("1");
    other["source"]["endpoint_identity"] = json!("other_bot");
    assert_eq!(server.ingest(&other).is(202)["duplicate"], false);
    let mut keyed = envelope("2");
    keyed["control"] = json!({ "idempotency_key": "telegram:test_bot:12345" });
    assert_eq!(server.ingest(&keyed).is(202)["duplicate"], false);
    keyed["event"]["external_event_id"] = json!("3");
    assert_eq!(server.ingest(&keyed).is(202)["duplicate"], true);

    let inbox = server.inbox();
    let keys: Vec<_> = inbox.iter().map(|it| &it["request_context"]["dedupe_key"]).collect();
    assert_eq!(
        keys,
        [
            "event:telegram:telegram:test_bot:1",
            "event:telegram:telegram:other_bot:1",
            "idem:telegram:test_bot:telegram:test_bot:12345",
        ]
    );
    assert_eq!(inbox[0]["envelope"]["payload"]["normalized_text"], "Hello, 1!");
    server.stop();
}

fn every_outcome_of_a_batch_is_told(place: &Place) {
    let server = place.serve(&[]);
    let mut bad = envelope("3");
    bad["sender"] = json!({});
    let answer = server.batch(&[envelope("1"), envelope("2"), bad, envelope("1")]).is(202);
    let counts = ["accepted", "duplicates", "rejected"].map(|name| answer[name].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 1], "{answer}");
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results[0]["duplicate"], false);
    assert_eq!(results[3]["duplicate"], true);
    assert_eq!(results[3]["request_id"], results[0]["request_id"]);
    assert_eq!(results[2]["error"], "validation_error");
    let detail = results[2]["detail"].as_str().unwrap();
    assert!(detail.starts_with("Invalid ingest.v1 envelope: "), "{detail}");
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result["index"], n);
    }
    assert_eq!(server.inbox().len(), 2);
    server.batch(&[]).is(202);
    server.post(BATCH, &json!({ "not": "an array" })).refused(400, "bad_request");
    let json = [("content-type", "application/json")];
    server.post_with(BATCH, b"[{}, ", &json).refused(400, "bad_request");
    assert_eq!(server.inbox().len(), 2);
}

fn lines_are_a_batch_too(place: &Place) {
    let server = place.serve(&[]);
    let lines = format!("{}\n\n{{broken\r\n{}", envelope("1"), envelope("2"));
    let kind = [("content-type", "application/x-ndjson")];
    let answer = server.post_with(BATCH, lines.as_bytes(), &kind).is(202);
    let statuses: Vec<_> =
        answer["results"].as_array().unwrap().iter().map(|it| &it["status"]).collect();
    assert_eq!(statuses, ["accepted", "error", "accepted"]);
    assert_eq!(server.inbox().len(), 2);
}

/// 32 clients submit the same events, in different orders and batch sizes.
fn many_clients_with_the_same_events(place: &Place) {
    let count = if soaking() { 10_000 } else { 1_000 };
    let server = place.serve(&[]);
    let all = envelopes(count);
    let told = Mutex::new(BTreeMap::<String, String>::new());
    std::thread::scope(|scope| {
        for client in 0..32_usize {
            let (server, all, told) = (&server, &all, &told);
            scope.spawn(move || {
                let agent = super::agent();
                let mut mine: Vec<Value> = all.clone();
                mine.rotate_left(client * 31 % count);
                if client % 2 == 1 {
                    mine.reverse();
                }
                let size = [5, 7, 50, 200][client % 4];
                for part in mine.chunks(size) {
                    let body = Value::Array(part.to_vec()).to_string();
                    let kind = [("content-type", "application/json")];
                    let answer = server.try_post(&agent, BATCH, body.as_bytes(), &kind).unwrap();
                    let answer = answer.is(202);
                    let results = answer["results"].as_array().unwrap();
                    let mut told = told.lock().unwrap();
                    for (envelope, result) in part.iter().zip(results) {
                        let id = envelope["event"]["external_event_id"].as_str().unwrap();
                        let request = result["request_id"].as_str().unwrap();
                        let first = told.entry(id.to_owned()).or_insert(request.to_owned());
                        assert_eq!(first, request, "{id} has two ids");
                    }
                }
            });
        }
    });
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), count);
    holds_each_once(&server.inbox(), &told);
}

/// Two replicas lock the same keys in opposite orders, without errors.
fn opposite_orders_on_two_replicas(place: &Place) {
    let replicas = [place.serve(&[]), place.serve(&[])];
    let rounds = if soaking() { 200 } else { 20 };
    std::thread::scope(|scope| {
        for (n, server) in replicas.iter().enumerate() {
            for _ in 0..2 {
                scope.spawn(move || {
                    let agent = super::agent();
                    for round in 0..rounds {
                        let ids = (0..100).map(|id| envelope(&format!("{round}-{id}")));
                        let mut batch: Vec<Value> = ids.collect();
                        if n == 1 {
                            batch.reverse();
                        }
                        let body = Value::Array(batch).to_string();
                        let kind = [("content-type", "application/json")];
                        let answer = server.try_post(&agent, BATCH, body.as_bytes(), &kind);
                        answer.unwrap().is(202);
                    }
                });
            }
        }
    });
    let inbox = replicas[0].inbox();
    assert_eq!(inbox.len(), rounds * 100);
    assert_eq!(inbox, replicas[1].inbox());
}

fn what_cannot_be_taken_is_said(place: &Place) {
    let server = place.serve(&[]);
    for (change, kind) in [
        (json!({ "schema_version": "ingest.v2" }), "unsupported_schema_version"),
        (json!({ "sender": null }), ""),
        (json!({ "extra": 1 }), "extra_forbidden"),
        (
            json!({ "source": { "channel": "telegram", "provider": "gmail",
                "endpoint_identity": "x" } }),
            "invalid_source_provider",
        ),
        (
            json!({ "event": { "external_event_id": "1", "observed_at": "2026-02-15T10:30:00" } }),
            "timezone_required",
        ),
        (
            json!({ "event": { "external_event_id": "1", "observed_at": 5 } }),
            "rfc3339_string_required",
        ),
    ] {
        let mut given = envelope("1");
        for (name, value) in change.as_object().unwrap() {
            given[name] = value.clone();
        }
        let body = server.ingest(&given).refused(422, "validation_error");
        let detail = body["detail"].as_str().unwrap();
        assert!(detail.starts_with("Invalid ingest.v1 envelope: "), "{detail}");
        let kinds: Vec<_> =
            body["errors"].as_array().unwrap().iter().map(|it| it["type"].clone()).collect();
        assert!(kind.is_empty() || kinds == [kind], "{kind} {body}");
    }
    let text = envelope("1").to_string();
    let wrong = [("content-type", "text/plain")];
    server.post_with(INGEST, text.as_bytes(), &wrong).refused(415, "unsupported_media_type");
    server.get(INGEST).refused(405, "method_not_allowed");
    server.get("/api/switchboard/nothing").refused(404, "not_found");
    server.get("/api/switchboard/inbox?aftre=3").refused(400, "bad_request");
    assert_eq!(server.inbox(), [json!(null); 0]);
    server.stop();
}
