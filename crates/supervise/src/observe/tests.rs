#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{PipeReader, Read, Write, pipe};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tenure_core::{Change, Code, Epoch, Mark, Nonce, Version};

use super::log::LogStyle;
use super::*;

mod log;

/// Manual clock.
#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Hand {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> LocalInstant {
        LocalInstant::from_nanos(1_000_000_000 + self.0.load(Ordering::SeqCst))
    }
}

/// An observation on a free port, its log at the other end of a pipe, and its clock.
struct Bench {
    observer: Arc<dyn Observer>,
    handle: Observation,
    clock: Arc<Hand>,
    log: PipeReader,
}

const FREE: &str = "127.0.0.1:0";
const NOON: u64 = 1_771_149_600_123;

fn group() -> GroupName {
    GroupName::new("poll").unwrap()
}

fn hold() -> Hold {
    Hold {
        duty: DutyKey::new("poll", "a").unwrap(),
        epoch: Epoch::new(5).unwrap(),
        instance: InstanceId::new("me-1").unwrap(),
        nonce: Nonce::from_entropy(1),
        mark: Mark::default(),
    }
}

fn bench(format: LogFormat, level: LogLevel) -> Bench {
    let (log, end) = pipe().unwrap();
    let instance = InstanceId::new("me-1").unwrap();
    let style = LogStyle { format, has_colors: true };
    let log_to = LogQueue::start(end, style, level, instance.clone()).unwrap();
    let clock = Arc::new(Hand::default());
    let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
    let shared: Arc<dyn Clock> = Arc::<Hand>::clone(&clock);
    let observed = ObservedInstance { instance, group: group(), ttl, clock: shared };
    let handle = start_with(Some(FREE.parse().unwrap()), log_to, observed).unwrap();
    Bench { observer: handle.observer(), handle, clock, log }
}

impl Bench {
    fn hold(&self, duties: &[&str]) {
        let hold = |duty: &&str| HeldDuty { duty: id(duty), epoch: Epoch::new(5).unwrap() };
        self.observer.holding(&group(), &duties.iter().map(hold).collect::<Vec<_>>());
    }

    fn ask(&self, operation: Operation, ok: bool) {
        self.observer.store_called(&group(), operation, Duration::from_millis(3), ok);
    }

    fn get(&self, path: &str) -> (u16, BTreeMap<String, String>, String) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    /// Sends a request unchanged and reads until the server closes.
    fn send(&self, request: &str) -> (u16, BTreeMap<String, String>, String) {
        let mut socket = TcpStream::connect(self.handle.address().unwrap()).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        (status, headers.collect(), body.to_owned())
    }

    fn metrics(&self) -> BTreeMap<String, f64> {
        let (status, headers, body) = self.get("/metrics");
        assert_eq!(status, 200);
        assert!(headers["content-type"].starts_with("text/plain; version=0.0.4"));
        read_metrics(&body)
    }

    fn health(&self) -> (u16, Value) {
        let (status, headers, body) = self.get("/health");
        assert_eq!(headers["content-type"], "application/json");
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Stops the observation and reads the whole log, which ends although observers still exist.
    fn log(mut self) -> String {
        self.handle.finish();
        let mut text = String::new();
        self.log.read_to_string(&mut text).unwrap();
        text
    }
}

fn id(text: &str) -> DutyId {
    DutyId::new(text).unwrap()
}

fn record(change: Change, reason: &str) -> Record {
    Record {
        at: LocalInstant::from_nanos(77),
        change,
        instance: InstanceId::new("me-1").unwrap(),
        duty: Some(id("a b")),
        epoch: Some(Epoch::new(5).unwrap()),
        other: Some(InstanceId::new("you-2").unwrap()),
        reason: reason.to_owned().into(),
    }
}

/// Parses the text format strictly: types before samples, quoted labels, no duplicate series.
fn read_metrics(text: &str) -> BTreeMap<String, f64> {
    let mut types = BTreeMap::new();
    let mut samples = BTreeMap::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let base = base.filter(|base| types.get(*base).is_some_and(|kind| kind == "histogram"));
        assert!(types.contains_key(base.unwrap_or(name)), "no type before {line}");
        let is_counter = types.get(name).is_some_and(|kind| kind == "counter");
        assert_eq!(is_counter, name.ends_with("_total"), "{line}");
        assert!(samples.insert(series.to_owned(), value.parse().unwrap()).is_none(), "{line}");
    }
    samples
}

#[test]
fn a_port_that_is_taken_is_an_error() {
    let taken = TcpListener::bind(FREE).unwrap();
    let at = taken.local_addr().unwrap();
    let level = LogLevel::Error;
    let settings = ObserveSettings { listen: Some(at), level, ..ObserveSettings::default() };
    let observed = bench(LogFormat::Json, LogLevel::Info).handle.observer.observed.clone();
    let Err(SuperviseError::Store(error)) = start(&settings, observed) else { panic!("listens") };
    assert_eq!(error.code(), Code::Machine);
    assert!(error.to_string().contains(&format!("cannot listen on {at}: ")), "{error}");
}

#[test]
fn every_metric_has_its_name_and_labels() {
    let bench = bench(LogFormat::Json, LogLevel::Error);
    bench.hold(&["a", "b\"\\"]);
    for (change, reason) in [
        (Change::Acquired, "free"),
        (Change::Acquired, "moved"),
        (Change::Acquired, "released"),
        (Change::Acquired, "released"),
        (Change::TakenOver, "expired"),
        (Change::SessionLost, "ended"),
    ] {
        bench.observer.recorded(&group(), &record(change, reason), NOON);
    }
    for operation in [Operation::Acquire, Operation::Renew, Operation::Renew, Operation::Look] {
        bench.ask(operation, true);
    }
    bench.ask(Operation::Renew, false);
    bench.observer.store_called(&group(), Operation::Release, Duration::from_secs(60), true);
    bench.observer.renewed(&group(), Duration::from_millis(12_500));
    bench.observer.fenced(&group(), &id("a"));
    let endpoint = SourceEndpoint {
        connector_type: "telegram".to_owned(),
        endpoint_identity: "bot".to_owned(),
        shard_id: "3".to_owned(),
    };
    let (recorder, duty) = (bench.handle.recorder(), DutyKey::new("g", "d").unwrap());
    recorder.set_lag(&duty, endpoint.clone(), Some(Duration::from_millis(500)));
    bench.clock.pass(Duration::from_secs(1));
    commits(&bench);

    let samples = bench.metrics();
    for (series, value) in [
        (r#"connector_lease_renewals_total{instance_id="me-1",status="success"}"#, 2.0),
        (r#"connector_lease_renewals_total{instance_id="me-1",status="failure"}"#, 2.0),
        (r#"connector_lease_holder{group="poll",endpoint_identity="a",instance_id="me-1"}"#, 1.0),
        (
            r#"connector_lease_holder{group="poll",endpoint_identity="b\"\\",instance_id="me-1"}"#,
            1.0,
        ),
        (r#"connector_shard_rebalance_total{reason="join"}"#, 1.0),
        (r#"connector_shard_rebalance_total{reason="leave"}"#, 2.0),
        (r#"connector_shard_rebalance_total{reason="failure"}"#, 1.0),
        (r#"connector_assigned_shards{instance_id="me-1"}"#, 2.0),
        (r#"tenure_lease_margin_seconds{group="poll",instance_id="me-1"}"#, 12.5),
        (r#"tenure_fence_rejections_total{instance_id="me-1"}"#, 1.0),
        (
            "connector_checkpoint_lag_seconds{connector_type=\"telegram\",\
             endpoint_identity=\"bot\",shard_id=\"3\"}",
            1.5,
        ),
        (r#"tenure_checkpoint_commits_total{instance_id="me-1",result="stored"}"#, 2.0),
        (r#"tenure_checkpoint_commits_total{instance_id="me-1",result="conflict"}"#, 1.0),
        (r#"tenure_checkpoint_commits_total{instance_id="me-1",result="fenced"}"#, 1.0),
        (r#"tenure_checkpoint_commits_total{instance_id="me-1",result="unknown"}"#, 1.0),
        (r#"tenure_checkpoint_commits_total{instance_id="me-1",result="refused"}"#, 1.0),
    ] {
        assert_eq!(samples.get(series), Some(&value), "{series} in {samples:#?}");
    }
    histograms(&samples);
    let names: BTreeSet<&str> = samples.keys().map(|s| s.split('{').next().unwrap()).collect();
    assert_eq!(names.len(), 9 + 2, "{names:?}");

    // Without a pending event the lag is zero; an unknown lag is absent.
    recorder.set_lag(&duty, endpoint, None);
    let series = "connector_checkpoint_lag_seconds{connector_type=\"telegram\",\
         endpoint_identity=\"bot\",shard_id=\"3\"}";
    assert_eq!(bench.metrics().get(series), Some(&0.0));
    recorder.remove_lag(&duty);
    assert!(!bench.metrics().keys().any(|series| series.starts_with("connector_checkpoint_lag")));
}

fn commits(bench: &Bench) {
    let version = Version::new(3).unwrap();
    for result in [
        Ok(PutOutcome::Stored(version)),
        Ok(PutOutcome::Stored(version)),
        Ok(PutOutcome::Conflict { newest: version }),
        Err(StoreError::refused(Code::Fenced, "")),
        Err(StoreError::unknown(Code::Fenced, "")),
        Err(StoreError::refused(Code::Unreachable, "")),
    ] {
        bench.observer.committed(&hold(), &result);
    }
}

fn histograms(samples: &BTreeMap<String, f64>) {
    let name = "connector_coordination_operation_duration_seconds";
    for (operation, count, within_5_ms, sum) in
        [("acquire", 1.0, 1.0, 0.003), ("renew", 3.0, 3.0, 0.009), ("release", 1.0, 0.0, 60.0)]
    {
        let bucket =
            |le: &str| samples[&format!("{name}_bucket{{operation=\"{operation}\",le=\"{le}\"}}")];
        assert_eq!((bucket("0.0025"), bucket("0.005")), (0.0, within_5_ms));
        assert_eq!((bucket("10"), bucket("+Inf")), (within_5_ms, count));
        assert_eq!(samples[&format!("{name}_count{{operation=\"{operation}\"}}")], count);
        let seen = samples[&format!("{name}_sum{{operation=\"{operation}\"}}")];
        assert!((seen - sum).abs() < 1e-9, "{seen}");
    }
    let operations = samples.keys().filter(|series| series.starts_with(&format!("{name}_count")));
    assert_eq!(operations.count(), 3);
}

/// A sum over all instances can fall to zero, and the number of series is bounded.
#[test]
fn a_duty_that_is_gone_is_zero_for_a_while_and_then_absent() {
    let bench = bench(LogFormat::Json, LogLevel::Error);
    let holder = |bench: &Bench, duty: &str| {
        let labels = format!("group=\"poll\",endpoint_identity=\"{duty}\",instance_id=\"me-1\"");
        bench.metrics().get(&format!("connector_lease_holder{{{labels}}}")).copied()
    };
    bench.hold(&["a", "b"]);
    assert_eq!(holder(&bench, "a"), Some(1.0));
    bench.hold(&["b"]);
    assert_eq!((holder(&bench, "a"), holder(&bench, "b")), (Some(0.0), Some(1.0)));
    bench.hold(&[]);
    assert_eq!((holder(&bench, "a"), holder(&bench, "b")), (Some(0.0), Some(0.0)));
    bench.hold(&["b"]);
    assert_eq!(holder(&bench, "b"), Some(1.0));
    bench.clock.pass(Duration::from_secs(600));
    assert_eq!((holder(&bench, "a"), holder(&bench, "b")), (None, Some(1.0)));

    let many: Vec<String> = (0..5000).map(|n| format!("n{n}")).collect();
    bench.hold(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let count = |bench: &Bench| {
        let samples = bench.metrics();
        samples.keys().filter(|series| series.starts_with("connector_lease_holder")).count()
    };
    assert_eq!(count(&bench), 5001);
    bench.hold(&["b"]);
    assert_eq!(count(&bench), 1001);
}

#[test]
fn health_is_about_the_store_and_the_deadline() {
    let bench = bench(LogFormat::Json, LogLevel::Error);
    let (status, health) = bench.health();
    assert_eq!(status, 200);
    assert_eq!(
        (&health["status"], &health["store"], &health["holds"], &health["last_renewed_at"]),
        (&"healthy".into(), &"unknown".into(), &0.into(), &Value::Null)
    );
    assert_eq!((&health["instance_id"], &health["group"]), (&"me-1".into(), &"poll".into()));
    assert!(health["timestamp"].as_str().unwrap().ends_with('Z'), "{health}");
    assert_eq!(health["uptime_seconds"], 0);

    // A standby is healthy.
    bench.ask(Operation::Session, true);
    assert_eq!(bench.health().1["last_renewed_at"], Value::Null);
    bench.ask(Operation::Renew, true);
    let (status, health) = bench.health();
    assert_eq!((status, &health["store"]), (200, &"connected".into()));
    assert!(health["last_renewed_at"].is_string());

    // A failed request is not a fault before the deadline: 25.5 s for a TTL of 30 s.
    bench.hold(&["a"]);
    bench.clock.pass(Duration::from_secs(25));
    bench.ask(Operation::Renew, false);
    let (status, health) = bench.health();
    assert_eq!((status, &health["store"]), (200, &"disconnected".into()));
    assert_eq!((&health["holds"], &health["uptime_seconds"]), (&1.into(), &25.into()));
    bench.clock.pass(Duration::from_millis(500));
    let (status, health) = bench.health();
    assert_eq!((status, &health["status"]), (503, &"unhealthy".into()));
    bench.ask(Operation::Renew, true);
    assert_eq!(bench.health().0, 200);
    // A store that does not respond at all counts as lost, too.
    bench.clock.pass(Duration::from_secs(26));
    let (status, health) = bench.health();
    assert_eq!((status, &health["store"]), (503, &"disconnected".into()));
}

/// A standby is ready, too: it can take over at any time.
#[test]
fn a_member_is_ready_until_it_is_asked_to_end() {
    let bench = bench(LogFormat::Json, LogLevel::Error);
    let ready = || {
        let (status, _, body) = bench.get("/ready");
        (status, body)
    };
    let not = |why: &str| (503, format!("not ready: {why}\n"));
    let happens = |change| bench.observer.recorded(&group(), &record(change, "x"), NOON);
    assert_eq!(ready(), not("it is not a member of its group"));
    happens(Change::Joined);
    bench.ask(Operation::Renew, true);
    assert_eq!(ready(), (200, "ready\n".to_owned()));
    happens(Change::SessionLost);
    assert_eq!(ready().0, 503);
    happens(Change::Joined);
    assert_eq!(ready().0, 200);
    bench.clock.pass(Duration::from_secs(26));
    assert_eq!(ready(), not("it is unhealthy, see /health"));
    bench.ask(Operation::Renew, true);
    bench.handle.recorder().set_leaving();
    assert_eq!(ready(), not("it is asked to end"));
}

#[test]
fn other_requests_are_refused() {
    let bench = bench(LogFormat::Json, LogLevel::Error);
    assert_eq!(bench.get("/").0, 404);
    assert_eq!(bench.get("/metrics/x").0, 404);
    assert_eq!(bench.get("/metrics?x=1").0, 200);
    let (status, headers, _) = bench.send("DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((status, headers["allow"].as_str()), (405, "GET, HEAD"));
    let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n";
    assert_eq!(bench.send(post).0, 405);
    let (status, _, body) = bench.send("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((status, body.as_str()), (200, ""));
    assert_eq!(bench.send("nonsense\r\n\r\n").0, 400);
    let long = format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(16 << 10));
    assert_eq!(bench.send(&long).0, 431);
}

/// The server closes silent connections and then serves others.
#[test]
fn silent_visitors_do_not_keep_others_out() {
    let bench = bench(LogFormat::Json, LogLevel::Error);
    let connect = |_| TcpStream::connect(bench.handle.address().unwrap()).unwrap();
    let mut silent: Vec<TcpStream> = (0..40).map(connect).collect();
    assert_eq!(bench.get("/health").0, 200);
    // The server closes; without that, this would wait for ever.
    let _ = silent[0].read(&mut [0; 1024]).unwrap();
}
