//! What is counted as held.

use super::*;
use crate::scenario::Kind;
use tenure_core::store::Evict;

/// A world without faults whose store may forget, at the moment when somebody begins to work.
fn at_work() -> (World, Pid) {
    let mut scenario = Scenario::draw(1);
    (scenario.kind, scenario.placed) = (Kind::Lossy, false);
    scenario.faults.clear();
    let mut world = World::new(scenario, false);
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

fn counts(world: &World, pid: Pid) -> bool {
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
}
