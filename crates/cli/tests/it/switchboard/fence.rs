//! Fencing: submissions of a replaced holder are refused (R11).

use serde_json::json;

use super::access::SCOPE;
use super::{Answer, BATCH, FENCES, INGEST, LETTERS, Place, Server, envelope, on_both_stores};

on_both_stores! {
    an_older_epoch_stores_nothing
    the_same_epoch_of_another_instance_stores_nothing
    an_empty_batch_announces_an_epoch
    an_admin_resets_a_fence
    a_fence_that_makes_no_sense
    two_replicas_know_the_same_fence
    a_token_fences_its_own_source_alone
}

/// Submits one event under a hold.
fn under(server: &Server, event: &str, epoch: &str, instance: &str) -> Answer {
    let headers = held(epoch, instance);
    server.post_with(INGEST, envelope(event).to_string().as_bytes(), &headers)
}

fn held<'a>(epoch: &'a str, instance: &'a str) -> [(&'static str, &'a str); 4] {
    [
        ("content-type", "application/json"),
        ("tenure-duty", "telegram/bot-42"),
        ("tenure-epoch", epoch),
        ("tenure-instance", instance),
    ]
}

fn an_older_epoch_stores_nothing(place: &Place) {
    let server = place.serve(&[]);
    under(&server, "1", "19", "a").is(202);
    under(&server, "2", "20", "b").is(202);
    let refused = under(&server, "3", "19", "a").refused(409, "fenced");
    assert_eq!(
        (&refused["duty"], &refused["newest_epoch"], &refused["newest_instance"]),
        (&json!("telegram/bot-42"), &json!(20), &json!("b"))
    );
    // A duplicate is refused, too, and so is a whole batch.
    under(&server, "1", "19", "a").refused(409, "fenced");
    let batch = json!([envelope("4"), envelope("5")]).to_string();
    server.post_with(BATCH, batch.as_bytes(), &held("18", "a")).refused(409, "fenced");
    let letter = json!({
        "source": { "channel": "telegram", "provider": "telegram",
            "endpoint_identity": "test_bot" },
        "error_class": "timeout", "reason": "gave up", "envelope": {}
    });
    server
        .post_with(LETTERS, letter.to_string().as_bytes(), &held("19", "a"))
        .refused(409, "fenced");
    assert_eq!(server.get(LETTERS).is(200)["data"], json!([]));
    // A submission without a hold is not fenced.
    server.ingest(&envelope("6")).is(202);
    assert_eq!(server.inbox().len(), 3);
}

fn the_same_epoch_of_another_instance_stores_nothing(place: &Place) {
    let server = place.serve(&[]);
    under(&server, "1", "7", "a").is(202);
    under(&server, "2", "7", "b").refused(409, "fenced");
    under(&server, "2", "7", "a").is(202);
    assert_eq!(server.inbox().len(), 2);
}

fn an_empty_batch_announces_an_epoch(place: &Place) {
    let server = place.serve(&[]);
    under(&server, "1", "7", "a").is(202);
    let told = server.post_with(BATCH, b"[]", &held("8", "b")).is(202);
    assert_eq!(told["results"], json!([]));
    under(&server, "2", "7", "a").refused(409, "fenced");
    server.post_with(BATCH, b"[]", &held("7", "a")).refused(409, "fenced");
}

fn an_admin_resets_a_fence(place: &Place) {
    let server = place.serve(&[]);
    under(&server, "1", "900", "a").is(202);
    under(&server, "2", "3", "b").refused(409, "fenced");
    let known = server.get(FENCES).is(200);
    assert_eq!(known["data"][0]["duty"], "telegram/bot-42");
    assert_eq!(known["data"][0]["epoch"], 900);
    let reset = format!("{FENCES}/reset");
    let duty = json!({ "duty": "telegram/bot-42", "reason": "the store was restored" });
    let was = server.post(&reset, &duty).is(200);
    let was = &was["was"][0];
    assert_eq!((&was["epoch"], &was["instance"]), (&json!(900), &json!("a")));
    server.post(&reset, &duty).refused(404, "not_found");
    under(&server, "2", "3", "b").is(202);

    let shown = place.tenure(&["fence", "list", "--json"]).json();
    assert_eq!(shown["fences"][0]["epoch"], 3, "{shown}");
}

fn a_fence_that_makes_no_sense(place: &Place) {
    let server = place.serve(&[]);
    for headers in [
        &held("-1", "a")[..],
        &held("9007199254740992", "a"),
        &held("1.5", "a"),
        &held("1", ""),
        &held("1", "a")[..3],
        &[("content-type", "application/json"), ("tenure-epoch", "1")],
        &[
            ("content-type", "application/json"),
            ("tenure-duty", "no-group"),
            ("tenure-epoch", "1"),
            ("tenure-instance", "a"),
        ],
    ] {
        let body = envelope("1").to_string();
        server.post_with(INGEST, body.as_bytes(), headers).refused(400, "bad_request");
    }
    assert_eq!(server.inbox().len(), 0);
}

fn two_replicas_know_the_same_fence(place: &Place) {
    let (one, two) = (place.serve(&[]), place.serve(&[]));
    under(&one, "1", "4", "a").is(202);
    under(&two, "2", "5", "b").is(202);
    under(&one, "3", "4", "a").refused(409, "fenced");
    assert_eq!(two.inbox().len(), 2);
}

fn a_token_fences_its_own_source_alone(place: &Place) {
    let server = place.serve(&[]);
    // An epoch seen before tokens were required applies to every source.
    under(&server, "0", "3", "first").is(202);
    let (bot, _) = place.token(&SCOPE);
    let other = [&SCOPE[..5], &["other_bot"]].concat();
    let (other, _) = place.token(&other);
    let (admin, _) = place.token(&["--role", "admin"]);
    // A new replica requires tokens from its start.
    let server = place.serve(&[]);
    let post = |token: &str, path: &str, body: &str, epoch: &str, instance: &str| {
        let bearer = format!("Bearer {token}");
        let mut headers = held(epoch, instance).to_vec();
        headers.push(("authorization", &bearer));
        server.post_with(path, body.as_bytes(), &headers)
    };
    let event = envelope("1").to_string();
    let bare = post(&bot, INGEST, &event, "2", "stale").refused(409, "fenced");
    assert_eq!((&bare["newest_epoch"], &bare["newest_instance"]), (&json!(null), &json!(null)));
    post(&bot, INGEST, &event, "5", "holder").is(202);
    // A token of another source announces epochs of the same duty.
    let last = "9007199254740991";
    post(&other, BATCH, "[]", last, "thief").refused(403, "epoch_ahead");
    post(&other, BATCH, "[]", "1700000000000000", "thief").is(202);
    post(&bot, INGEST, &event, "5", "holder").is(202);
    let letter = json!({
        "source": { "channel": "telegram", "provider": "telegram",
            "endpoint_identity": "test_bot" },
        "error_class": "timeout", "reason": "gave up", "envelope": {}
    });
    post(&bot, LETTERS, &letter.to_string(), last, "holder").refused(403, "epoch_ahead");
    post(&bot, LETTERS, &letter.to_string(), "5", "holder").is(202);
    let own = post(&bot, INGEST, &event, "4", "stale").refused(409, "fenced");
    assert_eq!((&own["newest_epoch"], &own["newest_instance"]), (&json!(5), &json!("holder")));

    let (reader, _) = place.token(&[&SCOPE[..], &["--role", "read"]].concat());
    let bearer = format!("Bearer {reader}");
    let seen = server.get_with(FENCES, &[("authorization", &bearer)]).is(200);
    assert_eq!(seen["data"].as_array().unwrap().len(), 1, "{seen}");
    assert_eq!(seen["data"][0]["instance"], "holder", "{seen}");
    let shown = place.tenure(&["fence", "list", "--json"]).json();
    let fences = shown["fences"].as_array().unwrap();
    let known: Vec<_> = fences
        .iter()
        .map(|it| (&it["source"]["endpoint_identity"], it["epoch"].as_u64().unwrap()))
        .collect();
    let (bot, other) = (json!("test_bot"), json!("other_bot"));
    let expected = [(&json!(null), 3), (&other, 1_700_000_000_000_000), (&bot, 5)];
    assert_eq!(known, expected, "{shown}");
    let reset = ["fence", "reset", "telegram/bot-42", "--reason", "a thief", "--json"];
    let one = [&reset[..], &SCOPE[..5], &["other_bot"]].concat();
    let was = place.tenure(&one).json();
    assert_eq!(was["was"].as_array().unwrap().len(), 1, "{was}");
    let bearer = format!("Bearer {admin}");
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    let body = json!({ "duty": "telegram/bot-42", "reason": "x", "source": {
        "channel": "telegram", "provider": "telegram", "endpoint_identity": "test_bot" } });
    let was = server.post_with(&format!("{FENCES}/reset"), body.to_string().as_bytes(), &headers);
    assert_eq!(was.is(200)["was"][0]["instance"], "holder");
    let was = place.tenure(&reset).json();
    assert_eq!(was["was"][0]["instance"], "first", "{was}");
}
