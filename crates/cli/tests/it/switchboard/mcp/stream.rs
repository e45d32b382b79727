//! Sessions of the older transport: how they begin and end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::wait_until;

use super::clients::metric;
use crate::running::LIMIT;
use crate::switchboard::{Answer, Place, Server, agent, envelope};

pub(super) const JSON: (&str, &str) = ("content-type", "application/json");

/// An event stream, and its endpoint for messages.
pub(super) struct Session {
    stream: BufReader<TcpStream>,
    pub(super) endpoint: String,
}

impl Session {
    #[track_caller]
    pub(super) fn open(server: &Server) -> Self {
        Self::try_open(server).unwrap_or_else(|answer| panic!("{answer}"))
    }

    /// Opens a session; returns the status line if it is refused.
    pub(super) fn try_open(server: &Server) -> Result<Self, String> {
        let token = server.token.as_ref();
        let token = token.map_or(String::new(), |it| format!("authorization: Bearer {it}\r\n"));
        let mut socket = connect(server.at);
        let head = format!("GET /sse HTTP/1.1\r\nhost: localhost\r\n{token}\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        let mut session = Self { stream: BufReader::new(socket), endpoint: String::new() };
        let status = session.line().unwrap_or_default();
        if !status.starts_with("HTTP/1.1 200 ") {
            return Err(status);
        }
        let (kind, endpoint) = session.event().unwrap();
        assert_eq!(kind, "endpoint");
        session.endpoint = endpoint;
        Ok(session)
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).unwrap_or(0);
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Returns the next event; `None` at the end. Each event is one chunk.
    pub(super) fn event(&mut self) -> Option<(String, String)> {
        let mut kind = String::new();
        loop {
            let line = self.line()?;
            if line == "0" {
                return None;
            }
            if let Some(event) = line.strip_prefix("event: ") {
                kind = event.to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((kind, data.to_owned()));
            }
        }
    }

    /// Returns the next response.
    #[track_caller]
    pub(super) fn told(&mut self) -> Value {
        let (kind, data) = self.event().unwrap();
        assert_eq!(kind, "message");
        serde_json::from_str(&data).unwrap()
    }

    /// Posts a message to a replica.
    #[track_caller]
    pub(super) fn post(&self, server: &Server, message: &Value) -> Answer {
        server.post(&self.endpoint, message)
    }
}

pub(super) fn connect(at: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

pub(super) fn list_tools(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" })
}

pub(super) fn call(tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

#[track_caller]
pub(super) fn sessions_become(server: &Server, count: usize) {
    let name = "tenure_switchboard_sse_sessions";
    let seen = wait_until("sessions", LIMIT, || metric(server, name) == count);
    assert!(seen.is_ok(), "{} sessions", metric(server, name));
}

#[test]
fn a_session_ends_when_its_client_goes() {
    let place = Place::sqlite();
    let server = place.serve(&[]);
    let mut session = Session::open(&server);
    session.post(&server, &list_tools(7)).is(202);
    let told = session.told();
    assert_eq!((&told["id"], &told["result"]["tools"][0]["name"]), (&json!(7), &json!("ingest")));
    // A notification has no response; an invalid message is refused at once.
    session
        .post(&server, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .is(202);
    assert_eq!(session.post(&server, &json!([])).is(400)["error"]["code"], -32600);
    let odd = session.post(&server, &json!({ "jsonrpc": "2.0", "id": 8, "method": 9 }));
    assert_eq!(odd.status, 400, "{odd:?}");
    sessions_become(&server, 1);
    let endpoint = session.endpoint.clone();
    drop(session);
    sessions_become(&server, 0);
    server.post(&endpoint, &list_tools(1)).refused(404, "not_found");
    for wrong in ["", "x", &"0".repeat(64), &"é".repeat(32), &"A".repeat(64)] {
        let path = format!("/messages?session_id={}", wrong.replace('é', "%C3%A9"));
        server.post(&path, &list_tools(1)).refused(404, "not_found");
    }
    server.post("/messages", &list_tools(1)).refused(404, "not_found");
    server.stop();
}

/// On shutdown with an open session, the stream ends properly.
#[test]
fn a_session_ends_when_the_server_does() {
    let place = Place::sqlite();
    let server = place.serve(&[]);
    let mut session = Session::open(&server);
    session.post(&server, &list_tools(1)).is(202);
    assert_eq!(session.told()["id"], 1);
    server.running.signal(Signal::TERM);
    assert_eq!(session.event(), None);
    let mut rest = Vec::new();
    session.stream.read_to_end(&mut rest).unwrap();
    let said = place.said(&server);
    server.running.exits(0);
    assert!(!said.contains("cut off"), "{said}");
}

/// A client that never reads loses its session. Others are not affected, and the memory is freed.
#[test]
fn who_does_not_read_loses_the_session() {
    let place = Place::sqlite();
    let server = place.serve(&["--client-timeout", "2s"]);
    for n in 0..4 {
        let mut event = envelope(&format!("large-{n}"));
        event["payload"]["normalized_text"] = "x".repeat(400 << 10).into();
        server.ingest(&event).is(202);
    }
    let mut other = Session::open(&server);
    let stuck = Session::open(&server);
    let page = call("inbox.list", &json!({}));
    let mut posted = 0;
    let refused = loop {
        let answer = stuck.post(&server, &page);
        if answer.status != 202 {
            break answer;
        }
        posted += 1;
        other.post(&server, &list_tools(posted)).is(202);
        assert_eq!(other.told()["id"], posted);
    };
    assert!(posted > 2, "{posted}");
    refused.refused(404, "not_found");
    stuck.post(&server, &page).refused(404, "not_found");
    sessions_become(&server, 1);
    let free = || metric(&server, "tenure_switchboard_budget_bytes") == 0;
    wait_until("memory is given back", LIMIT, free).unwrap();
    other.post(&server, &list_tools(0)).is(202);
    assert_eq!(other.told()["id"], 0);
    drop(stuck);
    drop(other);
    server.stop();
}

#[test]
fn half_of_the_connections_may_be_sessions() {
    let place = Place::sqlite();
    let server = place.serve(&["--max-connections", "8"]);
    let sessions: Vec<Session> = (0..4).map(|_| Session::open(&server)).collect();
    assert!(Session::try_open(&server).is_err_and(|told| told.starts_with("HTTP/1.1 503 ")));
    server.ingest(&envelope("1")).is(202);
    drop(sessions);
    sessions_become(&server, 0);
    drop(Session::open(&server));
    server.stop();
}

#[test]
fn a_token_is_needed_and_a_session_is_for_one_token() {
    let place = Place::sqlite();
    let (token, id) = place.token(&["--role", "read"]);
    let (other, _) = place.token(&["--role", "read"]);
    let mut server = place.serve(&["--auth-failures", "100"]);
    let wrong = Some(format!("sw_live_{}", "0".repeat(32)));
    for shown in [None, wrong] {
        server.token = shown;
        assert!(Session::try_open(&server).is_err_and(|told| told.starts_with("HTTP/1.1 401 ")));
        server.post("/mcp", &list_tools(1)).refused(401, "invalid_token");
        server.post("/messages?session_id=x", &list_tools(1)).refused(401, "invalid_token");
        server.get("/mcp").refused(401, "invalid_token");
    }
    server.token = Some(token.clone());
    server.get("/mcp").refused(405, "method_not_allowed");
    let mut session = Session::open(&server);
    server.token = Some(other);
    session.post(&server, &list_tools(1)).refused(404, "not_found");
    server.token = Some(token);
    // A missing role is an error of the tool.
    session.post(&server, &call("ingest", &json!({}))).is(202);
    let told = session.told();
    assert_eq!(told["result"]["isError"], true, "{told}");
    assert!(told["result"]["content"][0]["text"].as_str().unwrap().contains("the role 'ingest'"));
    // A revoked token is refused with its next message, although it is cached.
    place.tenure(&["token", "revoke", &id, "--reason", "test"]).ok();
    let read = server.post("/mcp", &call("inbox.list", &json!({})));
    assert_eq!(read.body["result"]["isError"], true, "{read:?}");
    assert!(read.body["result"]["content"][0]["text"].as_str().unwrap().contains("revoked"));
    server.post("/mcp", &list_tools(1)).refused(401, "invalid_token");
    drop(session);
    server.stop();
}

#[test]
fn only_allowed_hosts_are_answered() {
    let place = Place::sqlite();
    let (token, _) = place.token(&["--role", "read"]);
    let words = ["--allowed-host", "board.example", "--allowed-host", "127.0.0.1:7"];
    let server = place.serve(&words);
    let bearer = format!("Bearer {token}");
    let as_host = |host: &str, path: &str| {
        let headers = [JSON, ("authorization", &bearer), ("host", host)];
        server.post_with(path, list_tools(1).to_string().as_bytes(), &headers)
    };
    for good in ["board.example", "Board.Example:8420", "127.0.0.1:7"] {
        as_host(good, "/mcp").is(200);
    }
    for bad in ["evil.example", "127.0.0.1", "board.example.evil.example"] {
        as_host(bad, "/mcp").refused(403, "forbidden");
        as_host(bad, "/messages?session_id=x").refused(403, "forbidden");
        let headers = [("authorization", bearer.as_str()), ("host", bad)];
        server.get_with("/sse", &headers).refused(403, "forbidden");
        // The check protects browsers; other endpoints are protected by the token.
        server.get_with("/metrics", &headers).is(200);
    }
    server.stop();
}

/// JSON that parsing into values would change or refuse reaches the envelope parser unchanged, and
/// is returned as stored, or as a string.
#[test]
fn arguments_and_results_are_exact() {
    let place = Place::sqlite();
    let server = place.serve(&[]);
    let submit = |id: &str, raw: &str| {
        let event = envelope(id).to_string().replace(&format!("{{\"update_id\":\"{id}\"}}"), raw);
        assert!(event.contains(raw), "{event}");
        let message = call("ingest", &json!("ARGUMENTS")).to_string();
        let message = message.replace("\"ARGUMENTS\"", &event);
        server.post_with("/mcp", message.as_bytes(), &[JSON]).is(200)["result"].clone()
    };
    let told = submit("1", "{\n\"b\":1.50,\"a\":123456789012345678901234567890}");
    assert_eq!(told["structuredContent"]["status"], "accepted", "{told}");
    let told = submit("2", r#"{"a":1e400}"#);
    assert_eq!(told["structuredContent"]["status"], "accepted", "{told}");
    let twice = submit("3", r#"{"a":1,"a":2}"#);
    let by_http = envelope("3").to_string().replace(r#"{"update_id":"3"}"#, r#"{"a":1,"a":2}"#);
    let by_http = server.post_with("/api/switchboard/ingest", by_http.as_bytes(), &[JSON]);
    let refused = twice["structuredContent"]["status"] == "error";
    assert_eq!(refused, by_http.status == 422, "{twice} {by_http:?}");
    // Numbers are unchanged; an envelope with one too large for strict parsers is a string.
    let body = call("inbox.list", &json!({ "limit": 2 })).to_string();
    let mut answer = agent().post(server.url("/mcp")).header(JSON.0, JSON.1).send(body).unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    assert!(text.contains(r#""b":1.50,"a":123456789012345678901234567890"#), "{text}");
    let told: Value = serde_json::from_str(&text).unwrap();
    let data = &told["result"]["structuredContent"]["data"];
    assert!(data[0]["envelope"].is_object(), "{data}");
    assert!(data[1]["envelope"].as_str().is_some_and(|it| it.contains("1e400")), "{data}");
    let as_text = told["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(&serde_json::from_str::<Value>(as_text).unwrap()["data"], data);
    server.stop();
}
