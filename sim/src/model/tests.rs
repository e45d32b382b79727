#![allow(clippy::print_stdout, reason = "the numbers are what a reader wants to see")]

use super::*;

fn sound(name: &str, bounds: Bounds) -> Outcome {
    let outcome = check(bounds, Without::Nothing);
    println!("{name}: {outcome}");
    assert!(outcome.is_sound(), "{name}: {outcome}");
    outcome
}

fn broken(without: Without, rules: &[&str]) {
    let outcome = check(Bounds::new(2, 1), without);
    println!("without {without:?}: {outcome}");
    let found: Vec<_> = outcome.broken.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(found, rules, "without {without:?}: {outcome}");
}

#[test]
fn two_instances_and_two_duties() {
    sound("2 x 2", Bounds { drained: 2, paused: 2, ..Bounds::new(2, 2) });
}

#[test]
fn three_instances_and_one_duty() {
    sound("3 x 1", Bounds::new(3, 1));
}

#[test]
fn three_instances_and_two_duties() {
    sound("3 x 2", Bounds::new(3, 2));
}

#[test]
fn two_instances_and_two_duties_with_lost_replies() {
    sound("2 x 2, lost", Bounds { lost: 1, joined: true, ..Bounds::new(2, 2) });
}

#[test]
fn three_instances_and_one_duty_with_a_lost_reply() {
    let bounds = Bounds { lost: 1, losses: 1, epochs: 2, joined: true, ..Bounds::new(3, 1) };
    sound("3 x 1, one lost", bounds);
}

#[test]
fn late_and_lost_messages_to_a_depth() {
    let bounds = Bounds { late: 1, depth: 15, joined: true, ..Bounds::new(2, 2) };
    let outcome = sound("2 x 2 with a late message", bounds);
    for name in [
        "takeovers after expiry",
        "stale commits refused",
        "unknown claims resolved",
        "pauses noticed",
    ] {
        let count = outcome.counts.iter().find(|(counted, _)| *counted == name);
        assert!(count.is_some_and(|(_, count)| *count > 0), "{name}: {outcome}");
    }
}

#[test]
fn without_the_fence_a_stale_commit_is_stored() {
    broken(Without::Fence, &["L3", "C1"]);
}

#[test]
fn without_the_deadline_two_believe() {
    broken(Without::Deadline, &["B1"]);
}

#[test]
fn without_growing_epochs_two_have_the_same() {
    broken(Without::Growth, &["L1", "L2"]);
}
