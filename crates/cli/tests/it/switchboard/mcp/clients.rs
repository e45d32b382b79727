//! Third-party clients: the official one in two major versions, and FastMCP.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::{Haproxy, TEST_MCP_1, TEST_MCP_2, service};

use crate::switchboard::{Place, Server, on_both_stores};

on_both_stores! {
    every_client_is_served_over_both_transports_and_by_any_replica
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/switchboard/mcp/clients.py");
const TOOLS: [&str; 7] = [
    "ingest",
    "connector.heartbeat",
    "connectors.list",
    "connectors.show",
    "inbox.list",
    "inbox.show",
    "duties.list",
];
/// Calls of a client in a session, without those that open it.
const CALLS: usize = 15;

/// All clients go through a balancer that alternates between the replicas.
fn every_client_is_served_over_both_transports_and_by_any_replica(place: &Place) {
    let pythons = [service(TEST_MCP_1), service(TEST_MCP_2)];
    let [Some(old), Some(new)] = pythons else { return };
    let scope = ["--channel", "telegram", "--provider", "telegram", "--endpoint", "test_bot"];
    let roles = ["--role", "ingest", "--role", "read"];
    let (token, _) = place.token(&[&scope[..], &roles].concat());
    let trust = ["--trusted-proxies", "1"];
    let mut replicas = [place.serve(&trust), place.serve(&trust)];
    for replica in &mut replicas {
        replica.token = Some(token.clone());
    }
    let balancer = Haproxy::start(&replicas.each_ref().map(|replica| replica.at)).unwrap();
    let url = format!("http://{}", balancer.address());
    // Run them one after the other: concurrent clients could each always reach the same replica.
    let mut all = BTreeMap::new();
    for python in [old, new] {
        all.extend(asked(python, &token, &url));
    }
    let clients = ["session1", "session2", "client", "fastmcp"];
    let names = clients
        .iter()
        .flat_map(|client| ["mcp", "sse"].map(|transport| format!("{client}/{transport}")));
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(all.keys().cloned().collect::<Vec<_>>(), names);
    for (name, told) in &all {
        check(name, told);
    }
    // The newest protocol version, and the one before it over the older transport.
    assert_eq!(all["client/mcp"]["version"], "2026-07-28");
    assert_eq!(all["client/sse"]["version"], "2025-11-25");
    let sent_on: usize =
        replicas.iter().map(|it| metric(it, "tenure_switchboard_sse_forwarded_total")).sum();
    // The balancer alternates, so about half of the messages are forwarded.
    assert!(sent_on >= clients.len() * CALLS / 4, "{sent_on}");
    for replica in replicas {
        testkit::wait_until("no session is left", crate::running::LIMIT, || {
            metric(&replica, "tenure_switchboard_sse_sessions") == 0
        })
        .unwrap();
        replica.stop();
    }
}

fn asked(python: String, token: &str, url: &str) -> BTreeMap<String, Value> {
    let mut command = Command::new(python);
    // Python must not write bytecode next to the script.
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(SCRIPT).arg(token).arg(url);
    let ran = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// Returns a value of `/metrics`.
pub(super) fn metric(server: &Server, name: &str) -> usize {
    let Value::String(text) = server.get("/metrics").is(200) else { panic!() };
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| {
        panic!("{name} is not in {text}");
    });
    line.trim().parse().unwrap()
}

fn check(name: &str, told: &Value) {
    assert_eq!(told["tools"], json!(TOOLS), "{name}");
    let data = |what: &str| {
        let told = &told[what];
        assert_eq!(
            (&told["error"], &told["kind"]),
            (&json!(false), &json!("dict")),
            "{name}: {told}"
        );
        // The text content has the same JSON.
        let text: Value = serde_json::from_str(told["text"].as_str().unwrap()).unwrap();
        assert_eq!(told["data"], text, "{name}");
        told["data"].clone()
    };
    let failed = |what: &str| {
        let told = &told[what];
        assert_eq!(told["error"], true, "{name}: {told}");
        told["text"].as_str().unwrap().to_owned()
    };
    let (new, again) = (data("new"), data("again"));
    assert_eq!(new["request_id"], again["request_id"], "{name}");
    let outcome = |of: &Value| (of["status"].clone(), of["duplicate"].clone());
    assert_eq!(outcome(&new), (json!("accepted"), json!(false)), "{name}");
    assert_eq!(outcome(&again), (json!("accepted"), json!(true)), "{name}");
    for (what, begins) in [
        ("invalid", "Invalid ingest.v1 envelope: "),
        ("bad_beat", "Invalid connector.heartbeat.v1 envelope: "),
        ("bad_words", "Invalid arguments: "),
    ] {
        let told = data(what);
        assert_eq!(told["status"], "error", "{name}");
        assert!(told["error"].as_str().unwrap().starts_with(begins), "{name}: {told}");
    }
    assert!(failed("foreign").contains("does not permit ingestion for endpoint 'other_bot'"));
    assert!(failed("nobody").starts_with("not_found: "));
    let beat = data("beat");
    assert_eq!(beat["status"], "accepted", "{name}: {beat}");
    assert!(beat["server_time"].is_string(), "{name}: {beat}");
    assert_eq!(data("connectors")["data"][0]["liveness"], "online", "{name}");
    assert_eq!(data("connector")["data"]["endpoint_identity"], "test_bot", "{name}");
    let message = &data("message")["data"];
    assert_eq!(message["envelope"]["event"]["external_event_id"], *name);
    // Large numbers keep all digits.
    assert!(told["message"]["text"].as_str().unwrap().contains("12345678901234567890123"));
    let inbox = data("inbox");
    let ids: Vec<&Value> =
        inbox["data"].as_array().unwrap().iter().map(|message| &message["request_id"]).collect();
    assert!(ids.contains(&&new["request_id"]), "{name}");
    // A token for one endpoint may not list duties.
    assert!(failed("duties").starts_with("forbidden: "), "{name}");
    let unknown = match &told["unknown"] {
        Value::String(text) => text.clone(),
        other => other["text"].as_str().unwrap().to_owned(),
    };
    assert!(unknown.contains("Unknown tool: no.such.tool"), "{name}: {unknown}");
}
