//! Story 4: shares are even, and moved targets are handed over.

use super::stage::{POLL, Stage, scaled};

#[test]
fn us4_1_three_instances_have_three_of_nine_each() {
    let Some(stage) = Stage::open(9) else { return };
    let [a, b, c] = stage.start_all(["a", "b", "c"]);
    stage.shared(&[&a, &b, &c], vec![3, 3, 3]);
    // The shares are stable: there are no further grants.
    let (sessions, fences, seen) = (stage.sessions(), stage.fences(), stage.history().len());
    stage.renewals(&sessions[0], 4);
    stage.polled(&sessions, 2, seen);
    stage.polled_by_holders(seen);
    assert_eq!(stage.fences(), fences);
    stage.each_alone();
}

#[test]
fn us4_2_a_new_instance_gets_a_third_of_ten() {
    let Some(stage) = Stage::open(10) else { return };
    let [a, b] = stage.start_all(["a", "b"]);
    stage.shared(&[&a, &b], vec![5, 5]);
    let fences = stage.fences();
    let c = stage.start("c");
    stage.shared(&[&a, &b, &c], vec![3, 3, 4]);
    let moved: Vec<_> =
        stage.fences().into_iter().filter(|(target, epoch)| fences[target] != *epoch).collect();
    // The new instance got one grant for each of its targets, and there were no others.
    let got = stage.targets_of(&c);
    assert_eq!(
        moved.iter().map(|(target, _)| target).collect::<Vec<_>>(),
        got.iter().collect::<Vec<_>>()
    );
    let grants = stage.audit().into_iter().filter(|e| e.kind == "granted" && e.instance == c.id);
    assert_eq!(grants.count(), got.len());
    let seen = stage.history().len();
    stage.polled(&stage.sessions(), 1, seen);
    stage.polled_by_holders(seen);
    stage.each_alone();
}

/// Polls take longer than the interval, so one is always running. A handover that does not wait for
/// it overlaps with the new owner's first poll.
#[test]
fn us4_3_what_is_given_away_goes_to_its_new_owner_at_once() {
    let Some(mut stage) = Stage::open(8) else { return };
    stage.pace = (scaled(1), scaled(8));
    let [began, ended] = POLL.lines().collect::<Vec<_>>()[..] else { panic!() };
    let script = format!("{began}\nsleep {}\n{ended}", scaled(4).as_secs_f64());
    let a = stage.start_with("a", &stage.redis.url(), &script);
    stage.polled(&stage.sessions(), 1, 0);
    let b = stage.start_with("b", &stage.redis.url(), &script);
    stage.shared(&[&a, &b], vec![4, 4]);
    let (moved, audit) = (stage.targets_of(&b), stage.audit());
    for target in &moved {
        let of = audit.iter().filter(|entry| entry.target == *target);
        let of: Vec<_> = of.map(|entry| (entry.kind.as_str(), entry.instance.as_str())).collect();
        // One instance released it and the other was granted it, without expiry or return.
        assert_eq!(of, [("granted", &*a.id), ("released", &*a.id), ("granted", &*b.id)]);
    }
    let seen = stage.history().len();
    stage.polled(&moved, 2, seen);
    // The last poll of the old owner ended before the first of the new owner began.
    stage.each_alone();
}
