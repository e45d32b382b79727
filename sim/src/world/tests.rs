//! What is counted as held.

use super::*;
use crate::scenario::Kind;
use tenure_core::engine::{Effect, GroupConfig, MemberStatus, StopReason};
use tenure_core::roster::Pin;
use tenure_core::store::Evict;

/// A world without faults whose store may forget, at the moment when somebody begins to work.
fn at_work() -> (SimWorld, Pid) {
    let mut scenario = Scenario::draw(1);
    (scenario.kind, scenario.placed) = (Kind::Lossy, false);
    scenario.faults.clear();
    let mut world = SimWorld::new(scenario, false);
    loop {
        let ((at, _), item) = world.queue.pop_first().expect("work begins");
        world.now = at;
        world.backend.set_time(at);
        world.happen(item);
        let works = |process: &Process| !process.work.is_empty();
        if let Some(pid) = world.processes.iter().position(works) {
            return (world, pid);
        }
    }
}

fn counts(world: &SimWorld, pid: Pid) -> bool {
    world.processes[pid].work.values().any(|work| work.believes_since.is_some())
}

/// A store that forgets an eviction has a session again: its holds count. One whose session stays
/// away is not counted, whatever else is forgotten.
#[test]
fn what_is_held_counts_again_when_the_store_forgets_that_it_ended_it() {
    let (mut world, pid) = at_work();
    assert!(counts(&world, pid));
    world.excuse(pid);
    assert!(!counts(&world, pid));
    world.excuse_no_longer();
    assert!(counts(&world, pid), "its session lives");

    let (mut world, pid) = at_work();
    world.excuse(pid);
    let id = world.processes[pid].id.clone();
    world.backend.evict(&id, Evict::Now);
    world.excuse_no_longer();
    assert!(!counts(&world, pid), "its session is over");

    let (mut world, pid) = at_work();
    world.excuse(pid);
    for work in world.processes[pid].work.values_mut() {
        work.hold.epoch = work.hold.epoch.next().unwrap();
    }
    world.excuse_no_longer();
    assert!(!counts(&world, pid), "the store has no such hold");
}

/// How many moves are judged when a duty is given away for a pin, in a group with these pins.
fn judged(pins: impl FnOnce(&SimWorld, Pid) -> Vec<(DutyId, Pin)>, room: usize) -> usize {
    let (mut world, pid) = at_work();
    let (duty, epoch) = world.works(pid).remove(0);
    let pins = pins(&world, pid);
    let id = world.processes[pid].id.clone();
    let view = world.processes[pid].view.as_mut().unwrap();
    let mut group = GroupConfig::read(&view.document).unwrap();
    group.pins = pins.into_iter().collect();
    view.document.document = group.document().unwrap();
    for member in view.members.iter_mut().filter(|member| member.instance == id) {
        let said = MemberStatus::read(&member.note).unwrap();
        member.note = MemberStatus { room, ..said }.note().unwrap();
    }
    for holder in view.holders.iter_mut().flatten() {
        holder.holder = None;
    }
    let until = world.local(pid);
    world.execute(pid, Effect::Drain { duty, epoch, why: StopReason::Pin, until });
    world.story.moves.len()
}

/// "For a pin" is no excuse by itself: the duty is pinned, or one that is pinned here is free and
/// finds no room.
#[test]
fn a_pin_that_is_not_there_excuses_no_move() {
    let here = |world: &SimWorld, pid: Pid| Pin::Instance(world.processes[pid].id.clone());
    let mine = |world: &SimWorld, pid: Pid| world.works(pid).remove(0).0;
    let free = |world: &SimWorld, pid: Pid| {
        let mut duties = world.listed.iter().filter(|(_, paused)| !**paused).map(|(duty, _)| duty);
        duties.find(|duty| **duty != mine(world, pid)).unwrap().clone()
    };
    assert_eq!(judged(|_, _| Vec::new(), 1), 1);
    assert_eq!(judged(|world, pid| vec![(mine(world, pid), here(world, pid))], 1), 0);
    assert_eq!(judged(|world, pid| vec![(free(world, pid), here(world, pid))], 1), 0);
    assert_eq!(judged(|world, pid| vec![(free(world, pid), here(world, pid))], 1_000), 1);
    let elsewhere = |world: &SimWorld, pid: Pid| {
        vec![(free(world, pid), Pin::Instance(InstanceId::new("elsewhere").unwrap()))]
    };
    assert_eq!(judged(elsewhere, 1), 1);
}
