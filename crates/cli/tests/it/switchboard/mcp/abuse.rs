//! Clients that abandon sessions, disconnect during a call, or send too much.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::wait_until;

use super::clients::metric;
use super::stream::{JSON, Session, call, connect, list_tools, sessions_become};
use crate::running::LIMIT;
use crate::switchboard::overload::peak_memory;
use crate::switchboard::{Place, envelope};

/// A thousand sessions are abandoned, half of them with an unread response. Meanwhile the server
/// serves other clients, and it leaks no memory or session.
#[test]
fn a_thousand_abandoned_sessions_leave_nothing() {
    const AT_ONCE: usize = 250;
    let place = Place::sqlite();
    let server = place.serve(&["--max-connections", "1024"]);
    let mut faithful = Session::open(&server);
    let before = peak_memory(&server);
    for round in 0..4 {
        let sessions: Vec<Session> = (0..AT_ONCE).map(|_| Session::open(&server)).collect();
        assert_eq!(metric(&server, "tenure_switchboard_sse_sessions"), AT_ONCE + 1);
        for session in sessions.iter().step_by(2) {
            session.post(&server, &list_tools(1)).is(202);
        }
        server.ingest(&envelope(&round.to_string())).is(202);
        faithful.post(&server, &list_tools(round)).is(202);
        assert_eq!(faithful.told()["id"], round);
        // A connection with unread bytes is reset, others are closed.
        drop(sessions);
        sessions_become(&server, 1);
    }
    let grown = peak_memory(&server) - before;
    assert!(grown < 64 << 10, "{grown} KiB");
    assert_eq!(metric(&server, "tenure_switchboard_budget_bytes"), 0);
    drop(faithful);
    sessions_become(&server, 0);
    server.stop();
}

/// The server stops working for a client that has disconnected.
#[test]
fn a_call_ends_when_its_client_goes() {
    let place = Place::sqlite();
    let server = place.serve(&[]);
    let body = call("inbox.list", &json!({ "wait": 30 })).to_string();
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    let mut socket = connect(server.at);
    write!(socket, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let taken = || metric(&server, "tenure_switchboard_budget_bytes");
    wait_until("the call waits", LIMIT, || taken() > 0).unwrap();
    drop(socket);
    // The call ends well before its response would be due.
    wait_until("the call ends", Duration::from_secs(20), || taken() == 0).unwrap();
    server.stop();
}

/// Parsed JSON values take far more memory than is accounted for, so only envelopes may be large.
#[test]
fn only_envelopes_may_be_large() {
    let place = Place::sqlite();
    let server = place.serve(&[]);
    let mut message = list_tools(3);
    message["params"] = json!({ "_meta": { "x": "x".repeat(65 << 10) } });
    let told = server.post("/mcp", &message).is(400);
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!(3), &json!(-32600)), "{told}");
    let words = json!({ "sender": "x".repeat(17 << 10) });
    let told = server.post("/mcp", &call("inbox.list", &words)).is(200);
    let error = told["result"]["structuredContent"]["error"].as_str().unwrap();
    assert_eq!(error, "Invalid arguments: more than 16384 bytes");
    let mut event = envelope("1");
    event["payload"]["normalized_text"] = "x".repeat(400 << 10).into();
    let told = server.post("/mcp", &call("ingest", &event)).is(200);
    assert_eq!(told["result"]["structuredContent"]["status"], "accepted", "{told}");
    server.stop();
}

/// Each kind of error has its JSON-RPC code and the id of its message.
#[test]
fn mistakes_have_the_codes_of_json_rpc() {
    let place = Place::sqlite();
    let server = place.serve(&[]);
    let of = |text: &str| {
        let answer = server.post_with("/mcp", text.as_bytes(), &[JSON]).body;
        (answer["error"]["code"].as_i64(), answer["id"].clone())
    };
    let with = |rest: &str| of(&format!(r#"{{"jsonrpc":"2.0","id":7{rest}}}"#));
    for text in ["", "nonsense", "{", r#"{"id":"\ud800" x}"#] {
        assert_eq!(of(text), (Some(-32700), Value::Null), "{text}");
    }
    for text in ["[]", "7", "null", r#"{"method":7}"#, "{}", r#"{"id":{},"method":"ping"}"#] {
        assert_eq!(of(text), (Some(-32600), Value::Null), "{text}");
    }
    assert_eq!(with(""), (Some(-32600), json!(7)));
    assert_eq!(of(r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#), (Some(-32600), json!(7)));
    for method in ["nope", "prompts/get", "tools"] {
        let told = with(&format!(r#","method":"{method}","params":{{}}"#));
        assert_eq!(told, (Some(-32601), json!(7)), "{method}");
    }
    for (method, params) in [
        ("tools/call", ""),
        ("tools/call", r#","params":{}"#),
        ("tools/call", r#","params":{"name":7}"#),
        ("tools/call", r#","params":[]"#),
        ("tools/call", r#","params":{"name":"no.such.tool"}"#),
        ("tools/list", r#","params":7"#),
        ("initialize", r#","params":{}"#),
    ] {
        let told = with(&format!(r#","method":"{method}"{params}"#));
        assert_eq!(told, (Some(-32602), json!(7)), "{method}{params}");
    }
    assert_eq!(with(r#","method":"ping""#), (None, json!(7)));
    server.stop();
}
