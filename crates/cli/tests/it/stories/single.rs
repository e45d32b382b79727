//! Story 3: one poller at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use tenure_core::store::{ClaimRequest, Claimed};
use tenure_core::{DutyKey, Reason};

use super::stage::{Stage, every, polls_of};
use crate::tenure::{join, with_store};

#[test]
fn us3_1_five_instances_at_once_poll_each_of_ten_once() {
    let Some(stage) = Stage::open(10) else { return };
    let [a, b, c, d, e] = stage.start_all(["a", "b", "c", "d", "e"]);
    let sessions = stage.sessions();
    stage.polled(&sessions, 2, 0);
    stage.shared(&[&a, &b, &c, &d, &e], vec![2; 5]);
    let seen = stage.history().len();
    stage.polled(&sessions, 2, seen);
    stage.polled_by_holders(seen);
    stage.each_alone();
    // In Redis, too, each epoch of a target belongs to one instance.
    let mut holders: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for entry in stage.audit().into_iter().filter(|entry| entry.kind == "granted") {
        holders.entry((entry.target, entry.epoch)).or_default().insert(entry.instance);
    }
    assert!(holders.values().all(|instances| instances.len() == 1), "{holders:#?}");
}

#[test]
fn us3_2_who_tries_for_a_held_lease_fails() {
    let Some(stage) = Stage::open(1) else { return };
    let (target, a) = (stage.sessions().remove(0), stage.start("a"));
    stage.polled(slice::from_ref(&target), 1, 0);
    let fences = stage.fences();
    // Another instance, a direct claim, and the Redis command of the design all fail.
    let b = stage.start("b");
    stage.said(&b, r#""event":"standby""#);
    let claimed = with_store(&stage.redis.url(), async |store| {
        let (session, why) = (join(&*store, "poll", "rival", "").await, Reason::new("x").unwrap());
        let want = ClaimRequest::new(DutyKey::new("poll", target.as_str()).unwrap());
        let claimed = store.claim(&session, &[want], &why).await.unwrap().remove(0);
        store.close_session(&session, &why).await.unwrap();
        claimed
    });
    let Claimed::HeldBy(Some(holder)) = claimed else { panic!("{claimed:?}") };
    assert_eq!(holder.instance.as_str(), a.id);
    let lease = format!("poll:lease:{target}");
    let set: Option<String> = stage.ask(&["SET", &lease, "rival", "NX", "PX", "60000"]);
    assert_eq!((set, stage.lease(&target).as_ref()), (None, Some(&a.id)));
    let seen = stage.history().len();
    stage.polled(slice::from_ref(&target), 4, seen);
    stage.renewals(&target, 2);
    let lines = stage.history();
    assert!(polls_of(&lines, &target).all(|line| line.instance == a.id), "{lines:#?}");
    assert_eq!(stage.fences(), fences);
    drop(b);
}

#[test]
fn us3_3_a_lease_of_another_is_not_renewed() {
    let Some(mut stage) = Stage::open(2) else { return };
    // Many polls between two renewals.
    stage.pace.0 = every() / 8;
    let sessions = stage.sessions();
    let [lost, kept] = &sessions[..] else { panic!() };
    let one = stage.start("a");
    stage.polled(&sessions, 1, 0);
    // A new target is leased already, by a holder without a node key.
    let taken = "somebody/else's";
    let () = stage.ask(&["SET", &format!("poll:lease:{taken}"), "x", "PX", "3600000"]);
    stage.set_session(taken, false);
    // As after a pause in which the lease expired and another holder took it.
    let lease = format!("poll:lease:{lost}");
    let () = stage.ask(&["SET", &lease, "somebody-else", "PX", "3600000"]);
    let (end, seen) = (stage.ends_at(lost), stage.history().len());
    stage.renewals(kept, 3);
    stage.until("a renewal is told", || stage.said_of(&one, "renewed").contains(kept));
    // The lease is checked before each poll, so at most one poll that was already checked began.
    let after = stage.history().split_off(seen);
    assert!(polls_of(&after, lost).count() <= 1, "{after:#?}");
    let seen = seen + after.len();
    stage.polled(slice::from_ref(kept), 3, seen);
    stage.renewals(kept, 2);
    assert_eq!(stage.lease(lost).as_deref(), Some("somebody-else"));
    assert_eq!(stage.ends_at(lost), end);
    let after = stage.history().split_off(seen);
    assert_eq!(polls_of(&after, lost).count(), 0, "{after:#?}");
    assert_eq!(polls_of(&stage.history(), taken).count(), 0);
    stage.until("it was asked for", || stage.said_of(&one, "acquire_failed").contains(taken));
    let log = stage.log(&one);
    let refused = |line: &&str| line.contains("acquire_failed") && line.contains(taken);
    assert_eq!(log.lines().filter(refused).count(), 1, "{log}");
    one.stop();
    assert_eq!((stage.lease(lost).as_deref(), stage.ends_at(lost)), (Some("somebody-else"), end));
}
