//! Several instances of a connector.

use std::sync::Arc;

use tenure_core::Code;
use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{
    AcceptedHeartbeat, HeartbeatOutcome, MAX_SILENCE, ReceivedHeartbeat, STOPPING, Storage,
    TimeSource,
};
use tenure_wire::heartbeat::Health;
use tokio::task::JoinSet;

use super::told::{
    HOUR, MIDNIGHT, MINUTE, SECOND, at_cursor, beat, bot, connector, counters, hear, history, id,
    instance, named, of, saying, shown, take,
};
use crate::place::Place;

const T: i64 = MIDNIGHT + 10 * HOUR;

/// Of two instances, the one that started later represents the connector.
pub async fn the_one_that_started_later_stands(place: Place) {
    let storage = &place.storage;
    let told = |n, at, uptime, cursor| at_cursor(Some(cursor), None, beat(n, at, uptime, 10));
    take(storage, &told(1, T, 600, "old"), T).await;
    let taken = take(storage, &told(2, T + SECOND, 1, "new"), T + SECOND).await;
    assert_eq!((taken.replaced, taken.registered), (Some(id(1)), false));
    assert_eq!(connector(storage).await.instance_id, Some(id(2)));
    // The other one still sends heartbeats: its counters count, its state does not.
    let zombie = saying(Health::Error, Some("lost"), told(1, T + MINUTE, 660, "older"));
    let taken = take(storage, &zombie, T + MINUTE).await;
    assert_eq!((taken.replaced, taken.late), (None, false));
    let known = connector(storage).await;
    assert_eq!((known.instance_id, known.state.as_str()), (Some(id(2)), "healthy"));
    assert_eq!((known.error_message, known.uptime_s), (None, Some(1)));
    assert_eq!(known.checkpoint_cursor.as_deref(), Some("new"));
    assert_eq!(known.last_heartbeat_at, Some(T + MINUTE));
    assert_eq!(known.counters, counters(20));
    let it = instance(storage, 1).await;
    assert_eq!((it.state.as_str(), it.checkpoint_cursor.as_deref()), ("error", Some("older")));
    // Instances are sorted by newest heartbeat.
    let order = shown(storage, &bot()).await.instances;
    assert_eq!(order.iter().map(|it| it.instance_id).collect::<Vec<_>>(), [id(1), id(2)]);
}

/// The computed start varies, because uptimes are whole seconds and heartbeats are delayed. The
/// earliest counts, so that two instances do not alternate.
pub async fn the_earliest_start_counts(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 100, 1).await;
    hear(storage, 2, T, 90, 1).await;
    // This heartbeat was delayed by twenty seconds.
    let slow = take(storage, &beat(1, T + MINUTE, 160, 1), T + MINUTE + 20 * SECOND).await;
    assert_eq!(slow.replaced, None);
    assert_eq!(instance(storage, 1).await.started_at, T - 100 * SECOND);
    // A shorter delay than before: it started earlier than known.
    take(storage, &beat(2, T + MINUTE, 160, 1), T + MINUTE).await;
    assert_eq!(instance(storage, 2).await.started_at, T - 100 * SECOND);
    assert_eq!(connector(storage).await.instance_id, Some(id(2)));
    // It restarts with the same id, later than the other one.
    let again = hear(storage, 1, T + 2 * MINUTE, 3, 1).await;
    assert_eq!(again.replaced, Some(id(2)));
    assert_eq!(instance(storage, 1).await.started_at, T + 2 * MINUTE - 3 * SECOND);
}

pub async fn equal_starts_change_nobody(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 1).await;
    assert_eq!(hear(storage, 2, T, 60, 1).await.replaced, None);
    assert_eq!(hear(storage, 3, T, 59, 1).await.replaced, Some(id(1)));
}

pub async fn a_silent_instance_gives_way(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 1).await;
    let early = |uptime_s| beat(2, T + uptime_s * SECOND, 100_000 + uptime_s, 1);
    let before = take(storage, &early(1), T + MAX_SILENCE - 1).await;
    assert_eq!(before.replaced, None);
    let after = take(storage, &early(2), T + MAX_SILENCE).await;
    assert_eq!(after.replaced, Some(id(1)));
    // It returns, and is the one that started later.
    assert_eq!(hear(storage, 1, T + MAX_SILENCE + 1, 960, 1).await.replaced, Some(id(2)));
}

/// An instance with a long interval may be silent for longer, within the limit of the protocol or
/// of the operator's policy.
pub async fn a_slow_instance_may_be_silent_for_longer(place: Place) {
    let storage = &place.storage;
    for (gap, policy, silent) in [
        (5 * MINUTE, Policy::Usual, 25 * MINUTE),
        (HOUR, Policy::Usual, 25 * MINUTE),
        (HOUR, Policy::Observed, 5 * HOUR),
    ] {
        let name = named("api", &format!("{gap} {policy:?}"));
        let tell = |instance, sent, uptime| {
            let longest_interval = policy.longest_interval();
            ReceivedHeartbeat { longest_interval, ..of(&name, beat(instance, sent, uptime, 1)) }
        };
        let last = T + gap;
        take(storage, &tell(1, T, 60), T).await;
        take(storage, &tell(1, last, 10_000), last).await;
        assert_eq!(shown(storage, &name).await.connector.interval, Some(gap));
        let early = |sent: i64| tell(2, T + sent, 100_000 + sent);
        assert_eq!(take(storage, &early(1), last + silent - 1).await.replaced, None, "{name:?}");
        assert_eq!(take(storage, &early(2), last + silent).await.replaced, Some(id(1)));
    }
}

pub async fn a_stopping_instance_gives_way(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 600, 1).await;
    hear(storage, 2, T, 60, 1).await;
    let stopping = |at, uptime| saying(Health::Degraded, Some(STOPPING), beat(2, at, uptime, 2));
    take(storage, &stopping(T + 1, 61), T + 1).await;
    let known = connector(storage).await;
    assert_eq!((known.instance_id, known.state.as_str()), (Some(id(2)), "degraded"));
    assert_eq!(instance(storage, 2).await.stopped_at, Some(T + 1));
    assert_eq!(hear(storage, 1, T + 2, 601, 1).await.replaced, Some(id(2)));
    // A late heartbeat does not undo the stop; a newer one does.
    hear(storage, 2, T - 1, 1, 1).await;
    assert_eq!(instance(storage, 2).await.stopped_at, Some(T + 1));
    hear(storage, 2, T + 3, 62, 2).await;
    assert_eq!(instance(storage, 2).await.stopped_at, None);
    // The message means a stop only in state `degraded`.
    let error = saying(Health::Error, Some(STOPPING), beat(2, T + 4, 63, 2));
    take(storage, &error, T + 4).await;
    assert_eq!(instance(storage, 2).await.stopped_at, None);
}

/// Ten instances of one endpoint send heartbeats concurrently, each through two handles. Heartbeats
/// overtake each other, and some are duplicated.
pub async fn ten_instances_at_once(place: Place) {
    const BEATS: i64 = 16;
    let mut handles = Vec::new();
    for _ in 0..10 {
        handles.push(place.open().await);
    }
    let told = |instance: i64, number: i64| {
        let uptime = (10 - instance) * 1_000 + number;
        let told = beat(instance as u128, T + number * SECOND, uptime, 10 * number);
        let is_last = number == BEATS;
        let state = if is_last { Health::Error } else { Health::Healthy };
        saying(state, is_last.then_some("newest"), told)
    };
    let mut beating = JoinSet::new();
    for instance in 0..10_i64 {
        for half in 0..2 {
            let storage = handles[(instance + half) as usize % 10].clone();
            beating.spawn(async move {
                let mut taken = Vec::new();
                let numbers: Vec<i64> = (1..=BEATS).filter(|it| it % 2 == half).collect();
                // Pairs are swapped, and every fourth is sent twice.
                for pair in numbers.chunks(2) {
                    for number in pair.iter().rev() {
                        for _ in 0..=i64::from(number % 4 == 0) {
                            taken.extend(take_now(&storage, &told(instance, *number)).await);
                        }
                    }
                }
                taken
            });
        }
    }
    let taken: Vec<AcceptedHeartbeat> = beating.join_all().await.into_iter().flatten().collect();
    let all = 10 * (BEATS + BEATS / 4);
    assert_eq!(taken.len() as i64, all);
    assert_eq!(taken.iter().filter(|it| it.registered).count(), 1);
    assert!(taken.iter().all(|it| !it.reset && it.unwritten.is_none()));

    let shown = shown(&place.storage, &bot()).await;
    assert_eq!(shown.connector.counters, counters(10 * 10 * BEATS));
    assert_eq!(shown.instances.len(), 10);
    for it in &shown.instances {
        assert_eq!((it.state.as_str(), it.error_message.as_deref()), ("error", Some("newest")));
        assert_eq!((it.counters, it.resets), (counters(10 * BEATS), 0));
        assert_eq!(it.beats, BEATS + BEATS / 4);
    }
    let late: i64 = shown.instances.iter().map(|it| it.late).sum();
    assert_eq!(late, taken.iter().filter(|it| it.late).count() as i64);
    let newest = shown.instances.iter().map(|it| it.last_heartbeat_at).max();
    assert_eq!(shown.connector.last_heartbeat_at, newest);
    assert_eq!(
        (shown.connector.instance_id, shown.connector.state.as_str()),
        (Some(id(9)), "error")
    );

    let history = history(&place.storage, &bot()).await;
    assert_eq!(history.len() as i64, all);
    let sum: i64 = history.iter().map(|it| it.deltas.dedupe_accepted).sum();
    assert_eq!(sum, shown.connector.counters.dedupe_accepted);
    for instance in 0..10 {
        for number in 1..=BEATS {
            let sent = |it: &&_| is_of(it, instance, T + number * SECOND);
            let times = if number % 4 == 0 { 2 } else { 1 };
            assert_eq!(history.iter().filter(sent).count(), times, "{instance} {number}");
        }
    }
}

fn is_of(logged: &tenure_switchboard::storage::HistoryEntry, instance: u128, sent_at: i64) -> bool {
    logged.instance_id == id(instance) && logged.sent_at == sent_at
}

/// Stores a heartbeat, and retries while the file is busy with ten writers. Returns `None` if too
/// many connectors were registered.
pub async fn take_now(
    storage: &Arc<dyn Storage>,
    beat: &ReceivedHeartbeat,
) -> Option<AcceptedHeartbeat> {
    loop {
        match storage.beat(beat, TimeSource::Now).await {
            Ok(HeartbeatOutcome::Accepted(taken)) => return Some(taken),
            Ok(HeartbeatOutcome::TooMany) => return None,
            Err(error) if error.code() == Code::Busy && !error.is_unknown() => {}
            other => panic!("{other:?}"),
        }
    }
}
