//! The server's wall clock jumps (R4): it judges expiry, so it decides, but not for hours.

use std::time::Duration;

use tenure_core::store::KeptAlive;
use tenure_core::{Store, Ttl};
use testkit::RedisOptions;

use super::kit::{claim, commit, hold, is_fenced, join, join_as, keep, number, open, wish};
use super::poll_lease::is_held_by;

fn server() -> testkit::RedisServer {
    let options = RedisOptions { faked_clock: true, ..RedisOptions::default() };
    testkit::RedisServer::start(options).unwrap()
}

fn minute() -> Ttl {
    Ttl::new(Duration::from_secs(60)).unwrap()
}

#[tokio::test]
async fn a_clock_an_hour_ahead_ends_holds_and_fences_the_holder() {
    let server = server();
    let store = open(&server).await;
    let mut wish = wish("a");
    wish.ttl = minute();
    let a = join_as(&store, &wish).await;
    let held = hold(&store, &a, "x").await;
    server.step_clock(3600).unwrap();
    assert_eq!(keep(&store, &a, &held).await, KeptAlive::Ended);
    let b = join(&store, "b").await;
    assert!(hold(&store, &b, "x").await.epoch > held.epoch);
    assert!(is_fenced(&commit(&store, &a, &held, 0).await));
}

/// Without a bound a dead holder would block its duty, and remain a member, for the whole hour.
#[tokio::test]
async fn a_clock_an_hour_back_blocks_a_duty_for_no_more_than_a_ttl() {
    let server = server();
    let store = open(&server).await;
    let mut wish = wish("a");
    wish.ttl = minute();
    let dead = join_as(&store, &wish).await;
    hold(&store, &dead, "x").await;
    let b = join(&store, "b").await;
    server.step_clock(-3600).unwrap();
    assert!(number(&server, &["pttl", "poll:lease:x"]) > 3_000_000);
    assert!(is_held_by(&claim(&store, &b, "x").await, dead.instance.as_str()));
    assert!(number(&server, &["pttl", "poll:lease:x"]) <= 60_000);
    let members = store.members(&dead.group).await.unwrap();
    assert_eq!(members.len(), 2);
    assert!(members[0].remaining <= minute().get());
    for kind in ["node", "session"] {
        let key = format!("poll:{kind}:{}", dead.instance.escaped());
        assert!(number(&server, &["pttl", &key]) <= 60_000, "{key}");
    }
    server.step_clock(61).unwrap();
    hold(&store, &b, "x").await;
}

/// A lease lives as long as its session, so that both end together.
#[tokio::test]
async fn a_lease_ends_with_its_session() {
    let server = server();
    let store = open(&server).await;
    let mut wish = wish("a");
    wish.ttl = minute();
    let a = join_as(&store, &wish).await;
    server.step_clock(40).unwrap();
    hold(&store, &a, "late").await;
    let b = join(&store, "b").await;
    server.step_clock(25).unwrap();
    hold(&store, &b, "late").await;
}
