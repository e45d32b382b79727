//! Heartbeats for the test cases.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::Epoch;
use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{
    AcceptedHeartbeat, Connector, ConnectorDetail, ConnectorInstance, ConnectorKey,
    HeartbeatOutcome, HistoryEntry, HistoryQuery, Measures, ReceivedHeartbeat, RollUpReport,
    SeriesStep, Storage, TimeSource,
};
use tenure_wire::heartbeat::{ConnectorCheckpoint, Counters, Health, Heartbeat, Labels};
use uuid::Uuid;

pub const SECOND: i64 = 1_000_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;
/// 2026-02-15T00:00:00Z.
pub const MIDNIGHT: i64 = 1_771_113_600 * SECOND;

pub fn named(connector_type: &str, endpoint_identity: &str) -> ConnectorKey {
    ConnectorKey {
        connector_type: connector_type.to_owned(),
        endpoint_identity: endpoint_identity.to_owned(),
    }
}

/// Returns the connector of [`beat`].
pub fn bot() -> ConnectorKey {
    named("telegram_bot", "bot")
}

pub fn id(instance: u128) -> Uuid {
    Uuid::from_u128(instance)
}

/// Returns distinct counters, so that a mix-up is noticed: `n`, `2n` and so on.
pub fn counters(n: i64) -> Counters {
    Counters {
        messages_ingested: n,
        messages_failed: 2 * n,
        source_api_calls: 3 * n,
        checkpoint_saves: 4 * n,
        dedupe_accepted: 5 * n,
    }
}

/// Returns a healthy heartbeat of an instance of [`bot`].
pub fn beat(instance: u128, sent_at: i64, uptime_s: i64, done: i64) -> ReceivedHeartbeat {
    let heartbeat = Heartbeat {
        connector_type: "telegram_bot".to_owned(),
        endpoint_identity: "bot".to_owned(),
        instance_id: id(instance),
        labels: Labels::default(),
        state: Health::Healthy,
        error_message: None,
        uptime_s,
        counters: counters(done),
        checkpoint: None,
        capabilities: None,
        sent_at_micros: sent_at,
        mended: Vec::new(),
    };
    let longest_interval = Policy::Usual.longest_interval();
    ReceivedHeartbeat { heartbeat, token_id: None, longest_interval }
}

pub fn of(name: &ConnectorKey, mut beat: ReceivedHeartbeat) -> ReceivedHeartbeat {
    beat.heartbeat.connector_type = name.connector_type.clone();
    beat.heartbeat.endpoint_identity = name.endpoint_identity.clone();
    beat
}

pub fn saying(
    state: Health,
    message: Option<&str>,
    mut beat: ReceivedHeartbeat,
) -> ReceivedHeartbeat {
    beat.heartbeat.state = state;
    beat.heartbeat.error_message = message.map(str::to_owned);
    beat
}

pub fn at_cursor(
    cursor: Option<&str>,
    updated_at_micros: Option<i64>,
    mut beat: ReceivedHeartbeat,
) -> ReceivedHeartbeat {
    let cursor = cursor.map(str::to_owned);
    beat.heartbeat.checkpoint = Some(ConnectorCheckpoint { cursor, updated_at_micros });
    beat
}

/// Stores a heartbeat at a given time and checks that it is accepted.
pub async fn take(
    storage: &Arc<dyn Storage>,
    beat: &ReceivedHeartbeat,
    at: i64,
) -> AcceptedHeartbeat {
    match storage.beat(beat, TimeSource::At(at)).await.unwrap() {
        HeartbeatOutcome::Accepted(taken) => taken,
        other => panic!("{other:?}"),
    }
}

/// Stores a heartbeat of a sender whose clock is right.
pub async fn hear(
    storage: &Arc<dyn Storage>,
    instance: u128,
    at: i64,
    uptime_s: i64,
    done: i64,
) -> AcceptedHeartbeat {
    take(storage, &beat(instance, at, uptime_s, done), at).await
}

pub async fn shown(storage: &Arc<dyn Storage>, name: &ConnectorKey) -> ConnectorDetail {
    storage.connector(name).await.unwrap().unwrap()
}

pub async fn connector(storage: &Arc<dyn Storage>) -> Connector {
    shown(storage, &bot()).await.connector
}

pub async fn instance(storage: &Arc<dyn Storage>, instance: u128) -> ConnectorInstance {
    let shown = shown(storage, &bot()).await;
    shown.instances.into_iter().find(|it| it.instance_id == id(instance)).unwrap()
}

/// Reads the whole history of a connector by pages; returns it oldest first.
pub async fn history(storage: &Arc<dyn Storage>, name: &ConnectorKey) -> Vec<HistoryEntry> {
    let mut history: Vec<HistoryEntry> = Vec::new();
    loop {
        let before = history.last().map(|it| (it.received_at, it.id));
        let query = HistoryQuery { before, limit: 50, unhealthy: false };
        let page = storage.heartbeats(name, &query).await.unwrap();
        if page.is_empty() {
            break;
        }
        history.extend(page);
        let place = |it: &HistoryEntry| (it.received_at, it.id);
        assert!(history.is_sorted_by(|a, b| place(a) > place(b)), "{history:?}");
    }
    history.reverse();
    history
}

pub fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

/// Counts everything received before a time. Returns the last report, with the totals of all steps.
pub async fn count(storage: &Arc<dyn Storage>, number: u64, at: i64) -> RollUpReport {
    let mut all = RollUpReport::default();
    loop {
        let step = storage.roll_up(epoch(number), TimeSource::At(at)).await.unwrap();
        assert!(!step.fenced, "{step:?}");
        all = RollUpReport {
            beats: all.beats + step.beats,
            outcomes: all.outcomes + step.outcomes,
            ..step
        };
        if !step.more {
            return all;
        }
    }
}

/// Returns the counts of a connector by the start of its hours or days.
pub async fn series(
    storage: &Arc<dyn Storage>,
    name: &ConnectorKey,
    step: SeriesStep,
) -> BTreeMap<i64, Measures> {
    let series = storage.series(name, 0, step).await.unwrap();
    assert!(series.is_sorted_by(|a, b| a.start < b.start), "{series:?}");
    series.into_iter().map(|bucket| (bucket.start, bucket.measures)).collect()
}

pub fn measures(done: i64, [healthy, degraded, error]: [i64; 3]) -> Measures {
    let done = counters(done);
    Measures {
        messages_ingested: done.messages_ingested,
        messages_failed: done.messages_failed,
        source_api_calls: done.source_api_calls,
        dedupe_accepted: done.dedupe_accepted,
        heartbeat_count: healthy + degraded + error,
        healthy_count: healthy,
        degraded_count: degraded,
        error_count: error,
    }
}
