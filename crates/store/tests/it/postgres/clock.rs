//! The server's wall clock is stepped by an hour.

use std::time::Duration;

use tenure_core::store::{Claimed, Committed, KeptAlive};
use testkit::{PostgresOptions, PostgresServer};

use super::Place;
use crate::player::{LONG, Player, or_hang};

const HOUR: i64 = 3600;

fn faked() -> PostgresServer {
    let options = PostgresOptions { faked_clock: true, ..PostgresOptions::default() };
    PostgresServer::start(options).unwrap()
}

/// Forward: everything expires at once. The old holder is fenced, the epoch grows, and stepping
/// back again revives no session.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_forward_ends_holds_for_good() {
    let server = faked();
    let place = Place::on(server.url());
    let store = place.open().await;
    let a = Player::join(&store, "a", Duration::from_secs(600)).await;
    let hold = a.hold("d").await;
    server.step_clock(HOUR).unwrap();
    let b = Player::join(&store, "b", Duration::from_secs(600)).await;
    let taken = b.hold("d").await;
    assert!(taken.epoch > hold.epoch);
    server.step_clock(-HOUR).unwrap();
    assert_eq!(a.keep_alive(std::slice::from_ref(&hold)).await, KeptAlive::Ended);
    let late = a.commit(&hold, 0, "zombie").await;
    assert_eq!(late, Committed::Fenced { newest: taken.epoch });
    assert!(matches!(b.commit(&taken, 0, "fine").await, Committed::Saved(_)));
}

/// Back: a dead holder blocks its duty only for its TTL, not for the whole hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_back_does_not_stretch_a_ttl() {
    let server = faked();
    let place = Place::on(server.url());
    let store = place.open().await;
    let dead = Player::join(&store, "dead", Duration::from_millis(1_000)).await;
    let hold = dead.hold("d").await;
    server.step_clock(-HOUR).unwrap();
    let b = Player::join(&store, "b", LONG).await;
    let first = b.claim("d").await;
    if let Claimed::HeldBy(by) = &first {
        assert!(by.as_ref().unwrap().remaining <= Duration::from_millis(1_000), "{first:?}");
        let taken = or_hang(b.claim_until_granted("d")).await;
        assert!(taken.epoch > hold.epoch);
    }
}
