//! Connector tests for PostgreSQL only: partitions of the history, locks, time zones.

use std::sync::Arc;

use tenure_core::Code;
use tenure_store::IfAbsent;
use tenure_switchboard::storage::{
    ClockMeasurement, ConnectorQuery, HeartbeatOutcome, HistoryPruneReport, HistoryQuery,
    HistoryRetention, Period, ReceivedHeartbeat, SeriesStep, Storage, TimeSource, TokenEnd,
    postgres,
};
use tenure_wire::heartbeat::Health;
use tokio::task::JoinSet;
use tokio_postgres::Client;
use uuid::Uuid;

use super::session;
use crate::place::Place;
use crate::storage::kit::{by_me, inbox, make_token};
use crate::storage::outcome::{message, told_of};
use crate::storage::told::{
    DAY, HOUR, MIDNIGHT, MINUTE, SECOND, beat, bot, connector, count, counters, epoch, hear,
    history, measures, named, of, saying, series, shown, take,
};

/// Waits until another session is blocked by this one, or until `is_over`.
async fn until_behind(place: &Place, locked: &Client, is_over: impl Fn() -> bool) {
    let looks = session(place).await;
    let pid: i32 = locked.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let waits = "SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
    while looks.query(waits, &[&pid]).await.unwrap().is_empty() && !is_over() {}
}

/// Returns the number that a query selects.
async fn number(place: &Place, sql: &str) -> i64 {
    place.execute(&format!("SELECT ({sql})::bigint")).await
}

async fn in_default(place: &Place) -> i64 {
    number(place, "SELECT count(*) FROM connector_heartbeat_log_default").await
}

async fn has_day(place: &Place, day: &str) -> bool {
    let sql = format!(
        "SELECT count(*) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
        WHERE inhparent = 'connector_heartbeat_log'::regclass
            AND c.relname = 'connector_heartbeat_log_p{day}'"
    );
    number(place, &sql).await == 1
}

async fn tidy(storage: &Arc<dyn Storage>, at: i64) -> HistoryPruneReport {
    storage.prune_history(HistoryRetention::default(), TimeSource::At(at)).await.unwrap()
}

/// Uses days of a year that no other case uses.
#[tokio::test(flavor = "multi_thread")]
async fn days_are_made_ahead_and_dropped_whole_once_counted() {
    const START: i64 = MIDNIGHT + 365 * DAY;
    let Some(place) = Place::postgres().await else { return };
    let storage = &place.storage;
    // Today's partition exists before the first heartbeat.
    assert!(matches!(
        storage.beat(&beat(1, 0, 1, 1), TimeSource::Now).await,
        Ok(HeartbeatOutcome::Accepted(_))
    ));
    assert_eq!(in_default(&place).await, 0);
    // Without a partition, the heartbeat is stored in the default one and stays there.
    hear(storage, 1, START + HOUR, 60, 10).await;
    assert_eq!(in_default(&place).await, 1);
    tidy(storage, START + 2 * HOUR).await;
    let days = ["20270215", "20270216", "20270217", "20270218", "20270219"];
    let mut made = Vec::new();
    for day in days {
        made.push(has_day(&place, day).await);
    }
    assert_eq!(made, [false, true, true, true, false]);
    hear(storage, 1, START + DAY, 3600, 11).await;
    hear(storage, 1, START + 2 * DAY - 1, 7200, 12).await;
    hear(storage, 1, START + 2 * DAY, 10_000, 13).await;
    assert_eq!(in_default(&place).await, 1);
    assert_eq!(number(&place, "SELECT count(*) FROM connector_heartbeat_log_p20270216").await, 2);

    // Past the retention but not counted: only a day without heartbeats is dropped.
    let tidied = tidy(storage, START + 30 * DAY).await;
    assert_eq!((tidied.heartbeat_partitions_dropped, tidied.heartbeat_rows_deleted), (1, 0));
    assert_eq!(history(storage, &bot()).await.len(), 5);
    assert_eq!(count(storage, 1, START + 9 * DAY).await.beats, 5);
    // Once counted, a day is dropped when its end is a week ago, not before.
    let tidied = tidy(storage, START + 9 * DAY - 1).await;
    assert_eq!(tidied.heartbeat_rows_deleted, 1);
    assert!(has_day(&place, "20270216").await);
    assert!(tidy(storage, START + 9 * DAY).await.heartbeat_partitions_dropped > 0);
    assert!(!has_day(&place, "20270216").await && has_day(&place, "20270217").await);
    assert_eq!(history(storage, &bot()).await.len(), 1);
    // The counts stay.
    let days = series(storage, &bot(), SeriesStep::Day).await;
    assert_eq!(days[&(START + DAY)], measures(2, [2, 0, 0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_make_and_drop_the_same_days() {
    const START: i64 = MIDNIGHT + 2 * 365 * DAY;
    let Some(place) = Place::postgres().await else { return };
    let replicas = super::replicas(&place, 4).await;
    for (at, is_there) in [(START, true), (START + 20 * DAY, false)] {
        if !is_there {
            count(&place.storage, 1, at).await;
        }
        let mut working = JoinSet::new();
        for storage in &replicas {
            let storage = storage.clone();
            working.spawn(async move { tidy(&storage, at).await });
        }
        working.join_all().await;
        // A replica that times out on a lock leaves the work to the next turn.
        let again = async {
            while has_day(&place, "20280215").await != is_there {
                tidy(&place.storage, at).await;
            }
        };
        tokio::time::timeout(super::LIMIT, again).await.unwrap();
    }
}

/// A heartbeat received before the bound of a step is committed before that step runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_beat_that_is_stuck_is_not_lost() {
    let Some(place) = Place::postgres().await else { return };
    let storage = &place.storage;
    let stuck = session(&place).await;
    stuck.batch_execute("BEGIN").await.unwrap();
    let (_, schema) = place.schema();
    let sql = format!(
        "WITH told AS (
            SELECT json_build_object('connector_type', 'telegram_bot', 'endpoint_identity', 'bot',
                'instance_id', gen_random_uuid(), 'state', 'healthy', 'uptime_s', 1, 'late', 0,
                'started_at', now(), 'first_seen_at', now(), 'last_heartbeat_at', now(),
                'last_sent_at', now(), 'received_at', now(), 'sent_at', now(), 'drift_micros', 0,
                'beats', 1, 'resets', 0, 'jumps', 0)::jsonb
                || (SELECT jsonb_object_agg(kind || name, 1)
                    FROM unnest(ARRAY['counter_', 'delta_', 'owed_']) AS kind, unnest(ARRAY[
                        'messages_ingested', 'messages_failed', 'source_api_calls',
                        'checkpoint_saves', 'dedupe_accepted']) AS name) AS row
        )
        SELECT verdict FROM told, {schema}.connector_beat_apply(NULL, 16,
            hash_record_extended(ROW(NULL::{schema}.connector_registry,
                NULL::{schema}.connector_instances, NULL::{schema}.connector_instances), 0),
            false, row::text, row::text, row::text, row::text)"
    );
    assert_eq!(stuck.query_one(&sql, &[]).await.unwrap().get::<_, &str>(0), "taken");
    let beside = of(&named("slack", "beside"), beat(2, 0, 1, 1));
    storage.beat(&beside, TimeSource::Now).await.unwrap();
    // Counting does not pass it, and other heartbeats are accepted.
    let error = storage.roll_up(epoch(1), TimeSource::Now).await.map_err(|error| error.code());
    storage.beat(&beside, TimeSource::Now).await.unwrap();
    stuck.batch_execute("COMMIT").await.unwrap();
    storage.roll_up(epoch(1), TimeSource::Now).await.unwrap();
    let hours: Vec<i64> = series(storage, &bot(), SeriesStep::Hour)
        .await
        .into_values()
        .map(|it| it.heartbeat_count)
        .collect();
    assert_eq!((hours, error.err()), (vec![1], Some(Code::Busy)));
}

/// The same holds for an acknowledgement.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_is_stuck_is_not_lost() {
    let Some(place) = Place::postgres().await else { return };
    let storage = &place.storage;
    let request_id = message(storage, "a").await;
    let stuck = session(&place).await;
    stuck.batch_execute("BEGIN").await.unwrap();
    let (_, schema) = place.schema();
    let sql = format!(
        "SELECT changed FROM {schema}.outcome_report(NULL, $1, 'telegram_bot', 'bot', '{{health}}',
            '{{}}', NULL)"
    );
    assert_eq!(stuck.query_one(&sql, &[&request_id]).await.unwrap().get::<_, i64>(0), 1);
    let error = storage.roll_up(epoch(1), TimeSource::Now).await.map_err(|error| error.code());
    stuck.batch_execute("COMMIT").await.unwrap();
    let rolled = storage.roll_up(epoch(1), TimeSource::Now).await.unwrap();
    assert_eq!((rolled.outcomes, error.err()), (1, Some(Code::Busy)));
}

/// Deleting a connector waits for a step that counts it, or else the new counts would remain.
#[tokio::test(flavor = "multi_thread")]
async fn a_connector_that_is_counted_is_deleted_afterwards() {
    let Some(place) = Place::postgres().await else { return };
    let storage = &place.storage;
    hear(storage, 1, MIDNIGHT, 60, 1).await;
    let counting = session(&place).await;
    let (_, schema) = place.schema();
    let bound = format!("SELECT {schema}.connector_bound(1)");
    counting.batch_execute(&bound).await.unwrap();
    counting.batch_execute("BEGIN").await.unwrap();
    let step = format!("SELECT beats FROM {schema}.connector_roll_up(1, now())");
    assert_eq!(counting.query_one(&step, &[]).await.unwrap().get::<_, i64>(0), 1);
    let storage = storage.clone();
    let deleting = tokio::spawn(async move { storage.delete(&bot(), &by_me("over")).await });
    until_behind(&place, &counting, || deleting.is_finished()).await;
    counting.batch_execute("COMMIT").await.unwrap();
    assert!(deleting.await.unwrap().unwrap().unwrap());
    for table in ["hourly", "daily", "window"] {
        let left = number(&place, &format!("SELECT count(*) FROM connector_stats_{table}")).await;
        assert_eq!(left, 0, "{table}");
    }
}

/// A heartbeat that waited for a lock checks its token after the wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_while_a_beat_waits_beats_for_nobody() {
    let Some(place) = Place::postgres().await else { return };
    let storage = &place.storage;
    let known = ReceivedHeartbeat { token_id: Some("tok_known".to_owned()), ..beat(1, 0, 60, 1) };
    let new = of(&named("api", "new"), known.clone());
    let new = ReceivedHeartbeat { token_id: Some("tok_new".to_owned()), ..new };
    for token in ["tok_known", "tok_new"] {
        make_token(storage, token).await;
    }
    assert!(matches!(
        storage.beat(&known, TimeSource::Now).await,
        Ok(HeartbeatOutcome::Accepted(_))
    ));
    // One waits for its connector, the other for its token.
    let locks = [
        (known, "SELECT FROM connector_registry FOR UPDATE"),
        (new, "SELECT FROM connector_tokens WHERE token_id = 'tok_new' FOR UPDATE"),
    ];
    for (told, lock) in locks {
        let locked = session(&place).await;
        locked.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
        let (storage, token) = (storage.clone(), told.token_id.clone().unwrap());
        let beating =
            tokio::spawn(async move { storage.beat(&told, TimeSource::Now).await.unwrap() });
        until_behind(&place, &locked, || beating.is_finished()).await;
        let end = format!(
            "UPDATE connector_tokens SET revoked_at = now(), revoked_by = 'me',
                revoked_reason = 'over' WHERE token_id = '{token}'; COMMIT"
        );
        locked.batch_execute(&end).await.unwrap();
        assert_eq!(
            beating.await.unwrap(),
            HeartbeatOutcome::TokenEnded(TokenEnd::Revoked),
            "{lock}"
        );
    }
    assert_eq!(storage.connector(&named("api", "new")).await.unwrap(), None);
}

/// A time zone with a half-hour offset and a summer time that ends on 2026-11-01.
#[tokio::test(flavor = "multi_thread")]
async fn days_and_hours_are_of_utc() {
    /// 2026-10-11T00:00:00Z.
    const OCTOBER: i64 = 1_791_676_800 * SECOND;
    let Some(place) = Place::postgres().await else { return };
    let (url, schema) = place.schema();
    let url = format!("{url}?options=-c%20TimeZone%3DAmerica/St_Johns");
    let storage: Arc<dyn Storage> =
        Arc::new(postgres::open(&url, schema, IfAbsent::Refuse).await.unwrap());
    let storage = &storage;
    tidy(storage, OCTOBER).await;
    hear(storage, 1, OCTOBER + DAY - 1, 60, 5).await;
    hear(storage, 1, OCTOBER + DAY, 120, 12).await;
    assert_eq!(in_default(&place).await, 0);
    assert_eq!(number(&place, "SELECT count(*) FROM connector_heartbeat_log_p20261011").await, 1);
    count(storage, 1, OCTOBER + DAY + 1).await;
    let hours = series(storage, &bot(), SeriesStep::Hour).await;
    let days = series(storage, &bot(), SeriesStep::Day).await;
    let (before, after) = (measures(5, [1, 0, 0]), measures(7, [1, 0, 0]));
    assert_eq!(hours, [(OCTOBER + DAY - HOUR, before), (OCTOBER + DAY, after)].into());
    assert_eq!(days, [(OCTOBER, before), (OCTOBER + DAY, after)].into());
    // 30 days later the first heartbeat has left the period, and the second has not.
    count(storage, 1, OCTOBER + 30 * DAY + MINUTE).await;
    assert_eq!(storage.sums(Period::Month).await.unwrap().1[0].messages_ingested, 7);
    assert_eq!(storage.sums(Period::Week).await.unwrap().1[0].messages_ingested, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_locks_the_history_silences_nobody() {
    let Some(place) = Place::postgres().await else { return };
    let storage = &place.storage;
    hear(storage, 1, MIDNIGHT, 60, 1).await;
    let locked = session(&place).await;
    let lock = "BEGIN; LOCK TABLE connector_heartbeat_log IN ACCESS EXCLUSIVE MODE";
    locked.batch_execute(lock).await.unwrap();
    let taken = hear(storage, 1, MIDNIGHT + MINUTE, 120, 4).await;
    assert!(taken.unwritten.is_some_and(|why| why.contains("lock timeout")));
    assert_eq!(connector(storage).await.last_heartbeat_at, Some(MIDNIGHT + MINUTE));
    locked.batch_execute("COMMIT").await.unwrap();
    hear(storage, 1, MIDNIGHT + 2 * MINUTE, 180, 5).await;
    let told: Vec<_> = history(storage, &bot()).await.iter().map(|it| it.deltas).collect();
    assert_eq!(told, [counters(1), counters(4)]);
}

/// Runs every statement once, to check that rights and poolers permit it.
pub async fn uses_everything(storage: &Arc<dyn Storage>, start: i64) {
    let error = saying(Health::Error, Some("no"), beat(1, start, 60, 1));
    assert_eq!(take(storage, &error, start).await.unwritten, None);
    hear(storage, 1, start + MINUTE, 120, 2).await;
    let other = named("slack", "other");
    assert!(storage.register(&other, "me").await.unwrap());
    assert_eq!(storage.archive(&other, true, &by_me("quiet")).await.unwrap().unwrap(), Some(true));
    assert!(storage.recount(&other, &by_me("again")).await.unwrap().unwrap().is_some());
    assert!(storage.delete(&other, &by_me("gone")).await.unwrap().unwrap());
    let message = inbox(storage).await.pop().unwrap();
    let mut outcomes = told_of(message.request_id, &["health"]);
    outcomes.failed = vec!["general".to_owned()];
    storage.report(&outcomes, TimeSource::At(start)).await.unwrap().unwrap();
    assert_eq!(storage.outcomes(message.request_id).await.unwrap().0, ["health"]);
    assert!(count(storage, 1, start + HOUR).await.beats > 0);
    let all = ConnectorQuery { limit: 9, ..ConnectorQuery::default() };
    assert_eq!(storage.connectors(&all).await.unwrap().connectors.len(), 1);
    assert_eq!(shown(storage, &bot()).await.instances.len(), 1);
    assert_eq!(storage.connector_types("bot").await.unwrap(), ["telegram_bot"]);
    let query = HistoryQuery { limit: 9, unhealthy: true, before: None };
    assert_eq!(storage.heartbeats(&bot(), &query).await.unwrap().len(), 1);
    assert_eq!(series(storage, &bot(), SeriesStep::Hour).await.len(), 1);
    assert_eq!(series(storage, &bot(), SeriesStep::Day).await.len(), 1);
    assert_eq!(storage.sums(Period::Day).await.unwrap().1.len(), 1);
    assert_eq!(storage.fanout("2026-01-01").await.unwrap().len(), 1);
    storage.prune_history(HistoryRetention::default(), TimeSource::At(start)).await.unwrap();
    count(storage, 1, start + 40 * DAY).await;
    let tidied =
        storage.prune_history(HistoryRetention::default(), TimeSource::At(start + 400 * DAY)).await;
    assert!(tidied.unwrap().heartbeat_partitions_dropped > 0);
    storage.delete(&bot(), &by_me("over")).await.unwrap().unwrap();
    let tick = storage.tick(None, TimeSource::Now).await.unwrap();
    let since = ClockMeasurement { turn: tick.turn, wall: tick.wall, elapsed: 0 };
    assert_eq!(storage.tick(Some(since), TimeSource::Now).await.unwrap().turn, tick.turn + 1);
    let replica = Uuid::from_u128(7);
    storage.announce(replica, "127.0.0.1:1").await.unwrap();
    assert!(storage.replica(replica).await.unwrap().is_some());
    storage.withdraw(replica).await.unwrap();
}
