//! Shutdown, metrics, replicas and TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::Certificates;

use super::{BATCH, INGEST, Place, agent, envelope, envelopes, on_both_stores};

on_both_stores! {
    a_request_under_way_is_finished
    it_ends_when_everybody_is_answered
    what_happens_is_counted
    two_replicas_are_one_switchboard
}

/// TERM arrives while the server waits for a body: it reads the whole request and responds.
fn a_request_under_way_is_finished(place: &Place) {
    let server = place.serve(&[]);
    let body = envelope("1").to_string();
    let head = format!(
        "POST {INGEST} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(server.at).unwrap();
    socket.set_read_timeout(Some(crate::running::LIMIT)).unwrap();
    socket.write_all(head.as_bytes()).unwrap();
    let mut go_on = [0; 25];
    socket.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    server.running.signal(Signal::TERM);
    let draining = || place.said(&server).contains("draining");
    testkit::wait_until("it drains", crate::running::LIMIT, draining).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    server.running.exits(0);
    assert_eq!(place.serve(&[]).inbox().len(), 1);
}

/// Requests keep coming during shutdown: every accepted event is stored.
fn it_ends_when_everybody_is_answered(place: &Place) {
    let server = place.serve(&[]);
    let mut stored: Vec<String> = Vec::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let server = &server;
                scope.spawn(move || {
                    let agent = agent();
                    let mut stored = Vec::new();
                    for n in 0.. {
                        let id = format!("{client}-{n}");
                        let body = envelope(&id).to_string();
                        let kind = [("content-type", "application/json")];
                        match server.try_post(&agent, INGEST, body.as_bytes(), &kind) {
                            Ok(answer) if answer.status == 202 => stored.push(id),
                            Ok(answer) => {
                                answer.refused(503, "shutting_down");
                                break;
                            }
                            // The server accepts no new connections.
                            Err(_) => break,
                        }
                    }
                    stored
                })
            })
            .collect();
        testkit::wait_until("some is stored", crate::running::LIMIT, || server.inbox().len() > 20)
            .unwrap();
        server.running.signal(Signal::TERM);
        stored.extend(clients.into_iter().flat_map(|client| client.join().unwrap()));
    });
    server.running.exits(0);
    let server = place.serve(&[]);
    let inbox = server.inbox();
    let has = |id: &str| inbox.iter().any(|it| it["envelope"]["event"]["external_event_id"] == *id);
    assert!(stored.iter().all(|id| has(id)));
}

fn what_happens_is_counted(place: &Place) {
    let server = place.serve(&[]);
    server.batch(&envelopes(3)).is(202);
    server.batch(&envelopes(2)).is(202);
    let mut other = envelope("event-0");
    other["payload"]["normalized_text"] = json!("something else");
    server.ingest(&other).is(202);
    server.ingest(&json!({})).refused(422, "validation_error");
    let Value::String(text) = server.get("/metrics").is(200) else { panic!() };
    for line in [
        "tenure_switchboard_ingest_events_total{outcome=\"accepted\"} 3",
        "tenure_switchboard_ingest_events_total{outcome=\"duplicate\"} 3",
        "tenure_switchboard_ingest_events_total{outcome=\"rejected\"} 1",
        "tenure_switchboard_key_reused_total 1",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in {text}");
    }
    let document = server.get("/api/openapi.json").is(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert!(document["paths"][BATCH]["post"].is_object());
}

fn two_replicas_are_one_switchboard(place: &Place) {
    let (one, two) = (place.serve(&[]), place.serve(&[]));
    let first = one.ingest(&envelope("1")).is(202);
    let second = two.ingest(&envelope("1")).is(202);
    assert_eq!(first["request_id"], second["request_id"]);
    assert_eq!((&first["duplicate"], &second["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(one.inbox(), two.inbox());
    one.stop();
    two.ingest(&envelope("2")).is(202);
}

#[test]
fn it_speaks_tls() {
    // This fails if another test has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = Certificates::make("client").unwrap();
    let place = Place::sqlite();
    let (certificate, key) = certificates.server();
    let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
    let words = ["--tls-cert", certificate.as_str(), "--tls-key", key.as_str()];
    let fixed = ["--store", &place.url, "serve", "--listen", "127.0.0.1:0"];
    let running = place.tenure.start("tls", &[&fixed[..], &words].concat());
    place.tenure.said(&running, "https://127.0.0.1:");
    let at = super::address(&place.tenure.text("tls.err")).unwrap();
    let authority = std::fs::read(certificates.authority()).unwrap();
    let trust = ureq::tls::RootCerts::Specific(Arc::new(vec![
        ureq::tls::Certificate::from_pem(&authority).unwrap(),
    ]));
    let tls = ureq::tls::TlsConfig::builder().root_certs(trust).build();
    let client: ureq::Agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(crate::running::LIMIT))
        .build()
        .into();
    let answer = client
        .post(format!("https://localhost:{}{INGEST}", at.port()))
        .header("content-type", "application/json")
        .send(envelope("1").to_string())
        .unwrap();
    assert_eq!(answer.status(), 202);
    running.signal(Signal::TERM);
    running.exits(0);
}
