//! Tests of what the world counts as held and judges as a move.

use super::*;
use crate::scenario::Kind;
use tenure_core::engine::{Effect, GroupConfig, MemberStatus, StopReason};
use tenure_core::roster::Pin;
use tenure_core::store::Evict;

/// Returns a world without faults, with a lossy store, at the moment when work starts.
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

/// When the store loses an eviction, the session exists again and its holds count. If the session
/// stays ended, they do not count, whatever else is lost.
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

/// Returns the number of judged moves when a duty is released for a pin, with these pins.
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

/// The reason "pin" is valid only if the duty is pinned, or if a free duty that is pinned here has
/// no room.
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
