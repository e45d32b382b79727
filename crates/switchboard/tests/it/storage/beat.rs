//! Heartbeats.

use std::sync::Arc;

use tenure_switchboard::storage::{
    AcceptedHeartbeat, HeartbeatOutcome, MAX_CONNECTORS_PER_TOKEN, MAX_SUM, ReceivedHeartbeat,
    Storage, TimeSource, TokenEnd,
};
use tenure_wire::heartbeat::{Counters, Health};
use tokio::task::JoinSet;

use super::instance::take_now;
use super::kit::{by_me, make_token};
use super::told::{
    DAY, HOUR, MIDNIGHT, MINUTE, SECOND, at_cursor, beat, bot, connector, counters, hear, history,
    id, instance, named, of, saying, shown, take,
};
use crate::place::Place;

const T: i64 = MIDNIGHT + 10 * HOUR;

pub async fn the_first_beat_registers(place: Place) {
    let storage = &place.storage;
    assert_eq!(storage.connector(&bot()).await.unwrap(), None);
    let mut first = at_cursor(Some("42"), Some(T - HOUR), beat(1, T - SECOND, 60, 7));
    first.heartbeat.labels.version = Some("1.2".to_owned());
    first.heartbeat.capabilities = Some("{\"role\":\"active\"}".to_owned());
    let first = saying(Health::Degraded, Some("slow"), first);
    let taken = take(storage, &first, T).await;
    let expected = AcceptedHeartbeat {
        received_at: T,
        registered: true,
        drift: SECOND,
        ..AcceptedHeartbeat::default()
    };
    assert_eq!(taken, expected);

    let shown = shown(storage, &bot()).await;
    let known = &shown.connector;
    assert_eq!(
        (known.connector_type.as_str(), known.endpoint_identity.as_str()),
        ("telegram_bot", "bot")
    );
    assert_eq!((known.instance_id, known.uptime_s), (Some(id(1)), Some(60)));
    assert_eq!((known.state.as_str(), known.error_message.as_deref()), ("degraded", Some("slow")));
    assert_eq!(
        (known.labels.version.as_deref(), known.registered_via.as_str()),
        (Some("1.2"), "self")
    );
    assert_eq!((known.first_seen_at, known.last_heartbeat_at), (T, Some(T)));
    assert_eq!((known.counters, known.interval, known.drift), (counters(7), None, Some(SECOND)));
    assert_eq!(known.checkpoint_cursor.as_deref(), Some("42"));
    assert_eq!((known.checkpoint_updated_at, known.archived_at), (Some(T - HOUR), None));

    let [it] = &shown.instances[..] else { panic!("{shown:?}") };
    assert_eq!((it.instance_id, it.uptime_s, it.started_at), (id(1), 60, T - MINUTE));
    assert_eq!((it.state.as_str(), it.error_message.as_deref()), ("degraded", Some("slow")));
    assert_eq!((it.labels.version.as_deref(), it.counters), (Some("1.2"), counters(7)));
    assert_eq!((it.first_seen_at, it.last_heartbeat_at, it.stopped_at), (T, T, None));
    assert_eq!(
        (it.checkpoint_cursor.as_deref(), it.checkpoint_updated_at),
        (Some("42"), Some(T - HOUR))
    );
    assert_eq!(it.capabilities.as_deref(), Some("{\"role\":\"active\"}"));
    assert_eq!((it.interval, it.drift), (None, SECOND));
    assert_eq!((it.beats, it.late, it.resets), (1, 0, 0));

    let [logged] = &history(storage, &bot()).await[..] else { panic!() };
    assert_eq!(
        (logged.instance_id, logged.state.as_str(), logged.late),
        (id(1), "degraded", false)
    );
    assert_eq!((logged.error_message.as_deref(), logged.uptime_s), (Some("slow"), 60));
    assert_eq!((logged.counters, logged.deltas), (counters(7), counters(7)));
    assert_eq!((logged.received_at, logged.sent_at), (T, T - SECOND));
}

pub async fn beats_add_what_was_done_since(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 7).await;
    let taken = hear(storage, 1, T + MINUTE, 120, 10).await;
    let expected = AcceptedHeartbeat {
        received_at: T + MINUTE,
        drift_before: Some(0),
        ..AcceptedHeartbeat::default()
    };
    assert_eq!(taken, expected);
    // Another instance of the same connector starts at its own counters.
    hear(storage, 2, T + MINUTE, 5, 4).await;
    let known = connector(storage).await;
    assert_eq!(known.counters, counters(14));
    assert_eq!(known.first_seen_at, T);
    let deltas: Vec<_> = history(storage, &bot()).await.iter().map(|it| it.deltas).collect();
    assert_eq!(deltas, [counters(7), counters(3), counters(4)]);
    let it = instance(storage, 1).await;
    assert_eq!((it.counters, it.beats, it.first_seen_at), (counters(10), 2, T));
}

pub async fn names_are_apart(place: Place) {
    let storage = &place.storage;
    let names =
        [bot(), named("telegram_bot", "bot2"), named("telegram", "bot"), named("a/b:@<i>%", "c/d")];
    for (number, name) in (1..).zip(&names) {
        let taken = take(storage, &of(name, beat(1, T, 60, number)), T).await;
        assert!(taken.registered, "{name:?}");
    }
    for (number, name) in (1..).zip(&names) {
        assert_eq!(shown(storage, name).await.connector.counters, counters(number));
        assert_eq!(history(storage, name).await.len(), 1);
    }
}

/// Checks that a late heartbeat only changes `beats`, `late` and the history.
async fn is_late(storage: &Arc<dyn Storage>, late: &ReceivedHeartbeat, at: i64) {
    let before = shown(storage, &bot()).await;
    let taken = take(storage, late, at).await;
    let drift_before = Some(before.instances[0].drift);
    let drift = at - late.heartbeat.sent_at_micros;
    let expected = AcceptedHeartbeat {
        received_at: at,
        late: true,
        drift,
        drift_before,
        ..AcceptedHeartbeat::default()
    };
    assert_eq!(taken, expected);
    let after = shown(storage, &bot()).await;
    assert_eq!(after.connector, before.connector);
    let mut it = before.instances[0].clone();
    it.beats += 1;
    it.late += 1;
    assert_eq!(after.instances, [it]);
    let logged = history(storage, &bot()).await.pop().unwrap();
    assert!(logged.late);
    assert_eq!((logged.deltas, logged.counters), (Counters::default(), late.heartbeat.counters));
}

pub async fn a_late_beat_changes_nothing(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 600, 100).await;
    let at = T + MINUTE;
    let late = |sent, uptime| {
        let told = at_cursor(Some("old"), Some(1), beat(1, sent, uptime, 50));
        saying(Health::Error, Some("old"), told)
    };
    is_late(storage, &late(T - MINUTE, 540), at).await;
    // The same heartbeat again.
    is_late(storage, &late(T, 600), at).await;
    is_late(storage, &late(T - 1, 600), at).await;
    is_late(storage, &late(T, 599), at).await;
}

pub async fn what_is_newer_in_one_way_is_not_late(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 600, 100).await;
    // Its clock was set back; the uptime decides.
    let set_back = take(storage, &beat(1, T - HOUR, 660, 101), T + MINUTE).await;
    assert!(!set_back.late, "{set_back:?}");
    // It restarted with the same id; the send time decides.
    let again = take(storage, &beat(1, T + 2 * MINUTE, 10, 3), T + 2 * MINUTE).await;
    assert!(!again.late && again.reset, "{again:?}");
    // A heartbeat that it sent before the restart is late now.
    assert!(take(storage, &beat(1, T - HOUR, 10, 3), T + 3 * MINUTE).await.late);
    assert_eq!(connector(storage).await.counters, counters(104));
}

pub async fn a_clock_that_was_ahead_silences_nobody(place: Place) {
    let storage = &place.storage;
    let ahead = take(storage, &beat(1, T + 365 * DAY, 600, 100), T).await;
    assert_eq!(ahead.drift, -365 * DAY);
    // The send time is capped at five minutes ahead; until then only the uptime decides.
    assert!(take(storage, &beat(1, T + 5 * MINUTE, 10, 1), T + 5 * MINUTE).await.late);
    let right = take(storage, &beat(1, T + 5 * MINUTE + 1, 10, 1), T + 6 * MINUTE).await;
    assert!(!right.late, "{right:?}");
    let right = take(storage, &beat(1, T + 6 * MINUTE, 70, 2), T + 7 * MINUTE).await;
    assert!(!right.late, "{right:?}");
    assert_eq!(instance(storage, 1).await.drift, MINUTE);
    assert_eq!(connector(storage).await.drift, Some(MINUTE));
}

/// Such as a clock that sends local time as UTC; heartbeats may still overtake each other.
pub async fn a_clock_that_is_always_ahead_makes_nothing_newer(place: Place) {
    let storage = &place.storage;
    let ahead = |sent: i64, uptime, done| beat(1, sent + 2 * HOUR, uptime, done);
    take(storage, &ahead(T, 600, 100), T).await;
    take(storage, &ahead(T + 2 * MINUTE, 720, 120), T + 2 * MINUTE).await;
    is_late(storage, &ahead(T + MINUTE, 660, 110), T + 3 * MINUTE).await;
    is_late(storage, &ahead(T + 2 * MINUTE, 720, 120), T + 3 * MINUTE).await;
    let next = take(storage, &ahead(T + 4 * MINUTE, 840, 140), T + 4 * MINUTE).await;
    assert!(!next.late && !next.reset, "{next:?}");
    assert_eq!(connector(storage).await.counters, counters(140));
    // It restarts with the same id.
    let again = take(storage, &ahead(T + 5 * MINUTE, 1, 1), T + 5 * MINUTE).await;
    assert!(!again.late && again.reset, "{again:?}");
}

pub async fn the_first_and_the_last_time(place: Place) {
    let storage = &place.storage;
    // 1970, 2200, and an uptime that began before 1970.
    assert_eq!(take(storage, &beat(1, 0, 60, 1), T).await.drift, T);
    let far = 7_258_118_400 * SECOND;
    assert_eq!(take(storage, &beat(2, far, MAX_SUM, 1), T).await.drift, T - far);
    assert!(instance(storage, 2).await.started_at < T);
    assert_eq!(connector(storage).await.instance_id, Some(id(1)));
    assert_eq!(history(storage, &bot()).await[1].sent_at, far);
    // The first and the last possible time of a heartbeat and of a checkpoint.
    for (number, sent) in [(3, -62_135_596_800 * SECOND), (4, 253_402_300_800 * SECOND - 1)] {
        let told = at_cursor(Some("a"), Some(sent), beat(number, sent, MAX_SUM, 1));
        assert_eq!(take(storage, &told, T).await.drift, T - sent);
        let it = instance(storage, number).await;
        assert_eq!((it.drift, it.started_at, it.uptime_s), (T - sent, 0, MAX_SUM));
        assert_eq!(it.checkpoint_updated_at, Some(sent));
        assert_eq!(history(storage, &bot()).await.pop().unwrap().sent_at, sent);
    }
}

pub async fn a_counter_that_goes_down_begins_again(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 10).await;
    let mut again = beat(1, T + MINUTE, 120, 12);
    again.heartbeat.counters.messages_ingested = 3;
    let taken = take(storage, &again, T + MINUTE).await;
    assert!(taken.reset && !taken.late && taken.replaced.is_none(), "{taken:?}");
    let mut expected = counters(2);
    expected.messages_ingested = 3;
    assert_eq!(history(storage, &bot()).await[1].deltas, expected);
    let it = instance(storage, 1).await;
    assert_eq!((it.resets, it.counters), (1, again.heartbeat.counters));
    assert_eq!(connector(storage).await.counters.messages_ingested, 13);
    assert_eq!(connector(storage).await.counters.messages_failed, 24);
    // Counting continues from there.
    let mut on = beat(1, T + 2 * MINUTE, 180, 12);
    on.heartbeat.counters.messages_ingested = 4;
    assert!(!take(storage, &on, T + 2 * MINUTE).await.reset);
    assert_eq!(connector(storage).await.counters.messages_ingested, 14);
}

/// A client adds the creation times of its counters to their values: with each new label a counter
/// jumps by a Unix time.
pub async fn a_jump_by_a_unix_time_is_left_out(place: Place) {
    let storage = &place.storage;
    let now = T / SECOND;
    let jump = |number: i64, by: i64| {
        let mut told = beat(1, T + number * MINUTE, 60 + number, 10 + number);
        told.heartbeat.counters.messages_ingested += by;
        told
    };
    take(storage, &jump(0, 0), T).await;
    let taken = take(storage, &jump(1, now - 3_600), T + MINUTE).await;
    assert!(taken.jumped && !taken.reset, "{taken:?}");
    let mut left = counters(1);
    left.messages_ingested = 0;
    assert_eq!(history(storage, &bot()).await[1].deltas, left);
    assert_eq!(connector(storage).await.counters.messages_ingested, 10);
    assert_eq!(connector(storage).await.counters.messages_failed, 22);
    // Counting continues from there, and the jump is not reported again.
    assert!(!take(storage, &jump(2, now - 3_600), T + 2 * MINUTE).await.jumped);
    assert_eq!(connector(storage).await.counters.messages_ingested, 11);
    let again = take(storage, &jump(3, 3 * now), T + 3 * MINUTE).await;
    assert!(!again.jumped, "{again:?}");
    assert_eq!(connector(storage).await.counters.messages_ingested, 11);
    let it = instance(storage, 1).await;
    assert_eq!((it.jumps, it.resets, it.counters.messages_ingested), (2, 0, 13 + 3 * now));
    // A process that starts with a jump.
    let mut first = beat(2, T, 1, 5);
    first.heartbeat.counters.messages_ingested += now;
    assert!(take(storage, &first, T + 4 * MINUTE).await.jumped);
    assert_eq!(connector(storage).await.counters.messages_ingested, 11);
    assert_eq!(connector(storage).await.counters.messages_failed, 26 + 10);
}

pub async fn sums_end_where_numbers_do(place: Place) {
    let storage = &place.storage;
    let most = Counters {
        messages_ingested: MAX_SUM,
        messages_failed: MAX_SUM,
        source_api_calls: MAX_SUM,
        checkpoint_saves: MAX_SUM,
        dedupe_accepted: MAX_SUM,
    };
    let full = |number: i64| {
        let mut full = beat(1, T + number, 60 + number, 0);
        if number % 2 == 0 {
            full.heartbeat.counters = most;
        }
        full
    };
    for number in 0..5 {
        take(storage, &full(number), T + number).await;
    }
    assert_eq!(connector(storage).await.counters, most);
    // The same holds for owed deltas.
    place.break_history().await;
    for number in 5..9 {
        assert!(take(storage, &full(number), T + number).await.unwritten.is_some());
    }
    place.mend_history().await;
    take(storage, &full(10), T + 10).await;
    assert_eq!(history(storage, &bot()).await.pop().unwrap().deltas, most);
}

/// Deltas that could not be written to the history are written with the next heartbeat.
pub async fn what_could_not_be_written_is_owed(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 10).await;
    place.break_history().await;
    let taken = hear(storage, 1, T + MINUTE, 120, 13).await;
    assert!(taken.unwritten.is_some_and(|why| !why.is_empty()));
    let taken = hear(storage, 1, T + 2 * MINUTE, 180, 17).await;
    assert!(taken.unwritten.is_some());
    let late = hear(storage, 1, T - MINUTE, 30, 5).await;
    assert!(late.late && late.unwritten.is_some());
    let first = hear(storage, 2, T, 60, 100).await;
    assert!(first.unwritten.is_some());
    place.mend_history().await;
    // The registry is complete.
    assert_eq!(connector(storage).await.counters, counters(117));
    assert_eq!(connector(storage).await.last_heartbeat_at, Some(T));
    assert_eq!(instance(storage, 1).await.last_heartbeat_at, T + 2 * MINUTE);
    // A late heartbeat does not write the owed deltas.
    assert!(hear(storage, 1, T - MINUTE, 30, 5).await.late);
    for instance in [1, 2] {
        let taken = hear(storage, instance, T + 3 * MINUTE, 240, 118).await;
        assert_eq!(taken.unwritten, None);
        hear(storage, instance, T + 4 * MINUTE, 300, 119).await;
    }
    let history = history(storage, &bot()).await;
    let of = |instance| -> Vec<Counters> {
        let told = history.iter().filter(|it| it.instance_id == id(instance) && !it.late);
        told.map(|it| it.deltas).collect()
    };
    assert_eq!(of(1), [counters(10), counters(3 + 4 + 101), counters(1)]);
    assert_eq!(of(2), [counters(118), counters(1)]);
    assert_eq!(connector(storage).await.counters, counters(2 * 119));
}

pub async fn a_checkpoint_stays_until_another_is_told(place: Place) {
    let storage = &place.storage;
    let cursor = |storage: &Arc<dyn Storage>| {
        let storage = storage.clone();
        async move {
            let (known, it) = (connector(&storage).await, instance(&storage, 1).await);
            let cursor = (known.checkpoint_cursor, known.checkpoint_updated_at);
            assert_eq!(cursor, (it.checkpoint_cursor, it.checkpoint_updated_at));
            cursor
        }
    };
    hear(storage, 1, T, 60, 1).await;
    assert_eq!(cursor(storage).await, (None, None));
    let told = at_cursor(Some("a"), Some(T), beat(1, T + 1, 61, 1));
    take(storage, &told, T + 1).await;
    assert_eq!(cursor(storage).await, (Some("a".to_owned()), Some(T)));
    hear(storage, 1, T + 2, 62, 1).await;
    assert_eq!(cursor(storage).await, (Some("a".to_owned()), Some(T)));
    // A checkpoint without a cursor is ignored.
    let nowhere = at_cursor(None, Some(T + 3), beat(1, T + 3, 63, 1));
    take(storage, &nowhere, T + 3).await;
    assert_eq!(cursor(storage).await, (Some("a".to_owned()), Some(T)));
    // A new checkpoint does not inherit the time of the previous one.
    take(storage, &at_cursor(Some("b"), None, beat(1, T + 4, 64, 1)), T + 4).await;
    assert_eq!(cursor(storage).await, (Some("b".to_owned()), None));
}

pub async fn what_an_instance_can_do_stays(place: Place) {
    let storage = &place.storage;
    let mut told = beat(1, T, 60, 1);
    told.heartbeat.capabilities = Some("{}".to_owned());
    told.heartbeat.labels.version = Some("1".to_owned());
    take(storage, &told, T).await;
    hear(storage, 1, T + 1, 61, 1).await;
    let it = instance(storage, 1).await;
    assert_eq!((it.capabilities.as_deref(), it.labels.version), (Some("{}"), None));
    assert_eq!(connector(storage).await.labels.version, None);
}

pub async fn the_interval_follows_the_gaps(place: Place) {
    let storage = &place.storage;
    let mut at = T;
    let mut uptime = 60;
    hear(storage, 1, at, uptime, 1).await;
    // A gap below a second is ignored; the first gap counts fully, later ones by a fifth, and a
    // long silence is capped.
    let gaps = [
        (SECOND - 1, None),
        (120 * SECOND, Some(120 * SECOND)),
        (SECOND / 2, Some(120 * SECOND)),
        (60 * SECOND, Some(108 * SECOND)),
        (DAY, Some(129_600_000)),
    ];
    for (gap, expected) in gaps {
        at += gap;
        uptime += gap / SECOND + 1;
        hear(storage, 1, at, uptime, 1).await;
        assert_eq!(instance(storage, 1).await.interval, expected, "{gap}");
        assert_eq!(connector(storage).await.interval, expected, "{gap}");
    }
    // A late heartbeat does not change the interval.
    hear(storage, 1, at - MINUTE, 60, 1).await;
    assert_eq!(instance(storage, 1).await.interval, Some(129_600_000));
    // The connector has the interval of the instance with the last heartbeat.
    hear(storage, 2, at, 1, 1).await;
    assert_eq!(connector(storage).await.interval, None);
    hear(storage, 2, at + 2 * HOUR, 7201, 1).await;
    assert_eq!(connector(storage).await.interval, Some(HOUR));
}

pub async fn an_ended_token_beats_for_nobody(place: Place) {
    let storage = &place.storage;
    for token_id in ["tok_revoked", "tok_expired", "tok_good"] {
        make_token(storage, token_id).await;
    }
    storage.revoke_token("tok_revoked", "me", "over").await.unwrap();
    place
        .age("connector_tokens", "expires_at", super::kit::DAY * 100, "token_id = 'tok_expired'")
        .await;
    let ends = [
        ("tok_revoked", TokenEnd::Revoked),
        ("tok_expired", TokenEnd::Expired),
        ("tok_never", TokenEnd::Gone),
    ];
    for (token_id, ended) in ends {
        let beat = ReceivedHeartbeat { token_id: Some(token_id.to_owned()), ..beat(1, T, 60, 1) };
        // Expiry follows the store's clock, whatever time is given.
        for when in [TimeSource::Now, TimeSource::At(T)] {
            let beaten = storage.beat(&beat, when).await.unwrap();
            assert_eq!(beaten, HeartbeatOutcome::TokenEnded(ended));
        }
    }
    assert_eq!(storage.connector(&bot()).await.unwrap(), None);
    assert!(history(storage, &bot()).await.is_empty());
    let good = ReceivedHeartbeat { token_id: Some("tok_good".to_owned()), ..beat(1, T, 60, 1) };
    assert!(take(storage, &good, T).await.registered);
}

pub async fn a_token_registers_a_few(place: Place) {
    let storage = &place.storage;
    make_token(storage, "tok_a").await;
    make_token(storage, "tok_b").await;
    let with = |token_id: &str, name: &str| {
        let beat = of(&named("api", name), beat(1, T, 60, 1));
        ReceivedHeartbeat { token_id: Some(token_id.to_owned()), ..beat }
    };
    storage.register(&named("api", "known"), "me").await.unwrap();
    for number in 0..MAX_CONNECTORS_PER_TOKEN {
        assert!(take(storage, &with("tok_a", &number.to_string()), T).await.registered);
    }
    let over = storage.beat(&with("tok_a", "more"), TimeSource::At(T)).await.unwrap();
    assert_eq!(over, HeartbeatOutcome::TooMany);
    assert_eq!(storage.connector(&named("api", "more")).await.unwrap(), None);
    assert!(history(storage, &named("api", "more")).await.is_empty());
    // Known connectors are still accepted, and other tokens are not affected.
    take(storage, &with("tok_a", "0"), T + 1).await;
    assert!(!take(storage, &with("tok_a", "known"), T).await.registered);
    assert!(take(storage, &with("tok_b", "more"), T).await.registered);
    // Deleting a connector makes room.
    assert!(storage.delete(&named("api", "3"), &by_me("over")).await.unwrap().unwrap());
    assert!(take(storage, &with("tok_a", "new"), T).await.registered);
}

pub async fn a_token_registers_a_few_at_once(place: Place) {
    make_token(&place.storage, "tok_a").await;
    let mut beating = JoinSet::new();
    for handle in 0..4 {
        let storage = place.open().await;
        beating.spawn(async move {
            let mut registered = 0;
            for number in 0..6 {
                let name = named("api", &format!("{handle} {number}"));
                let told = of(&name, beat(1, T, 60, 1));
                let told = ReceivedHeartbeat { token_id: Some("tok_a".to_owned()), ..told };
                registered += match take_now(&storage, &told).await {
                    Some(taken) => i64::from(taken.registered),
                    None => 0,
                };
            }
            registered
        });
    }
    assert_eq!(beating.join_all().await.into_iter().sum::<i64>(), MAX_CONNECTORS_PER_TOKEN);
    let known = place.execute("SELECT count(*) FROM connector_registry").await;
    assert_eq!(known, MAX_CONNECTORS_PER_TOKEN);
}
