//! Retention of the history of connectors.

use std::sync::Arc;

use tenure_switchboard::storage::{HistoryRetention, SeriesStep, Storage, TimeSource};

use super::outcome::{message, of_two, outcomes, report};
use super::statistics::sums;
use super::told::{
    DAY, HOUR, MIDNIGHT, SECOND, bot, connector, count, counters, hear, history, id, instance,
    series, shown,
};
use crate::place::Place;

const T: i64 = MIDNIGHT + 10 * HOUR;

const NOTHING: HistoryRetention = HistoryRetention { beats: 0, hours: 0, days: 0, outcomes: 0 };

async fn tidy(storage: &Arc<dyn Storage>, keep: HistoryRetention, at: i64) {
    while storage.prune_history(keep, TimeSource::At(at)).await.unwrap().more {}
}

pub async fn what_is_not_counted_is_kept(place: Place) {
    let storage = &place.storage;
    let one = message(storage, "a").await;
    let now = T + 100 * DAY;
    for day in 0..3 {
        hear(storage, 1, T + day * DAY, 60 + day, day + 1).await;
    }
    tidy(storage, NOTHING, now).await;
    assert_eq!(history(storage, &bot()).await.len(), 3);
    // Three days are counted.
    count(storage, 1, T + 2 * DAY + 1).await;
    for day in 3..5 {
        hear(storage, 1, T + day * DAY, 60 + day, day + 1).await;
    }
    report(storage, one, &["health"], &["finance"], T).await;
    tidy(storage, NOTHING, now).await;
    assert_eq!(history(storage, &bot()).await.len(), 2);
    assert_eq!(outcomes(storage, one).await, of_two("health", ""));
    count(storage, 1, now).await;
    let days = series(storage, &bot(), SeriesStep::Day).await;
    assert_eq!(days.values().map(|it| it.messages_ingested).sum::<i64>(), 5);
    tidy(storage, NOTHING, now).await;
    assert!(history(storage, &bot()).await.is_empty());
    assert_eq!(outcomes(storage, one).await, of_two("", ""));
    assert_eq!(connector(storage).await.counters, counters(5));
}

pub async fn beats_are_kept_for_whole_days(place: Place) {
    let storage = &place.storage;
    for day in 0..10 {
        for hour in [0, 23] {
            let at = MIDNIGHT + day * DAY + hour * HOUR;
            hear(storage, 1, at, 60 + at / SECOND, 1).await;
        }
    }
    let now = MIDNIGHT + 9 * DAY + 23 * HOUR + 1;
    count(storage, 1, now).await;
    let keep = HistoryRetention { beats: 7 * DAY, ..HistoryRetention::default() };
    tidy(storage, keep, now).await;
    // Two days ended at least seven days ago, and part of the third is as old.
    let first = history(storage, &bot()).await[0].received_at;
    assert_eq!(first, MIDNIGHT + 2 * DAY);
    tidy(storage, keep, MIDNIGHT + 10 * DAY - 1).await;
    assert_eq!(history(storage, &bot()).await[0].received_at, MIDNIGHT + 2 * DAY);
    tidy(storage, keep, MIDNIGHT + 10 * DAY + 1).await;
    assert_eq!(history(storage, &bot()).await[0].received_at, MIDNIGHT + 3 * DAY);
}

pub async fn hours_days_and_the_rest_have_their_time(place: Place) {
    let storage = &place.storage;
    let one = message(storage, "a").await;
    report(storage, one, &["health"], &[], T).await;
    hear(storage, 1, T, 60, 1).await;
    hear(storage, 2, T, 30, 1).await;
    let keep = HistoryRetention { beats: DAY, hours: 20 * DAY, days: 60 * DAY, outcomes: 40 * DAY };
    let left = |at: i64| async move {
        count(storage, 1, at).await;
        let tidied = storage.prune_history(keep, TimeSource::At(at)).await.unwrap();
        assert!(!tidied.more, "{tidied:?}");
        let hours = series(storage, &bot(), SeriesStep::Hour).await.len();
        let days = series(storage, &bot(), SeriesStep::Day).await.len();
        let fanout = storage.fanout("2026-01-01").await.unwrap().len();
        let acked = storage.outcomes(one).await.unwrap().0.len();
        let known = shown(storage, &bot()).await;
        let gone = [
            tidied.hourly_rows_deleted,
            tidied.daily_rows_deleted,
            tidied.fanout_rows_deleted,
            tidied.outcome_rows_deleted,
            tidied.instances_deleted,
        ];
        ([hours, days, fanout, acked, known.instances.len()], gone)
    };
    assert_eq!(left(T + 19 * DAY).await, ([1, 1, 1, 1, 2], [0; 5]));
    assert_eq!(left(T + 21 * DAY).await, ([0, 1, 1, 1, 2], [1, 0, 0, 0, 0]));
    assert_eq!(left(T + 39 * DAY).await, ([0, 1, 1, 1, 2], [0; 5]));
    // The instance that represents its connector stays.
    assert_eq!(left(T + 42 * DAY).await, ([0, 1, 1, 0, 1], [0, 0, 0, 1, 1]));
    assert_eq!(instance(storage, 2).await.instance_id, id(2));
    assert_eq!(left(T + 59 * DAY).await, ([0, 1, 1, 0, 1], [0; 5]));
    assert_eq!(left(T + 62 * DAY).await, ([0, 0, 0, 0, 1], [0, 1, 1, 0, 0]));
    assert_eq!(left(T + 900 * DAY).await, ([0, 0, 0, 0, 1], [0; 5]));
}

/// The age of an outcome counts from its last change, such as a later acknowledgement.
pub async fn an_outcome_is_as_old_as_its_last_news(place: Place) {
    let storage = &place.storage;
    let one = message(storage, "a").await;
    report(storage, one, &[], &["health", "general"], T).await;
    report(storage, one, &["health"], &[], T + 20 * DAY).await;
    // No change.
    report(storage, one, &["health"], &["general"], T + 25 * DAY).await;
    count(storage, 1, T + 45 * DAY).await;
    tidy(storage, HistoryRetention::default(), T + 45 * DAY).await;
    assert_eq!(outcomes(storage, one).await, of_two("health", ""));
    tidy(storage, HistoryRetention::default(), T + 51 * DAY).await;
    assert_eq!(outcomes(storage, one).await, of_two("", ""));
}

/// Hours and days are kept until they have left the periods, however long that takes.
pub async fn periods_shrink_by_what_was_kept(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 5).await;
    hear(storage, 1, T + 6 * DAY, 120, 7).await;
    count(storage, 1, T + 6 * DAY + 1).await;
    assert_eq!(sums(storage).await, [(2, 4), (7, 14), (7, 14)]);
    // Retention runs while counting is paused.
    tidy(storage, NOTHING, T + 300 * DAY).await;
    count(storage, 1, T + 7 * DAY).await;
    assert_eq!(sums(storage).await, [(0, 0), (2, 4), (7, 14)]);
    tidy(storage, NOTHING, T + 300 * DAY).await;
    count(storage, 1, T + 31 * DAY).await;
    assert_eq!(sums(storage).await, [(0, 0), (0, 0), (2, 4)]);
    count(storage, 1, T + 300 * DAY).await;
    assert_eq!(sums(storage).await, [(0, 0); 3]);
}

pub async fn a_step_of_tidying_is_bounded(place: Place) {
    let storage = &place.storage;
    place
        .execute(
            "INSERT INTO connector_fanout_daily
                (connector_type, endpoint_identity, target_butler, day, message_count)
            WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1500)
            SELECT 'api', 'bot', CAST(n AS text), '2026-02-15', 1 FROM n",
        )
        .await;
    let now = T + 900 * DAY;
    let step =
        storage.prune_history(HistoryRetention::default(), TimeSource::At(now)).await.unwrap();
    assert_eq!((step.fanout_rows_deleted, step.more), (1000, true));
    let step =
        storage.prune_history(HistoryRetention::default(), TimeSource::At(now)).await.unwrap();
    assert_eq!((step.fanout_rows_deleted, step.more), (500, false));
    assert_eq!(
        storage.prune_history(NOTHING, TimeSource::At(now)).await.unwrap().fanout_rows_deleted,
        0
    );
}
