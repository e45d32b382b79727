//! Operations of the switchboard on connectors and statistics.
//!
//! Prepared: `telegram_bot/bot` has instance 41, with a heartbeat that is counted and one that is
//! not, and instance 42, silent for months. `mail/box` is archived. Message 2 has an outcome.

use tenure_core::Epoch;
use tenure_switchboard::StorageResult;
use tenure_switchboard::storage::{
    ConnectorKey, ConnectorQuery, HistoryQuery, HistoryRetention, MessageOutcomes, Period,
    ReceivedHeartbeat, SeriesStep, TimeSource,
};
use tenure_wire::heartbeat::{Counters, Health, Heartbeat, Labels};

use super::events::{DAY, SECOND, decision, id};
use super::{Kind, Part, TestedOperation, operations, show};
use crate::server::Handles;

pub(crate) fn bot() -> ConnectorKey {
    key("telegram_bot", "bot")
}

pub(crate) fn key(connector_type: &str, endpoint_identity: &str) -> ConnectorKey {
    let (connector_type, endpoint_identity) = (connector_type.into(), endpoint_identity.into());
    ConnectorKey { connector_type, endpoint_identity }
}

pub(crate) fn heartbeat(
    of: &ConnectorKey,
    instance: u128,
    done: i64,
    token: Option<&str>,
) -> ReceivedHeartbeat {
    let heartbeat = Heartbeat {
        connector_type: of.connector_type.clone(),
        endpoint_identity: of.endpoint_identity.clone(),
        instance_id: id(instance),
        labels: Labels::default(),
        state: Health::Healthy,
        error_message: None,
        uptime_s: 100 + done,
        counters: Counters {
            messages_ingested: done,
            messages_failed: 2 * done,
            source_api_calls: 3 * done,
            checkpoint_saves: 4 * done,
            dedupe_accepted: 5 * done,
        },
        checkpoint: None,
        capabilities: None,
        sent_at_micros: (1_771_151_400 + done) * SECOND,
        mended: Vec::new(),
    };
    ReceivedHeartbeat { heartbeat, token_id: token.map(str::to_owned), longest_interval: 0 }
}

async fn beat(
    on: Handles,
    of: ConnectorKey,
    instance: u128,
    done: i64,
    token: Option<&str>,
) -> StorageResult<impl std::fmt::Debug> {
    on.storage.beat(&heartbeat(&of, instance, done, token), TimeSource::Now).await
}

async fn report(
    on: Handles,
    acked: &[&str],
    failed: &[&str],
    token: Option<&str>,
) -> StorageResult<impl std::fmt::Debug> {
    let names = |of: &[&str]| of.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let ConnectorKey { connector_type, endpoint_identity } = bot();
    let outcomes = MessageOutcomes {
        request_id: id(2),
        connector_type,
        endpoint_identity,
        acked: names(acked),
        failed: names(failed),
        token_id: token.map(str::to_owned),
    };
    on.storage.report(&outcomes, TimeSource::Now).await
}

async fn archive(on: Handles, token: Option<&str>) -> StorageResult<impl std::fmt::Debug> {
    on.storage.archive(&bot(), true, &decision(token)).await
}

async fn delete(on: Handles, token: Option<&str>) -> StorageResult<impl std::fmt::Debug> {
    on.storage.delete(&bot(), &decision(token)).await
}

async fn recount(on: Handles, token: Option<&str>) -> StorageResult<impl std::fmt::Debug> {
    on.storage.recount(&bot(), &decision(token)).await
}

async fn roll_up(on: Handles, epoch: u64) -> StorageResult<impl std::fmt::Debug> {
    on.storage.roll_up(Epoch::new(epoch)?, TimeSource::Now).await
}

async fn prune_history(on: Handles) -> StorageResult<impl std::fmt::Debug> {
    let keep =
        HistoryRetention { beats: 100 * DAY, hours: 40 * DAY, days: 40 * DAY, outcomes: DAY };
    on.storage.prune_history(keep, TimeSource::Now).await
}

fn everyone(archived: bool) -> ConnectorQuery {
    ConnectorQuery { limit: 100, archived, ..ConnectorQuery::default() }
}

operations! { Switchboard;
    "beat" Change |on| beat(on, bot(), 41, 9, None);
    "beat-later" Change |on| beat(on, bot(), 41, 10, None);
    "beat-instance" Change |on| beat(on, bot(), 43, 1, None);
    "beat-token" Change |on| beat(on, bot(), 41, 9, Some("tok_a"));
    "beat-connector" Change |on| beat(on, key("new", "one"), 44, 1, Some("tok_a"));
    "beat-connector-too" Change |on| beat(on, key("new", "one"), 45, 1, Some("tok_b"));
    "beat-archived" Change |on| beat(on, key("mail", "box"), 46, 1, None);
    "register" Change |on| async move { on.storage.register(&key("new", "one"), "me").await };
    "archive" Change |on| archive(on, None);
    "archive-token" Change |on| archive(on, Some("tok_a"));
    "restore" Change |on| async move {
        on.storage.archive(&key("mail", "box"), false, &decision(None)).await
    };
    "delete" Change |on| delete(on, None);
    "delete-token" Change |on| delete(on, Some("tok_a"));
    "recount" Change |on| recount(on, None);
    "recount-token" Change |on| recount(on, Some("tok_a"));
    "report" Change |on| report(on, &["health"], &[], None);
    "report-failed" Change |on| report(on, &[], &["health", "home"], None);
    "report-token" Change |on| report(on, &["home"], &[], Some("tok_a"));
    "roll-up" Steps |on| roll_up(on, 2);
    "roll-up-newer" Steps |on| roll_up(on, 3);
    "prune-history" Steps |on| prune_history(on);
    "connectors" Read |on| async move { on.storage.connectors(&everyone(false)).await };
    "archived" Read |on| async move { on.storage.connectors(&everyone(true)).await };
    "connector" Read |on| async move { on.storage.connector(&bot()).await };
    "connector-types" Read |on| async move { on.storage.connector_types("bot").await };
    "heartbeats" Read |on| async move {
        let query = HistoryQuery { limit: 100, ..HistoryQuery::default() };
        let beats = on.storage.heartbeats(&bot(), &query).await?;
        let shown = beats.into_iter().map(|it| (it.instance_id, it.deltas));
        Ok::<_, tenure_switchboard::SwitchboardError>(shown.collect::<Vec<_>>())
    };
    "targets" Read |on| async move { on.storage.targets(id(2)).await };
    "series-hours" Read |on| async move {
        on.storage.series(&bot(), 0, SeriesStep::Hour).await
    };
    "series" Read |on| async move { on.storage.series(&bot(), 0, SeriesStep::Day).await };
    "sums" Read |on| async move { on.storage.sums(Period::Month).await };
    "fanout" Read |on| async move { on.storage.fanout("2026-01-01").await };
}
