//! Heartbeat rule: the changes that a heartbeat makes to the rows of its connector.
//!
//! Both databases use it. It reads no clock and no database: they hand in the rows, and store what
//! it returns if the rows are still the same.
//!
//! Why: docs/decisions/0034-connector-rows-sum-instances.md
//! Why: docs/decisions/0035-heartbeats-store-their-deltas.md

use tenure_wire::heartbeat::{Counters, Health, Heartbeat};

use super::{
    AcceptedHeartbeat, Connector, ConnectorInstance, HistoryEntry, MAX_SILENCE, MAX_SUM, Measures,
    ReceivedHeartbeat, STOPPING, is_time,
};
use crate::storage::row::{DatabaseRow, FromRow, RowReader, StoredField, StoredFields};

const SECOND: i64 = 1_000_000;
/// A time of sending counts as at most this long after the arrival.
const MAX_SENT_AHEAD: i64 = 300 * SECOND;
/// The first interval between two heartbeats counts as at most this long.
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

/// The row of an instance: what is shown of it, and what only the next heartbeat needs.
#[derive(Clone, Debug)]
pub(in crate::storage) struct InstanceRow {
    instance: ConnectorInstance,
    last_sent_at: i64,
    /// Deltas that the history lacks, because it could not be written.
    owed: Counters,
}

/// The rows after a heartbeat.
#[derive(Debug)]
pub(in crate::storage) struct HeartbeatChanges<'a> {
    heartbeat: &'a Heartbeat,
    pub(in crate::storage) taken: AcceptedHeartbeat,
    instance: InstanceRow,
    /// `None` if the row of the connector stays as it is.
    connector: Option<Connector>,
    /// Deltas for the history: the growth of the counters and what was owed.
    deltas: Counters,
}

/// Returns the changes that a heartbeat makes. It arrived `at`, by a clock that shows `wall`.
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
        // A time that the clock has not reached tells nothing about the interval.
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
    let connector = next_connector(before, heartbeat, &instance, &growth.deltas, represents);
    let owed = known.map_or_else(Counters::default, |known| known.owed);
    let instance = InstanceRow { instance, last_sent_at: sent_at, owed: Counters::default() };
    let deltas = sum(&owed, &growth.deltas);
    HeartbeatChanges { heartbeat, taken, instance, connector: Some(connector), deltas }
}

/// Whether the instance's newest heartbeat is newer than this one.
fn is_late(known: &InstanceRow, heartbeat: &Heartbeat, sent_at: i64) -> bool {
    let InstanceRow { instance, last_sent_at, .. } = known;
    // If both clocks were far ahead, compare the times of sending as they were; the drift has the
    // first one.
    let is_older = || {
        heartbeat.sent_at_micros > sent_at
            && instance.last_heartbeat_at - instance.drift >= heartbeat.sent_at_micros
    };
    instance.uptime_s >= heartbeat.uptime_s && (*last_sent_at >= sent_at || is_older())
}

/// Growth of the counters since the instance's newest heartbeat.
struct Growth {
    deltas: Counters,
    /// A counter went down: it began again.
    reset: bool,
    /// A counter grew by the size of a Unix time, which does not count.
    jumped: bool,
}

impl Growth {
    fn new(before: Option<&Counters>, heartbeat: &Heartbeat, at: i64) -> Self {
        let now = &heartbeat.counters;
        let before = before.copied().unwrap_or_default();
        let grown = each(&before, now, |before, now| if now < before { now } else { now - before });
        let down = each(&before, now, |before, now| i64::from(now < before));
        let deltas = each(&grown, &grown, |grown, _| if is_time(grown, at) { 0 } else { grown });
        Self { deltas, reset: down != Counters::default(), jumped: deltas != grown }
    }
}

fn each(a: &Counters, b: &Counters, f: impl Fn(i64, i64) -> i64) -> Counters {
    let (a, b) = (a.values(), b.values());
    Counters::from_values(std::array::from_fn(|n| f(a[n], b[n])))
}

fn sum(a: &Counters, b: &Counters) -> Counters {
    each(a, b, |a, b| a.saturating_add(b).min(MAX_SUM))
}

/// Two heartbeats within a second are one that was sent again: they do not change the interval.
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
        version: heartbeat.version.clone(),
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

/// The checkpoint of a heartbeat. One without a cursor is none.
fn checkpoint(heartbeat: &Heartbeat) -> Option<(Option<String>, Option<i64>)> {
    let checkpoint = heartbeat.checkpoint.as_ref().filter(|it| it.cursor.is_some())?;
    Some((checkpoint.cursor.clone(), checkpoint.updated_at_micros))
}

/// Whether the instance that represents the connector is replaced by another one.
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
    deltas: &Counters,
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
    connector.counters = sum(&connector.counters, deltas);
    if represents {
        connector.instance_id = Some(instance.instance_id);
        connector.version.clone_from(&instance.version);
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

impl FromRow for Connector {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            connector_type: row.get()?,
            endpoint_identity: row.get()?,
            instance_id: row.maybe()?,
            version: row.maybe()?,
            state: row.get()?,
            error_message: row.maybe()?,
            uptime_s: row.maybe()?,
            last_heartbeat_at: row.maybe_time()?,
            first_seen_at: row.time()?,
            registered_via: row.get()?,
            checkpoint_cursor: row.maybe()?,
            checkpoint_updated_at: row.maybe_time()?,
            archived_at: row.maybe_time()?,
            interval: row.maybe()?,
            drift: row.maybe()?,
            counters: Counters::from_row(row)?,
            today: Measures::default(),
        })
    }
}

impl FromRow for ConnectorInstance {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            instance_id: row.get()?,
            version: row.maybe()?,
            state: row.get()?,
            error_message: row.maybe()?,
            uptime_s: row.get()?,
            started_at: row.time()?,
            first_seen_at: row.time()?,
            last_heartbeat_at: row.time()?,
            stopped_at: row.maybe_time()?,
            checkpoint_cursor: row.maybe()?,
            checkpoint_updated_at: row.maybe_time()?,
            capabilities: row.maybe()?,
            interval: row.maybe()?,
            drift: row.get()?,
            beats: row.get()?,
            late: row.get()?,
            resets: row.get()?,
            jumps: row.get()?,
            counters: Counters::from_row(row)?,
        })
    }
}

impl FromRow for InstanceRow {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        let instance = ConnectorInstance::from_row(row)?;
        Ok(Self { instance, last_sent_at: row.time()?, owed: Counters::from_row(row)? })
    }
}

/// Adds the counts of today to a connector.
pub(in crate::storage) fn with_today((connector, today): (Connector, Measures)) -> Connector {
    Connector { today, ..connector }
}

impl FromRow for HistoryEntry {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            id: row.get()?,
            instance_id: row.get()?,
            state: row.get()?,
            error_message: row.maybe()?,
            uptime_s: row.get()?,
            counters: Counters::from_row(row)?,
            deltas: Counters::from_row(row)?,
            late: row.get()?,
            received_at: row.time()?,
            sent_at: row.time()?,
        })
    }
}

impl FromRow for Counters {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        let mut values = [0; 5];
        for value in &mut values {
            *value = row.get()?;
        }
        Ok(Self::from_values(values))
    }
}

const COUNTERS: [&str; 5] = [
    "counter_messages_ingested",
    "counter_messages_failed",
    "counter_source_api_calls",
    "counter_checkpoint_saves",
    "counter_dedupe_accepted",
];
const DELTAS: [&str; 5] = [
    "delta_messages_ingested",
    "delta_messages_failed",
    "delta_source_api_calls",
    "delta_checkpoint_saves",
    "delta_dedupe_accepted",
];
const OWED: [&str; 5] = [
    "owed_messages_ingested",
    "owed_messages_failed",
    "owed_source_api_calls",
    "owed_checkpoint_saves",
    "owed_dedupe_accepted",
];

fn counter_fields<'a>(names: [&'static str; 5], counters: &Counters) -> StoredFields<'a> {
    names.into_iter().zip(counters.values().map(|it| StoredField::Number(Some(it)))).collect()
}

impl HeartbeatChanges<'_> {
    /// Keeps the deltas for the next heartbeat, because the history cannot be written.
    pub(in crate::storage) fn owe_deltas(&mut self) {
        self.instance.owed = sum(&self.instance.owed, &self.deltas);
    }

    /// The name of the connector.
    fn key(&self) -> StoredFields<'_> {
        vec![
            ("connector_type", StoredField::Text(Some(&self.heartbeat.connector_type))),
            ("endpoint_identity", StoredField::Text(Some(&self.heartbeat.endpoint_identity))),
        ]
    }

    /// The row of `connector_instances`.
    pub(in crate::storage) fn instance_fields(&self) -> StoredFields<'_> {
        let InstanceRow { instance, last_sent_at, owed } = &self.instance;
        let mut fields = self.key();
        fields.extend([
            ("instance_id", StoredField::Id(Some(instance.instance_id))),
            ("version", StoredField::Text(instance.version.as_deref())),
            ("state", StoredField::Text(Some(&instance.state))),
            ("error_message", StoredField::Text(instance.error_message.as_deref())),
            ("uptime_s", StoredField::Number(Some(instance.uptime_s))),
            ("started_at", StoredField::Time(Some(instance.started_at))),
            ("first_seen_at", StoredField::Time(Some(instance.first_seen_at))),
            ("last_heartbeat_at", StoredField::Time(Some(instance.last_heartbeat_at))),
            ("last_sent_at", StoredField::Time(Some(*last_sent_at))),
            ("stopped_at", StoredField::Time(instance.stopped_at)),
            ("checkpoint_cursor", StoredField::Text(instance.checkpoint_cursor.as_deref())),
            ("checkpoint_updated_at", StoredField::Time(instance.checkpoint_updated_at)),
            ("capabilities", StoredField::Text(instance.capabilities.as_deref())),
            ("interval_micros", StoredField::Number(instance.interval)),
            ("drift_micros", StoredField::Number(Some(instance.drift))),
            ("beats", StoredField::Number(Some(instance.beats))),
            ("late", StoredField::Number(Some(instance.late))),
            ("resets", StoredField::Number(Some(instance.resets))),
            ("jumps", StoredField::Number(Some(instance.jumps))),
        ]);
        fields.extend(counter_fields(COUNTERS, &instance.counters));
        fields.extend(counter_fields(OWED, owed));
        fields
    }

    /// The row of `connector_registry`, as far as heartbeats change it.
    pub(in crate::storage) fn connector_fields(&self) -> Option<StoredFields<'_>> {
        let connector = self.connector.as_ref()?;
        let mut fields = self.key();
        fields.extend([
            ("instance_id", StoredField::Id(connector.instance_id)),
            ("version", StoredField::Text(connector.version.as_deref())),
            ("state", StoredField::Text(Some(&connector.state))),
            ("error_message", StoredField::Text(connector.error_message.as_deref())),
            ("uptime_s", StoredField::Number(connector.uptime_s)),
            ("last_heartbeat_at", StoredField::Time(connector.last_heartbeat_at)),
            ("checkpoint_cursor", StoredField::Text(connector.checkpoint_cursor.as_deref())),
            ("checkpoint_updated_at", StoredField::Time(connector.checkpoint_updated_at)),
            ("interval_micros", StoredField::Number(connector.interval)),
            ("drift_micros", StoredField::Number(connector.drift)),
        ]);
        fields.extend(counter_fields(COUNTERS, &connector.counters));
        Some(fields)
    }

    /// The row of `connector_heartbeat_log`.
    pub(in crate::storage) fn history_fields(&self) -> StoredFields<'_> {
        let heartbeat = self.heartbeat;
        let mut fields = self.key();
        fields.extend([
            ("instance_id", StoredField::Id(Some(heartbeat.instance_id))),
            ("state", StoredField::Text(Some(heartbeat.state.as_str()))),
            ("error_message", StoredField::Text(heartbeat.error_message.as_deref())),
            ("uptime_s", StoredField::Number(Some(heartbeat.uptime_s))),
            ("late", StoredField::Flag(self.taken.late)),
            ("received_at", StoredField::Time(Some(self.taken.received_at))),
            ("sent_at", StoredField::Time(Some(heartbeat.sent_at_micros))),
        ]);
        fields.extend(counter_fields(COUNTERS, &heartbeat.counters));
        fields.extend(counter_fields(DELTAS, &self.deltas));
        fields
    }
}
