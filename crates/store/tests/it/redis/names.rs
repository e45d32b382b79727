//! Unescaped ids in the keys of the group that foreign instances may share. A duty that an older
//! version leases under an escaped name is not granted again meanwhile.

use tenure_core::store::{Claimed, Evict, Evicted, Forgotten, HoldFate, KeptAlive, Released};
use tenure_core::{DutyKey, Hold, Session, Store};

use super::kit::{
    claim, commit, duty, group, hold, is_kept, join, keep, keys, number, open, reason, release,
    server,
};
use super::poll_lease::{Foreign, get, is_held_by};

const ODD: [&str; 7] = ["a/b", "a b", "größe", "100%", "{tag}:x", "*[?]", "https://h/p?q=1&r=%2F"];

/// Two instances that follow the published layout use the same key, so only one gets it.
#[tokio::test]
async fn a_lease_has_the_id_as_it_is() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let mut foreign = Foreign::new(&server, "foreign-1").await;
    for id in ODD {
        let held = hold(&store, &a, id).await;
        assert_eq!(get(&server, &format!("poll:lease:{id}")), a.instance.as_str());
        assert!(!foreign.acquire(id).await, "{id} has two holders");
        assert!(is_kept(&keep(&store, &a, &held).await));
        assert!(commit(&store, &a, &held, 0).await.is_ok());
        assert_eq!(release(&store, &a, &held).await, Released::Freed);
        assert!(foreign.acquire(id).await);
        assert!(is_held_by(&claim(&store, &a, id).await, "foreign-1"), "{id}");
        assert!(store.load(&[duty(id)]).await.unwrap()[0].is_some());
    }
    let holders = store.holders(&group()).await.unwrap();
    let mut ids: Vec<_> = holders.iter().map(|of| (of.duty.id.as_str(), of.epoch)).collect();
    ids.sort_unstable();
    let mut expected = ODD.map(|id| (id, None));
    expected.sort_unstable();
    assert_eq!(ids, expected);
    let leases = keys(&server).iter().filter(|key| key.starts_with("poll:lease:")).count();
    assert_eq!(leases, ODD.len());
}

/// The keys of other groups are not shared: their ids stay escaped.
#[tokio::test]
async fn other_groups_escape_their_ids() {
    let server = server();
    let store = open(&server).await;
    let mut wish = super::kit::wish("a");
    wish.group = tenure_core::GroupName::new("other").unwrap();
    let session = super::kit::join_as(&store, &wish).await;
    let want = tenure_core::store::ClaimRequest::new(DutyKey::new("other", "a/b").unwrap());
    store.claim(&session, &[want], &reason()).await.unwrap();
    assert_eq!(get(&server, "other:lease:a%2Fb"), wish.instance.as_str());
    assert_eq!(number(&server, &["hget", "tenure:store", "breaking"]), 0);
}

/// Creates a member as an older version would.
async fn older_in(server: &testkit::RedisServer, store: &dyn Store, group: &str) -> Session {
    let mut wish = super::kit::wish("older");
    wish.group = tenure_core::GroupName::new(group).unwrap();
    let session = super::kit::join_as(store, &wish).await;
    server.cli(&["hdel", &format!("{group}:session:{}", session.instance), "plain"]).unwrap();
    session
}

fn get_field(server: &testkit::RedisServer, field: &str) -> String {
    server.cli(&["hget", "tenure:store", field]).unwrap().trim().to_owned()
}

/// Writes what an older version writes when it claims; `false` if its key exists.
fn claim_as_older(
    server: &testkit::RedisServer,
    session: &Session,
    escaped: &str,
    epoch: u64,
) -> bool {
    let lease = format!("poll:lease:{escaped}");
    let taken = ["set", &lease, session.instance.as_str(), "nx", "px", "60000"];
    if server.cli(&taken).unwrap().trim() != "OK" {
        return false;
    }
    let grant = format!("{} held {}", session.nonce, session.instance);
    server.cli(&["hset", "poll:grants", escaped, &grant]).unwrap();
    server.cli(&["set", &format!("poll:fence:{escaped}"), &epoch.to_string()]).unwrap();
    true
}

fn granted(claimed: Claimed) -> Hold {
    match claimed {
        Claimed::Granted(hold) => hold,
        other => panic!("not granted but {other:?}"),
    }
}

/// Two versions are members at the same time, as in every rolling upgrade.
#[tokio::test]
async fn an_older_member_and_a_newer_one_never_hold_the_same() {
    let server = server();
    let store = open(&server).await;
    let old = older_in(&server, &store, "poll").await;
    let new = join(&store, "new").await;
    let far = hold(&store, &new, "other").await.epoch.get() + 1_000_000_000;
    assert!(claim_as_older(&server, &old, "a%2Fb", far));
    assert!(is_held_by(&claim(&store, &new, "a/b").await, old.instance.as_str()));
    let holders = store.holders(&group()).await.unwrap();
    let of = holders.iter().find(|of| of.duty == duty("a/b")).unwrap();
    assert_eq!(of.epoch.unwrap().get(), far);
    assert_eq!(of.holder.as_ref().unwrap().instance, old.instance);
    assert_eq!(holders.len(), 2, "{holders:?}");
    let forgotten = store.forget(&[duty("a/b")], &reason()).await.unwrap();
    assert!(matches!(&forgotten[0], Forgotten::HeldBy(Some(now)) if now.instance == old.instance));

    // The older member's lease ends. Epochs continue, and it cannot claim what the newer one holds.
    server.cli(&["del", "poll:lease:a%2Fb"]).unwrap();
    let held = granted(claim(&store, &new, "a/b").await);
    assert_eq!(held.epoch.get(), far + 1);
    assert!(!claim_as_older(&server, &old, "a%2Fb", far + 9));
    for key in ["poll:lease:a/b", "poll:lease:a%2Fb"] {
        server.cli(&["pexpire", key, "5000"]).unwrap();
    }
    assert!(is_kept(&keep(&store, &new, &held).await));
    for key in ["poll:lease:a/b", "poll:lease:a%2Fb"] {
        assert!(number(&server, &["pttl", key]) > 5_000, "{key} was not extended");
    }
    assert_eq!(release(&store, &new, &held).await, Released::Freed);
    assert_eq!(number(&server, &["exists", "poll:lease:a/b", "poll:lease:a%2Fb"]), 0);
    assert_eq!(number(&server, &["hget", "tenure:store", "breaking"]), 0);

    // Evicted by a newer one, it holds nothing under either name.
    assert!(claim_as_older(&server, &old, "a%2Fb", far + 9));
    let evicted = store.evict(&group(), &old.instance, Evict::Now, &reason()).await.unwrap();
    assert_eq!(evicted, Evicted::Evicted { ended: 1 });
    assert_eq!(number(&server, &["exists", "poll:lease:a%2Fb"]), 0);

    // A member of another group may join this group later with its open handle.
    let elsewhere = older_in(&server, &store, "other").await;
    let held = granted(claim(&store, &new, "a/b").await);
    assert!(!claim_as_older(&server, &elsewhere, "a%2Fb", far + 19));
    assert_eq!(release(&store, &new, &held).await, Released::Freed);
    store.close_session(&elsewhere, &reason()).await.unwrap();

    // Without older members, the escaped names are gone, and no older version can write: the
    // incarnation that its scripts compare has changed. Newer members continue.
    let known = || get_field(&server, "incarnation");
    let before = known();
    let held = granted(claim(&store, &new, "a/b").await);
    assert!(held.epoch.get() > far + 9);
    assert_eq!(number(&server, &["exists", "poll:lease:a%2Fb"]), 0);
    assert_eq!(get_field(&server, "breaking"), "3");
    assert_ne!(known(), before);
    assert!(is_kept(&keep(&store, &new, &held).await));
    assert!(is_kept(&keep(&open(&server).await, &new, &held).await));
    // A write of an older version that still gets through is detected.
    assert!(claim_as_older(&server, &old, "a%2Fb", far + 99));
    let kept = keep(&store, &new, &held).await;
    assert!(matches!(kept, KeptAlive::Kept { holds, .. } if holds == [HoldFate::Lost]));
}

/// `a%2Fb` is a valid id, and its key is the one that an older version uses for `a/b`.
#[tokio::test]
async fn an_id_that_looks_escaped_has_a_lease_of_its_own() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let mut foreign = Foreign::new(&server, "foreign-1").await;
    let (slash, percent) = (hold(&store, &a, "a/b").await, hold(&store, &a, "a%2Fb").await);
    assert_eq!(release(&store, &a, &slash).await, Released::Freed);
    assert!(is_kept(&keep(&store, &a, &percent).await));
    assert!(!foreign.acquire("a%2Fb").await);
    assert_eq!(release(&store, &a, &percent).await, Released::Freed);
    assert!(foreign.acquire("a%2Fb").await);
    hold(&store, &a, "a/b").await;
}
