//! Connectors, as shown to operators.

use std::sync::Arc;

use tenure_switchboard::storage::{
    ConnectorKey, ConnectorQuery, HistoryQuery, Measures, Period, SeriesStep, Storage, TimeSource,
};
use tenure_wire::heartbeat::Health;

use super::kit::by_me;
use super::told::{
    HOUR, MIDNIGHT, MINUTE, beat, bot, connector, count, counters, hear, history, id, measures,
    named, of, saying, series, shown, take,
};
use crate::place::Place;

const T: i64 = MIDNIGHT + 10 * HOUR;

async fn names(storage: &Arc<dyn Storage>, limit: usize, archived: bool) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = Vec::new();
    loop {
        let after = names.last().cloned();
        let query = ConnectorQuery { after, limit, archived, ..ConnectorQuery::default() };
        let page = storage.connectors(&query).await.unwrap().connectors;
        assert!(page.len() <= limit);
        if page.is_empty() {
            return names;
        }
        names.extend(page.into_iter().map(|it| (it.connector_type, it.endpoint_identity)));
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }
}

/// Returns the audit trail of connectors: action, connector, author and reason, newest first.
async fn noted(storage: &Arc<dyn Storage>) -> Vec<[String; 4]> {
    let trail = storage.audit(None, 100).await.unwrap();
    let trail = trail.into_iter().filter(|it| it.action_type.starts_with("connector_"));
    trail.map(|it| [it.action_type, it.token_id, it.operator_identity, it.reason]).collect()
}

pub async fn an_operator_registers(place: Place) {
    let storage = &place.storage;
    assert!(storage.register(&bot(), "me").await.unwrap());
    assert!(!storage.register(&bot(), "me").await.unwrap());
    let known = shown(storage, &bot()).await;
    assert_eq!(known.connector.registered_via, "operator");
    assert_eq!((known.connector.state.as_str(), known.connector.instance_id), ("unknown", None));
    assert_eq!((known.connector.last_heartbeat_at, known.connector.uptime_s), (None, None));
    assert!(known.instances.is_empty());
    assert!((known.now - known.connector.first_seen_at).abs() < MINUTE, "{known:?}");
    // Its first heartbeat: the connector is known, but had no representative.
    let taken = hear(storage, 1, T, 60, 1).await;
    assert!(!taken.registered && taken.replaced.is_none(), "{taken:?}");
    assert_eq!(connector(storage).await.instance_id, Some(id(1)));
    assert_eq!(connector(storage).await.registered_via, "operator");
    assert!(!storage.register(&bot(), "me").await.unwrap());
    assert_eq!(noted(storage).await, [["connector_register", "telegram_bot/bot", "me", ""]]);
}

pub async fn pages_are_in_the_order_of_bytes(place: Place) {
    let storage = &place.storage;
    let mut expected: Vec<(String, String)> = Vec::new();
    for of_type in ["a", "b", "B", "a_", "é", "z", "a/b"] {
        for endpoint in ["a", "Z", "ä", "a b", "10", "9", "\u{10ffff}"] {
            expected.push((of_type.to_owned(), endpoint.to_owned()));
            storage.register(&named(of_type, endpoint), "me").await.unwrap();
        }
    }
    expected.sort();
    for limit in [1, 7, 48, 100] {
        assert_eq!(names(storage, limit, false).await, expected);
    }
    assert!(names(storage, 5, true).await.is_empty());
}

/// A page has all connectors of an endpoint, however many others exist.
pub async fn connectors_of_one_endpoint(place: Place) {
    let storage = &place.storage;
    for (of_type, endpoint) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "y")] {
        storage.register(&named(of_type, endpoint), "me").await.unwrap();
    }
    let mut query = ConnectorQuery { limit: 2, ..ConnectorQuery::default() };
    query.endpoint_identity = Some("y".to_owned());
    let found = storage.connectors(&query).await.unwrap().connectors;
    assert_eq!(found.iter().map(|it| &*it.connector_type).collect::<Vec<_>>(), ["b", "d"]);
}

pub async fn archived_connectors_are_apart(place: Place) {
    let storage = &place.storage;
    for name in ["a", "b", "c"] {
        take(storage, &of(&named("api", name), beat(1, T, 60, 1)), T).await;
    }
    let b = named("api", "b");
    let archive = |archived, reason| {
        let b = b.clone();
        async move { storage.archive(&b, archived, &by_me(reason)).await.unwrap().unwrap() }
    };
    assert_eq!(storage.archive(&bot(), true, &by_me("no")).await.unwrap().unwrap(), None);
    assert_eq!(archive(true, "old").await, Some(true));
    let since = shown(storage, &b).await;
    assert!((since.now - since.connector.archived_at.unwrap()).abs() < MINUTE);
    assert_eq!(archive(true, "again").await, Some(false));
    let api = |name: &str| ("api".to_owned(), name.to_owned());
    assert_eq!(names(storage, 9, false).await, [api("a"), api("c")]);
    assert_eq!(names(storage, 9, true).await, [api("b")]);
    let sums = storage.sums(Period::Day).await.unwrap().1;
    let sums: Vec<&str> = sums.iter().map(|it| it.endpoint_identity.as_str()).collect();
    assert_eq!(sums, ["a", "c"]);
    assert_eq!(archive(false, "new").await, Some(true));
    assert_eq!(archive(false, "again").await, Some(false));
    assert_eq!(names(storage, 9, true).await, []);
    assert_eq!(shown(storage, &b).await.connector.archived_at, None);
    let expected = [
        ["connector_unarchive", "api/b", "me", "new"],
        ["connector_archive", "api/b", "me", "old"],
    ];
    assert_eq!(noted(storage).await, expected);
}

pub async fn a_beat_takes_it_back(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 5).await;
    storage.archive(&bot(), true, &by_me("old")).await.unwrap().unwrap();
    // A late heartbeat does not unarchive.
    let late = hear(storage, 1, T - 1, 59, 4).await;
    assert!(late.late && !late.revived, "{late:?}");
    assert!(connector(storage).await.archived_at.is_some());
    let taken = hear(storage, 1, T + 1, 61, 6).await;
    assert!(taken.revived && !taken.registered, "{taken:?}");
    let known = connector(storage).await;
    assert_eq!((known.archived_at, known.counters), (None, counters(6)));
    assert!(!hear(storage, 1, T + 2, 62, 6).await.revived);
}

pub async fn a_deleted_connector_leaves_nothing(place: Place) {
    let storage = &place.storage;
    // Also connectors with a similar type or endpoint.
    let names = [bot(), named("telegram_bot", "bot2"), named("telegram", "bot")];
    for name in &names {
        for (instance, done) in [(1, 5), (2, 6)] {
            take(storage, &of(name, beat(instance, T, 60, done)), T).await;
        }
    }
    count(storage, 1, T + HOUR).await;
    for name in &names {
        take(storage, &of(name, beat(1, T + HOUR, 3660, 7)), T + HOUR).await;
    }
    assert!(storage.delete(&bot(), &by_me("over")).await.unwrap().unwrap());
    assert!(!storage.delete(&bot(), &by_me("over")).await.unwrap().unwrap());
    assert_eq!(storage.connector(&bot()).await.unwrap(), None);
    assert!(history(storage, &bot()).await.is_empty());
    let tables = [
        ("connector_registry", 1),
        ("connector_instances", 2),
        ("connector_heartbeat_log", 3),
        ("connector_stats_hourly", 1),
        ("connector_stats_daily", 1),
        ("connector_stats_window", 3),
    ];
    for (table, of_each) in tables {
        let rows = place.execute(&format!("SELECT count(*) FROM {table}")).await;
        assert_eq!(rows, 2 * of_each, "{table}");
    }
    assert_eq!(noted(storage).await, [["connector_delete", "telegram_bot/bot", "me", "over"]]);
    // Counting starts anew with its next heartbeat.
    assert!(hear(storage, 1, T + HOUR, 3660, 8).await.registered);
    count(storage, 1, T + 2 * HOUR).await;
    let hours = series(storage, &bot(), SeriesStep::Hour).await;
    assert_eq!(hours.into_iter().collect::<Vec<_>>(), [(T + HOUR, measures(8, [1, 0, 0]))]);
    let hours = series(storage, &names[1], SeriesStep::Hour).await;
    assert_eq!(hours[&T], measures(11, [2, 0, 0]));
    assert_eq!(hours[&(T + HOUR)], measures(2, [1, 0, 0]));
}

/// Names that are equal when concatenated differ in the audit trail.
pub async fn names_in_the_trail_are_apart(place: Place) {
    let storage = &place.storage;
    for name in [named("a/b", "c"), named("a", "b/c"), named("a%2Fb", "c")] {
        assert!(storage.register(&name, "me").await.unwrap());
    }
    let mut noted = noted(storage).await;
    noted.dedup_by_key(|it| it[1].clone());
    assert_eq!(noted.len(), 3, "{noted:?}");
}

pub async fn the_types_of_an_endpoint(place: Place) {
    let storage = &place.storage;
    for of_type in ["slack", "Telegram", "telegram_user_client", "telegram_bot"] {
        storage.register(&named(of_type, "bot"), "me").await.unwrap();
    }
    storage.register(&named("gmail", "bot2"), "me").await.unwrap();
    let expected = ["Telegram", "slack", "telegram_bot", "telegram_user_client"];
    assert_eq!(storage.connector_types("bot").await.unwrap(), expected);
    assert!(storage.connector_types("nobody").await.unwrap().is_empty());
}

/// A connector is shown with its counts of today.
pub async fn today_is_of_the_stores_clock(place: Place) {
    let storage = &place.storage;
    let listed = |name: ConnectorKey| async move {
        let query = ConnectorQuery { limit: 9, ..ConnectorQuery::default() };
        let page = storage.connectors(&query).await.unwrap();
        let find = |it: &&tenure_switchboard::storage::Connector| {
            it.endpoint_identity == name.endpoint_identity
        };
        (page.now, page.connectors.iter().find(find).unwrap().today)
    };
    let now = shown_now(storage).await;
    // Yesterday's counts are not included.
    hear(storage, 1, now - 25 * HOUR, 60, 5).await;
    take(storage, &beat(1, now, 120, 8), now).await;
    assert_eq!(listed(bot()).await.1, Measures::default());
    count(storage, 1, now + 1).await;
    let (at, today) = listed(bot()).await;
    // Unless midnight (UTC) has passed meanwhile.
    if at.div_euclid(24 * HOUR) == now.div_euclid(24 * HOUR) {
        assert_eq!(today, measures(3, [1, 0, 0]));
        assert_eq!(connector(storage).await.today, today);
    }
    assert_eq!(listed(named("api", "idle")).await.1, Measures::default());
}

/// Returns the store's clock.
async fn shown_now(storage: &Arc<dyn Storage>) -> i64 {
    storage.register(&named("api", "idle"), "me").await.unwrap();
    shown(storage, &named("api", "idle")).await.now
}

pub async fn a_hundred_instances_are_shown(place: Place) {
    let storage = &place.storage;
    for instance in 1..=103 {
        hear(storage, instance, T + instance as i64, 60, 1).await;
    }
    let known = shown(storage, &bot()).await;
    let expected: Vec<_> = (4..=103).rev().map(id).collect();
    let order: Vec<_> = known.instances.iter().map(|it| it.instance_id).collect();
    assert_eq!(order, expected);
    assert_eq!(known.connector.counters, counters(103));
}

pub async fn the_history_page_by_page(place: Place) {
    let storage = &place.storage;
    // Three heartbeats at the same time, and one that is not healthy.
    for (number, at) in [T, T + 1, T + 1, T + 1, T + 2].into_iter().enumerate() {
        let state = if number == 2 { Health::Degraded } else { Health::Healthy };
        let uptime = 60 + number as i64;
        let told = saying(state, None, beat(1, T + uptime, uptime, number as i64));
        take(storage, &told, at).await;
    }
    take(storage, &of(&named("api", "bot"), beat(1, T, 1, 1)), T + 3).await;
    let page = |before, limit, unhealthy| {
        let query = HistoryQuery { before, unhealthy, limit };
        async move { storage.heartbeats(&bot(), &query).await.unwrap() }
    };
    let all = page(None, 9, false).await;
    let order: Vec<_> = all.iter().map(|it| (it.received_at, it.uptime_s)).collect();
    assert_eq!(order, [(T + 2, 64), (T + 1, 63), (T + 1, 62), (T + 1, 61), (T, 60)]);
    let (mut read, mut before) = (Vec::new(), None);
    loop {
        let page = page(before, 2, false).await;
        let Some(last) = page.last() else { break };
        before = Some((last.received_at, last.id));
        assert!(page.len() <= 2);
        read.extend(page);
    }
    assert_eq!(read, all);
    let unhealthy = page(None, 9, true).await;
    assert_eq!(unhealthy.iter().map(|it| it.uptime_s).collect::<Vec<_>>(), [62]);
}

/// A heartbeat keeps the members of `more` that only a newer version knows.
pub async fn fields_of_a_newer_version_stay(place: Place) {
    const NEWER: &str = r#"{"counter_newer":7,"newer":"text","owed_newer":3}"#;
    let storage = &place.storage;
    hear(storage, 1, T, 60, 5).await;
    for table in ["connector_registry", "connector_instances"] {
        assert_eq!(place.execute(&format!("UPDATE {table} SET more = '{NEWER}'")).await, 1);
    }
    let assert_kept = || async {
        for table in ["connector_registry", "connector_instances"] {
            let kept = format!("SELECT count(*) FROM {table} WHERE more = '{NEWER}'");
            assert_eq!(place.execute(&kept).await, 1, "{table}");
        }
    };
    hear(storage, 1, T + MINUTE, 120, 6).await;
    assert_kept().await;
    assert!(hear(storage, 1, T, 60, 5).await.late);
    assert_kept().await;
    place.break_history().await;
    let unwritten = hear(storage, 1, T + 2 * MINUTE, 180, 8).await.unwritten;
    place.mend_history().await;
    assert!(unwritten.is_some());
    assert_kept().await;
    let owed = "SELECT owed_messages_ingested FROM connector_instances";
    assert_eq!(place.execute(owed).await, 2);
}

pub async fn a_damaged_more_is_an_error(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, T, 60, 5).await;
    for table in ["connector_registry", "connector_instances"] {
        for damaged in ["{", "[]"] {
            assert_eq!(place.execute(&format!("UPDATE {table} SET more = '{damaged}'")).await, 1);
            let next = beat(1, T + MINUTE, 120, 6);
            let refused = storage.beat(&next, TimeSource::At(T + MINUTE)).await.unwrap_err();
            assert!(refused.to_string().contains("more"), "{refused}");
            assert!(storage.connector(&bot()).await.is_err(), "{table}");
            assert_eq!(place.execute(&format!("UPDATE {table} SET more = NULL")).await, 1);
        }
    }
    hear(storage, 1, T + MINUTE, 120, 6).await;
    assert_eq!(connector(storage).await.counters, counters(6));
}
