//! The clock of retention, and its protection against steps of the wall clock.

use std::sync::Arc;

use tenure_switchboard::storage::{
    ClockMeasurement, ClockReading, HistoryPruneReport, HistoryRetention, InboxRetention,
    PruneReport, Storage, TimeSource,
};

use super::kit::{DAY, HOUR, commit_one, inbox, micros, named, stored};
use super::told::{SECOND, beat, bot, connector, instance, shown};
use crate::place::Place;

const YEAR: i64 = 365 * 86_400 * SECOND;

fn keep() -> InboxRetention {
    InboxRetention { bodies: micros(30 * DAY), keys: micros(45 * DAY) }
}

/// Moves the clock, with the time measured since a tick and the store's clock.
async fn moved(
    storage: &Arc<dyn Storage>,
    since: ClockReading,
    elapsed: i64,
    wall: i64,
) -> ClockReading {
    let since = ClockMeasurement { turn: since.turn, wall: since.wall, elapsed };
    storage.tick(Some(since), TimeSource::At(wall)).await.unwrap()
}

/// Returns the clock of retention, unmoved, and the store's own.
async fn learned(storage: &Arc<dyn Storage>) -> ClockReading {
    storage.tick(None, TimeSource::Now).await.unwrap()
}

pub async fn the_clock_follows_at_twice_the_speed(place: Place) {
    let storage = &place.storage;
    let start = learned(storage).await;
    place.set_clock(start.wall).await;
    let at = start.wall;
    // It follows the store's clock while that is right.
    let right = moved(storage, start, 60 * SECOND, at + 60 * SECOND).await;
    assert_eq!(right.reached, at + 60 * SECOND);
    // It moves twice as far as measured while that is ahead, and stops while that is behind.
    let ahead = moved(storage, right, 60 * SECOND, at + YEAR).await;
    assert_eq!((ahead.reached, ahead.wall), (at + 180 * SECOND, at + YEAR));
    let back = moved(storage, ahead, 50 * SECOND, at + 170 * SECOND).await;
    assert_eq!(back.reached, at + 180 * SECOND);
    let behind = moved(storage, back, 60 * SECOND, at - YEAR).await;
    assert_eq!(behind.reached, at + 180 * SECOND);
    let on = moved(storage, behind, 10 * SECOND, at + 185 * SECOND).await;
    assert_eq!(on.reached, at + 185 * SECOND);
}

/// The measurements of several replicas do not add up.
pub async fn the_clock_is_moved_by_one_at_a_time(place: Place) {
    let storage = &place.storage;
    let other = place.open().await;
    let start = learned(storage).await;
    place.set_clock(start.wall).await;
    let (one, two) = (learned(storage).await, learned(&other).await);
    assert_eq!(one.reached, start.wall);
    let ahead = start.wall + YEAR;
    let one = moved(storage, one, 60 * SECOND, ahead).await;
    assert_eq!(one.reached, start.wall + 120 * SECOND);
    // The second replica only learns the turn of the first.
    let two = moved(&other, two, 60 * SECOND, ahead).await;
    assert_eq!((two.turn, two.reached), (one.turn, one.reached));
    let two = moved(&other, two, SECOND, ahead).await;
    assert_eq!(two.reached, one.reached + 2 * SECOND);
    // The first replica measured more, but not since the last turn.
    let one = moved(storage, one, 60 * SECOND, ahead).await;
    assert_eq!((one.turn, one.reached), (two.turn, two.reached));
}

/// While the clock is a year ahead for some ticks, nothing is deleted.
pub async fn a_clock_that_is_ahead_deletes_nothing(place: Place) {
    let storage = &place.storage;
    commit_one(storage, named(&["a"])).await;
    storage.beat(&beat(1, 0, 60, 1), TimeSource::Now).await.unwrap();
    storage.beat(&beat(2, 0, 90, 1), TimeSource::Now).await.unwrap();
    let mut tick = learned(storage).await;
    let ahead = tick.wall + YEAR;
    let epoch = super::told::epoch(1);
    storage.roll_up(epoch, TimeSource::At(ahead)).await.unwrap();
    for _ in 0..60 {
        tick = moved(storage, tick, 60 * SECOND, ahead).await;
    }
    assert_eq!(storage.prune(keep()).await.unwrap(), PruneReport::default());
    let tidied = storage.prune_history(HistoryRetention::default(), TimeSource::Now).await.unwrap();
    assert_eq!(tidied, HistoryPruneReport::default());
    assert!(stored(&commit_one(storage, named(&["a"])).await)[0].duplicate);
    assert_eq!(shown(storage, &bot()).await.instances.len(), 2);
}

/// The wall clock is years behind: stored times are by the clock of retention.
pub async fn what_arrives_under_a_clock_that_is_behind_is_not_old(place: Place) {
    let storage = &place.storage;
    let reached = learned(storage).await.wall + YEAR;
    place.set_clock(reached).await;
    commit_one(storage, named(&["a"])).await;
    assert_eq!(inbox(storage).await[0].received_at, reached);
    storage.beat(&beat(1, 0, 60, 1), TimeSource::Now).await.unwrap();
    assert_eq!(instance(storage, 1).await.last_heartbeat_at, reached);
    // The time stays, and the gap to the next heartbeat does not count as an interval.
    let tick = learned(storage).await;
    moved(storage, tick, 60 * SECOND, tick.wall + 60 * SECOND).await;
    assert_eq!(instance(storage, 1).await.last_heartbeat_at, reached);
    storage.beat(&beat(1, 0, 120, 1), TimeSource::Now).await.unwrap();
    let it = instance(storage, 1).await;
    assert_eq!((it.last_heartbeat_at, it.interval), (reached, None));
    assert_eq!(storage.prune(keep()).await.unwrap(), PruneReport::default());
    assert!(stored(&commit_one(storage, named(&["a"])).await)[0].duplicate);
}

/// The wall clock is at 1970 for minutes: the registry keeps its times and its instances.
pub async fn a_clock_that_is_behind_changes_nothing(place: Place) {
    let storage = &place.storage;
    let tick = learned(storage).await;
    place.set_clock(tick.wall).await;
    for number in [1, 2] {
        storage.beat(&beat(number, tick.wall, 60, 1), TimeSource::At(tick.wall)).await.unwrap();
    }
    let known = async || {
        let shown = shown(storage, &bot()).await;
        (shown.connector, shown.instances)
    };
    let before = known().await;
    let behind = moved(storage, tick, 60 * SECOND, 0).await;
    let behind = moved(storage, behind, 60 * SECOND, 60 * SECOND).await;
    assert_eq!((behind.wall, behind.reached), (60 * SECOND, tick.wall));
    let tidied = storage.prune_history(HistoryRetention::default(), TimeSource::Now).await.unwrap();
    assert_eq!(tidied, HistoryPruneReport::default());
    assert_eq!(known().await, before);
}

/// The second message is from the future: it keeps no later one. The fourth is young: it keeps all
/// later ones, even one that was stored by a clock that was behind.
pub async fn what_came_before_an_old_message_goes_unless_it_is_young(place: Place) {
    let storage = &place.storage;
    commit_one(storage, named(&["a", "b", "c", "d", "e"])).await;
    place.age("message_inbox", "received_at", 31 * DAY, "position IN (1, 3, 5)").await;
    place.age("message_inbox", "received_at", HOUR, "position = 4").await;
    let pruned = storage.prune(keep()).await.unwrap();
    assert_eq!((pruned.messages, pruned.keys), (3, 0));
    assert_eq!(inbox(storage).await[0].position, 4);
}

/// A connector sends its last heartbeat while the clock is a year ahead.
pub async fn a_clock_that_was_ahead_keeps_nobody_alive(place: Place) {
    let storage = &place.storage;
    let unheard = super::told::named("api", "unheard");
    assert!(storage.register(&unheard, "me").await.unwrap());
    let mut tick = learned(storage).await;
    let at = tick.wall;
    storage.beat(&beat(1, at, 60, 1), TimeSource::At(at + YEAR)).await.unwrap();
    tick = moved(storage, tick, 60 * SECOND, at + YEAR).await;
    // A single reading corrects nothing, whether the clock is ahead or right.
    tick = moved(storage, tick, 60 * SECOND, at + 120 * SECOND).await;
    assert_eq!(connector(storage).await.last_heartbeat_at, Some(at + YEAR));
    let now = at + 180 * SECOND;
    moved(storage, tick, 60 * SECOND, now).await;
    assert_eq!(connector(storage).await.last_heartbeat_at, Some(now));
    let it = instance(storage, 1).await;
    assert_eq!((it.last_heartbeat_at, it.first_seen_at, it.stopped_at), (now, now, None));
    assert_eq!(shown(storage, &unheard).await.connector.last_heartbeat_at, None);
}
