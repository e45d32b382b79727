//! The local API at a loopback port.

use rustix::process::Signal;

use super::{Connection, Place, run_on};
use crate::running::STAY;
use crate::tenure::{Ran, Tenure};

/// Starts a command that stays; returns the place of its API after `count` grants.
fn places(tenure: &Tenure, count: usize) -> Vec<Place> {
    let lines = tenure.lines("api", count);
    let place = |line: &String| {
        let (url, token) = line.split_once(' ').unwrap();
        let address = url.strip_prefix("http://").unwrap().to_owned();
        Place::Port { address, token: token.to_owned() }
    };
    lines.iter().map(place).collect()
}

#[test]
fn a_port_needs_the_secret_of_the_grant_and_its_own_host() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let script = format!("echo $TENURE_API $TENURE_API_TOKEN >> api; {STAY}");
    let running = tenure.start("a", &run_on(&store, &["--api-port", "0"], &script));
    let first = places(&tenure, 1).remove(0);
    assert_eq!(first.put(&[], "1").result(), (200, "stored".to_owned()));
    let Place::Port { address, token } = &first else { panic!("{first:?}") };
    assert!(token.len() >= 32 && address.starts_with("127.0.0.1:"), "{first:?}");
    // The secret is in no log.
    assert!(!tenure.text("a.err").contains(token));

    let wrong = Place::Port { address: address.clone(), token: "0".repeat(64) };
    assert_eq!(wrong.get("/hold").status, 401);
    let port = address.rsplit_once(':').unwrap().1;
    let raw = |head: &str| {
        let place = Place::Port { address: address.clone(), token: token.clone() };
        let mut connection = place.connect().unwrap();
        let request = format!("GET /hold HTTP/1.1\r\nAuthorization: Bearer {token}\r\n{head}\r\n");
        connection.0.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        connection.0.read_exact(&mut status).unwrap();
        String::from_utf8(status[9..].to_vec()).unwrap()
    };
    assert_eq!(raw(&format!("Host: localhost:{port}\r\n")), "200");
    assert_eq!(raw("Host: evil.example\r\n"), "421");
    assert_eq!(raw(""), "421");

    // After a release this instance gets the duty again; the old secret is of the old grant.
    assert_eq!(first.post("/release").status, 202);
    let second = places(&tenure, 2).remove(1);
    assert_eq!(second.get("/hold").json()["epoch"], 2);
    assert_eq!(first.put(&[], "2").result(), (409, "fenced".to_owned()));
    assert_eq!(first.get("/checkpoint").result(), (409, "fenced".to_owned()));
    assert_eq!(second.get("/checkpoint").body, b"1");
    for words in [&["checkpoint", "get"][..], &["hold", "show"], &["hold", "check"]] {
        let mut command = tenure.command(words);
        command.env("TENURE_API", format!("http://{address}")).env("TENURE_API_TOKEN", token);
        Ran::of(command.output().unwrap()).refused_with("ST020", 6);
    }
    running.signal(Signal::TERM);
    running.exits(128 + 15);
}

#[test]
fn a_port_in_use_is_refused_before_anything_is_claimed() {
    let tenure = Tenure::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = tenure.run(&["run", "--duty", "g/d", "--api-port", &port, "--", "true"]);
    ran.refused_with("DT009", 125);
    assert!(!tenure.path("tenure.db").exists());
}

/// Any user of the machine can connect to a port.
#[test]
fn connections_without_a_secret_do_not_keep_the_program_out() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let script = format!("echo $TENURE_API $TENURE_API_TOKEN >> api; {STAY}");
    let running = tenure.start("a", &run_on(&store, &["--api-port", "0"], &script));
    let api = places(&tenure, 1).remove(0);
    let ask = |own: &mut Connection| own.send("GET", "/hold", &[], b"").unwrap().status;
    let connect = |_| {
        let mut own = api.connect().unwrap();
        assert_eq!(ask(&mut own), 200);
        own
    };
    let mut own: Vec<_> = (0..100).map(connect).collect();
    let others: Vec<_> = (0..300).map(|_| api.connect().unwrap()).collect();
    assert_eq!(api.get("/hold").status, 200);
    assert!(own.iter_mut().all(|own| ask(own) == 200), "known ones are kept");
    drop(others);
    running.signal(Signal::TERM);
    running.exits(128 + 15);
}
