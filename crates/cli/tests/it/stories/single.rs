//! Story 3: one poller at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use tenure_core::store::{Claimed, Want};
use tenure_core::{DutyKey, Reason};

use super::stage::{Stage, polls_of};
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
    // Also in Redis each epoch of a target is one instance's.
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
    // Another instance, a claim by hand, and somebody with the command of the design.
    let b = stage.start("b");
    stage.said(&b, r#""event":"standby""#);
    let claimed = with_store(&stage.redis.url(), async |store| {
        let (session, why) = (join(&*store, "poll", "rival", "").await, Reason::new("x").unwrap());
        let want = Want::new(DutyKey::new("poll", target.as_str()).unwrap());
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
    let Some(stage) = Stage::open(2) else { return };
    let sessions = stage.sessions();
    let [lost, kept] = &sessions[..] else { panic!() };
    let one = stage.start("a");
    stage.polled(&sessions, 1, 0);
    // What is left of a pause in which the lease has ended and somebody else was faster.
    let lease = format!("poll:lease:{lost}");
    let () = stage.ask(&["SET", &lease, "somebody-else", "PX", "3600000"]);
    let end = stage.ends_at(lost);
    // Two renewals may have been on their way; after the third it has been told.
    stage.renewals(kept, 3);
    let seen = stage.history().len();
    stage.polled(slice::from_ref(kept), 3, seen);
    stage.renewals(kept, 2);
    assert_eq!(stage.lease(lost).as_deref(), Some("somebody-else"));
    assert_eq!(stage.ends_at(lost), end);
    let after = stage.history().split_off(seen);
    assert_eq!(polls_of(&after, lost).count(), 0, "{after:#?}");
    one.stop();
    assert_eq!((stage.lease(lost).as_deref(), stage.ends_at(lost)), (Some("somebody-else"), end));
}
