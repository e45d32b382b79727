//! What a replaced holder still sends is refused (R11).

use serde_json::json;

use super::{Answer, BATCH, FENCES, INGEST, LETTERS, Place, Server, envelope, on_both_stores};

on_both_stores! {
    an_older_epoch_stores_nothing
    the_same_epoch_of_another_instance_stores_nothing
    an_empty_batch_announces_an_epoch
    an_admin_resets_a_fence
    a_fence_that_makes_no_sense
    two_replicas_know_the_same_fence
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
    // Not even a copy of what is there, and a whole batch neither.
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
    // Without a fence nothing is compared; another duty has its own.
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
    assert_eq!((&was["was"]["epoch"], &was["was"]["instance"]), (&json!(900), &json!("a")));
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
