//! The keys of the poll lease layout, shared with instances that know nothing else: plain
//! `SET ... NX PX` to acquire, a comparing script to renew and to release.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tenure_core::store::{Claimed, HoldFate, KeptAlive, Released};
use tenure_core::{Store, Ttl};

use super::kit::{
    claim, commit, group, hold, is_fenced, is_kept, join, join_as, keep, number, open, release,
    server, wish,
};

pub fn is_held_by(claimed: &Claimed, instance: &str) -> bool {
    matches!(claimed, Claimed::HeldBy(Some(now)) if now.instance.as_str() == instance)
}

const RENEW: &str = "if redis.call('get',KEYS[1])==ARGV[1] \
    then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";
const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] \
    then return redis.call('del',KEYS[1]) else return 0 end";

/// Another implementation of the poll lease layout.
#[derive(Clone)]
pub struct Foreign {
    raw: MultiplexedConnection,
    id: String,
}

impl Foreign {
    pub async fn new(server: &testkit::RedisServer, id: &str) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let raw = client.get_multiplexed_async_connection().await.unwrap();
        let id = id.to_owned();
        Self { raw, id }
    }

    async fn heartbeat(&mut self) {
        let key = format!("poll:node:{}", self.id);
        let mut set = redis::cmd("SET");
        set.arg(key).arg("1").arg("PX").arg(30_000);
        let () = set.query_async(&mut self.raw).await.unwrap();
    }

    pub async fn acquire(&mut self, endpoint: &str) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(format!("poll:lease:{endpoint}")).arg(&self.id);
        set.arg("NX").arg("PX").arg(30_000);
        let set: Option<String> = set.query_async(&mut self.raw).await.unwrap();
        set.is_some()
    }

    async fn run(&mut self, script: &str, endpoint: &str) -> bool {
        let script = redis::Script::new(script);
        let mut call = script.key(format!("poll:lease:{endpoint}"));
        call.arg(&self.id).arg(30_000);
        let done: i64 = call.invoke_async(&mut self.raw).await.unwrap();
        done == 1
    }
}

pub fn get(server: &testkit::RedisServer, key: &str) -> String {
    server.cli(&["get", key]).unwrap().trim().to_owned()
}

#[tokio::test]
async fn names_and_values_are_exactly_those_of_the_spec() {
    let server = server();
    let store = open(&server).await;
    let mut wish = wish("api-7fd8c9");
    wish.ttl = Ttl::new(Duration::from_secs(30)).unwrap();
    let session = join_as(&store, &wish).await;
    let held = hold(&store, &session, "telegram:bot@1").await;
    let (lease, id) = ("poll:lease:telegram:bot@1", wish.instance.as_str());
    let node = format!("poll:node:{id}");
    assert_eq!(get(&server, lease), id);
    assert_eq!(get(&server, &node), "1");
    for key in [lease, &node] {
        assert!((1..=30_000).contains(&number(&server, &["pttl", key])), "{key}");
    }
    let fence = get(&server, "poll:fence:telegram:bot@1");
    assert_eq!(fence, held.epoch.to_string());
    // Keys and values have the ids unescaped, whatever they contain.
    let mut odd = super::kit::wish("x");
    odd.instance = tenure_core::InstanceId::new("a b/ü").unwrap();
    let session = join_as(&store, &odd).await;
    hold(&store, &session, "b").await;
    assert_eq!(get(&server, "poll:lease:b"), "a b/ü");
    assert_eq!(get(&server, "poll:node:a b/ü"), "1");
}

#[tokio::test]
async fn a_foreign_holder_is_seen_and_left_alone() {
    let server = server();
    let mut foreign = Foreign::new(&server, "foreign-1").await;
    foreign.heartbeat().await;
    assert!(foreign.acquire("x").await);
    // A key that is not a valid duty id belongs to others, and blocks nothing.
    assert!(foreign.acquire("z\u{1b}[31m").await);
    let store = open(&server).await;
    let a = join(&store, "a").await;
    assert!(is_held_by(&claim(&store, &a, "x").await, "foreign-1"));
    let members = store.members(&group()).await.unwrap();
    let seen: Vec<_> = members.iter().map(|m| (m.instance.as_str(), m.nonce)).collect();
    assert_eq!(seen, [(a.instance.as_str(), Some(a.nonce)), ("foreign-1", None)]);
    assert!(members[1].remaining <= Duration::from_secs(30));
    let holders = store.holders(&group()).await.unwrap();
    assert_eq!((holders.len(), holders[0].epoch), (1, None));
    let now = holders[0].holder.as_ref().unwrap();
    assert_eq!(now.instance.as_str(), "foreign-1");
    assert!(foreign.run(RELEASE, "x").await);
    hold(&store, &a, "x").await;
}

/// The keys are scanned every 10 s. Until then, a refused claim makes the lease known, so that a
/// held duty does not look free and is not claimed again and again.
#[tokio::test]
async fn a_refused_claim_makes_a_lease_known() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    assert_eq!(store.holders(&group()).await.unwrap(), []);
    assert!(Foreign::new(&server, "foreign-1").await.acquire("x/y").await);
    assert_eq!(store.holders(&group()).await.unwrap(), []);
    assert!(is_held_by(&claim(&store, &a, "x/y").await, "foreign-1"));
    let holders = store.holders(&group()).await.unwrap();
    assert_eq!((holders.len(), holders[0].duty.id.as_str()), (1, "x/y"));
}

/// No instance may take the name of a live foreign instance.
#[tokio::test]
async fn the_name_of_a_foreign_member_is_taken() {
    let server = server();
    Foreign::new(&server, "foreign-1").await.heartbeat().await;
    let store = open(&server).await;
    let mut same = wish("x");
    same.instance = tenure_core::InstanceId::new("foreign-1").unwrap();
    let opened = store.open_session(&same).await.unwrap();
    assert_eq!(opened, tenure_core::store::Opened::Taken);
}

#[tokio::test]
async fn neither_side_can_touch_the_other_s_lease() {
    let server = server();
    let mut foreign = Foreign::new(&server, "foreign-1").await;
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let held = hold(&store, &a, "x").await;
    assert!(!foreign.acquire("x").await);
    assert!(!foreign.run(RENEW, "x").await);
    assert!(!foreign.run(RELEASE, "x").await);
    assert!(is_kept(&keep(&store, &a, &held).await));
    // Our lease expires, and the foreign instance acquires it first.
    server.cli(&["del", "poll:lease:x"]).unwrap();
    assert!(foreign.acquire("x").await);
    let before = number(&server, &["pexpiretime", "poll:lease:x"]);
    let kept = keep(&store, &a, &held).await;
    assert!(matches!(kept, KeptAlive::Kept { holds, .. } if holds == [HoldFate::Lost]));
    assert!(is_fenced(&commit(&store, &a, &held, 0).await));
    assert_eq!(release(&store, &a, &held).await, Released::NotYours);
    assert!(is_held_by(&claim(&store, &a, "x").await, "foreign-1"));
    let holders = store.holders(&group()).await.unwrap();
    assert_eq!(holders[0].epoch, None);
    store.close_session(&a, &super::kit::reason()).await.unwrap();
    assert_eq!(get(&server, "poll:lease:x"), "foreign-1");
    assert_eq!(number(&server, &["pexpiretime", "poll:lease:x"]), before);
    assert!(foreign.run(RENEW, "x").await);
}

/// Instances inside the sections guarded by leases, by endpoint.
type Inside = Arc<Mutex<BTreeMap<String, String>>>;

/// Enters, lets other tasks run, and leaves; fails if two are inside.
async fn guarded(inside: &Inside, endpoint: &str, me: &str) {
    let before = inside.lock().unwrap().insert(endpoint.to_owned(), me.to_owned());
    assert_eq!(before, None, "{me} and another poll {endpoint}");
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let mine = inside.lock().unwrap().remove(endpoint);
    assert_eq!(mine.as_deref(), Some(me));
}

const ROUNDS: usize = 60;

fn endpoints(shift: usize) -> Vec<String> {
    let mut all: Vec<_> = (0..10).map(|n| format!("endpoint-{n}")).collect();
    all.rotate_left(shift % 10);
    all
}

/// Two Tenure instances and two foreign ones compete for ten endpoints.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_never_has_two_pollers() {
    let server = server();
    let inside = Inside::default();
    let mut players = tokio::task::JoinSet::new();
    for player in 0..2 {
        let (store, guard) = (open(&server).await, inside.clone());
        players.spawn(async move {
            let session = join(&store, "ours").await;
            let mut won = 0;
            for round in 0..ROUNDS {
                for endpoint in endpoints(player * 3 + round) {
                    let Claimed::Granted(held) = claim(&store, &session, &endpoint).await else {
                        continue;
                    };
                    guarded(&guard, &endpoint, session.instance.as_str()).await;
                    assert!(is_kept(&keep(&store, &session, &held).await));
                    assert_eq!(release(&store, &session, &held).await, Released::Freed);
                    won += 1;
                }
            }
            won
        });
        let id = format!("foreign-{player}");
        let (mut foreign, inside) = (Foreign::new(&server, &id).await, inside.clone());
        players.spawn(async move {
            let mut won = 0;
            for round in 0..ROUNDS {
                for endpoint in endpoints(player * 7 + round) {
                    if foreign.acquire(&endpoint).await {
                        guarded(&inside, &endpoint, &foreign.id).await;
                        assert!(foreign.run(RENEW, &endpoint).await);
                        assert!(foreign.run(RELEASE, &endpoint).await);
                        won += 1;
                    }
                }
            }
            won
        });
    }
    let won: Vec<usize> = players.join_all().await;
    assert!(won.iter().all(|won| *won > 0), "{won:?}");
}
