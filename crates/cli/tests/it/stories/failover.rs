//! Story 2: instances fail, and others take over.

use testkit::Proxy;

use super::stage::{POLL, Stage, beats_of_a_takeover, polls_of};

#[test]
fn us2_1_what_a_crashed_instance_had_is_taken_over_when_its_leases_end() {
    let Some(stage) = Stage::open(6) else { return };
    let [a, mut b] = stage.start_all(["a", "b"]);
    stage.shared(&[&a, &b], vec![3, 3]);
    let (own, left) = (stage.targets_of(&a), stage.targets_of(&b));
    stage.polled(&stage.sessions(), 1, 0);
    b.crash();
    let (ends, seen) = (stage.ends(&left), stage.history().len());
    stage.taken_over(&left, &b.id, seen);
    let meanwhile = stage.history().split_off(seen);
    assert!(meanwhile.iter().all(|line| line.instance == a.id), "{meanwhile:#?}");
    stage.granted_after(&ends);
    // The survivor's own targets were polled throughout, so their polls measure the time.
    for target in &own {
        let beats = polls_of(&meanwhile, target).count();
        assert!((1..=beats_of_a_takeover()).contains(&beats), "{beats}: {meanwhile:#?}");
    }
    stage.each_alone();
}

#[test]
fn us2_2_an_instance_that_cannot_renew_stops_and_others_take_over() {
    let Some(stage) = Stage::open(6) else { return };
    let wire = Proxy::start(stage.redis.port()).unwrap();
    let a = stage.start("a");
    let b = stage.start_with("b", &format!("redis://127.0.0.1:{}/0", wire.port()), POLL);
    stage.shared(&[&a, &b], vec![3, 3]);
    let left = stage.targets_of(&b);
    stage.polled(&left, 1, 0);
    wire.cut();
    let ends = stage.ends(&left);
    stage.until("each renewal that failed is told", || {
        stage.said_of(&b, "renew_failed").into_iter().eq(left.clone())
    });
    let seen = stage.history().len();
    stage.taken_over(&left, &b.id, seen);
    stage.granted_after(&ends);
    // After the first poll of the new holder, the old one does not poll.
    let seen = stage.history().len();
    stage.polled(&left, 2, seen);
    let after = stage.history().split_off(seen);
    assert!(after.iter().all(|line| line.instance == a.id), "{after:#?}");
    stage.each_alone();
    // The connection returns.
    wire.restore().unwrap();
    stage.shared(&[&a, &b], vec![3, 3]);
    let seen = stage.history().len();
    stage.polled(&stage.sessions(), 1, seen);
    stage.each_alone();
}

#[test]
fn us2_3_a_restarted_process_cannot_renew_what_it_had() {
    let Some(stage) = Stage::open(3) else { return };
    let sessions = stage.sessions();
    let mut before = stage.start("a");
    stage.polled(&sessions, 1, 0);
    before.crash();
    let ends = stage.ends(&sessions);
    let (fences, seen) = (stage.fences(), stage.history().len());
    let after = stage.start("b");
    assert_ne!(before.id, after.id);
    // No instance renews a lease from before the restart.
    stage.until("the leases of before have ended", || {
        let leases = stage.leases();
        let old: Vec<_> = leases.iter().filter(|(_, by)| **by == before.id).collect();
        for (target, _) in &old {
            let end = stage.ends_at(target);
            assert!(end == ends[*target] || stage.lease(target).as_ref() != Some(&before.id));
        }
        old.is_empty()
    });
    stage.polled(&sessions, 1, seen);
    stage.granted_after(&ends);
    stage.newer_than(&fences, seen);
    assert!(stage.history()[seen..].iter().all(|line| line.instance == after.id));
    stage.each_alone();
}
