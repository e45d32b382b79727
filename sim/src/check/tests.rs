//! Tests with faulty histories: each is found by its own checker and no other.

use std::time::Duration;

use tenure_core::roster::RosterMember;
use tenure_core::{Change, DutyKey, Version};

use super::*;
use crate::scenario::Kind;

const SECOND: Nanos = 1_000_000_000;

/// Returns a scenario without faults: a durable store, two members and two duties.
fn scenario() -> Scenario {
    let mut scenario = Scenario::draw(1);
    scenario.kind = Kind::Durable;
    scenario.faults.clear();
    scenario.ttl = tenure_core::Ttl::new(Duration::from_secs(2)).unwrap();
    scenario.rates = vec![1_000_000; 2];
    (scenario.look_every, scenario.window) = (Duration::from_millis(500), Duration::from_secs(2));
    scenario.drain = Duration::from_secs(1);
    scenario.delay = 1_000_000;
    scenario.quiet_from = 20 * SECOND;
    scenario.revisions = false;
    scenario
}

fn duty(id: &str) -> DutyId {
    DutyId::new(id).unwrap()
}

fn name(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn key(id: &str) -> DutyKey {
    DutyKey::new("g", id).unwrap()
}

fn believed(id: &str, number: u64, who: &str, from: Nanos, until: Nanos) -> Step {
    let (duty, epoch, instance) = (key(id), epoch(number), name(who));
    Step::Believed { duty, epoch, instance, from: from * SECOND, until: until * SECOND }
}

fn granted(id: &str, number: u64, who: &str) -> Step {
    Step::Granted { duty: key(id), epoch: epoch(number), instance: name(who) }
}

fn effect(id: &str, number: u64, who: &str, event: &str) -> Step {
    let (duty, epoch, instance) = (key(id), epoch(number), name(who));
    Step::Effect { duty, epoch, instance, event: event.to_owned() }
}

fn committed(id: &str, number: u64, version: u64) -> Step {
    let version = Version::new(version).unwrap();
    Step::Committed { duty: key(id), epoch: epoch(number), version }
}

fn member(id: &str) -> RosterMember {
    RosterMember {
        instance: name(id),
        weight: 1,
        room: 100,
        takes: true,
        keeps: true,
        zone: None,
        name: None,
    }
}

fn moved(at: Nanos) -> DutyMove {
    DutyMove {
        at: at * SECOND,
        instance: name("a"),
        duty: duty("y"),
        held: 2,
        quota: Some(1),
        since: 0,
        was_moved: false,
        why: tenure_core::engine::StopReason::Balance,
    }
}

fn turn(at: Nanos, what: &'static str) -> WorkTurn {
    let (instance, duty, epoch) = (name("b"), duty("y"), epoch(2));
    WorkTurn { at: at * SECOND, instance, duty, epoch, what, why: String::new() }
}

fn note(at: Nanos, who: &str, id: &str, number: u64, change: Change) -> RecordNote {
    RecordNote {
        at: at * SECOND,
        instance: name(who),
        duty: duty(id),
        epoch: epoch(number),
        change,
    }
}

fn promise(at: Nanos, believes: Nanos, stands: Nanos) -> Promise {
    let (instance, duty, epoch) = (name("b"), duty("y"), epoch(2));
    let [at, believes, stands] = [at, believes, stands].map(|seconds| seconds * SECOND);
    Promise { at, instance, duty, epoch, believes, stands }
}

fn outlived(from: Nanos, until: Nanos) -> Outlived {
    let (duty, epoch, instance) = (duty("y"), epoch(1), name("a"));
    Outlived { duty, epoch, instance, from: from * SECOND, until: until * SECOND, reset: 0 }
}

/// Returns a sound story: duty `x` stays with `a`; `y` is handed over to `b` during the faults.
fn sound() -> Story {
    Story {
        history: vec![
            granted("x", 1, "a"),
            effect("x", 1, "a", "1"),
            committed("x", 1, 1),
            granted("y", 1, "a"),
            effect("y", 1, "a", "1"),
            granted("y", 2, "b"),
            effect("y", 2, "b", "2"),
            committed("y", 2, 1),
            believed("x", 1, "a", 1, 40),
            believed("y", 1, "a", 1, 9),
            believed("y", 2, "b", 10, 40),
        ],
        moves: vec![moved(9)],
        turns: vec![turn(10, "assigned")],
        notes: vec![
            note(1, "a", "x", 1, Change::Acquired),
            note(1, "a", "y", 1, Change::Acquired),
            note(9, "a", "y", 1, Change::Released),
            note(10, "b", "y", 2, Change::TakenOver),
        ],
        promises: vec![promise(10, 20, 21)],
        outlived: vec![outlived(9, 10)],
        witnesses: vec![vec![name("a"), name("b")]],
        last: Final {
            alive: vec![name("a"), name("b")],
            running: vec![(name("a"), duty("x"), epoch(1)), (name("b"), duty("y"), epoch(2))],
            wanted: vec![duty("x"), duty("y")],
            held: vec![(duty("x"), name("a")), (duty("y"), name("b"))],
            pins: BTreeMap::new(),
            going: Vec::new(),
            members: vec![member("a"), member("b")],
        },
        ..Story::default()
    }
}

fn found_in(scenario: &Scenario, change: impl FnOnce(&mut Story)) -> Vec<&'static str> {
    let mut story = sound();
    change(&mut story);
    judge(scenario, &story).iter().map(|finding| finding.checker).collect()
}

fn found(change: impl FnOnce(&mut Story)) -> Vec<&'static str> {
    found_in(&scenario(), change)
}

#[test]
fn a_sound_run_passes() {
    assert_eq!(found(|_| {}), Vec::<&str>::new());
}

#[test]
fn an_overlap_is_caught() {
    let late = |story: &mut Story| story.history.push(effect("y", 1, "a", "3"));
    assert_eq!(found(late), ["L3"]);
    let two = |story: &mut Story| story.history.push(effect("y", 2, "a", "3"));
    assert_eq!(found(two), ["L1"]);
    let twice = |story: &mut Story| story.history.push(effect("y", 2, "b", "2"));
    assert_eq!(found(twice), ["D1"]);
}

#[test]
fn an_epoch_that_comes_again_is_caught() {
    assert_eq!(found(|story| story.history.push(granted("x", 1, "a"))), ["L2"]);
}

#[test]
fn a_regressed_checkpoint_is_caught() {
    assert_eq!(found(|story| story.history.push(committed("y", 2, 1))), ["C1"]);
}

#[test]
fn a_checkpoint_under_an_old_epoch_is_caught() {
    let late = |story: &mut Story| {
        story.history[7] = committed("y", 2, 2);
        story.history.insert(6, committed("y", 1, 1));
    };
    assert_eq!(found(late), ["fence"]);
}

#[test]
fn two_believers_are_caught() {
    let late = |story: &mut Story| story.history.push(believed("y", 1, "a", 9, 11));
    assert_eq!(found(late), ["B1"]);
    let mut beyond = scenario();
    beyond.faults.insert(Fault::ClockBeyond);
    assert_eq!(found_in(&beyond, late), Vec::<&str>::new());
}

#[test]
fn a_store_that_forgets_is_judged_by_the_resource() {
    let mut lossy = scenario();
    lossy.kind = Kind::Lossy;
    let forgot = |story: &mut Story| {
        story.history.push(granted("y", 2, "a"));
        story.history.push(committed("y", 2, 1));
        story.history.push(believed("y", 2, "a", 11, 12));
    };
    assert_eq!(found_in(&lossy, forgot), Vec::<&str>::new());
    let two = |story: &mut Story| story.history.push(effect("y", 2, "a", "3"));
    assert_eq!(found_in(&lossy, two), ["L1"]);
    let twice = |story: &mut Story| story.history.push(effect("y", 2, "b", "1"));
    assert_eq!(found_in(&lossy, twice), ["D1"]);
}

#[test]
fn a_stuck_duty_is_caught() {
    // Held again only long after the faults ended.
    let late = |story: &mut Story| {
        story.history[10] = believed("y", 2, "b", 10, 19);
        story.history.push(believed("y", 3, "b", 25, 40));
    };
    assert_eq!(found(late), ["held"]);
    // Held in time, but not until the end.
    assert_eq!(found(|story| story.history[10] = believed("y", 2, "b", 10, 29)), ["held"]);
    // Never held.
    assert_eq!(found(|story| drop(story.history.pop())), ["held"]);
    // A handover in time is allowed.
    let handover = |story: &mut Story| {
        story.history[10] = believed("y", 2, "b", 10, 24);
        story.history.push(believed("y", 3, "b", 25, 40));
    };
    assert_eq!(found(handover), Vec::<&str>::new());
}

#[test]
fn an_idle_member_is_caught() {
    assert_eq!(found(|story| story.last.held[1].1 = name("a")), ["spread"]);
    assert_eq!(found(|story| drop(story.last.held.pop())), ["spread"]);
}

#[test]
fn an_unjustified_move_is_caught() {
    assert_eq!(found(|story| story.moves[0].quota = Some(2)), ["moves"]);
    let again = |story: &mut Story| {
        story.moves.push(DutyMove { was_moved: true, since: 8 * SECOND, ..moved(9) });
    };
    assert_eq!(found(again), ["moves"]);
    assert_eq!(found(|story| story.turns.push(turn(39, "drain"))), ["quiet"]);
}

#[test]
fn who_does_not_go_is_caught() {
    assert_eq!(found(|story| story.last.going.push(name("a"))), ["end"]);
}

#[test]
fn a_belief_beyond_its_hold_is_caught() {
    assert_eq!(found(|story| story.promises.push(promise(10, 22, 21))), ["deadline"]);
    assert_eq!(found(|story| story.promises.push(promise(10, 20, 0))), ["deadline"]);
    // A deadline that has passed when it arrives is harmless.
    assert_eq!(found(|story| story.promises.push(promise(22, 20, 0))), Vec::<&str>::new());
}

#[test]
fn who_does_not_wait_after_a_reset_is_caught() {
    let early = |story: &mut Story| story.outlived.push(outlived(9, 11));
    assert_eq!(found(early), ["reset"]);
    // A later member could not know.
    let later = |story: &mut Story| {
        early(story);
        story.witnesses[0].pop();
    };
    assert_eq!(found(later), Vec::<&str>::new());
}

#[test]
fn a_record_that_is_missing_or_twice_is_caught() {
    let records = |change: fn(&mut Vec<RecordNote>)| found(|story| change(&mut story.notes));
    // Its end is never recorded.
    assert_eq!(records(|notes| drop(notes.remove(2))), ["records"]);
    // Acquired again without such a record.
    let again = note(39, "a", "x", 3, Change::Acquired);
    assert_eq!(found(|story| story.notes.push(again)), ["records"]);
    // Recorded twice.
    assert_eq!(records(|notes| notes.push(notes[2].clone())), ["records"]);
    let late = note(11, "a", "y", 1, Change::Expired);
    assert_eq!(found(|story| story.notes.push(late)), ["records"]);
    // Cancelled, and released after that.
    let cancelled = note(8, "a", "y", 1, Change::Revoked);
    assert_eq!(found(|story| story.notes.insert(2, cancelled)), Vec::<&str>::new());
    // A dead process records nothing.
    let dead = |story: &mut Story| {
        story.notes.remove(2);
        story.last.alive.remove(0);
    };
    assert_eq!(found(dead), Vec::<&str>::new());
}

#[test]
fn the_rest_of_one_duty_gives_no_time_to_others() {
    // Held again five seconds after the faults ended, which is one second too late.
    let late = |story: &mut Story| {
        story.history[10] = believed("y", 2, "b", 10, 19);
        story.history.push(believed("y", 3, "b", 25, 60));
        story.history[8] = believed("x", 1, "a", 1, 60);
    };
    let rest_of = |id: &'static str| {
        move |story: &mut Story| {
            late(story);
            story.rests.insert(duty(id), 24 * SECOND);
        }
    };
    assert_eq!(found(rest_of("x")), ["held"]);
    assert_eq!(found(rest_of("y")), Vec::<&str>::new());
}

#[test]
fn a_trace_that_differs_is_caught() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(same_trace(&lines("a\nb"), &lines("a\nb")), Ok(()));
    let finding = same_trace(&lines("a\nb"), &lines("a\nc")).unwrap_err();
    assert_eq!((finding.checker, finding.what.contains("line 1")), ("replay", true));
    assert!(same_trace(&lines("a\nb"), &lines("a")).is_err());
}
