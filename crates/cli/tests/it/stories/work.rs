//! Story 1: work is distributed automatically.

use super::stage::{Stage, beats_of_a_takeover, polls_of, ttl};

#[test]
fn us1_1_one_instance_polls_everything() {
    let Some(stage) = Stage::open(5) else { return };
    let one = stage.start("1");
    let mut sessions = stage.sessions();
    stage.polled(&sessions, 2, 0);
    // The keys are those of the design, with an expiry.
    let node = format!("poll:node:{}", one.id);
    assert_eq!(stage.ask::<String>(&["GET", &node]), "1");
    for target in &sessions {
        assert_eq!(stage.lease(target).as_ref(), Some(&one.id));
        let left: u128 = stage.ask(&["PTTL", &format!("poll:lease:{target}")]);
        assert!((1..=ttl().as_millis()).contains(&left), "{left}");
    }
    // Sessions change: one is new, one paused, one deleted, and one has a tombstone.
    let [paused, deleted, buried] = &sessions[..3] else { panic!() };
    stage.set_session(paused, true);
    let () = stage.ask(&["DEL", &format!("session:{deleted}")]);
    let () = stage.ask(&["SET", &format!("deleted-session:{buried}"), "1"]);
    let new = stage.session();
    let gone = sessions[..3].to_vec();
    stage.until("the leases of three are gone", || gone.iter().all(|id| stage.lease(id).is_none()));
    let seen = stage.history().len();
    sessions.push(new);
    stage.polled(&sessions[3..], 2, seen);
    let after = stage.history().split_off(seen);
    assert!(after.iter().all(|line| !gone.contains(&line.target)), "{after:#?}");
    stage.each_alone();
    one.stop();
    assert_eq!(stage.after("poll:lease:").len() + stage.after("poll:node:").len(), 0);
}

#[test]
fn us1_2_a_third_instance_takes_part() {
    let Some(stage) = Stage::open(9) else { return };
    let [a, b] = stage.start_all(["a", "b"]);
    stage.shared(&[&a, &b], vec![4, 5]);
    let (sessions, before) = (stage.sessions(), stage.leases());
    let c = stage.start("c");
    stage.shared(&[&a, &b, &c], vec![3, 3, 3]);
    // Targets have moved only to the third instance.
    for (target, holder) in stage.leases() {
        assert!(holder == c.id || holder == before[&target], "{target} went to {holder}");
    }
    let seen = stage.history().len();
    stage.polled(&sessions, 2, seen);
    stage.polled_by_holders(seen);
    stage.each_alone();
}

#[test]
fn us1_3_what_a_stopped_instance_had_is_polled_on() {
    let Some(stage) = Stage::open(9) else { return };
    let [a, b, c] = stage.start_all(["a", "b", "c"]);
    stage.shared(&[&a, &b, &c], vec![3, 3, 3]);
    let (own, left) = (stage.targets_of(&a), stage.targets_of(&c));
    stage.polled(&stage.sessions(), 1, 0);
    let (seen, id) = (stage.history().len(), c.id.clone());
    c.stop();
    stage.taken_over(&left, &id, seen);
    let meanwhile = stage.history().split_off(seen);
    for target in &own {
        assert!(polls_of(&meanwhile, target).count() <= beats_of_a_takeover(), "{meanwhile:#?}");
    }
    // The leases were released; none had to expire.
    let audit = stage.audit();
    let kinds = audit.iter().filter(|entry| left.contains(&entry.target) && entry.instance == id);
    let kinds: Vec<_> = kinds.map(|entry| entry.kind.as_str()).collect();
    assert!(!kinds.contains(&"expired"), "{audit:#?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "released").count(), left.len(), "{audit:#?}");
    stage.each_alone();
}
