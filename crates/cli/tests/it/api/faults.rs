//! The local API while holders are replaced, stopped and killed.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tenure_core::Clock as _;
use tenure_store::BootClock;
use testkit::{
    EtcdOptions, EtcdServer, PostgresOptions, PostgresServer, Proxy, RedisOptions, RedisServer,
    TEST_POSTGRES, service, wait_until,
};

use super::{Place, run_on, shared_stores, socket, stay};
use crate::running::{LIMIT, STAY, all_gone, children};
use crate::tenure::{Tenure, with_store};

/// Another instance gets the duty while the program still runs.
#[test]
fn a_program_whose_duty_was_taken_is_fenced() {
    for store in shared_stores(&Tenure::new()) {
        let tenure = Tenure::new();
        // It ignores TERM, so that it is still there when the duty is not.
        let script = format!("trap '' TERM; {}", stay("a.api"));
        let first = tenure.start("a", &run_on(&store, &[], &script));
        let api = socket(&tenure, "a");
        assert_eq!(api.put(&[], "1").version(), 1, "{store}");
        let mut connection = api.connect().unwrap();
        std::fs::write(tenure.path("new"), "operator").unwrap();
        tenure.run(&["checkpoint", "put", "g/d", "new", "--force", "--store", &store]).ok();
        // Whether or not the holder has noticed it: the store refuses.
        let late = connection.send("PUT", "/checkpoint", &[], b"late");
        let late = late.map(|late| late.result());
        assert!(matches!(&late, Ok((409, result)) if result == "fenced"), "{store}: {late:?}");
        let get = tenure.run(&["checkpoint", "get", "g/d", "--store", &store]).ok();
        assert_eq!(get, "operator", "{store}");
        kill_process(first.pid(), Signal::KILL).unwrap();
    }
}

/// Supervisor, guard and program are stopped for longer than the TTL, and continue together.
#[test]
fn a_program_that_was_stopped_past_the_ttl_cannot_commit() {
    for store in shared_stores(&Tenure::new()) {
        let tenure = Tenure::new();
        let binary = env!("CARGO_BIN_EXE_tenure");
        // It commits as fast as it can, and notes each exit code.
        let script = format!(
            "trap '' TERM; echo $$ > pid; while :; do
             echo old | {binary} checkpoint put - >/dev/null 2>&1; echo $? >> codes; done"
        );
        let before = ["run", "--store", &store, "--duty", "g/d", "--ttl", "2s", "--grace", "100ms"];
        let words = |script| [&before[..], &["--", "sh", "-c", script]].concat();
        let first = tenure.start("a", &words(&script));
        tenure.lines("codes", 2);
        let program = tenure.pids("pid", 1)[0];
        let stopped = [first.pid(), first.guard(), program];
        stopped.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        let second = tenure.start("b", &words(&stay("b.api")));
        let api = socket(&tenure, "b");
        let put = api.put(&[], "new").version();
        stopped.iter().rev().for_each(|pid| kill_process(*pid, Signal::CONT).unwrap());
        wait_until("the program has ended", LIMIT, || all_gone(&[program])).unwrap();
        let read = api.get("/checkpoint");
        assert_eq!((&read.body[..], read.version()), (&b"new"[..], put), "{store}");
        drop(first);
        second.signal(Signal::TERM);
        second.exits(128 + 15);
    }
}

/// The response to a commit is lost: the supervisor reads what is stored.
#[test]
fn a_lost_response_is_found_in_the_store() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let postgres = PostgresServer::start(PostgresOptions::default()).unwrap();
    let redis = RedisServer::start(RedisOptions::default()).unwrap();
    let etcd = EtcdServer::start(EtcdOptions::default()).unwrap();
    for url in [postgres.url(), redis.url(), etcd.url()] {
        let tenure = Tenure::new();
        let (front, back) = url.rsplit_once(':').unwrap();
        let digits = back.find(|c: char| !c.is_ascii_digit()).unwrap_or(back.len());
        let (port, rest) = back.split_at(digits);
        let proxy = Proxy::start(port.parse().unwrap()).unwrap();
        let store = format!("{front}:{}{rest}", proxy.port());
        let script = stay("a.api");
        let before = ["run", "--store", &store, "--duty", "g/d", "--ttl", "60s"];
        let running = tenure.start("a", &[&before[..], &["--", "sh", "-c", &script]].concat());
        let api = socket(&tenure, "a");
        assert_eq!(api.put(&[], "1").version(), 1);
        proxy.swallow_replies();
        let (from, commit) = (proxy.swallowed(), api.clone());
        let put = std::thread::spawn(move || commit.put(&["If-Match: \"1\""], "2"));
        wait_until("a response is lost", LIMIT, || proxy.swallowed() > from).unwrap();
        proxy.restore().unwrap();
        let put = put.join().unwrap();
        assert_eq!(put.result(), (200, "stored".to_owned()), "{url}: {put:?}");
        assert_eq!(put.version(), 2, "{url}");
        assert_eq!(api.get("/checkpoint").body, b"2", "{url}");
        running.signal(Signal::TERM);
        running.exits(128 + 15);
    }
}

/// While the store is away nothing is stored, and the answer says so.
#[test]
fn a_store_that_is_away_is_told_from_one_that_refuses() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (tenure, script) = (Tenure::new(), stay("a.api"));
    let store = format!("redis://127.0.0.1:{}/0", proxy.port());
    let before = ["run", "--store", &store, "--duty", "g/d", "--ttl", "60s"];
    let running = tenure.start("a", &[&before[..], &["--", "sh", "-c", &script]].concat());
    let api = socket(&tenure, "a");
    assert_eq!(api.put(&[], "1").version(), 1);
    proxy.cut();
    // The first one may have reached the store.
    let first = api.put(&[], "2").result();
    let (away, lost) = ((503, "unavailable".to_owned()), (504, "unknown".to_owned()));
    assert!(first == away || first == lost, "{first:?}");
    wait_until("it is known not to be stored", LIMIT, || api.put(&[], "2").status == 503).unwrap();
    assert_eq!(api.put(&[], "2").header("retry-after"), Some("1"));
    assert_eq!(api.get("/checkpoint").result(), (503, "unavailable".to_owned()));
    assert_eq!(api.get("/hold").json()["state"], "held");
    proxy.restore().unwrap();
    let stored = || api.put(&[], "2").status == 200;
    wait_until("it is stored again", LIMIT, stored).unwrap();
    running.signal(Signal::TERM);
    running.exits(128 + 15);
}

/// A program without signal handlers hears of the end of its hold in time.
#[test]
fn events_say_that_a_hold_runs_out() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (tenure, script) = (Tenure::new(), format!("trap '' TERM; {}", stay("a.api")));
    let store = format!("redis://127.0.0.1:{}/0", proxy.port());
    let before = ["run", "--store", &store, "--duty", "g/d", "--ttl", "5s"];
    let running = tenure.start("a", &[&before[..], &["--", "sh", "-c", &script]].concat());
    let mut events = socket(&tenure, "a").connect().unwrap();
    events.send("GET", "/events", &[], b"").unwrap();
    proxy.cut();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut events.0, &mut text).unwrap();
    assert!(text.contains("event: hold") && text.contains("event: draining"), "{text}");
    drop(running);
}

/// In a cursor file, nobody else can take the duty: the program is fenced by its own lease.
#[test]
fn a_program_on_a_cursor_file_that_was_stopped_past_the_ttl_cannot_commit() {
    let tenure = Tenure::new();
    let binary = env!("CARGO_BIN_EXE_tenure");
    // The first run commits as fast as it can; the next ones stay.
    let script = format!(
        "echo >> runs; [ -e pid ] && {{ {STAY}; }}
         trap '' TERM; echo $$ > pid; while :; do
         echo old | {binary} checkpoint put - >/dev/null 2>&1; echo >> codes; done"
    );
    let store = format!("file:{}#g/d", tenure.path("cursor.json").display());
    let before = ["run", "--store", &store, "--duty", "g/d", "--ttl", "2s", "--grace", "100ms"];
    let first = tenure.start("a", &[&before[..], &["--", "sh", "-c", &script]].concat());
    tenure.lines("codes", 2);
    let program = tenure.pids("pid", 1)[0];
    let stopped = [first.pid(), first.guard(), program];
    stopped.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
    let version = || {
        let cursor: Value = serde_json::from_str(&tenure.text("cursor.json")).unwrap();
        cursor["_tenure"]["version"].as_u64().unwrap()
    };
    let (known, since) = (version(), BootClock.now());
    let over = || BootClock.now().since(since) > Duration::from_secs(3);
    wait_until("the lease is over", LIMIT, over).unwrap();
    stopped.iter().rev().for_each(|pid| kill_process(*pid, Signal::CONT).unwrap());
    tenure.lines("runs", 2);
    assert!(all_gone(&[program]));
    // One commit may have been under way; nobody else could get the file meanwhile.
    assert!((known..=known + 1).contains(&version()), "{} after {known}", version());
    first.signal(Signal::TERM);
    first.exits(128 + 15);
}

/// Everything is killed at once, so nobody can remove the socket: the next start does.
#[test]
fn what_killed_processes_leave_behind_is_removed_by_the_next_start() {
    let place = Tenure::new();
    let stores = super::stores(&place);
    // The next start waits for the lease of the last one.
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| remove_leftovers(store));
        }
    });
}

fn remove_leftovers(store: &str) {
    let tenure = Tenure::new();
    let folder = tenure.path("tmp");
    std::fs::create_dir(&folder).unwrap();
    let start = |name: &str, script: &str| {
        let mut command = tenure.command(&run_on(store, &[], script));
        command.env("TMPDIR", &folder);
        tenure.start_this(name, command)
    };
    let first = start("a", &format!("echo $$ > pid; {}", stay("a.api")));
    let Place::Socket(path) = socket(&tenure, "a") else { panic!("a port") };
    let left = || std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(left(), 1);
    let guard = first.guard();
    // Stopped first, so that the guard cannot react.
    for signal in [Signal::STOP, Signal::KILL] {
        kill_process(guard, signal).unwrap();
        kill_process(first.pid(), signal).unwrap();
    }
    wait_until("all are gone", LIMIT, || all_gone(&tenure.pids("pid", 1))).unwrap();
    drop(first);
    assert!(path.exists());
    let mut running = vec![start("b", &stay("b.api"))];
    let Place::Socket(next) = socket(&tenure, "b") else { panic!("a port") };
    // Only one process at a time can use a cursor file.
    if !store.starts_with("file:") {
        let third = start("c", STAY);
        tenure.said(&third, "\"event\":\"standby\"");
        assert_eq!(children(third.pid()).len(), 1);
        running.push(third);
    }
    assert!(!path.exists() && next.exists(), "{store}");
    for running in running {
        running.signal(Signal::TERM);
        running.exits(128 + 15);
    }
    assert_eq!(left(), 0);
}

/// A command of a group has its own checkpoint and no other.
#[test]
fn commands_of_shards_have_a_checkpoint_each() {
    for store in super::stores(&Tenure::new()) {
        let tenure = Tenure::new();
        let script = format!(
            "echo $TENURE_SHARD $TENURE_SHARDS {{}} $TENURE_API >> api; mkdir -p {{}}
             cd {{}}; {STAY}"
        );
        let before = ["run", "--store", &store, "--group", "g", "--shards", "2", "--ttl", "6s"];
        let running = tenure.start("a", &[&before[..], &["--", "sh", "-c", &script]].concat());
        let mut lines = tenure.lines("api", 2);
        lines.sort();
        let places = ["0 2 0 ", "1 2 1 "]
            .iter()
            .zip(&lines)
            .map(|(start, line)| Place::Socket(PathBuf::from(line.strip_prefix(start).unwrap())));
        let places: Vec<Place> = places.collect();
        for (n, place) in places.iter().enumerate() {
            let hold = place.get("/hold").json();
            assert_eq!((&hold["shard"], &hold["shards"]), (&n.into(), &2.into()));
            assert_eq!(place.put(&[], &format!("of {n}")).version(), 1);
        }
        for (n, place) in places.iter().enumerate() {
            assert_eq!(place.get("/checkpoint").body, format!("of {n}").as_bytes());
        }
        running.signal(Signal::TERM);
        running.exits(128 + 15);
        with_store(&store, async |store| {
            let group = tenure_core::GroupName::new("g").unwrap();
            let holders = store.holders(&group).await.unwrap();
            assert!(holders.iter().all(|duty| duty.holder.is_none()), "{holders:?}");
        });
    }
}
