//! `--listen`: health and metrics of `tenure run` and `tenure poll`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::process::Signal;
use serde_json::Value;
use testkit::wait_until;

use crate::running::{LIMIT, STAY};
use crate::tenure::Tenure;

/// Returns the address that a process listens on, from its log.
#[track_caller]
pub fn address(tenure: &Tenure, log: &str) -> SocketAddr {
    let found = || {
        let text = tenure.text(log);
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let line = lines.find(|line| line["event"] == "listening")?;
        let (_, address) = line["reason"].as_str()?.rsplit_once(' ')?;
        Some(address.parse().unwrap())
    };
    wait_until("it listens", LIMIT, || found().is_some()).unwrap();
    found().unwrap()
}

/// Returns status line and body.
pub fn get(at: SocketAddr, path: &str) -> (String, String) {
    let mut socket = TcpStream::connect(at).unwrap();
    socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// Returns every series with its value.
pub fn metrics(at: SocketAddr) -> BTreeMap<String, String> {
    let (status, body) = get(at, "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.map(|line| line.rsplit_once(' ').unwrap());
    samples.map(|(series, value)| (series.to_owned(), value.to_owned())).collect()
}

#[track_caller]
fn shows(at: SocketAddr, series: &str, value: &str) {
    let shown = || metrics(at).get(series).is_some_and(|now| now == value);
    let seen = wait_until(series, LIMIT, shown);
    assert!(seen.is_ok(), "{series} is not {value} in {:#?}", metrics(at));
}

#[test]
fn run_shows_its_health_and_its_metrics_until_it_ends() {
    let tenure = Tenure::new();
    let script = format!("echo $TENURE_INSTANCE >> ready; {STAY}");
    let before = ["run", "--duty", "demo/one", "--listen", "0", "--", "sh", "-c"];
    let running = tenure.start("a", &[&before[..], &[&script]].concat());
    let at = address(&tenure, "a.err");
    assert!(at.ip().is_loopback(), "a port alone is one of this host only");
    let me = tenure.lines("ready", 1).remove(0);
    let holder = r#"connector_lease_holder{group="demo",endpoint_identity="one","#;
    shows(at, &format!("{holder}instance_id=\"{me}\"}}"), "1");
    shows(at, &format!("connector_assigned_shards{{instance_id=\"{me}\"}}"), "1");
    let polls = metrics(at).into_keys().find(|series| series.starts_with("tenure_polls_total"));
    assert_eq!(polls, None, "nothing is polled here");

    let (status, body) = get(at, "/health");
    assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&health["status"], &health["store"]), (&"healthy".into(), &"connected".into()));
    assert_eq!((&health["group"], &health["holds"]), (&"demo".into(), &1.into()));
    assert_eq!(health["instance_id"], me);

    running.signal(Signal::TERM);
    running.exits(128 + 15);
    assert!(TcpStream::connect(at).is_err(), "it still listens");
}

/// The counters agree with the records of the commands.
#[test]
fn poll_counts_what_became_of_each_poll() {
    let tenure = Tenure::new();
    let script = "echo >> began-$1
                  case $1 in good) exit 0;; bad) exit 3;; hangs) trap '' TERM; mkfifo hold-$$
                  exec 9<>hold-$$; while :; do read line <&9; done;; esac";
    let limits = ["--every", "500ms", "--ttl", "6s", "--timeout", "1s", "--grace", "300ms"];
    let targets = ["poll", "--targets", "list:bad,good,hangs", "--listen", "127.0.0.1:0"];
    let command = ["--", "sh", "-c", script, "sh", "{}"];
    let running = tenure.start("a", &[&targets[..], &limits, &command].concat());
    let at = address(&tenure, "a.err");
    let (status, body) = get(at, "/health");
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status.as_str(), &health["group"]), ("HTTP/1.1 200 OK", &"poll".into()));

    let counted = |result: &str| {
        let (start, end) = ("tenure_polls_total{", format!(",result=\"{result}\"}}"));
        let samples = metrics(at);
        let mut of =
            samples.iter().filter(|(key, _)| key.starts_with(start) && key.ends_with(&end));
        of.next().map_or(0, |(_, value)| value.parse::<usize>().unwrap())
    };
    for (result, target) in [("done", "good"), ("failed", "bad"), ("killed", "hangs")] {
        let twice = wait_until(result, LIMIT, || counted(result) >= 2);
        assert!(twice.is_ok(), "{result}: {:#?}", metrics(at));
        // Read in this order, because each counted poll has begun before.
        let (count, begun) = (counted(result), tenure.lines(&format!("began-{target}"), 2));
        assert!(count <= begun.len(), "{result}: {count} of {}", begun.len());
    }
    // The poll that hangs takes more than two intervals, each time.
    wait_until("skipped", LIMIT, || counted("skipped") >= 2).unwrap();
    running.signal(Signal::TERM);
    running.exits(0);
}

#[test]
fn a_port_that_is_taken_is_refused_before_anything_starts() {
    let tenure = Tenure::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    for (words, code) in [
        (&["run", "--duty", "demo/one", "--listen", &at, "--", "true"][..], 125),
        (&["poll", "--targets", "list:a", "--listen", &at, "--", "true"], 1),
    ] {
        let ran = tenure.run(words);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(&format!("cannot listen on {at}")), "{ran:?}");
    }
    assert!(!tenure.path("tenure.db").exists());
}
