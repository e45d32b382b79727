//! Helpers of all stories: server, sessions, instances, and checks of their traces.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use redis::FromRedisValue;
use rustix::process::Signal;
use serde_json::Value;
use tenure_core::DutyId;
use testkit::{RedisOptions, RedisServer, TEST_REDIS, service, wait_until};
use uuid::Uuid;

use crate::running::{LIMIT, Running};
use crate::tenure::Tenure;

/// Divisor of the design's times.
static SCALE: LazyLock<u32> = LazyLock::new(|| match std::env::var("TENURE_STORY_SCALE") {
    Ok(scale) => scale.parse().unwrap(),
    Err(_) => 10,
});

/// Returns a time of the design, scaled.
pub fn scaled(seconds: u64) -> Duration {
    Duration::from_secs(seconds) / *SCALE
}

/// Lease duration.
pub fn ttl() -> Duration {
    scaled(30)
}

/// Poll interval: the shortest one in the design.
pub fn every() -> Duration {
    scaled(4)
}

/// Timeout for events that take a few TTLs, long enough for slow machines.
pub fn patience() -> Duration {
    LIMIT + ttl() * 10
}

pub fn ms(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// Poll script: appends two lines to the file `polls`.
pub const POLL: &str = "echo began $1 $TENURE_EPOCH $TENURE_INSTANCE >> polls
                    echo ended $1 $TENURE_EPOCH $TENURE_INSTANCE >> polls";

/// A line of the file `polls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub began: bool,
    pub target: String,
    pub epoch: String,
    pub instance: String,
}

/// An entry of the audit trail in Redis.
#[derive(Clone, Debug)]
pub struct Entry {
    pub kind: String,
    pub instance: String,
    pub target: String,
    pub epoch: u64,
    /// Time of the event, by the server's clock.
    pub unix_ms: u64,
}

/// A Redis server, and a folder for the output of polls.
#[derive(Debug)]
pub struct Stage {
    pub redis: RedisServer,
    pub tenure: Tenure,
    /// Interval and timeout of polls.
    pub pace: (Duration, Duration),
    client: redis::Client,
}

/// A `tenure poll` process.
#[derive(Debug)]
pub struct Instance {
    pub running: Running,
    pub id: String,
    log: String,
}

impl Stage {
    /// Starts a Redis with `sessions` sessions; `None` if Redis is not available.
    pub fn open(sessions: usize) -> Option<Self> {
        service(TEST_REDIS)?;
        // Sessions have to survive a restart of the server.
        let options = RedisOptions { append_only: true, ..RedisOptions::default() };
        let redis = RedisServer::start(options).unwrap();
        let client = redis::Client::open(redis.url()).unwrap();
        let stage = Self { redis, tenure: Tenure::new(), pace: (every(), scaled(6)), client };
        (0..sessions).for_each(|_| drop(stage.session()));
        Some(stage)
    }

    /// Adds a session; returns its id.
    pub fn session(&self) -> String {
        let id = Uuid::new_v4().to_string();
        self.set_session(&id, false);
        id
    }

    pub fn set_session(&self, id: &str, paused: bool) {
        let value = format!(r#"{{"name": "x", "isPaused": {paused}}}"#);
        let () = self.ask(&["SET", &format!("session:{id}"), &value]);
    }

    /// Returns the ids of all sessions.
    pub fn sessions(&self) -> Vec<String> {
        self.after("session:")
    }

    /// Returns the remainders of all keys with this prefix, sorted.
    pub fn after(&self, prefix: &str) -> Vec<String> {
        let keys: BTreeSet<String> = self.ask(&["KEYS", &format!("{prefix}*")]);
        keys.iter().map(|key| key[prefix.len()..].to_owned()).collect()
    }

    /// Sends a command directly to Redis.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connect()).unwrap()
    }

    pub fn connect(&self) -> redis::Connection {
        self.client.get_connection().unwrap()
    }

    pub fn lease(&self, target: &str) -> Option<String> {
        self.ask(&["GET", &format!("poll:lease:{target}")])
    }

    /// Returns the end of a lease by the server's clock; not positive if there is none.
    pub fn ends_at(&self, target: &str) -> i64 {
        self.ask(&["PEXPIRETIME", &format!("poll:lease:{target}")])
    }

    /// Returns the holder of each leased target.
    pub fn leases(&self) -> BTreeMap<String, String> {
        let held = |target: String| Some((self.lease(&target)?, target));
        self.after("poll:lease:").into_iter().filter_map(held).map(|(by, of)| (of, by)).collect()
    }

    /// Returns the targets that an instance has leased.
    pub fn targets_of(&self, instance: &Instance) -> Vec<String> {
        let leases = self.leases().into_iter().filter(|(_, holder)| *holder == instance.id);
        leases.map(|(target, _)| target).collect()
    }

    /// Returns the number of leases of each instance, in this order.
    pub fn shares(&self, instances: &[&Instance]) -> Vec<usize> {
        let leases = self.leases();
        let count = |of: &&Instance| leases.values().filter(|holder| **holder == of.id).count();
        instances.iter().map(count).collect()
    }

    /// Returns the epoch of the last grant of each target.
    pub fn fences(&self) -> BTreeMap<String, u64> {
        let fence = |target: String| {
            let epoch = self.ask(&["GET", &format!("poll:fence:{target}")]);
            (target, epoch)
        };
        self.after("poll:fence:").into_iter().map(fence).collect()
    }

    pub fn audit(&self) -> Vec<Entry> {
        let entries: Vec<(String, BTreeMap<String, String>)> =
            self.ask(&["XRANGE", "poll:audit", "-", "+"]);
        let number = |text: &str| text.parse().unwrap_or(0);
        let entry = |fields: BTreeMap<String, String>| Entry {
            kind: fields["kind"].clone(),
            instance: fields["instance"].clone(),
            target: DutyId::unescape(&fields["duty"]).map_or("".into(), |id| id.as_str().into()),
            epoch: number(&fields["epoch"]),
            unix_ms: number(&fields["unix_ms"]),
        };
        entries.into_iter().map(|(_, fields)| entry(fields)).collect()
    }

    /// Returns the arguments: options that the design fixes, and the command.
    fn words(&self, store: &str, script: &str) -> Vec<String> {
        let targets = format!("{store}?pattern=session:*&tombstone=deleted-session:");
        let (ttl, list_every, grace) = (ms(ttl()), ms(scaled(5)), ms(scaled(3)));
        let (every, timeout) = (ms(self.pace.0), ms(self.pace.1));
        let options = [
            ("--store", store),
            ("--targets", &*targets),
            ("--ttl", &*ttl),
            ("--every", &*every),
            ("--list-every", &*list_every),
            ("--timeout", &*timeout),
            ("--grace", &*grace),
            ("--log-level", "debug"),
        ];
        let options = options.iter().flat_map(|(name, value)| [*name, *value]);
        let command = ["--", "sh", "-c", script, "sh", "{}"];
        ["poll"].into_iter().chain(options).chain(command).map(str::to_owned).collect()
    }

    pub fn command(&self, store: &str, script: &str) -> Command {
        let words = self.words(store, script);
        self.tenure.command(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts an instance.
    pub fn start(&self, name: &str) -> Instance {
        self.start_with(name, &self.redis.url(), POLL)
    }

    /// Starts an instance with another URL of Redis, or another poll script.
    pub fn start_with(&self, name: &str, store: &str, script: &str) -> Instance {
        self.known(name, self.tenure.start_this(name, self.command(store, script)))
    }

    /// Starts several instances, then waits until each has logged its id.
    pub fn start_all<const N: usize>(&self, names: [&str; N]) -> [Instance; N] {
        let start = |name| self.tenure.start_this(name, self.command(&self.redis.url(), POLL));
        let running = names.map(|name| (name, start(name)));
        running.map(|(name, running)| self.known(name, running))
    }

    fn known(&self, name: &str, running: Running) -> Instance {
        let log = format!("{name}.err");
        let id = || {
            let text = self.tenure.text(&log);
            let (first, _) = text.split_once('\n')?;
            let line: Value = serde_json::from_str(first).unwrap();
            Some(line["instance_id"].as_str().unwrap().to_owned())
        };
        self.until("an instance says who it is", || id().is_some());
        Instance { running, id: id().unwrap(), log }
    }

    /// Returns all lines that polls have written so far.
    pub fn history(&self) -> Vec<Line> {
        let text = self.tenure.text("polls");
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [what, target, epoch, instance] = words[..] else { panic!("{line:?}") };
            let owned = |word: &str| word.to_owned();
            let (target, epoch, instance) = (owned(target), owned(epoch), owned(instance));
            Line { began: what == "began", target, epoch, instance }
        };
        lines.map(line).collect()
    }

    /// Waits for a condition, with the timeout of all stories.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        if wait_until(what, patience(), holds).is_err() {
            let mut lines = self.history();
            let tail = lines.split_off(lines.len().saturating_sub(30));
            panic!("{what}: in vain; the last polls {tail:#?}");
        }
    }

    /// Waits until each target was polled `times` times after the first `seen` lines.
    #[track_caller]
    pub fn polled(&self, targets: &[String], times: usize, seen: usize) {
        self.until("all are polled", || {
            let lines = self.history().split_off(seen);
            let count = |target: &String| polls_of(&lines, target).count();
            targets.iter().all(|target| count(target) >= times)
        });
    }

    /// Waits until each target was polled by another instance after the first `seen` lines.
    #[track_caller]
    pub fn taken_over(&self, targets: &[String], from: &str, seen: usize) {
        self.until("others poll them", || {
            let lines = self.history().split_off(seen);
            let is_new = |line: &Line| line.instance != from;
            targets.iter().all(|target| polls_of(&lines, target).any(is_new))
        });
    }

    /// Waits until the instances have these numbers of leases, in any order.
    #[track_caller]
    pub fn shared(&self, instances: &[&Instance], mut shares: Vec<usize>) {
        shares.sort_unstable();
        self.until(&format!("shares of {shares:?}"), || {
            let mut now = self.shares(instances);
            now.sort_unstable();
            now == shares
        });
    }

    /// Returns the log of an instance.
    pub fn log(&self, instance: &Instance) -> String {
        self.tenure.text(&instance.log)
    }

    /// Returns the targets for which an instance has logged this event.
    pub fn said_of(&self, instance: &Instance, event: &str) -> BTreeSet<String> {
        let log = self.log(instance);
        let whole = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of = lines.filter(|line| line["event"] == event);
        of.filter_map(|line| line["endpoint_id"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until an instance has logged a text.
    #[track_caller]
    pub fn said(&self, instance: &Instance, what: &str) {
        self.until(what, || self.log(instance).contains(what));
    }

    /// Waits until the end of a lease has advanced by `times` renewals. A check before a poll
    /// extends it, too.
    #[track_caller]
    pub fn renewals(&self, target: &str, times: u32) {
        let (first, time) = (self.ends_at(target), scaled(8) * times);
        let later = first + i64::try_from(time.as_millis()).unwrap();
        self.until("the lease is renewed", || self.ends_at(target) >= later);
    }

    /// Checks that no two instances polled a target at the same time: the lines of a lease are
    /// contiguous, and epochs only grow. A poll that overlaps with the next holder has its last
    /// line among those of the next lease.
    #[track_caller]
    pub fn each_alone(&self) {
        let lines = self.history();
        let targets: BTreeSet<&str> = lines.iter().map(|line| line.target.as_str()).collect();
        for target in targets {
            let of: Vec<_> = lines.iter().filter(|line| line.target == target).collect();
            let mut stretches: Vec<_> = of.iter().map(|l| (&l.epoch, &l.instance)).collect();
            stretches.dedup();
            let once: BTreeSet<_> = stretches.iter().collect();
            assert_eq!(once.len(), stretches.len(), "{target}: two at a time in {of:#?}");
            let epochs = stretches.iter().filter_map(|(epoch, _)| epoch.parse::<u64>().ok());
            assert!(epochs.is_sorted(), "{target}: {stretches:#?}");
        }
    }

    /// Checks that all polls from line `seen` on were by the current holders of the leases.
    #[track_caller]
    pub fn polled_by_holders(&self, seen: usize) {
        let leases = self.leases();
        for line in &self.history()[seen..] {
            assert_eq!(leases.get(&line.target), Some(&line.instance), "{line:?}");
        }
    }

    /// Checks that the next grant of each target came after the end of its lease.
    #[track_caller]
    pub fn granted_after(&self, ends: &BTreeMap<String, i64>) {
        let audit = self.audit();
        for (target, end) in ends {
            let mut of = audit.iter().filter(|entry| entry.target == *target);
            let expired = of.by_ref().find(|entry| entry.kind == "expired");
            assert!(expired.is_some(), "{target}: nothing has expired in {audit:#?}");
            let granted = of.find(|entry| entry.kind == "granted").unwrap();
            let at = i64::try_from(granted.unix_ms).unwrap();
            assert!(at >= *end, "{target} was to stay until {end}: {granted:?}");
        }
    }

    /// Checks that all polls from line `seen` on have newer epochs than `fences`.
    #[track_caller]
    pub fn newer_than(&self, fences: &BTreeMap<String, u64>, seen: usize) {
        for line in &self.history()[seen..] {
            let (new, old): (u64, u64) = (line.epoch.parse().unwrap(), fences[&line.target]);
            assert!(new > old, "{line:?} after epoch {old}");
        }
    }

    /// Returns the ends of these leases.
    pub fn ends(&self, targets: &[String]) -> BTreeMap<String, i64> {
        let end = |target: &String| {
            let end = self.ends_at(target);
            assert!(end > 0, "{target} has no lease");
            (target.clone(), end)
        };
        targets.iter().map(end).collect()
    }
}

impl Instance {
    /// Kills the process.
    pub fn crash(&mut self) {
        self.running.signal(Signal::KILL);
        self.running.wait();
    }

    /// Stops the process gracefully.
    pub fn stop(self) {
        self.running.signal(Signal::TERM);
        self.running.exits(0);
    }
}

/// Returns the beginnings of a target's polls.
pub fn polls_of<'a>(lines: &'a [Line], target: &'a str) -> impl Iterator<Item = &'a Line> {
    lines.iter().filter(move |line| line.began && line.target == target)
}

/// Returns the maximum number of polls of a target during a takeover: those of a TTL, and of the
/// time to notice and begin, times three for slow machines.
pub fn beats_of_a_takeover() -> usize {
    let notice = Duration::from_secs(2) + every();
    let beats = (ttl() + notice).as_millis() / every().as_millis();
    usize::try_from(beats).unwrap() * 3
}
