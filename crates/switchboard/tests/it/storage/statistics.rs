//! Statistics.

use std::sync::Arc;

use tenure_switchboard::storage::{
    HistoryRetention, MAX_SUM, Measures, Period, SeriesStep, Storage, TimeSource,
};
use tenure_wire::heartbeat::Health;

use super::kit::by_me;
use super::outcome::{message, report};
use super::told::{
    DAY, HOUR, MIDNIGHT, MINUTE, beat, bot, connector, count, epoch, hear, measures, named, of,
    saying, series, take,
};
use crate::place::Place;

const T: i64 = MIDNIGHT + 10 * HOUR;

/// The reference loses growth between the last heartbeat of an hour and the first of the next.
pub async fn the_first_interval_of_an_hour_counts(place: Place) {
    let storage = &place.storage;
    let start = T - MINUTE;
    // Before the first hour, so that each hour has 30 heartbeats of 10.
    hear(storage, 1, start, 60, 0).await;
    for number in 1..=90 {
        let at = start + number * 2 * MINUTE;
        hear(storage, 1, at, 60 + number * 120, number * 10).await;
    }
    count(storage, 1, T + 4 * HOUR).await;
    let hours = series(storage, &bot(), SeriesStep::Hour).await;
    assert_eq!(hours.len(), 4);
    for hour in [T, T + HOUR, T + 2 * HOUR] {
        assert_eq!(hours[&hour], measures(300, [30, 0, 0]));
    }
}

/// The reference subtracts the counters from before a restart.
pub async fn a_restart_never_gives_a_negative_hour(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 10_000).await;
    hear(storage, 1, T + 10 * MINUTE, 660, 10_050).await;
    // A new process, then one that restarts with its id.
    hear(storage, 2, T + 20 * MINUTE, 5, 3).await;
    hear(storage, 2, T + 30 * MINUTE, 605, 7).await;
    hear(storage, 2, T + 40 * MINUTE, 5, 2).await;
    count(storage, 1, T + HOUR).await;
    let hours = series(storage, &bot(), SeriesStep::Hour).await;
    assert_eq!(hours[&T], measures(10_050 + 7 + 2, [5, 0, 0]));
}

pub async fn hours_and_days_by_arrival(place: Place) {
    let storage = &place.storage;
    let evening = MIDNIGHT + 23 * HOUR + 59 * MINUTE;
    let states = [Health::Healthy, Health::Degraded, Health::Error, Health::Healthy];
    let other = named("api", "bot");
    for (number, state) in (0..).zip(states) {
        let at = evening + number * MINUTE / 2;
        // Its own clock is wrong.
        let told = saying(state, None, beat(1, at - DAY, 60 + number, 5 * (number + 1)));
        take(storage, &told, at).await;
        take(storage, &of(&other, beat(1, at, 60, 1)), at).await;
    }
    let rolled = count(storage, 1, evening + HOUR).await;
    assert_eq!((rolled.beats, rolled.outcomes, rolled.behind), (8, 0, 0));
    let (before, after) = (measures(10, [1, 1, 0]), measures(10, [1, 0, 1]));
    let hours = series(storage, &bot(), SeriesStep::Hour).await;
    let expected = [(MIDNIGHT + 23 * HOUR, before), (MIDNIGHT + DAY, after)];
    assert_eq!(hours.into_iter().collect::<Vec<_>>(), expected);
    let days = series(storage, &bot(), SeriesStep::Day).await;
    let expected = [(MIDNIGHT, before), (MIDNIGHT + DAY, after)];
    assert_eq!(days.into_iter().collect::<Vec<_>>(), expected);
    // Only from a given time on.
    let since = storage.series(&bot(), MIDNIGHT + DAY, SeriesStep::Day).await.unwrap();
    assert_eq!(since.iter().map(|it| it.start).collect::<Vec<_>>(), [MIDNIGHT + DAY]);
    let since = storage.series(&bot(), MIDNIGHT + DAY, SeriesStep::Hour).await.unwrap();
    assert_eq!(since.iter().map(|it| it.start).collect::<Vec<_>>(), [MIDNIGHT + DAY]);
    assert!(series(storage, &named("api", "nobody"), SeriesStep::Day).await.is_empty());
}

pub async fn late_beats_count_nowhere(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 10).await;
    assert!(hear(storage, 1, T - MINUTE, 30, 5).await.late);
    take(storage, &beat(1, T - MINUTE, 30, 5), T + MINUTE).await;
    count(storage, 1, T + HOUR).await;
    let hours = series(storage, &bot(), SeriesStep::Hour).await;
    assert_eq!(hours.into_iter().collect::<Vec<_>>(), [(T, measures(10, [1, 0, 0]))]);
    assert_eq!(series(storage, &bot(), SeriesStep::Day).await[&MIDNIGHT], measures(10, [1, 0, 0]));
}

/// Share of a day that was healthy, to two digits.
pub async fn the_uptime_of_a_day(place: Place) {
    let storage = &place.storage;
    let hundredths = "SELECT CAST(round(uptime_pct * 100) AS bigint) FROM connector_stats_daily";
    let states = [Health::Healthy, Health::Healthy, Health::Error];
    for (number, state) in (0..).zip(states) {
        let told = saying(state, None, beat(1, T + number, 60 + number, 1));
        take(storage, &told, T + number).await;
    }
    count(storage, 1, T + 3).await;
    assert_eq!(place.execute(hundredths).await, 6667);
    // Later heartbeats are included.
    for number in 3..7 {
        hear(storage, 1, T + number, 60 + number, 1).await;
    }
    count(storage, 1, T + HOUR).await;
    assert_eq!(place.execute(hundredths).await, 8571);
}

/// A step counts everything stored before it once, whatever the times are.
pub async fn each_beat_counts_once(place: Place) {
    let storage = &place.storage;
    for number in 0..2 {
        hear(storage, 1, T + number * MINUTE, 60 + number * 60, number + 1).await;
    }
    assert_eq!(count(storage, 1, T).await.beats, 2);
    assert_eq!(series(storage, &bot(), SeriesStep::Hour).await[&T], measures(2, [2, 0, 0]));
    assert_eq!(count(storage, 1, T + 2 * MINUTE).await.beats, 0);
    for number in 2..4 {
        hear(storage, 1, T + number * MINUTE, 60 + number * 60, number + 1).await;
    }
    let other = place.open().await;
    assert_eq!(count(&other, 2, T + 3 * MINUTE + 1).await.beats, 2);
    assert_eq!(count(storage, 2, T + HOUR).await.beats, 0);
    assert_eq!(series(storage, &bot(), SeriesStep::Hour).await[&T], measures(4, [4, 0, 0]));
    assert_eq!(series(storage, &bot(), SeriesStep::Day).await[&MIDNIGHT], measures(4, [4, 0, 0]));
}

/// After a downtime it catches up, ten thousand at a time, and reports its lag.
pub async fn a_step_of_counting_is_bounded(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 1).await;
    place.skip_numbers(10_000).await;
    hear(storage, 1, T + MINUTE, 120, 2).await;
    let now = T + DAY;
    let first = storage.roll_up(epoch(1), TimeSource::At(now)).await.unwrap();
    assert_eq!((first.beats, first.behind, first.more), (1, DAY, true));
    let second = storage.roll_up(epoch(1), TimeSource::At(now)).await.unwrap();
    assert_eq!((second.beats, second.behind, second.more), (1, 0, false));
    assert_eq!(series(storage, &bot(), SeriesStep::Hour).await[&T], measures(2, [2, 0, 0]));
}

pub async fn an_older_epoch_counts_nothing(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 1).await;
    count(storage, 7, T + MINUTE).await;
    hear(storage, 1, T + MINUTE, 120, 2).await;
    let fenced = place.open().await.roll_up(epoch(6), TimeSource::At(T + HOUR)).await.unwrap();
    assert!(fenced.fenced && !fenced.more && fenced.beats == 0, "{fenced:?}");
    assert_eq!(series(storage, &bot(), SeriesStep::Hour).await[&T], measures(1, [1, 0, 0]));
    assert_eq!(count(storage, 7, T + HOUR).await.beats, 1);
    assert_eq!(count(storage, 8, T + 2 * HOUR).await.beats, 0);
    assert!(storage.roll_up(epoch(7), TimeSource::At(T + 3 * HOUR)).await.unwrap().fenced);
}

/// The store's clock is a year ahead for a moment, then an hour behind: counting continues, each
/// heartbeat counts once, and periods recover.
pub async fn a_clock_that_steps_freezes_nothing(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 1).await;
    count(storage, 1, T + MINUTE).await;
    assert_eq!(sums(storage).await, [(1, 2); 3]);
    let ahead = T + 365 * DAY;
    assert_eq!(hear(storage, 2, ahead, 60, 10).await.received_at, ahead);
    assert_eq!(count(storage, 1, ahead).await.beats, 1);
    assert_eq!(sums(storage).await, [(10, 20); 3]);
    let back = hear(storage, 1, T + 2 * MINUTE, 180, 3).await;
    assert_eq!((back.received_at, back.drift), (T + 2 * MINUTE, 0));
    let rolled = count(storage, 1, T + 3 * MINUTE).await;
    assert_eq!((rolled.beats, rolled.behind), (1, 0));
    assert_eq!(series(storage, &bot(), SeriesStep::Hour).await[&T], measures(3, [2, 0, 0]));
    // Heartbeats stored while the clock was ahead are counted, too.
    assert_eq!(sums(storage).await, [(13, 26); 3]);
    let request_id = message(storage, "a").await;
    report(storage, request_id, &["health"], &[], T - HOUR).await;
    assert_eq!(hear(storage, 1, T - HOUR, 240, 4).await.received_at, T - HOUR);
    let rolled = count(storage, 1, T - HOUR).await;
    assert_eq!((rolled.beats, rolled.outcomes), (1, 1));
    let hours = series(storage, &bot(), SeriesStep::Hour).await;
    assert_eq!(hours[&(T - HOUR)], measures(1, [1, 0, 0]));
    assert_eq!(sums(storage).await, [(14, 28); 3]);
}

pub async fn sums(storage: &Arc<dyn Storage>) -> [(i64, i64); 3] {
    let mut sums = [(0, 0); 3];
    for (sum, period) in sums.iter_mut().zip(Period::ALL) {
        let (_, found) = storage.sums(period).await.unwrap();
        let [found] = &found[..] else { panic!("{found:?}") };
        *sum = (found.messages_ingested, found.messages_failed);
    }
    sums
}

pub async fn periods_grow_and_shrink(place: Place) {
    let storage = &place.storage;
    // Four heartbeats a day for 40 days, ten minutes past the hour.
    let mut done = 0;
    let start = MIDNIGHT - 40 * DAY;
    for hour in 0..40 * 24 {
        if hour % 6 == 0 {
            done += 1;
            let at = start + hour * HOUR + 10 * MINUTE;
            hear(storage, 1, at, hour * 3600, done).await;
        }
    }
    let expect = |n: [i64; 3]| n.map(|n| (n, 2 * n));
    count(storage, 1, MIDNIGHT).await;
    // At midnight each period begins an hour or a day later than its length ago.
    assert_eq!(sums(storage).await, expect([3, 27, 29 * 4]));
    count(storage, 1, MIDNIGHT + 5 * HOUR).await;
    assert_eq!(sums(storage).await, expect([3, 27, 29 * 4]));
    count(storage, 1, MIDNIGHT + 6 * HOUR).await;
    assert_eq!(sums(storage).await, expect([2, 26, 29 * 4]));
    count(storage, 1, MIDNIGHT + DAY).await;
    assert_eq!(sums(storage).await, expect([0, 23, 28 * 4]));
    hear(storage, 1, MIDNIGHT + DAY, 10_000_000, done + 10).await;
    count(storage, 1, MIDNIGHT + DAY + 1).await;
    assert_eq!(sums(storage).await, expect([10, 33, 28 * 4 + 10]));
    count(storage, 1, MIDNIGHT + 10 * DAY).await;
    assert_eq!(sums(storage).await, expect([0, 0, 19 * 4 + 10]));
    count(storage, 1, MIDNIGHT + 400 * DAY).await;
    assert_eq!(sums(storage).await, expect([0, 0, 0]));
    hear(storage, 1, MIDNIGHT + 400 * DAY, 100_000_000, done + 11).await;
    count(storage, 1, MIDNIGHT + 400 * DAY + 1).await;
    assert_eq!(sums(storage).await, expect([1, 1, 1]));
}

pub async fn sums_are_of_everybody(place: Place) {
    let storage = &place.storage;
    storage.register(&named("api", "new"), "me").await.unwrap();
    hear(storage, 1, T, 60, 1).await;
    hear(storage, 1, T + MINUTE, 120, 3).await;
    take(storage, &of(&named("api", "bot"), beat(1, T, 60, 7)), T).await;
    let (now, before) = storage.sums(Period::Week).await.unwrap();
    assert!(now > T + HOUR, "by the store's clock");
    assert!(before.iter().all(|it| it.messages_ingested == 0));
    count(storage, 1, T + HOUR).await;
    let (_, sums) = storage.sums(Period::Week).await.unwrap();
    let sums: Vec<_> = sums
        .iter()
        .map(|it| {
            let name = format!("{} {}", it.connector_type, it.endpoint_identity);
            let heard = (it.last_heartbeat_at, it.interval);
            (name, heard, (it.messages_ingested, it.messages_failed))
        })
        .collect();
    let expected = [
        ("api bot".to_owned(), (Some(T), None), (7, 14)),
        ("api new".to_owned(), (None, None), (0, 0)),
        ("telegram_bot bot".to_owned(), (Some(T + MINUTE), Some(MINUTE)), (3, 6)),
    ];
    assert_eq!(sums, expected);
}

/// Sums of huge numbers in one step are capped.
pub async fn counting_does_not_overflow(place: Place) {
    let storage = &place.storage;
    // Later additions are capped, too.
    for round in 1..3 {
        for number in 0..4 {
            let at = T + round * MINUTE + number;
            hear(storage, 1, at, at - T, at - T).await;
        }
        // Simulates thousands: each delta is the largest value of the column.
        let all = "UPDATE connector_heartbeat_log SET
            delta_messages_ingested = 9223372036854775807,
            delta_messages_failed = 9223372036854775807,
            delta_source_api_calls = 9223372036854775807,
            delta_dedupe_accepted = 9223372036854775807";
        assert_eq!(place.execute(all).await, 4 * round);
        assert_eq!(count(storage, 1, T + (round + 1) * MINUTE).await.beats, 4);
        for step in [SeriesStep::Hour, SeriesStep::Day] {
            let series = series(storage, &bot(), step).await;
            let done = |it: &Measures| {
                let done = [it.messages_ingested, it.messages_failed];
                (done, it.source_api_calls, it.dedupe_accepted, it.heartbeat_count)
            };
            let expected = ([MAX_SUM; 2], MAX_SUM, MAX_SUM, 4 * round);
            assert_eq!(series.values().map(done).collect::<Vec<_>>(), [expected]);
        }
        assert_eq!(sums(storage).await, [(MAX_SUM, MAX_SUM); 3]);
    }
    hear(storage, 1, T + HOUR, HOUR, HOUR).await;
    count(storage, 1, T + 40 * DAY).await;
    assert_eq!(sums(storage).await, [(0, 0); 3]);
}

/// A recount covers everything that the history still has, and changes nothing else.
pub async fn a_connector_is_counted_again(place: Place) {
    let storage = &place.storage;
    assert_eq!(storage.recount(&bot(), &by_me("why")).await.unwrap().unwrap(), None);
    let other = named("api", "bot");
    take(storage, &of(&other, beat(1, T, 60, 7)), T).await;
    for day in 0..3 {
        hear(storage, 1, T + day * DAY, 60 + day, day + 1).await;
        hear(storage, 1, T + day * DAY - MINUTE, 50, 1).await;
    }
    let now = T + 2 * DAY + MINUTE;
    count(storage, 1, now).await;
    let keep = HistoryRetention { beats: DAY, ..HistoryRetention::default() };
    storage.prune_history(keep, TimeSource::At(now)).await.unwrap();
    // As an earlier version counted it, with a jump.
    let all = ["connector_type = 'telegram_bot'", "1771151400"];
    for table in ["connector_stats_hourly", "connector_stats_daily", "connector_stats_window"] {
        let sql = format!(
            "UPDATE {table} SET messages_ingested = messages_ingested + {} WHERE {}",
            all[1], all[0]
        );
        assert!(place.execute(&sql).await > 0);
    }
    for (table, column) in [
        ("connector_heartbeat_log", "delta_messages_failed"),
        ("connector_registry", "counter_messages_ingested"),
    ] {
        let set = format!("{column} = {column} + {}", all[1]);
        let sql = format!("UPDATE {table} SET {set} WHERE {}", all[0]);
        assert!(place.execute(&sql).await > 0);
    }
    // The second day is the first that is complete.
    let since = storage.recount(&bot(), &by_me("a jump")).await.unwrap().unwrap();
    assert_eq!(since, Some(MIDNIGHT + DAY));
    let mut recounted = measures(1, [1, 0, 0]);
    recounted.messages_failed = 0;
    for (step, start) in [(SeriesStep::Hour, T), (SeriesStep::Day, MIDNIGHT)] {
        let found = series(storage, &bot(), step).await;
        let mut kept = measures(1, [1, 0, 0]);
        kept.messages_ingested += 1_771_151_400;
        let expected = [(start, kept), (start + DAY, recounted), (start + 2 * DAY, recounted)];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }
    let (_, day) = storage.sums(Period::Day).await.unwrap();
    let found: Vec<_> = day.iter().map(|it| (it.messages_ingested, it.messages_failed)).collect();
    assert_eq!(found, [(0, 0), (1, 0)]);
    let (_, month) = storage.sums(Period::Month).await.unwrap();
    assert_eq!((month[0].messages_ingested, month[1].messages_ingested), (7, 1_771_151_403));
    assert_eq!(series(storage, &other, SeriesStep::Day).await[&MIDNIGHT], measures(7, [1, 0, 0]));
    // A second recount changes nothing.
    let known = connector(storage).await;
    assert_eq!((known.counters.messages_ingested, known.counters.messages_failed), (0, 2));
    storage.recount(&bot(), &by_me("again")).await.unwrap().unwrap();
    assert_eq!(connector(storage).await.counters, known.counters);
    assert_eq!(storage.audit(None, 9).await.unwrap()[0].action_type, "connector_recount");
}

/// With a concurrent step under an old hold, nothing is counted twice.
pub async fn two_count_at_once(place: Place) {
    let storage = &place.storage;
    for number in 0..60 {
        hear(storage, 1, T + number * MINUTE, 60 + number * 60, number + 1).await;
    }
    let counting = |number: u64| {
        let handle = place.open();
        async move {
            let handle = handle.await;
            let mut beats = 0;
            for _ in 0..8 {
                let step = handle.roll_up(epoch(number), TimeSource::At(T + HOUR)).await.unwrap();
                beats += step.beats;
            }
            beats
        }
    };
    let (one, two) = tokio::join!(counting(4), counting(5));
    assert_eq!(one + two, 60);
    let hours = series(storage, &bot(), SeriesStep::Hour).await;
    assert_eq!(hours.into_iter().collect::<Vec<_>>(), [(T, measures(60, [60, 0, 0]))]);
    assert_eq!(series(storage, &bot(), SeriesStep::Day).await[&MIDNIGHT], measures(60, [60, 0, 0]));
    assert_eq!(sums(storage).await, [(60, 120); 3]);
}
