//! Reading the inbox, and dead letters.

use serde_json::{Value, json};

use super::access::SCOPE;
use super::{INBOX, LETTERS, Place, envelope, envelopes, on_both_stores};

on_both_stores! {
    the_inbox_is_followed_from_a_cursor
    the_inbox_is_filtered
    one_message_is_shown
    dead_letters_are_kept_replayed_and_discarded
    what_is_past_its_retention
    a_reader_notices_that_the_inbox_was_restored
}

fn the_inbox_is_followed_from_a_cursor(place: &Place) {
    let server = place.serve(&[]);
    server.batch(&envelopes(25)).is(202);
    let page = server.get(&format!("{INBOX}?limit=10")).is(200);
    assert_eq!(page["data"].as_array().unwrap().len(), 10);
    let next = page["data"][9]["cursor"].as_str().unwrap().to_owned();
    let (position, tag) = next.split_once('.').unwrap();
    assert!(position == "10" && page["data"][9]["request_id"].as_str().unwrap().ends_with(tag));
    assert_eq!(page["meta"], json!({ "next_after": next, "at_end": false, "trimmed": 0 }));
    // A bare position is accepted, too.
    for after in [next.as_str(), "10"] {
        let page = server.get(&format!("{INBOX}?limit=5&after={after}")).is(200);
        assert_eq!(page["data"][0]["position"], 11);
    }
    let page = server.get(&format!("{INBOX}?limit=1000&after={next}")).is(200);
    assert_eq!(page["data"].as_array().unwrap().len(), 15);
    let end = page["meta"]["next_after"].as_str().unwrap().to_owned();
    assert_eq!(page["data"][14]["cursor"], end.as_str());
    assert_eq!(page["meta"]["at_end"], true);
    // At the end, the cursor stays the same; a waiting reader gets a new message at once.
    let page = server.get(&format!("{INBOX}?after={end}")).is(200);
    assert_eq!((&page["data"], &page["meta"]["next_after"]), (&json!([]), &json!(end)));
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.get(&format!("{INBOX}?after={end}&wait=30")).is(200));
        server.ingest(&envelope("late")).is(202);
        waiting.join().unwrap()
    });
    assert_eq!(waited["data"][0]["envelope"]["event"]["external_event_id"], "late");
    for bad in
        ["after=-1", "after=1.x", "limit=0", "limit=1001", "wait=31", "since=yesterday", "x=1"]
    {
        server.get(&format!("{INBOX}?{bad}")).refused(400, "bad_request");
    }
}

fn the_inbox_is_filtered(place: &Place) {
    let server = place.serve(&[]);
    let mut mail = envelope("m-1");
    mail["source"] = json!({
        "channel": "email", "provider": "imap", "endpoint_identity": "gmail:user:a@b c/d"
    });
    mail["sender"]["identity"] = json!("eve & mallory");
    mail["event"]["external_thread_id"] = json!("thread#1");
    server.batch(&[envelope("1"), mail, envelope("2")]).is(202);
    let found = |query: &str| {
        let page = server.get(&format!("{INBOX}?{query}")).is(200);
        assert_eq!(page["meta"]["at_end"], true);
        let ids = page["data"].as_array().unwrap().iter();
        ids.map(|it| it["envelope"]["event"]["external_event_id"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(found("channel=telegram"), ["1", "2"]);
    assert_eq!(found("provider=imap"), ["m-1"]);
    assert_eq!(found("endpoint=gmail%3Auser%3Aa%40b+c%2Fd"), ["m-1"]);
    assert_eq!(found("endpoint=test_bot&after=1"), ["2"]);
    assert_eq!(found("sender=eve%20%26%20mallory"), ["m-1"]);
    assert_eq!(found("thread=thread%231"), ["m-1"]);
    assert_eq!(found("endpoint=nobody"), [json!(null); 0]);
    assert_eq!(found("until=2026-01-01T00:00:00Z"), [json!(null); 0]);
    assert_eq!(found("since=2026-01-01T00:00:00Z&sender=user_eve"), ["1", "2"]);
}

fn one_message_is_shown(place: &Place) {
    let server = place.serve(&[]);
    let id = server.ingest(&envelope("1")).is(202)["request_id"].as_str().unwrap().to_owned();
    let shown = server.get(&format!("{INBOX}/{id}")).is(200)["data"].clone();
    assert_eq!(shown["request_id"], id.as_str());
    assert_eq!(shown["lifecycle_state"], "accepted");
    let context = &shown["request_context"];
    assert_eq!(context["request_id"], id.as_str());
    assert_eq!(context["received_at"], shown["received_at"]);
    assert_eq!(context["source_channel"], "telegram");
    assert_eq!(context["source_endpoint_identity"], "test_bot");
    assert_eq!(context["source_sender_identity"], "user_eve");
    assert_eq!(context["dedupe_strategy"], "connector_api");
    assert_eq!(shown["envelope"]["payload"]["raw"], json!({ "update_id": "1" }));
    let nobody = uuid::Uuid::now_v7();
    server.get(&format!("{INBOX}/{nobody}")).refused(404, "not_found");
    server.get(&format!("{INBOX}/nonsense")).refused(404, "not_found");
}

fn letter(envelope: Value) -> Value {
    let source = json!({
        "channel": "telegram", "provider": "telegram", "endpoint_identity": "test_bot"
    });
    json!({
        "source": source, "external_event_id": "1", "error_class": "timeout",
        "reason": "five attempts", "attempts": 5, "envelope": envelope
    })
}

/// If the token ends during a replay, the response says that the event was submitted.
#[test]
fn a_replay_whose_token_ends_on_the_way_tells_what_was_stored() {
    let place = Place::sqlite();
    let (ingest, _) = place.token(&SCOPE);
    let (admin, _) = place.token(&["--role", "admin"]);
    let mut server = place.serve(&[]);
    server.token = Some(ingest);
    let kept = server.post(LETTERS, &letter(envelope("1"))).is(202);
    server.token = Some(admin);
    place.execute(
        "CREATE TRIGGER ends AFTER INSERT ON message_inbox
         BEGIN UPDATE connector_tokens SET revoked_at = 1; END",
    );
    let path = format!("{LETTERS}/{}/replay", kept["id"].as_str().unwrap());
    let refused = server.post(&path, &json!({})).refused(409, "conflict");
    assert!(refused.to_string().contains("the envelope was submitted"), "{refused}");
    server.post(&path, &json!({})).refused(401, "invalid_token");
}

fn dead_letters_are_kept_replayed_and_discarded(place: &Place) {
    let server = place.serve(&[]);
    let good = server.post(LETTERS, &letter(envelope("1"))).is(202);
    assert_eq!((&good["status"], &good["duplicate"]), (&json!("kept"), &json!(false)));
    // A repeated post, as after a crash of the connector, is a duplicate.
    let again = server.post(LETTERS, &letter(envelope("1"))).is(202);
    assert_eq!((&again["id"], &again["duplicate"]), (&good["id"], &json!(true)));
    let broken = server.post(LETTERS, &letter(json!({ "half": "of it" }))).is(202);
    let path =
        |letter: &Value, rest: &str| format!("{LETTERS}/{}{rest}", letter["id"].as_str().unwrap());

    let list = server.get(&format!("{LETTERS}?state=pending")).is(200);
    assert_eq!(list["data"].as_array().unwrap().len(), 2);
    let shown = server.get(&path(&good, "")).is(200)["data"].clone();
    assert_eq!((&shown["reason"], &shown["attempts"]), (&json!("five attempts"), &json!(5)));
    assert_eq!(shown["envelope"], envelope("1"));

    let replayed = server.post(&path(&good, "/replay"), &json!({})).is(202);
    assert_eq!((&replayed["state"], &replayed["duplicate"]), (&json!("replayed"), &json!(false)));
    assert_eq!(server.inbox()[0]["request_id"], replayed["request_id"]);
    server.post(&path(&good, "/replay"), &json!({})).refused(409, "conflict");

    server.post(&path(&broken, "/replay"), &json!({})).refused(422, "validation_error");
    let why = json!({ "reason": "cannot be read" });
    assert_eq!(server.get(&path(&broken, "")).is(200)["data"]["state"], "pending");
    server.post(&path(&broken, "/discard"), &why).is(200);
    server.post(&path(&broken, "/discard"), &why).refused(409, "conflict");
    server
        .post(&format!("{LETTERS}/{}/discard", uuid::Uuid::now_v7()), &why)
        .refused(404, "not_found");
    assert_eq!(server.get(&format!("{LETTERS}?state=pending")).is(200)["data"], json!([]));
    assert_eq!(server.inbox().len(), 1);
}

/// Bodies are deleted first. The dedupe key stays and returns the first id; after the key's own
/// retention, the same event is new.
fn what_is_past_its_retention(place: &Place) {
    let server = place.serve(&["--keep-bodies", "1h", "--keep-keys", "2h"]);
    let id = server.ingest(&envelope("1")).is(202)["request_id"].as_str().unwrap().to_owned();
    server.stop();
    place.age("message_inbox", &["received_at"], 90);
    place.age("ingest_dedupe", &["first_seen_at", "last_seen_at"], 90);
    let server = place.serve(&["--keep-bodies", "1h", "--keep-keys", "2h"]);
    let gone = || server.get(&format!("{INBOX}/{id}")).status == 410;
    testkit::wait_until("the body is gone", crate::running::LIMIT, gone).unwrap();
    let page = server.get(INBOX).is(200);
    assert_eq!((&page["data"], &page["meta"]["trimmed"]), (&json!([]), &json!(1)));
    let copy = server.ingest(&envelope("1")).is(202);
    assert_eq!((&copy["request_id"], &copy["duplicate"]), (&json!(id), &json!(true)));
    server.stop();
    // PostgreSQL stores `last_seen_at` to the hour, and keeps keys that much longer.
    place.age("ingest_dedupe", &["first_seen_at", "last_seen_at"], 200);
    let server = place.serve(&["--keep-bodies", "1h", "--keep-keys", "2h"]);
    let forgotten = || server.get(&format!("{INBOX}/{id}")).status == 404;
    testkit::wait_until("the key is gone", crate::running::LIMIT, forgotten).unwrap();
    let new = server.ingest(&envelope("1")).is(202);
    assert_eq!(new["duplicate"], false);
    assert_ne!(new["request_id"], id.as_str());
    // Positions continue.
    assert_eq!(server.inbox()[0]["position"], 2);
}

/// Three events, a backup, two more events that are read, the restore, and three new events.
fn a_reader_notices_that_the_inbox_was_restored(place: &Place) {
    let server = place.serve(&[]);
    let read = |after: &str| server.get(&format!("{INBOX}?after={after}"));
    let next = |page: &Value| page["meta"]["next_after"].as_str().unwrap().to_owned();
    let ids = |page: &Value| {
        let messages = page["data"].as_array().unwrap().iter();
        messages
            .map(|it| it["envelope"]["event"]["external_event_id"].clone())
            .collect::<Vec<Value>>()
    };
    server.batch(&[envelope("a"), envelope("b"), envelope("c")]).is(202);
    let third = next(&read("0").is(200));
    server.batch(&[envelope("d"), envelope("e")]).is(202);
    let fifth = next(&read(&third).is(200));
    // A waiting reader is notified, too.
    let told = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&format!("{fifth}&wait=30")));
        place.execute("DELETE FROM message_inbox WHERE position > 3");
        place.execute(
            "DELETE FROM ingest_dedupe
             WHERE request_id NOT IN (SELECT request_id FROM message_inbox)",
        );
        place.execute(
            "UPDATE inbox_position SET last = 3,
             last_id = (SELECT request_id FROM message_inbox WHERE position = 3)",
        );
        waiting.join().unwrap().refused(409, "cursor_diverged")
    });
    let expected = json!({
        "error": "cursor_diverged", "message": told["message"], "code": "SW008", "after": fifth,
        "last": 3, "trimmed": 0
    });
    assert_eq!(told, expected);
    read("50").refused(409, "cursor_diverged");
    let words = json!({ "name": "inbox.list", "arguments": { "after": fifth } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": words });
    let called = server.post("/mcp", &call).is(200);
    assert!(called.to_string().contains("cursor_diverged"), "{called}");

    let adopt = |consent| place.tenure(&["store", "adopt", consent, "--json"]).json();
    let [foreseen, floor] = ["--dry-run", "--yes"].map(|it| adopt(it)["inbox_floor"].as_i64());
    let floor = floor.unwrap();
    assert!((1_577_836_800_000_000..=floor).contains(&foreseen.unwrap()), "{foreseen:?} {floor}");
    server.batch(&[envelope("x"), envelope("y"), envelope("z")]).is(202);
    read(&fifth).refused(409, "cursor_diverged");
    for after in [third.as_str(), "5"] {
        let page = read(after).is(200);
        assert_eq!(ids(&page), ["x", "y", "z"]);
        assert_eq!(page["data"][0]["position"], floor + 1);
    }
    for (consent, goes) in [("--dry-run", "would continue"), ("--yes", "continues")] {
        let text = place.tenure(&["store", "adopt", consent]).ok();
        assert!(text.contains(&format!("\nthe inbox {goes} above position ")), "{text}");
    }
}
