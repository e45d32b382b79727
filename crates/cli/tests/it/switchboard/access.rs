//! Authentication and authorization.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{
    Answer, CONNECTORS, FENCES, HEARTBEAT, INBOX, INGEST, LETTERS, Place, Server, agent, envelope,
    heartbeat, on_both_stores,
};

on_both_stores! {
    a_token_opens_what_its_role_and_scope_say
    a_revoked_token_is_out_at_once_on_every_replica
    a_token_is_replaced_while_both_are_good_and_expires
    failed_attempts_are_limited_over_all_replicas
    a_token_may_be_the_password_of_a_url
    a_read_token_with_an_endpoint_reads_that_one
    a_read_token_with_an_endpoint_turns_pages_and_sees_no_duties
    proxies_are_believed_as_far_as_they_are_trusted
    without_tokens_it_is_open_to_this_machine_alone
}

impl Place {
    /// Creates a token; returns its secret and its id.
    #[track_caller]
    pub fn token(&self, words: &[&str]) -> (String, String) {
        let made = self.tenure(&[&["token", "create", "--json"], words].concat()).json();
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        (text("token"), text("token_id"))
    }
}

pub const SCOPE: [&str; 6] =
    ["--channel", "telegram", "--provider", "telegram", "--endpoint", "test_bot"];

fn with(server: &Server, token: &str, path: &str) -> Answer {
    server.get_with(path, &[("authorization", &format!("Bearer {token}"))])
}

fn submit(server: &Server, token: &str, endpoint: &str) -> Answer {
    let mut event = envelope("1");
    event["source"]["endpoint_identity"] = json!(endpoint);
    let bearer = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    server.post_with(INGEST, event.to_string().as_bytes(), &headers)
}

fn a_token_opens_what_its_role_and_scope_say(place: &Place) {
    let (ingest, id) = place.token(&SCOPE);
    let (read, _) = place.token(&["--role", "read"]);
    let (admin, _) = place.token(&["--role", "admin"]);
    let server = place.serve(&[]);

    let first = submit(&server, &ingest, "test_bot").is(202);
    let other = submit(&server, &ingest, "other_bot").refused(403, "forbidden");
    assert_eq!(other["message"], "Token scope does not permit ingestion for endpoint 'other_bot'");
    submit(&server, &read, "test_bot").refused(403, "forbidden");
    with(&server, &ingest, INBOX).refused(403, "forbidden");
    with(&server, &ingest, "/metrics").refused(403, "forbidden");
    let inbox = with(&server, &read, INBOX).is(200);
    assert_eq!(inbox["data"][0]["request_id"], first["request_id"]);
    assert_eq!(inbox["data"][0]["request_context"]["authenticated_token_id"], id.as_str());
    with(&server, &admin, INBOX).is(200);
    with(&server, &admin, FENCES).is(200);
    with(&server, &read, LETTERS).is(200);
    assert_eq!(with(&server, &read, "/metrics").status, 200);

    let health = with(&server, &ingest, "/api/switchboard/ingest/health").is(200);
    assert_eq!((&health["status"], &health["authenticated"]), (&json!("healthy"), &json!(true)));
    assert_eq!(health["scope"]["endpoint_identity"], "test_bot");
    let reset = json!({ "duty": "a/b", "reason": "x" }).to_string();
    for (token, status) in [(&read, 403), (&admin, 404)] {
        let bearer = format!("Bearer {token}");
        let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
        let answer = server.post_with(&format!("{FENCES}/reset"), reset.as_bytes(), &headers);
        assert_eq!(answer.status, status, "{answer:?}");
    }
    // Health checks need no token.
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/ready").status, 200);
    assert_eq!(server.get("/api/openapi.json").status, 200);
    let said = place.said(&server);
    assert!(
        ![&ingest, &read, &admin].iter().any(|secret| said.contains(secret.as_str())),
        "{said}"
    );
}

/// Sends a heartbeat, a dead letter and an event; returns the response to the event.
fn sends_all(server: &Server, token: &str, provider: &str, endpoint: &str) -> Value {
    let bearer = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    let mut beat = heartbeat(endpoint, 1, 5, 1);
    if provider == "bots" {
        beat["connector"]["connector_type"] = json!(provider);
    }
    server.post_with(HEARTBEAT, beat.to_string().as_bytes(), &headers).is(200);
    let mut event = envelope("1");
    event["source"]["provider"] = json!(provider);
    event["source"]["endpoint_identity"] = json!(endpoint);
    let letter = json!({
        "source": event["source"],
        "external_event_id": "dead", "error_class": "timeout", "reason": "test", "attempts": 1,
        "envelope": {}
    });
    server.post_with(LETTERS, letter.to_string().as_bytes(), &headers).is(202);
    server.post_with(INGEST, event.to_string().as_bytes(), &headers).is(202)
}

fn a_read_token_with_an_endpoint_reads_that_one(place: &Place) {
    let other = ["--channel", "telegram", "--provider", "telegram", "--endpoint", "other_bot"];
    let (mine, _) = place.token(&[&SCOPE[..], &["--role", "read"]].concat());
    let (both, _) = place.token(&[&SCOPE[..], &["--role", "ingest", "--role", "read"]].concat());
    let (theirs, _) = place.token(&[&other[..], &["--role", "ingest", "--role", "read"]].concat());
    let (all, _) = place.token(&["--role", "read"]);
    // Another source with the same endpoint.
    place.tenure(&["channel", "add", "telegram", "--provider", "bots"]).ok();
    let alike = ["--channel", "telegram", "--provider", "bots", "--endpoint", "test_bot"];
    let (alike, _) = place.token(&[&alike[..], &["--role", "ingest"]].concat());
    let server = place.serve(&[]);
    let first = sends_all(&server, &both, "telegram", "test_bot");
    let second = sends_all(&server, &theirs, "telegram", "other_bot");
    let third = sends_all(&server, &alike, "bots", "test_bot");
    let ids = |value: &Value, name: &str| -> Vec<Value> {
        value["data"].as_array().unwrap().iter().map(|it| it[name].clone()).collect()
    };
    assert_eq!(ids(&with(&server, &all, INBOX).is(200), "request_id").len(), 3);
    let letters = with(&server, &all, LETTERS).is(200);
    let foreign = letters["data"].as_array().unwrap().iter();
    let is_foreign =
        |it: &&Value| ["other_bot", "bots"].iter().any(|of| it.to_string().contains(of));
    let foreign = foreign.filter(is_foreign).map(|it| &it["id"]);
    let foreign: Vec<String> = foreign.map(|id| id.as_str().unwrap().to_owned()).collect();
    assert_eq!(foreign.len(), 2, "{letters}");
    for token in [&mine, &both] {
        let read = |path: &str| with(&server, token, path);
        assert_eq!(ids(&read(INBOX).is(200), "request_id"), [first["request_id"].clone()]);
        read(&format!("{INBOX}?endpoint=other_bot")).refused(403, "forbidden");
        let message = |of: &Value| format!("{INBOX}/{}", of["request_id"].as_str().unwrap());
        read(&message(&first)).is(200);
        for foreign in [&second, &third] {
            read(&message(foreign)).refused(404, "not_found");
        }
        assert_eq!(ids(&read(LETTERS).is(200), "endpoint_identity").len(), 1);
        read(&format!("{LETTERS}?endpoint=other_bot")).refused(403, "forbidden");
        for id in &foreign {
            read(&format!("{LETTERS}/{id}")).refused(404, "not_found");
        }
        let connectors = read(CONNECTORS).is(200);
        assert_eq!(ids(&connectors, "endpoint_identity"), [json!("test_bot")]);
        read(&format!("{CONNECTORS}/telegram_bot/test_bot")).is(200);
        for name in ["telegram_bot/other_bot", "bots/test_bot"] {
            for what in ["", "/stats", "/heartbeats"] {
                let path = format!("{CONNECTORS}/{name}{what}");
                assert_eq!(read(&path).status, 404, "{path}");
            }
        }
        assert_eq!(read(&format!("{CONNECTORS}/summary")).status, 403);
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "inbox.list", "arguments": {} }
        });
        let bearer = format!("Bearer {token}");
        let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
        let told = server.post_with("/mcp", call.to_string().as_bytes(), &headers).is(200);
        let told = &told["result"]["structuredContent"];
        assert_eq!(ids(told, "request_id"), [first["request_id"].clone()], "{told}");
    }
    assert_eq!(with(&server, &mine, "/metrics").status, 200);
    submit(&server, &mine, "test_bot").refused(403, "forbidden");
}

/// A page continues after the last returned item, not after the last examined one.
fn a_read_token_with_an_endpoint_turns_pages_and_sees_no_duties(place: &Place) {
    let token = |channel: &str, endpoint: &str| {
        let scope = ["--channel", channel, "--provider", channel, "--endpoint", endpoint];
        place.token(&[&scope[..], &["--role", "ingest", "--role", "read"]].concat()).0
    };
    let [mine, slack] = ["telegram", "slack"].map(|channel| token(channel, "test_bot"));
    let (all, _) = place.token(&["--role", "read"]);
    let server = place.serve(&[]);
    let post = |token: &str, path: &str, body: &Value| {
        let bearer = format!("Bearer {token}");
        let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
        server.post_with(path, body.to_string().as_bytes(), &headers)
    };
    for (channel, id) in [("slack", "1"), ("telegram", "2"), ("slack", "3"), ("telegram", "4")] {
        let letter = json!({
            "source": { "channel": channel, "provider": channel, "endpoint_identity": "test_bot" },
            "external_event_id": id, "error_class": "timeout", "reason": "test", "attempts": 1,
            "envelope": {}
        });
        post(if channel == "slack" { &slack } else { &mine }, LETTERS, &letter).is(202);
    }
    for endpoint in ["a_bot", "test_bot", "z_bot"] {
        post(&token("telegram", endpoint), HEARTBEAT, &heartbeat(endpoint, 1, 5, 1)).is(200);
    }
    for (path, name, expected) in [
        (LETTERS, "external_event_id", &[json!("2"), json!("4")][..]),
        (CONNECTORS, "endpoint_identity", &[json!("test_bot")]),
    ] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = with(&server, &mine, &format!("{path}?limit=1{after}")).is(200);
            let data = page["data"].as_array().unwrap();
            assert!(data.len() <= 1, "{page}");
            found.extend(data.iter().map(|it| it[name].clone()));
            let Some(next) = page["meta"]["next_after"].as_str() else { break };
            after = format!("&after={next}");
        }
        found.sort_by_key(Value::to_string);
        assert_eq!(found, expected);
    }
    for (token, may) in [(&mine, false), (&all, true)] {
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "duties.list", "arguments": {} }
        });
        let told = &post(token, "/mcp", &call).is(200)["result"];
        assert_eq!(told["structuredContent"]["data"].is_array(), may, "{told}");
        let text = told["content"][0]["text"].as_str().unwrap();
        assert_eq!(text.starts_with("forbidden: "), !may, "{told}");
    }
}

/// Clients that cannot set headers use the password of the URL. No response asks for a password, so
/// that browsers do not store one, and requests from pages of other sites are refused.
fn a_token_may_be_the_password_of_a_url(place: &Place) {
    let (ingest, _) = place.token(&SCOPE);
    let (read, _) = place.token(&["--role", "read"]);
    let server = place.serve(&["--auth-failures", "1000"]);
    let basic = |login: &str| format!("Basic {}", STANDARD.encode(login));
    let url = format!("http://x:{read}@{}{INBOX}", server.at);
    let answer = Answer::of(agent().get(url).call().unwrap());
    answer.is(200);
    let event = envelope("1").to_string();
    let submit = basic(&format!("anybody:{ingest}"));
    let headers = [("content-type", "application/json"), ("authorization", submit.as_str())];
    server.post_with(INGEST, event.as_bytes(), &headers).is(202);
    // Only the password counts.
    for bad in [format!("{read}:"), format!("{read}:x"), read.clone(), "x:y".to_owned()] {
        let answer = server.get_with(INBOX, &[("authorization", &basic(&bad))]);
        assert_eq!(answer.headers["www-authenticate"], "Bearer", "{answer:?}");
        answer.refused(401, "invalid_token");
    }
    let paths = [INBOX, LETTERS, FENCES, "/metrics", "/sse", "/mcp", "/api/connectors/summary"];
    for shown in [basic(&format!("x:{read}")), format!("Bearer {read}")] {
        for path in paths {
            for origin in ["https://evil.example", "null"] {
                let headers = [("authorization", shown.as_str()), ("origin", origin)];
                assert_eq!(server.get_with(path, &headers).status, 403, "{path} {origin}");
            }
        }
        let own = format!("http://{}", server.at);
        server.get_with(INBOX, &[("authorization", &shown), ("origin", &own)]).is(200);
    }
    let foreign = [headers[0], headers[1], ("origin", "https://evil.example")];
    server.post_with(INGEST, event.as_bytes(), &foreign).refused(403, "forbidden");
    let said = place.said(&server);
    assert!(!said.contains(&read) && !said.contains(&ingest), "{said}");
}

fn a_revoked_token_is_out_at_once_on_every_replica(place: &Place) {
    let (ingest, id) = place.token(&SCOPE);
    let (read, read_id) = place.token(&["--role", "read"]);
    let replicas = [place.serve(&[]), place.serve(&[])];
    for server in &replicas {
        submit(server, &ingest, "test_bot").is(202);
        with(server, &read, INBOX).is(200);
    }
    place.tenure(&["token", "revoke", &id, "--reason", "leaked", "--force"]).ok();
    place.tenure(&["token", "revoke", &read_id, "--reason", "leaked", "--force"]).ok();
    for server in &replicas {
        let out = submit(server, &ingest, "test_bot").refused(401, "invalid_token");
        assert_eq!(out["message"], "Token has been revoked");
        with(server, &read, INBOX).refused(401, "invalid_token");
        // A revoked token is not a guess, so it is not counted as a failed attempt.
        for _ in 0..6 {
            with(server, &read, INBOX).refused(401, "invalid_token");
        }
    }
}

fn a_token_is_replaced_while_both_are_good_and_expires(place: &Place) {
    let (old, id) = place.token(&SCOPE);
    let (new, new_id) = place.token(&["--replaces", &id]);
    let server = place.serve(&[]);
    submit(&server, &old, "test_bot").is(202);
    submit(&server, &new, "test_bot").is(202);
    submit(&server, &new, "other_bot").refused(403, "forbidden");
    place.tenure(&["token", "revoke", &id, "--reason", "replaced", "--force"]).ok();
    submit(&server, &old, "test_bot").refused(401, "invalid_token");
    submit(&server, &new, "test_bot").is(202);
    // A hundred days pass, while this replica has the token cached.
    place.age("connector_tokens", &["expires_at"], 100 * 24 * 60);
    let over = submit(&server, &new, "test_bot").refused(401, "invalid_token");
    assert_eq!(over["message"], "Token has expired");
    let trail = place.tenure(&["token", "audit", &new_id, "--json"]).ok();
    assert!(trail.contains("rotate") && !trail.contains(&new), "{trail}");
}

fn failed_attempts_are_limited_over_all_replicas(place: &Place) {
    let (ingest, _) = place.token(&SCOPE);
    let (read, _) = place.token(&["--role", "read"]);
    let replicas = [place.serve(&[]), place.serve(&[])];
    submit(&replicas[0], &ingest, "test_bot").is(202);
    let guess = format!("sw_live_{}", "0".repeat(32));
    for (n, wrong) in [guess.as_str(), "nonsense", &guess, "", &guess].iter().enumerate() {
        with(&replicas[n % 2], wrong, INBOX).refused(401, "invalid_token");
    }
    for server in &replicas {
        let limited = with(server, &guess, INBOX);
        let wait: u64 = limited.headers["retry-after"].parse().unwrap();
        assert!((1..=900).contains(&wait), "{wait}");
        limited.refused(429, "too_many_attempts");
        server.get(INBOX).refused(429, "too_many_attempts");
    }
    // A valid token passes from a limited address, cached on this replica or not.
    for server in &replicas {
        submit(server, &ingest, "test_bot").is(202);
        with(server, &read, INBOX).is(200);
        server.get(INBOX).refused(429, "too_many_attempts");
    }
}

fn proxies_are_believed_as_far_as_they_are_trusted(place: &Place) {
    let (read, _) = place.token(&["--role", "read"]);
    let server = place.serve(&["--trusted-proxies", "1", "--auth-failures", "2"]);
    let from = |address: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        server.get_with(INBOX, &[("x-forwarded-for", address), ("authorization", &bearer)])
    };
    // Entries that the client sends itself are further left.
    for said in ["9.9.9.9, 10.0.0.1", "8.8.8.8, 10.0.0.1:5555"] {
        from(said, "nonsense").refused(401, "invalid_token");
    }
    from("7.7.7.7, 10.0.0.1", "nonsense").refused(429, "too_many_attempts");
    from("10.0.0.1, 10.0.0.2", "nonsense").refused(401, "invalid_token");
    // IPv6 addresses are counted by the first half.
    from("2001:db8::1", "nonsense").refused(401, "invalid_token");
    from("[2001:db8::2]:99", "nonsense").refused(401, "invalid_token");
    from("2001:db8::3", "nonsense").refused(429, "too_many_attempts");
    from("10.0.0.3", &read).is(200);
    server.stop();

    // Without trusted proxies the header is ignored.
    let server = place.serve(&["--auth-failures", "2"]);
    let from = |address: &str| server.get_with(INBOX, &[("x-forwarded-for", address)]);
    from("10.1.0.1").refused(401, "invalid_token");
    from("10.1.0.2").refused(401, "invalid_token");
    from("10.1.0.3").refused(429, "too_many_attempts");
}

fn without_tokens_it_is_open_to_this_machine_alone(place: &Place) {
    let server = place.serve(&[]);
    place.tenure.said(&server.running, "open");
    let said = place.said(&server);
    assert_eq!(said.contains(": this host only; "), place.url.starts_with("sqlite:"), "{said}");
    server.get(INBOX).is(200);
    let health = server.get("/api/switchboard/ingest/health").is(200);
    assert_eq!(health["authenticated"], false);
    // A proxy is in between, or a page of another site sends a browser here.
    server.get_with(INBOX, &[("x-forwarded-for", "10.0.0.1")]).refused(401, "invalid_token");
    server.get_with(INBOX, &[("forwarded", "for=10.0.0.1")]).refused(401, "invalid_token");
    server.get_with(INBOX, &[("host", "evil.example")]).refused(401, "invalid_token");
    // After the first token is created, a token is required.
    let (read, _) = place.token(&["--role", "read"]);
    let closed = || agent().get(server.url(INBOX)).call().unwrap().status() == 401;
    testkit::wait_until("the door closes", crate::running::LIMIT, closed).unwrap();
    with(&server, &read, INBOX).is(200);
}
