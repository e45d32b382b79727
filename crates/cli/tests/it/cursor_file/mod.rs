//! A poller in Python with a cursor file: from one process to standbys, to shards, and back.
//!
//! `api.py` keeps a ledger of effects. Under each hold they are consecutive and begin where the
//! stored state ended: nothing is lost, and only a crash repeats what was not stored yet.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{TEST_POSTGRES, service, wait_until};

use crate::running::{LIMIT, Running, children};
use crate::stores::name;
use crate::tenure::Tenure;

/// Effects that a holder has before something happens to it.
const SOME: usize = 20;
/// More updates than are ever read.
const MANY: u64 = 1_000_000;
const SHARDS: u64 = 4;
const STANDBY: &str = "\"event\":\"standby\"";

/// The API, its ledger and the poller.
struct Stage {
    tenure: Tenure,
    url: String,
    store: String,
    _api: Running,
}

/// Effects of the poller under one hold, or in one run without Tenure.
#[derive(Debug)]
struct Term {
    epoch: u64,
    instance: Option<String>,
    /// Position from which it began.
    start: u64,
    effects: Vec<u64>,
}

impl Term {
    fn last(&self) -> u64 {
        self.effects.last().copied().unwrap_or(self.start)
    }
}

impl Stage {
    fn start(store: String) -> Self {
        let tenure = Tenure::new();
        let mut command = tenure.command_of("python3", &[]);
        command.arg(script("api.py")).args(["ledger", "head"]);
        std::fs::write(tenure.path("head"), MANY.to_string()).unwrap();
        let api = tenure.start_this("api", command);
        let port = tenure.lines("api.out", 1).remove(0);
        Self { tenure, url: format!("http://127.0.0.1:{port}"), store, _api: api }
    }

    /// Sets the number of the newest update.
    fn produce(&self, head: u64) {
        std::fs::write(self.tenure.path("head.new"), head.to_string()).unwrap();
        std::fs::rename(self.tenure.path("head.new"), self.tenure.path("head")).unwrap();
    }

    fn ledger(&self) -> Vec<Value> {
        let lines = self.tenure.lines("ledger", 0);
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the terms of a duty, or of runs without one.
    fn terms(&self, duty: Option<&str>) -> Vec<Term> {
        let mut terms: Vec<Term> = Vec::new();
        for entry in self.ledger().iter().filter(|entry| entry["duty"].as_str() == duty) {
            let id = entry["id"].as_u64().unwrap();
            match entry["what"].as_str().unwrap() {
                "start" => terms.push(Term {
                    epoch: entry["epoch"].as_str().map_or(0, |epoch| epoch.parse().unwrap()),
                    instance: entry["instance"].as_str().map(str::to_owned),
                    start: id,
                    effects: Vec::new(),
                }),
                "effect" => terms.last_mut().unwrap().effects.push(id),
                what => assert_eq!(what, "refused"),
            }
        }
        terms
    }

    /// Waits until some updates took effect in a term after the first `before`, and some of it is
    /// stored; returns its number.
    #[track_caller]
    fn works(&self, duty: Option<&str>, before: usize) -> usize {
        let works = |term: &Term| {
            term.effects.len() >= SOME && duty.is_none_or(|duty| self.stored(duty) > term.start)
        };
        let seen = || self.terms(duty).iter().skip(before).any(works);
        let waited = wait_until("a term with effects", LIMIT, seen);
        let terms = self.terms(duty);
        assert!(waited.is_ok(), "{duty:?} after {before}: {terms:?}");
        before + terms[before..].iter().position(works).unwrap()
    }

    /// Position that the store has.
    fn stored(&self, duty: &str) -> u64 {
        let text = self.tenure.run(&["checkpoint", "get", duty, "--store", &self.store]).stdout;
        let stored = serde_json::from_str::<Value>(&text).ok();
        stored.and_then(|stored| stored["last_update_id"].as_u64()).unwrap_or(0)
    }

    /// Starts the poller by itself.
    fn poller(&self, host: &Tenure) -> Running {
        let mut command = host.command_of("python3", &[]);
        command.arg(script("poller.py")).args([&self.url, "cursor.json"]);
        host.start_this("poller", command)
    }

    /// Starts the poller behind `tenure run`, with this state file.
    fn run(&self, host: &Tenure, options: &[&str], state: &str) -> Running {
        let words = ["run", "--store", &self.store, "--ttl", "2s", "--state", state];
        let mut command = host.command(&[&words, options, &["--", "python3"]].concat());
        command.arg(script("poller.py")).args([&self.url, state]);
        host.start_this("run", command)
    }
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/cursor_file").join(name)
}

/// Content of a cursor file.
fn cursor(position: u64) -> String {
    format!("{{\"last_update_id\": {position}}}")
}

#[track_caller]
fn ends(mut process: Running) {
    process.signal(Signal::TERM);
    process.wait();
}

/// A supervisor, its guard and its program.
fn family(running: &Running) -> Vec<Pid> {
    let guard = running.guard();
    [vec![running.pid(), guard], children(guard)].concat()
}

fn send(pids: &[Pid], signal: Signal) {
    pids.iter().for_each(|pid| kill_process(*pid, signal).unwrap());
}

/// Checks that each term is consecutive in its shard, and begins where the one before ended; after
/// a crash not later, but after that one's own beginning.
#[track_caller]
fn check(terms: &[Term], (shard, shards): (u64, u64), crashed: impl Fn(usize, &Term) -> bool) {
    let own = |from: u64, to: u64| (from..=to).filter(move |id| id % shards == shard);
    for term in terms {
        assert!(own(term.start + 1, term.last()).eq(term.effects.iter().copied()), "{term:?}");
    }
    for (at, two) in terms.windows(2).enumerate() {
        let (before, next) = (&two[0], &two[1]);
        assert!(next.epoch > before.epoch, "{before:?} {next:?}");
        let skipped = own(before.last() + 1, next.start).next();
        assert_eq!(skipped, None, "after term {at}: {before:?} {next:?}");
        if crashed(at, before) {
            assert!(next.start > before.start, "term {at} stored nothing: {before:?} {next:?}");
        } else {
            assert!(next.start >= before.last(), "{before:?} was repeated: {next:?}");
        }
    }
}

#[test]
fn a_cursor_file_moves_to_standbys_to_shards_and_back() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    let stage = Stage::start(format!("{server}?schema={}", name()));
    let hosts = [Tenure::new(), Tenure::new()];
    let alone = stage.poller(&hosts[0]);
    stage.works(None, 0);
    ends(alone);
    let position = standbys(&stage, &hosts);
    let head = shards(&stage, &hosts, position);
    // Every shard has stored this position.
    std::fs::write(hosts[1].path("cursor.json"), cursor(head)).unwrap();
    stage.produce(MANY);
    let alone = stage.poller(&hosts[1]);
    let term = stage.works(None, 1);
    ends(alone);
    let last = stage.terms(None)[term].last();
    let ledger = stage.ledger();
    let effects = ledger.iter().filter(|entry| entry["what"] == "effect");
    let effects: BTreeSet<u64> = effects.filter_map(|entry| entry["id"].as_u64()).collect();
    assert!(effects.into_iter().eq(1..=last), "an update had no effect");
}

/// The first host imports its file; then each is killed, each is stopped past the TTL, and one is
/// asked to end. Returns the last position.
fn standbys(stage: &Stage, hosts: &[Tenure; 2]) -> u64 {
    let duty = Some("mail/inbox");
    let start = |host| stage.run(host, &["--duty", "mail/inbox", "--state-import"], "cursor.json");
    let mut holder = start(&hosts[0]);
    let mut term = stage.works(duty, 0);
    assert_eq!(stage.terms(duty)[0].start, stage.terms(None)[0].last(), "the file is imported");
    let mut standby = start(&hosts[1]);
    hosts[1].said(&standby, STANDBY);
    for host in hosts {
        holder.signal(Signal::KILL);
        holder.wait();
        term = stage.works(duty, term + 1);
        holder = std::mem::replace(&mut standby, start(host));
        host.said(&standby, STANDBY);
    }
    // First the supervisor alone, then all processes of the other.
    for all in [false, true] {
        let stopped = if all { family(&holder) } else { vec![holder.pid()] };
        send(&stopped, Signal::STOP);
        term = stage.works(duty, term + 1);
        send(&stopped, Signal::CONT);
        std::mem::swap(&mut holder, &mut standby);
    }
    ends(holder);
    term = stage.works(duty, term + 1);
    ends(standby);
    let terms = stage.terms(duty);
    check(&terms, (0, 1), |at, _| at < 4);
    assert_eq!((terms.len(), stage.stored("mail/inbox")), (term + 1, terms[term].last()));
    terms[term].last()
}

/// Each shard begins at the position; one host is killed and comes back. Returns the position that
/// all have stored at the end.
fn shards(stage: &Stage, hosts: &[Tenure; 2], position: u64) -> u64 {
    let duties: Vec<String> = (0..SHARDS).map(|shard| format!("shards/{shard}")).collect();
    std::fs::write(hosts[0].path("position"), cursor(position)).unwrap();
    for duty in &duties {
        let put = ["checkpoint", "put", duty, "position", "--store", &stage.store];
        hosts[0].run(&put).ok();
    }
    let count = SHARDS.to_string();
    let options = ["--group", "shards", "--shards", &count, "--output", "plain"];
    let start = |host| stage.run(host, &options, "cursor-{}.json");
    let last = |duty: &String| stage.terms(Some(duty)).pop().unwrap();
    let mut first = start(&hosts[0]);
    duties.iter().for_each(|duty| assert_eq!(stage.works(Some(duty), 0), 0));
    let killed = last(&duties[0]).instance;
    let second = start(&hosts[1]);
    let moved = || duties.iter().filter(|duty| last(duty).instance != killed).count() == 2;
    wait_until("the second has two", LIMIT, moved).unwrap();
    first.signal(Signal::KILL);
    first.wait();
    let moved = || duties.iter().all(|duty| last(duty).instance != killed);
    wait_until("the second has all", LIMIT, moved).unwrap();
    let again = start(&hosts[0]);
    let ledger = stage.ledger();
    let newest = ledger.iter().filter_map(|entry| entry["id"].as_u64()).max();
    let head = newest.unwrap() + 200;
    stage.produce(head);
    let stored = || duties.iter().all(|duty| stage.stored(duty) == head);
    wait_until("every shard has stored the last position", LIMIT, stored).unwrap();
    ends(second);
    ends(again);
    for (shard, duty) in (0..SHARDS).zip(&duties) {
        let terms = stage.terms(Some(duty));
        assert_eq!(terms[0].start, position, "{duty}");
        check(&terms, (shard, SHARDS), |_, term| term.instance == killed);
    }
    head
}
