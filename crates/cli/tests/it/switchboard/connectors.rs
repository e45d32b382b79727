//! Managing connectors.

use serde_json::{Value, json};

use super::{CONNECTORS, Place, Server, heartbeat, on_both_stores};

const AUDIT: [&str; 3] = ["token", "audit", "--json"];

on_both_stores! {
    liveness_is_the_same_everywhere
    connectors_are_archived_deleted_and_come_back
}

/// Returns the liveness in the list, by identity; checks that detail, sums and metrics agree.
fn liveness(server: &Server) -> Vec<(String, String)> {
    let list = server.get(CONNECTORS).is(200)["data"].clone();
    let summary = server.get(&format!("{CONNECTORS}/summary")).is(200)["data"].clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut found = Vec::new();
    for (n, connector) in list.as_array().unwrap().iter().enumerate() {
        let (kind, identity) = (&connector["connector_type"], &connector["endpoint_identity"]);
        let path = format!("{CONNECTORS}/{}/{}", text(kind), text(identity));
        assert_eq!(server.get(&path).is(200)["data"]["liveness"], connector["liveness"]);
        let row = &summary["by_connector"][n];
        assert_eq!(
            (&row["endpoint_identity"], &row["liveness"]),
            (identity, &connector["liveness"])
        );
        found.push((text(identity), text(&connector["liveness"])));
    }
    assert_eq!(summary["total_connectors"], found.len());
    for word in ["online", "stale", "offline", "unknown"] {
        let count = found.iter().filter(|(_, liveness)| liveness == word).count();
        assert_eq!(summary[format!("connectors_{word}")], count, "{word}");
        let metric = format!("tenure_switchboard_connectors{{liveness=\"{word}\"}}");
        assert_eq!(server.metric(&metric), Some(count as f64), "{word}");
    }
    found
}

fn liveness_is_the_same_everywhere(place: &Place) {
    let server = place.serve(&[]);
    // Each `age` applies to all earlier connectors: they end up 20, 10 and 3 minutes old.
    for (identity, minutes) in [("20m", 10), ("10m", 7), ("3m", 3), ("now", 0)] {
        server.beat(&heartbeat(identity, 1, 1, 1)).is(200);
        place.age("connector_registry", &["last_heartbeat_at"], minutes);
    }
    place.execute(
        "INSERT INTO connector_registry
             (connector_type, endpoint_identity, first_seen_at, registered_via)
         SELECT 'telegram_bot', 'z', first_seen_at, 'operator' FROM connector_registry LIMIT 1",
    );
    let all = |words: [&str; 4]| {
        let names = ["10m", "20m", "3m", "now"].map(str::to_owned);
        let mut all: Vec<_> = names.into_iter().zip(words.map(str::to_owned)).collect();
        all.push(("z".to_owned(), "unknown".to_owned()));
        all
    };
    assert_eq!(liveness(&server), all(["stale", "offline", "online", "online"]));
    server.kill();
    let server = place.serve(&["--liveness", "spec5"]);
    assert_eq!(liveness(&server), all(["offline", "offline", "stale", "online"]));
    server.kill();
    // With an interval of five minutes: online for 12.5 minutes, stale until 25.
    place.execute("UPDATE connector_registry SET interval_micros = 300000000");
    let server = place.serve(&["--liveness", "observed"]);
    assert_eq!(liveness(&server), all(["online", "stale", "online", "online"]));
}

fn connectors_are_archived_deleted_and_come_back(place: &Place) {
    let (ingest, _) =
        place.token(&["--channel", "telegram", "--provider", "telegram", "--endpoint", "a/b"]);
    let (read, _) = place.token(&["--role", "read"]);
    let (admin, id) = place.token(&["--role", "admin"]);
    let mut server = place.serve(&[]);
    server.token = Some(ingest.clone());
    for kind in ["telegram", "telegram_bot", "telegram_user_client"] {
        let mut beat = heartbeat("a/b", 1, 1, 1);
        beat["connector"]["connector_type"] = json!(kind);
        server.beat(&beat).is(200);
    }
    server.token = Some(read.clone());
    let (mut seen, mut next) = (Vec::new(), String::new());
    for _ in 0..3 {
        let page = server.get(&format!("{CONNECTORS}?limit=1{next}")).is(200);
        seen.push(page["data"][0]["connector_type"].clone());
        next = format!("&after={}", page["meta"]["next_after"].as_str().unwrap());
    }
    assert_eq!(seen, ["telegram", "telegram_bot", "telegram_user_client"]);
    let page = server.get(&format!("{CONNECTORS}?limit=1{next}")).is(200);
    assert_eq!(page, json!({ "data": [], "meta": { "next_after": null } }));

    let path = format!("{CONNECTORS}/telegram_bot/a%2Fb");
    let archive = |archived: bool| json!({ "archived": archived, "reason": "the bot was closed" });
    let put_away = format!("{path}/archive");
    server.post(&put_away, &archive(true)).fails(403, "forbidden");
    server.delete(&path, &json!({ "reason": "x" })).fails(403, "forbidden");
    server.token = Some(admin);
    let done =
        |changed: bool| json!({ "data": { "archived": true, "changed": changed }, "meta": {} });
    assert_eq!(server.post(&put_away, &archive(true)).is(200), done(true));
    assert_eq!(server.post(&put_away, &archive(true)).is(200), done(false));
    let list = |query: &str| {
        let page = server.get(&format!("{CONNECTORS}{query}")).is(200);
        page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["connector_type"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(list(""), ["telegram", "telegram_user_client"]);
    assert_eq!(list("?archived=true"), ["telegram_bot"]);
    assert!(server.get(&path).is(200)["data"]["archived_at"].is_string());

    let mut connector = place.serve(&[]);
    connector.token = Some(ingest);
    connector.beat(&heartbeat("a/b", 1, 2, 3)).is(200);
    assert_eq!(list("").len(), 3);
    let revived = "telegram_bot a/b: unarchived by a heartbeat";
    place.tenure.said(&connector.running, revived);
    is_counted_again(place, &server, &path);
    let gone = server.delete(&path, &json!({ "reason": "a test" })).is(200);
    assert_eq!(gone, json!({ "data": { "deleted": true }, "meta": {} }));
    server.delete(&path, &json!({ "reason": "a test" })).fails(404, "not_found");
    server.post(&put_away, &archive(true)).fails(404, "not_found");
    server.get(&path).fails(404, "not_found");
    server.get(&format!("{path}/heartbeats")).fails(404, "not_found");
    server.get(&format!("{path}/stats")).fails(404, "not_found");
    // Its next heartbeat registers it as a new connector.
    connector.beat(&heartbeat("a/b", 1, 3, 4)).is(200);
    assert_eq!(server.get(&path).is(200)["data"]["counters"]["messages_ingested"], 4);
    let trail = place.tenure(&AUDIT).json()["audit"].to_string();
    for word in ["connector_archive", "connector_recount", "connector_delete", "a test", &id] {
        assert!(trail.contains(word), "{word} in {trail}");
    }
    errors_have_one_form(&mut server, &path);
}

fn is_counted_again(place: &Place, server: &Server, path: &str) {
    let recount = |path: &str| server.post(&format!("{path}/recount"), &json!({ "reason": "x" }));
    recount(&format!("{CONNECTORS}/telegram_bot/nobody")).fails(404, "not_found");
    let counted = recount(path).is(200)["data"].clone();
    assert_eq!(counted["recounted"], true);
    let words = ["connectors", "recount", "telegram_bot", "a/b", "--reason", "again", "--json"];
    let [trail, dry, after] = [&AUDIT[..], &[&words[..], &["--dry-run"]].concat(), &AUDIT]
        .map(|words| place.tenure(words).json());
    assert_eq!((&dry["dry_run"], &dry["recounted"]), (&json!(true), &json!(false)), "{dry}");
    assert_eq!(trail, after);
    // Retention may have moved the start forward, but not back.
    let again = place.tenure(&words).json()["since"].clone();
    assert!(again.as_str() >= counted["since"].as_str(), "{again} {counted}");
}

fn errors_have_one_form(server: &mut Server, path: &str) {
    for (query, status) in [
        ("?limit=0", 400),
        ("?limit=10001", 400),
        ("?after=!", 400),
        ("?archived=yes", 400),
        ("?x=1", 400),
        ("/summary?period=1h", 400),
        ("/fanout?period=24h", 400),
    ] {
        server.get(&format!("{CONNECTORS}{query}")).fails(status, "bad_request");
    }
    server.get(&format!("{path}/stats?period=x")).fails(400, "bad_request");
    server.get(&format!("{path}/heartbeats?before=x")).fails(400, "bad_request");
    server.get(&format!("{CONNECTORS}/telegram_bot/%zz")).fails(400, "bad_request");
    server.get(&format!("{CONNECTORS}/nothing")).fails(404, "not_found");
    server.post(CONNECTORS, &json!({})).fails(405, "method_not_allowed");
    let why = json!({ "archived": true, "reason": "x", "more": 1 });
    let told = server.post(&format!("{path}/archive"), &why).fails(422, "validation_error");
    assert!(told["details"]["errors"][0]["msg"].is_string(), "{told}");
    server
        .post(&format!("{path}/archive"), &json!({ "archived": true, "reason": " " }))
        .fails(422, "validation_error");
    server.token = None;
    server.get(CONNECTORS).fails(401, "invalid_token");
}
