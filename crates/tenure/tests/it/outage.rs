//! Unreachable stores and blocked processes: whether a member may still act.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use tenure::{Change, HoldLost, MembershipEvent, Ttl};
use testkit::Proxy;

use super::player::*;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the URL of the server through a proxy that can be cut, and the proxy.
pub fn through(url: &str) -> (String, Proxy) {
    let (start, rest) = url.rsplit_once(':').unwrap();
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let proxy = Proxy::start(rest[..digits].parse().unwrap()).unwrap();
    (format!("{start}:{}{}", proxy.port(), &rest[digits..]), proxy)
}

#[tokio::test]
async fn who_loses_its_store_stops_before_anybody_else_is_granted_the_duty() {
    let mut running = tokio::task::JoinSet::new();
    for server in servers() {
        running.spawn(async move {
            let group = group();
            let (url, proxy) = through(&server);
            let witness = Witness::new();
            let join_first = join(&Place::at(&url), &group, standby()).observer(witness.clone());
            let mut first = join_first.start().await.unwrap();
            let guard = assigned(&mut first).await;
            let mut second = join(&Place::at(&server), &group, standby()).start().await.unwrap();
            next(&mut second, "standby", |event| match event {
                MembershipEvent::Standby { .. } => Some(()),
                _ => None,
            })
            .await;
            let before = witness.count();
            proxy.cut();

            // The second member gets the duty when the TTL is over: by then the guard is lost.
            let taken = assigned(&mut second).await;
            assert!(guard.check().is_err(), "{server}: two may act");
            assert!(taken.epoch() > guard.epoch());
            let why = next(&mut first, "the loss", |event| match event {
                MembershipEvent::Revoked { why, hold } => Some((why, hold.epoch)),
                _ => None,
            });
            assert_eq!(why.await, ("deadline", guard.epoch()), "{server}");
            assert_eq!(guard.check(), Err(HoldLost::Revoked));
            let epoch = guard.epoch();
            drop(guard);

            // The store is back: the first member continues by itself.
            proxy.restore().unwrap();
            witness.saw(Change::Joined, before).await;
            drop(taken);
            second.leave().await.unwrap();
            assert!(assigned(&mut first).await.epoch() > epoch, "{server}");
            first.leave().await.unwrap();
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}

/// R7: the machine slept for a part of the TTL, and the store is unreachable.
#[tokio::test]
async fn after_a_pause_nothing_is_allowed_before_the_store_has_confirmed() {
    for server in servers() {
        let (url, proxy) = through(&server);
        let (clock, ttl) = (Arc::new(Dial::default()), Ttl::new(30 * SECOND).unwrap());
        let join = join_by(clock.clone(), &Place::at(&url), &group(), ttl, standby());
        let mut membership = join.start().await.unwrap();
        let guard = assigned(&mut membership).await;
        proxy.cut();
        clock.advance(10 * SECOND);
        let mut changes = guard.changes();
        soon("the suspension", changes.wait_for(|standing| standing.suspended)).await.unwrap();
        assert_eq!(guard.check(), Err(HoldLost::Unconfirmed), "{server}");
        proxy.restore().unwrap();
        soon("a confirmation", guard.confirmed()).await.unwrap();
        assert!(guard.check().is_ok(), "{server}");
        drop(guard);
        membership.leave().await.unwrap();
    }
}

/// R7: the user's only thread is blocked for longer than the TTL.
#[test]
fn a_blocked_runtime_does_not_lose_the_hold() {
    for place in places() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let witness = Witness::new();
            let join = join(&place, &group(), standby()).observer(witness.clone());
            let mut membership = join.start().await.unwrap();
            let guard = assigned(&mut membership).await;
            let (sender, renewals) = mpsc::channel();
            *witness.renewals.lock().unwrap() = Some(sender);
            // A renewal takes a third of the TTL, less up to a fifth: five exceed the TTL.
            for _ in 0..5 {
                renewals.recv_timeout(PATIENCE).unwrap();
            }
            assert!(guard.check().is_ok(), "{}", place.name);
            let revoked = witness.records.lock().unwrap().iter().any(|record| {
                matches!(record.change, Change::Revoked | Change::Expired | Change::Suspended)
            });
            assert!(!revoked, "{}: {:?}", place.name, witness.records);
            drop(guard);
            membership.leave().await.unwrap();
        });
    }
}
