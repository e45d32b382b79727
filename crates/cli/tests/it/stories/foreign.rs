//! Foreign implementation of the design, which shares only the Redis keys with Tenure.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use redis::{Connection, Script};
use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;

use super::stage::{Stage, scaled, ttl};

const RENEW: &str = "if redis.call('get', KEYS[1]) == ARGV[1] \
    then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] \
    then return redis.call('del', KEYS[1]) else return 0 end";

/// Time for which a free target is left to its preferred owner: the scan interval of the design. It
/// is not scaled, because Tenure's look interval is not either.
const FALLBACK: Duration = Duration::from_secs(5);

/// FNV-1a over the concatenated names.
fn weight(node: &str, target: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    node.bytes().chain(target.bytes()).fold(0xcbf2_9ce4_8422_2325, step)
}

/// Returns the node with the highest weight.
fn preferred<'a>(nodes: &'a BTreeSet<String>, target: &str) -> Option<&'a String> {
    nodes.iter().max_by_key(|node| weight(node, target))
}

/// A process of the foreign implementation: a thread that uses Redis and polls.
struct Foreign {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

/// State of the foreign process.
struct Node {
    id: String,
    redis: Connection,
    polls: PathBuf,
    /// Leased targets, with the number of the lease and the end of polling.
    owned: BTreeMap<String, (u32, LocalInstant)>,
    /// Targets without a lease, with the time at which that was first seen.
    free: BTreeMap<String, LocalInstant>,
    leases: u32,
}

impl Foreign {
    fn start(stage: &Stage, id: &str) -> Self {
        let (id, polls) = (id.to_owned(), stage.tenure.path("polls"));
        let redis = stage.connect();
        let (owned, free) = (BTreeMap::new(), BTreeMap::new());
        let mut node = Node { id, redis, polls, owned, free, leases: 0 };
        let (end, ended) = channel();
        let thread = spawn(move || node.run(&ended));
        Self { end, thread }
    }

    /// Ends without releasing anything.
    fn crash(self) {
        drop(self.end);
        self.thread.join().unwrap();
    }
}

impl Node {
    fn run(&mut self, ended: &Receiver<()>) {
        let mut renew_at = BootClock.now();
        loop {
            let nodes = self.keys("poll:node:");
            if BootClock.now() >= renew_at {
                renew_at = BootClock.now().plus(scaled(10));
                self.renew(&nodes);
            }
            self.acquire(&nodes);
            self.poll();
            if ended.recv_timeout(scaled(4)) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    fn keys(&mut self, prefix: &str) -> BTreeSet<String> {
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(format!("{prefix}*")).query(&mut self.redis).unwrap();
        keys.iter().map(|key| key[prefix.len()..].to_owned()).collect()
    }

    /// Renews its node key and its leases; releases targets that prefer other nodes.
    fn renew(&mut self, nodes: &BTreeSet<String>) {
        let mut beat = redis::cmd("SET");
        beat.arg(format!("poll:node:{}", self.id)).arg("1").arg("PX").arg(ttl().as_millis() as u64);
        let () = beat.query(&mut self.redis).unwrap();
        for target in self.owned.keys().cloned().collect::<Vec<_>>() {
            let owner = preferred(nodes, &target);
            let mine = owner.is_none_or(|owner| *owner == self.id);
            let until = BootClock.now().plus(ttl() * 8 / 10);
            let script = Script::new(if mine { RENEW } else { RELEASE });
            let mut call = script.key(format!("poll:lease:{target}"));
            call.arg(&self.id).arg(ttl().as_millis() as u64);
            let done: i64 = call.invoke(&mut self.redis).unwrap();
            match self.owned.get_mut(&target).filter(|_| mine && done == 1) {
                Some(lease) => lease.1 = until,
                None => drop(self.owned.remove(&target)),
            }
        }
    }

    /// Leases free targets that prefer this node, or that were free for the fallback time.
    fn acquire(&mut self, nodes: &BTreeSet<String>) {
        let leased = self.keys("poll:lease:");
        self.free.retain(|target, _| !leased.contains(target));
        for target in self.keys("session:").difference(&leased) {
            let since = *self.free.entry(target.clone()).or_insert_with(|| BootClock.now());
            let mine = preferred(nodes, target).is_none_or(|owner| *owner == self.id);
            if !mine && BootClock.now() < since.plus(FALLBACK) {
                continue;
            }
            let until = BootClock.now().plus(ttl() * 8 / 10);
            let mut set = redis::cmd("SET");
            set.arg(format!("poll:lease:{target}")).arg(&self.id);
            set.arg("NX").arg("PX").arg(ttl().as_millis() as u64);
            if set.query::<Option<String>>(&mut self.redis).unwrap().is_some() {
                self.leases += 1;
                self.owned.insert(target.clone(), (self.leases, until));
            }
        }
    }

    fn poll(&self) {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.polls).unwrap();
        for (target, (lease, until)) in &self.owned {
            let rest = format!("{target} lease-{lease} {}", self.id);
            if BootClock.now() < *until {
                file.write_all(format!("began {rest}\nended {rest}\n").as_bytes()).unwrap();
            }
        }
    }
}

/// Creates sessions until each node is preferred by `each` of them.
fn sessions_for(stage: &Stage, nodes: &BTreeSet<String>, each: usize) -> Vec<String> {
    let mut made: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    while nodes.iter().any(|node| made.get(node).is_none_or(|made| made.len() < each)) {
        let id = uuid::Uuid::new_v4().to_string();
        let of = made.entry(preferred(nodes, &id).unwrap()).or_default();
        if of.len() < each {
            stage.set_session(&id, false);
            of.push(id);
        }
    }
    made.into_values().flatten().collect()
}

#[test]
fn foreign_members_and_tenure_share_a_group() {
    // Test vector of the design.
    assert_eq!(weight("node-a", "s-1"), 0x129d_df0f_53e2_abd2);
    let Some(stage) = Stage::open(3) else { return };
    // Both implementations use the same key for this lease.
    stage.set_session("eu/plant@7(a)", false);
    let first = stage.sessions();
    let foreign = Foreign::start(&stage, "foreign-1");
    stage.polled(&first, 1, 0);
    // Targets stay leased until the foreign member releases those that prefer the new one.
    let a = stage.start("a");
    let two = [a.id.clone(), "foreign-1".to_owned()].into();
    stage.until("two members", || stage.after("poll:node:").len() == 2);
    let first = [first, sessions_for(&stage, &two, 6)].concat();
    let placed = |members: &BTreeSet<String>, sessions: &[String]| {
        stage.until("each target is with whom the design prefers", || {
            let leases = stage.leases();
            sessions.iter().all(|target| leases.get(target) == preferred(members, target))
        });
    };
    placed(&two, &first);
    // Both implementations release the targets that prefer the third member.
    let b = stage.start("b");
    let members = [a.id.clone(), b.id.clone(), "foreign-1".to_owned()].into();
    stage.until("three members", || stage.after("poll:node:").len() == 3);
    let sessions = [first, sessions_for(&stage, &members, 3)].concat();
    placed(&members, &sessions);

    // Without changes of membership, nothing moves.
    let (fences, leases, seen) = (stage.fences(), stage.leases(), stage.history().len());
    let theirs: Vec<_> = leases.iter().filter(|(_, holder)| *holder == "foreign-1").collect();
    let theirs: Vec<String> = theirs.into_iter().map(|(target, _)| target.clone()).collect();
    assert!(theirs.len() >= 3, "{leases:#?}");
    for _ in 0..6 {
        stage.renewals(&theirs[0], 1);
        assert_eq!(stage.leases(), leases);
    }
    stage.polled(&sessions, 2, seen);
    stage.polled_by_holders(seen);
    assert_eq!(stage.fences(), fences);

    // `tenure ls` marks the foreign member.
    let listed = stage.tenure.run(&["ls", "poll", "--json", "--store", &stage.redis.url()]).json();
    let group = &listed["groups"][0];
    let seen_as = |instance: &str| {
        let members = group["members"].as_array().unwrap();
        members.iter().find(|member| member["instance"] == instance).unwrap()["foreign"] == true
    };
    assert_eq!([&*a.id, &b.id, "foreign-1"].map(seen_as), [false, false, true]);
    for duty in group["duties"].as_array().unwrap() {
        assert_eq!(duty["epoch"].is_null(), duty["holder"] == "foreign-1", "{duty}");
    }

    // After it dies, its targets are taken over, but not before its leases end.
    foreign.crash();
    let (ends, seen) = (stage.ends(&theirs), stage.history().len());
    stage.taken_over(&theirs, "foreign-1", seen);
    let audit = stage.audit();
    for (target, end) in ends {
        let mut of = audit.iter().rev().filter(|e| e.kind == "granted" && e.target == target);
        let granted = of.next().unwrap();
        assert!(i64::try_from(granted.unix_ms).unwrap() >= end, "{end}: {granted:?}");
    }
    stage.each_alone();
}
