//! Adding and removing channels; unknown fields.

use serde_json::{Value, json};
use testkit::wait_until;

use super::{Place, envelope, on_both_stores};
use crate::running::LIMIT;

on_both_stores! {
    a_channel_is_known_at_once_and_forgotten_soon
    fields_that_are_not_known
}

fn of(channel: &str, event: &str) -> Value {
    let mut envelope = envelope(event);
    envelope["source"]["channel"] = json!(channel);
    envelope
}

fn a_channel_is_known_at_once_and_forgotten_soon(place: &Place) {
    let replicas = [place.serve(&[]), place.serve(&[])];
    for server in &replicas {
        server.ingest(&envelope("1")).is(202);
        server.ingest(&of("telegram_bot", "2")).refused(422, "validation_error");
    }
    let add = ["channel", "add", "telegram_bot", "--provider", "telegram", "--json"];
    let added = place.tenure(&[&add[..], &["--alias", "telegram"]].concat()).json();
    assert_eq!(added["is"]["alias"], "telegram", "{added}");
    // Every replica accepts the channel, with the dedupe keys of its alias.
    let first = replicas[0].ingest(&of("telegram_bot", "1")).is(202);
    assert_eq!(first["duplicate"], true);
    let told = replicas[1].batch(&[of("telegram_bot", "2"), of("other", "3")]).is(202);
    assert_eq!((&told["accepted"], &told["rejected"]), (&json!(1), &json!(1)));
    assert_eq!(replicas[0].ingest(&envelope("2")).is(202)["duplicate"], true);
    let inbox = replicas[0].inbox();
    let last = &inbox[inbox.len() - 1]["request_context"];
    assert_eq!(last["source_channel"], "telegram_bot", "{last}");
    assert_eq!(last["dedupe_key"], "event:telegram:telegram:test_bot:2", "{last}");

    // The new name is valid in the scope of a token.
    let scope = ["--channel", "telegram_bot", "--provider", "telegram", "--endpoint", "test_bot"];
    place.tenure(&[&["token", "create", "--dry-run"][..], &scope].concat()).ok();
    let wrong = ["--channel", "other", "--provider", "telegram", "--endpoint", "test_bot"];
    place.tenure(&[&["token", "create", "--dry-run"][..], &wrong].concat()).refused("SW009");

    for (words, code) in [
        (&["add", "telegram_bot", "--provider", "telegram", "--alias", "slack"][..], "SW010"),
        (&["add", "more", "--provider", "x", "--alias", "telegram_bot"], "SW010"),
        (&["add", "more", "--provider", "x", "--alias", "nobody"], "SW009"),
        (&["rm", "nobody"], "SW009"),
        (&["rm", "telegram_bot", "--provider", "nobody"], "SW009"),
    ] {
        place.tenure(&[&["channel"][..], words].concat()).refused(code);
    }
    assert_eq!(place.tenure(&["channel", "add", "Bad-Name", "--provider", "x"]).code, Some(2));
    let listed = place.tenure(&["channel", "ls"]).ok();
    assert!(listed.lines().any(|line| line.starts_with("telegram_bot  telegram")), "{listed}");

    let dry = place.tenure(&["channel", "rm", "telegram_bot", "--dry-run", "--json"]).json();
    assert_eq!((&dry["dry_run"], &dry["is"]), (&json!(true), &json!(null)), "{dry}");
    let dry = place.tenure(&["channel", "rm", "telegram_bot", "--dry-run"]);
    assert_eq!(dry.stderr, "a dry run: nothing was changed\n");
    assert_eq!(place.tenure(&["channel", "ls"]).ok(), listed);
    place.tenure(&["channel", "rm", "telegram_bot"]).ok();
    for server in &replicas {
        let is_refused = || server.ingest(&of("telegram_bot", "9")).status == 422;
        wait_until("the channel to be refused", LIMIT, is_refused).unwrap();
    }
    // Messages of a removed channel can still be read.
    let path = format!("{}?channel=telegram_bot", super::INBOX);
    assert!(!replicas[0].get(&path).is(200)["data"].as_array().unwrap().is_empty());
}

fn fields_that_are_not_known(place: &Place) {
    let (strict, keeping) = (place.serve(&[]), place.serve(&["--fields", "kept"]));
    let mut later = envelope("1");
    later["sender"]["display_name"] = json!("Eve");
    strict.ingest(&later).is(202);
    later["event"]["external_event_id"] = json!("2");
    later["sender"]["participants"] = json!([1, { "x": null }]);
    later["control"] = json!({ "addressed": true, "idempotency_key": " k ",
        "trace_context": { "traceparent": "00-1-2-01" } });
    strict.ingest(&later).refused(422, "validation_error");
    let mut tier = later.clone();
    tier["control"]["policy_tier"] = json!("passive");
    keeping.ingest(&tier).refused(422, "validation_error");
    keeping.ingest(&later).is(202);
    let inbox = keeping.inbox();
    assert_eq!(inbox[0]["envelope"]["sender"]["display_name"], "Eve");
    let context = &inbox[0]["request_context"];
    assert_eq!(
        (&context["idempotency_key"], &context["trace_context"]),
        (&json!(null), &json!({}))
    );
    let last = &inbox[1];
    assert_eq!(last["envelope"]["sender"]["participants"], later["sender"]["participants"]);
    assert_eq!(last["envelope"]["control"]["addressed"], true);
    let context = &last["request_context"];
    assert_eq!(context["idempotency_key"], "k");
    assert_eq!(context["trace_context"], json!({ "traceparent": "00-1-2-01" }));
}
