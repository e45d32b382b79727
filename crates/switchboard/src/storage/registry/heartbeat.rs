//! Heartbeat rule: the changes that a heartbeat makes to the rows of its connector.
//!
//! Used by both databases. It reads no clock and no database: the caller passes the rows, and
//! stores the result if the rows are still the same.
//!
//! Why: docs/decisions/0034-connector-rows-sum-instances.md
//! Why: docs/decisions/0035-heartbeats-store-their-deltas.md

use serde_json::{Map, Value};
use tenure_wire::heartbeat::{Counters, Health, Heartbeat};

use super::{
    AcceptedHeartbeat, Connector, ConnectorInstance, MAX_SILENCE, MAX_SUM, ReceivedHeartbeat,
    STOPPING, is_time,
};

const SECOND: i64 = 1_000_000;
/// Maximum distance of a send time after the arrival; later ones are capped.
const MAX_SENT_AHEAD: i64 = 300 * SECOND;
/// Maximum of the first interval between two heartbeats; longer ones are capped.
const MAX_FIRST_INTERVAL: i64 = 3_600 * SECOND;

/// The rows of a connector before a heartbeat.
#[derive(Debug, Default)]
pub(in crate::storage) struct ConnectorRows {
    pub(in crate::storage) connector: Option<Connector>,
    /// The instance that sent the heartbeat.
    pub(in crate::storage) instance: Option<InstanceRow>,
    /// The instance that represents the connector, if it is another one.
    pub(in crate::storage) representative: Option<InstanceRow>,
}

/// Row of an instance: the public fields, and those that only the next heartbeat needs.
#[derive(Clone, Debug)]
pub(in crate::storage) struct InstanceRow {
    pub(in crate::storage) instance: ConnectorInstance,
    pub(super) last_sent_at: i64,
    /// Deltas that the history lacks, because it could not be written.
    pub(super) owed: Counters,
    /// Members of the column `more`, also those that this version does not know.
    pub(super) more: Map<String, Value>,
}

/// The rows after a heartbeat.
#[derive(Debug)]
pub(in crate::storage) struct HeartbeatChanges<'a> {
    pub(super) heartbeat: &'a Heartbeat,
    pub(in crate::storage) taken: AcceptedHeartbeat,
    pub(super) instance: InstanceRow,
    /// `None` if the row of the connector stays as it is.
    pub(super) connector: Option<Connector>,
    /// Deltas for the history: the growth of the counters and the owed deltas.
    pub(super) deltas: Counters,
}

/// Returns the changes of a heartbeat that arrived at `at`, while the wall clock shows `wall`.
pub(in crate::storage) fn apply_heartbeat<'a>(
    before: &ConnectorRows,
    beat: &'a ReceivedHeartbeat,
    at: i64,
    wall: i64,
) -> HeartbeatChanges<'a> {
    let heartbeat = &beat.heartbeat;
    let known = before.instance.as_ref();
    let sent_at = heartbeat.sent_at_micros.min(at.saturating_add(MAX_SENT_AHEAD));
    let mut taken = AcceptedHeartbeat {
        received_at: at,
        drift: at.saturating_sub(heartbeat.sent_at_micros),
        drift_before: known.map(|known| known.instance.drift),
        ..AcceptedHeartbeat::default()
    };
    if let Some(known) = known.filter(|known| is_late(known, heartbeat, sent_at)) {
        taken.late = true;
        let mut instance = known.clone();
        instance.instance.beats += 1;
        instance.instance.late += 1;
        let deltas = Counters::default();
        return HeartbeatChanges { heartbeat, taken, instance, connector: None, deltas };
    }
    let growth = Growth::new(known.map(|known| &known.instance.counters), heartbeat, at);
    let interval = known.and_then(|known| {
        let before = known.instance.interval;
        // An arrival time ahead of the wall clock says nothing about the interval.
        let gap = at - known.instance.last_heartbeat_at;
        if at > wall { before } else { next_interval(before, gap) }
    });
    let instance = next_instance(heartbeat, known, &growth, interval, at);
    taken.reset = growth.reset;
    taken.jumped = growth.jumped && known.is_none_or(|known| known.instance.jumps == 0);
    taken.registered = before.connector.is_none();
    taken.revived = before.connector.as_ref().is_some_and(|it| it.archived_at.is_some());
    let other = before.connector.as_ref().and_then(|it| it.instance_id);
    let other = other.filter(|id| *id != heartbeat.instance_id);
    let represents = other.is_none()
        || before
            .representative
            .as_ref()
            .is_none_or(|it| gives_way(&it.instance, &instance, beat.longest_interval));
    taken.replaced = other.filter(|_| represents);
    let connector = next_connector(before, heartbeat, &instance, growth.deltas, represents);
    let owed = known.map_or_else(Counters::default, |known| known.owed);
    let more = known.map(|known| known.more.clone()).unwrap_or_default();
    let instance = InstanceRow { instance, last_sent_at: sent_at, owed: Counters::default(), more };
    let deltas = sum(owed, growth.deltas);
    HeartbeatChanges { heartbeat, taken, instance, connector: Some(connector), deltas }
}

/// Returns whether the instance's newest heartbeat is newer than this one.
fn is_late(known: &InstanceRow, heartbeat: &Heartbeat, sent_at: i64) -> bool {
    let InstanceRow { instance, last_sent_at, .. } = known;
    // If both send times were capped, compare the original ones; that of the known heartbeat
    // follows from its drift.
    let is_older = || {
        heartbeat.sent_at_micros > sent_at
            && instance.last_heartbeat_at - instance.drift >= heartbeat.sent_at_micros
    };
    instance.uptime_s >= heartbeat.uptime_s && (*last_sent_at >= sent_at || is_older())
}

/// Growth of the counters since the instance's newest heartbeat.
struct Growth {
    deltas: Counters,
    /// A counter went down and starts again.
    reset: bool,
    /// A counter grew by the size of a Unix time, which is ignored.
    jumped: bool,
}

impl Growth {
    fn new(before: Option<&Counters>, heartbeat: &Heartbeat, at: i64) -> Self {
        let both = before.copied().unwrap_or_default().zip(heartbeat.counters);
        let grown = both.map(|(before, now)| if now < before { now } else { now - before });
        let deltas = grown.map(|grown| if is_time(grown, at) { 0 } else { grown });
        let reset = both.fields().into_iter().any(|(before, now)| now < before);
        Self { deltas, reset, jumped: deltas != grown }
    }
}

fn sum(a: Counters, b: Counters) -> Counters {
    a.zip(b).map(|(a, b)| a.saturating_add(b).min(MAX_SUM))
}

/// Returns the next interval. A heartbeat within a second of the last was resent and is ignored.
fn next_interval(before: Option<i64>, gap: i64) -> Option<i64> {
    match before {
        _ if gap < SECOND => before,
        None => Some(gap.min(MAX_FIRST_INTERVAL)),
        Some(before) => Some((4 * before + gap.min(2 * before)) / 5),
    }
}

fn next_instance(
    heartbeat: &Heartbeat,
    known: Option<&InstanceRow>,
    growth: &Growth,
    interval: Option<i64>,
    at: i64,
) -> ConnectorInstance {
    let known = known.map(|known| &known.instance);
    // Nothing started before 1970, whatever its uptime says.
    let started_at = at.saturating_sub(heartbeat.uptime_s.saturating_mul(SECOND)).max(0);
    let earlier = known.filter(|known| heartbeat.uptime_s >= known.uptime_s);
    let is_stopping =
        heartbeat.state == Health::Degraded && heartbeat.error_message.as_deref() == Some(STOPPING);
    let (checkpoint_cursor, checkpoint_updated_at) = checkpoint(heartbeat)
        .or_else(|| known.map(|it| (it.checkpoint_cursor.clone(), it.checkpoint_updated_at)))
        .unwrap_or_default();
    let capabilities = heartbeat.capabilities.as_ref();
    ConnectorInstance {
        instance_id: heartbeat.instance_id,
        labels: heartbeat.labels.clone(),
        state: heartbeat.state.as_str().to_owned(),
        error_message: heartbeat.error_message.clone(),
        uptime_s: heartbeat.uptime_s,
        started_at: earlier.map_or(started_at, |known| started_at.min(known.started_at)),
        first_seen_at: known.map_or(at, |known| known.first_seen_at),
        last_heartbeat_at: at,
        stopped_at: is_stopping.then_some(at),
        checkpoint_cursor,
        checkpoint_updated_at,
        capabilities: capabilities.or(known.and_then(|it| it.capabilities.as_ref())).cloned(),
        interval,
        drift: at.saturating_sub(heartbeat.sent_at_micros),
        beats: known.map_or(0, |known| known.beats) + 1,
        late: known.map_or(0, |known| known.late),
        resets: known.map_or(0, |known| known.resets) + i64::from(growth.reset),
        jumps: known.map_or(0, |known| known.jumps) + i64::from(growth.jumped),
        counters: heartbeat.counters,
    }
}

/// Returns the checkpoint of a heartbeat; `None` without a cursor.
fn checkpoint(heartbeat: &Heartbeat) -> Option<(Option<String>, Option<i64>)> {
    let checkpoint = heartbeat.checkpoint.as_ref().filter(|it| it.cursor.is_some())?;
    Some((checkpoint.cursor.clone(), checkpoint.updated_at_micros))
}

/// Returns whether another instance replaces the one that represents the connector.
fn gives_way(
    current: &ConnectorInstance,
    other: &ConnectorInstance,
    longest_interval: i64,
) -> bool {
    let interval = current.interval.unwrap_or_default().min(longest_interval);
    other.started_at > current.started_at
        || current.stopped_at.is_some()
        || other.last_heartbeat_at - current.last_heartbeat_at
            >= MAX_SILENCE.max(interval.saturating_mul(5))
}

fn next_connector(
    before: &ConnectorRows,
    heartbeat: &Heartbeat,
    instance: &ConnectorInstance,
    deltas: Counters,
    represents: bool,
) -> Connector {
    let mut connector = before.connector.clone().unwrap_or_else(|| Connector {
        connector_type: heartbeat.connector_type.clone(),
        endpoint_identity: heartbeat.endpoint_identity.clone(),
        first_seen_at: instance.last_heartbeat_at,
        ..Connector::default()
    });
    connector.last_heartbeat_at = Some(instance.last_heartbeat_at);
    connector.archived_at = None;
    connector.interval = instance.interval;
    connector.drift = Some(instance.drift);
    connector.counters = sum(connector.counters, deltas);
    if represents {
        connector.instance_id = Some(instance.instance_id);
        connector.labels.clone_from(&instance.labels);
        connector.state.clone_from(&instance.state);
        connector.error_message.clone_from(&instance.error_message);
        connector.uptime_s = Some(instance.uptime_s);
        if let Some((cursor, updated_at)) = checkpoint(heartbeat) {
            connector.checkpoint_cursor = cursor;
            connector.checkpoint_updated_at = updated_at;
        }
    }
    connector
}

impl HeartbeatChanges<'_> {
    /// Keeps the deltas for the next heartbeat, because the history cannot be written.
    pub(in crate::storage) fn owe_deltas(&mut self) {
        self.instance.owed = sum(self.instance.owed, self.deltas);
    }
}
