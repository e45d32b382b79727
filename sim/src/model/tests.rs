#![allow(clippy::print_stdout, reason = "the numbers are what a reader wants to see")]

use tenure_core::engine::{Effect, StoreRequest};
use tenure_core::store::OpenSession;
use tenure_core::{Deadline, Hold, Mark, Nonce, Note};

use super::*;

fn sound(name: &str, bounds: ModelBounds) -> ModelReport {
    let outcome = check(bounds, Without::Nothing);
    println!("{name}: {outcome}");
    assert!(outcome.is_sound(), "{name}: {outcome}");
    outcome
}

fn broken(without: Without, rules: &[&str]) {
    let outcome = check(ModelBounds::new(2, 1), without);
    println!("without {without:?}: {outcome}");
    let found: Vec<_> = outcome.broken.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(found, rules, "without {without:?}: {outcome}");
}

#[test]
fn two_instances_and_two_duties() {
    sound("2 x 2", ModelBounds { drained: 2, paused: 2, ..ModelBounds::new(2, 2) });
}

#[test]
fn three_instances_and_one_duty() {
    sound("3 x 1", ModelBounds::new(3, 1));
}

#[test]
fn three_instances_and_two_duties() {
    sound("3 x 2", ModelBounds::new(3, 2));
}

#[test]
fn two_instances_and_two_duties_with_lost_replies() {
    sound("2 x 2, lost", ModelBounds { lost: 1, joined: true, ..ModelBounds::new(2, 2) });
}

#[test]
fn three_instances_and_one_duty_with_a_lost_reply() {
    let bounds =
        ModelBounds { lost: 1, losses: 1, epochs: 2, joined: true, ..ModelBounds::new(3, 1) };
    sound("3 x 1, one lost", bounds);
}

#[test]
fn late_and_lost_messages_to_a_depth() {
    let bounds = ModelBounds { late: 1, depth: 15, joined: true, ..ModelBounds::new(2, 2) };
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
fn two_instances_and_one_duty_whose_work_lingers() {
    sound("2 x 1, lingers", ModelBounds { lingers: true, ..ModelBounds::new(2, 1) });
}

/// A rule broken by a grant above the largest epoch is still judged.
#[test]
fn a_broken_rule_is_judged_beyond_the_largest_epoch() {
    let setup = Setup::new(ModelBounds::new(2, 1), Without::Nothing);
    let mut state = setup.init_states().remove(0);
    let mut store = ModelStore::new(&setup);
    store.rows[0].epoch = Epoch::new(setup.bounds.epochs + 1).unwrap();
    state.store = setup.share_store(store);
    assert!(!setup.within_boundary(&state));
    state.broken.push("R1");
    assert!(setup.within_boundary(&state));
}

/// Work without a hold in the store is an error, and so is a live session that names such a hold,
/// even under an epoch older than the newest.
#[test]
fn an_older_epoch_is_no_hold() {
    let setup = Setup::new(ModelBounds::new(2, 1), Without::Nothing);
    let (mut store, mut member) = (ModelStore::new(&setup), ModelMember::new(&setup, 0));
    let (group, instance) = (setup.group.clone(), setup.instances[0].clone());
    let nonce = Nonce::from_entropy(1);
    let open = OpenSession { group, instance, nonce, ttl: setup.ttl, note: Note::default() };
    let session = open.session();
    store.serve(&setup, 0, &StoreRequest::Open(open), &mut Vec::new());
    let (duty, instance) = (setup.key(0), session.instance.clone());
    let epoch = |number| Epoch::new(number).unwrap();
    let hold = Hold { duty, epoch: epoch(1), instance, nonce, mark: Mark::default() };
    let deadline = Deadline::from_instant(NOW);
    let assign = Effect::Assign { hold: hold.clone(), deadline };
    let keep = StoreRequest::KeepAlive { session, note: None, holds: vec![hold] };

    (store.rows[0].holder, store.rows[0].epoch) = (Some(0), epoch(1));
    assert_eq!(member.wrong_effect(&setup, &store, 0, &assign), None);
    assert_eq!(member.wrong_request(&setup, &store, 0, &keep), None);
    store.rows[0].epoch = epoch(2);
    assert_eq!(member.wrong_effect(&setup, &store, 0, &assign), Some("R1"));
    assert_eq!(member.wrong_request(&setup, &store, 0, &keep), Some("R9"));

    // An ended member is not in trouble, so it does not block faults of others.
    member.settle(&mut store, 0, true);
    assert!(member.troubled);
    member.over = true;
    member.settle(&mut store, 0, true);
    assert!(!member.troubled);
}

#[test]
fn work_that_has_not_stopped_is_noticed_beside_the_next() {
    broken(Without::Stopping, &["work"]);
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
