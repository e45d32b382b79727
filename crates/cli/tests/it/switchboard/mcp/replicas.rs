//! Several replicas: forwarding of messages to the replica of the session.

use std::io::{BufRead, BufReader};
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::json;
use testkit::Certificates;

use super::clients::metric;
use super::stream::{JSON, Session, list_tools, sessions_become};
use crate::running::{LIMIT, Running};
use crate::switchboard::{Place, address, on_both_stores};

on_both_stores! {
    a_message_is_sent_on_to_the_replica_of_its_session
}

fn a_message_is_sent_on_to_the_replica_of_its_session(place: &Place) {
    let (token, _) = place.token(&["--role", "read"]);
    let (other, _) = place.token(&["--role", "read"]);
    // The third replica advertises an address on which nothing listens.
    let lost = place.serve(&["--advertise", "127.0.0.1:1"]);
    let mut replicas = [place.serve(&[]), place.serve(&[]), lost];
    replicas.iter_mut().for_each(|replica| replica.token = Some(token.clone()));
    let [one, two, lost] = replicas;
    let mut session = Session::open(&one);
    session.post(&two, &list_tools(5)).is(202);
    assert_eq!(session.told()["id"], 5);
    assert_eq!(metric(&two, "tenure_switchboard_sse_forwarded_total"), 1);
    // The error is the same as from the replica of the session.
    assert_eq!(session.post(&two, &json!([])).is(400)["error"]["code"], -32600);
    let body = list_tools(6).to_string();
    let post =
        |headers: &[(&str, &str)]| two.post_with(&session.endpoint, body.as_bytes(), headers);
    let bearer = format!("Bearer {other}");
    let mut foreign = place.serve(&[]);
    foreign.token = Some(other);
    session.post(&foreign, &list_tools(6)).refused(404, "not_found");
    post(&[JSON, ("authorization", &bearer)]).refused(401, "invalid_token");
    // A forwarded message is not forwarded again, so there are no loops.
    post(&[JSON, ("tenure-forwarded", "1")]).refused(404, "not_found");
    let nowhere = format!("/messages?session_id={}{}", "a".repeat(32), "b".repeat(32));
    two.post(&nowhere, &list_tools(6)).refused(404, "not_found");
    let astray = Session::open(&lost);
    astray.post(&two, &list_tools(7)).refused(503, "replica_unreachable");
    session.post(&two, &list_tools(8)).is(202);
    assert_eq!(session.told()["id"], 8);

    // A killed replica loses its sessions; new ones open on another replica.
    one.kill();
    session.post(&two, &list_tools(9)).refused(503, "replica_unreachable");
    assert_eq!(session.event(), None);
    let mut session = Session::open(&two);
    session.post(&two, &list_tools(10)).is(202);
    assert_eq!(session.told()["id"], 10);
    // A replica that stops gracefully is removed, so messages are not forwarded to it.
    let parting = Session::open(&foreign);
    foreign.stop();
    let told = two.post_with(&parting.endpoint, body.as_bytes(), &[JSON]).refused(404, "not_found");
    assert!(told["message"].as_str().unwrap().contains("no such session"), "{told}");
    drop((session, astray, parting));
    sessions_become(&two, 0);
}

/// A replica that speaks TLS.
struct Encrypted {
    running: Running,
    port: u16,
    client: ureq::Agent,
}

impl Encrypted {
    fn start(place: &Place, name: &str, certificates: &Certificates) -> Self {
        let (certificate, key) = certificates.server();
        let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
        let words = ["--tls-cert", certificate.as_str(), "--tls-key", key.as_str()];
        let fixed = ["--store", &place.url, "serve", "--listen", "127.0.0.1:0"];
        let running = place.tenure.start(name, &[&fixed[..], &words].concat());
        place.tenure.said(&running, "https://127.0.0.1:");
        let at = address(&place.tenure.text(&format!("{name}.err"))).unwrap();
        let authority = std::fs::read(certificates.authority()).unwrap();
        let trust = ureq::tls::RootCerts::Specific(Arc::new(vec![
            ureq::tls::Certificate::from_pem(&authority).unwrap(),
        ]));
        let tls = ureq::tls::TlsConfig::builder().root_certs(trust).build();
        let config = ureq::Agent::config_builder().tls_config(tls).http_status_as_error(false);
        let client = config.timeout_global(Some(LIMIT)).build().into();
        Self { running, port: at.port(), client }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    fn post(&self, path: &str, id: u64) -> u16 {
        let request = self.client.post(self.url(path)).header(JSON.0, JSON.1);
        request.send(list_tools(id).to_string()).unwrap().status().as_u16()
    }
}

/// A replica trusts other replicas only with its own certificate. Any other one is refused, even
/// with the same name.
#[test]
fn replicas_trust_their_own_certificate_alone() {
    // This fails if another test has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let place = Place::sqlite();
    let [ours, theirs] = [0, 1].map(|_| Certificates::make("client").unwrap());
    let one = Encrypted::start(&place, "one", &ours);
    let two = Encrypted::start(&place, "two", &ours);
    let stranger = Encrypted::start(&place, "stranger", &theirs);
    let stream = one.client.get(one.url("/sse")).call().unwrap().into_body().into_reader();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut next =
        |begins: &str| lines.find_map(|line| line.strip_prefix(begins).map(str::to_owned)).unwrap();
    let endpoint = next("data: ");
    // A replica announces its address shortly after it listens.
    testkit::wait_until("the replica is known", LIMIT, || two.post(&endpoint, 3) == 202).unwrap();
    assert!(next("data: ").contains("\"id\":3"));
    assert_eq!(stranger.post(&endpoint, 4), 503);
    assert_eq!(two.post(&endpoint, 5), 202);
    assert!(next("data: ").contains("\"id\":5"));
    for server in [one, two, stranger] {
        server.running.signal(Signal::TERM);
        server.running.exits(0);
    }
}
