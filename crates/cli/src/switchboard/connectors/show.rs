//! `tenure connectors show`: one connector and its instances.

use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{Connector, ConnectorDetail, ConnectorInstance, ConnectorKey};
use tenure_switchboard::view;
use tenure_wire::heartbeat::{COUNTER_NAMES, Counters, LABEL_NAMES};

use super::super::{MICROS, at, fields, open, time_before};
use super::find;
use crate::args::Global;
use crate::failure::Failure;
use crate::output::shown;
use crate::table::{or_dash, table};

pub(super) async fn run(
    name: &ConnectorKey,
    policy: Policy,
    global: &Global,
) -> Result<String, Failure> {
    let found = find(&*open(global).await?, name).await?;
    let rows = found.instances.iter().map(|instance| row(instance, found.now, policy));
    Ok(global.show(&view::detail(&found, policy), || {
        format!("{}\n{}", describe(&found, policy), table(HEADS, rows))
    }))
}

fn describe(found: &ConnectorDetail, policy: Policy) -> String {
    let ConnectorDetail { now, connector, .. } = found;
    let Connector { last_heartbeat_at, interval, today, .. } = connector;
    let when = |micros: i64| format!("{} ({})", at(micros), time_before(*now, micros));
    let state = match &connector.error_message {
        Some(message) => format!("{}: {}", shown(&connector.state), shown(message)),
        None => shown(&connector.state),
    };
    let cursor = connector.checkpoint_cursor.as_deref().map(shown);
    let checkpoint = cursor.map(|cursor| match connector.checkpoint_updated_at {
        Some(micros) => format!("{cursor}, updated {}", at(micros)),
        None => cursor,
    });
    let uptime = view::uptime_pct(today).map(|percent| format!(", {percent} % of beats healthy"));
    let today = format!(
        "{} ingested, {} failed{}",
        today.messages_ingested,
        today.messages_failed,
        uptime.unwrap_or_default()
    );
    let labels = LABEL_NAMES.into_iter().zip(connector.labels.fields());
    let labels = labels.map(|(name, label)| (name, label.as_deref().map(shown)));
    let known = [
        ("type", Some(shown(&connector.connector_type))),
        ("identity", Some(shown(&connector.endpoint_identity))),
        ("liveness", Some(policy.judge(*now, *last_heartbeat_at, *interval).to_string())),
        ("state", Some(state)),
        ("heard", Some(last_heartbeat_at.map_or_else(|| "never".to_owned(), when))),
        ("first seen", Some(when(connector.first_seen_at))),
        ("registered by", Some(registered(&connector.registered_via))),
        ("archived", connector.archived_at.map(when)),
        ("instance", connector.instance_id.map(|id| id.to_string())),
        ("uptime", connector.uptime_s.map(|seconds| format!("{seconds} s"))),
        ("interval", interval.map(seconds)),
        ("clock drift", connector.drift.map(seconds)),
        ("checkpoint", checkpoint),
        ("counters", Some(counted(&connector.counters))),
        ("today (UTC)", Some(today)),
    ];
    fields(known.into_iter().chain(labels))
}

fn registered(via: &str) -> String {
    match via {
        "self" => "its first heartbeat".to_owned(),
        "operator" => "an operator".to_owned(),
        other => shown(other),
    }
}

fn counted(counters: &Counters) -> String {
    let counted = COUNTER_NAMES.into_iter().zip(counters.fields());
    let counted = counted.map(|(name, count)| format!("{} {count}", name.replace('_', " ")));
    counted.collect::<Vec<_>>().join(", ")
}

/// Formats with one decimal: times measured over a network are not more exact.
fn seconds(micros: i64) -> String {
    format!("{:.1} s", micros as f64 / MICROS as f64)
}

const HEADS: [&str; 13] = [
    "INSTANCE",
    "LIVENESS",
    "STATE",
    "HEARD",
    "STARTED",
    ">INGESTED",
    ">FAILED",
    ">BEATS",
    ">LATE",
    ">RESETS",
    ">JUMPS",
    "VERSION",
    "MESSAGE",
];

fn row(instance: &ConnectorInstance, now: i64, policy: Policy) -> [String; 13] {
    let heard = instance.last_heartbeat_at;
    let state = match instance.stopped_at {
        Some(_) => "stopped".to_owned(),
        None => shown(&instance.state),
    };
    [
        instance.instance_id.to_string(),
        policy.judge(now, Some(heard), instance.interval).to_string(),
        state,
        time_before(now, heard),
        at(instance.started_at),
        instance.counters.messages_ingested.to_string(),
        instance.counters.messages_failed.to_string(),
        instance.beats.to_string(),
        instance.late.to_string(),
        instance.resets.to_string(),
        instance.jumps.to_string(),
        or_dash(instance.labels.version.as_deref().map(shown)),
        or_dash(instance.error_message.as_deref().map(shown)),
    ]
}
