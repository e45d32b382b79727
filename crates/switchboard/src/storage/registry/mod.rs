//! Connector registry: connectors, their instances, liveness and counters.

pub(in crate::storage) mod heartbeat;
pub(in crate::storage) mod row;
mod statistics;

use std::fmt::Debug;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tenure_core::Epoch;
use tenure_wire::heartbeat::{Counters, Heartbeat, Labels};
use uuid::Uuid;

use super::{Decision, Permitted, TokenEnd};
use crate::error::StorageResult;

pub use statistics::{
    ConnectorSum, FanoutCount, HistoryPruneReport, HistoryRetention, Measures, MessageOutcomes,
    OutcomeReceipt, Period, RollUpReport, SeriesBucket, SeriesStep,
};
pub use tenure_wire::heartbeat::STOPPING;

/// Maximum number of connectors that are registered with one token.
pub const MAX_CONNECTORS_PER_TOKEN: i64 = 16;
/// Silence in microseconds, or five intervals if that is longer, after which an instance that
/// started earlier may represent the connector.
pub const MAX_SILENCE: i64 = 900 * 1_000_000;
/// Maximum of every sum: the largest integer that every JSON reader represents exactly.
pub const MAX_SUM: i64 = (1 << 53) - 1;

/// Returns whether a counter grew by one or a few Unix times until `at` (Unix microseconds). Some
/// clients add the creation times of their counters to the counts.
pub fn is_time(grown: i64, at: i64) -> bool {
    const MIN_UNIX_TIME: i64 = 1_000_000_000;
    const YEAR: i64 = 366 * 24 * 3_600;
    let now = at / 1_000_000;
    if grown < MIN_UNIX_TIME || now < MIN_UNIX_TIME {
        return false;
    }
    let times = grown / now + i64::from(grown % now * 2 >= now);
    (1..=16).contains(&times) && grown.abs_diff(times * now) <= (times * YEAR) as u64
}

/// Clock that an operation uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeSource {
    /// The store's clock. Stored times are never before the clock of retention, and retention uses
    /// that clock.
    #[default]
    Now,
    /// This time, in Unix microseconds: for replayed histories.
    At(i64),
}

/// A heartbeat and the token that it came with.
#[derive(Clone, Debug)]
pub struct ReceivedHeartbeat {
    /// The heartbeat.
    pub heartbeat: Heartbeat,
    /// Id of its token; `None` if the switchboard is open.
    pub token_id: Option<String>,
    /// Maximum interval that counts, in microseconds.
    pub longest_interval: i64,
}

/// Outcome of a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// It was stored.
    Accepted(AcceptedHeartbeat),
    /// The token has ended since the request was authenticated: nothing was stored.
    TokenEnded(TokenEnd),
    /// [`MAX_CONNECTORS_PER_TOKEN`] connectors were registered with this token: nothing was stored.
    TooMany,
}

/// Changes made by a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedHeartbeat {
    /// Time of receipt by the store's clock, in Unix microseconds.
    pub received_at: i64,
    /// The connector was unknown.
    pub registered: bool,
    /// The connector was archived, and is no longer.
    pub revived: bool,
    /// The instance that no longer represents the connector.
    pub replaced: Option<Uuid>,
    /// A newer heartbeat of the instance was known: only the history changed.
    pub late: bool,
    /// A counter went down without a new instance: counting began again.
    pub reset: bool,
    /// A counter jumped by a Unix time ([`is_time`]) for the first time: the jump is not counted.
    pub jumped: bool,
    /// Received minus sent, in microseconds.
    pub drift: i64,
    /// Drift of the instance's previous heartbeat.
    pub drift_before: Option<i64>,
    /// Reason why the history could not be written. The next heartbeat adds these deltas.
    pub unwritten: Option<String>,
}

/// A connector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connector {
    /// Type, such as `telegram_bot`.
    pub connector_type: String,
    /// The endpoint that it receives for.
    pub endpoint_identity: String,
    /// The instance that represents it; `None` before the first heartbeat.
    pub instance_id: Option<Uuid>,
    /// Labels of that instance, like the fields up to the uptime.
    pub labels: Labels,
    /// `healthy`, `degraded` or `error`; `unknown` before the first heartbeat.
    pub state: String,
    /// Error message.
    pub error_message: Option<String>,
    /// Uptime in seconds.
    pub uptime_s: Option<i64>,
    /// Newest heartbeat of any instance, by the store's clock, in Unix microseconds.
    pub last_heartbeat_at: Option<i64>,
    /// Time when first seen, in Unix microseconds.
    pub first_seen_at: i64,
    /// `self` or `operator`.
    pub registered_via: String,
    /// Sum of the counters of all its instances.
    pub counters: Counters,
    /// Newest checkpoint reported.
    pub checkpoint_cursor: Option<String>,
    /// Time of that checkpoint, in Unix microseconds.
    pub checkpoint_updated_at: Option<i64>,
    /// Time of archiving, in Unix microseconds.
    pub archived_at: Option<i64>,
    /// Observed interval between its heartbeats, in microseconds.
    pub interval: Option<i64>,
    /// Received minus sent, in microseconds, of the newest heartbeat.
    pub drift: Option<i64>,
    /// Counts of today (UTC), as far as they were counted.
    pub today: Measures,
    /// Members of the column `more`, also those that this version does not know.
    pub(crate) more: Map<String, Value>,
}

/// A process of a connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorInstance {
    /// Its id.
    pub instance_id: Uuid,
    /// Labels last reported.
    pub labels: Labels,
    /// `healthy`, `degraded` or `error`.
    pub state: String,
    /// Error message.
    pub error_message: Option<String>,
    /// Uptime in seconds.
    pub uptime_s: i64,
    /// Estimated start, in Unix microseconds.
    pub started_at: i64,
    /// First heartbeat, in Unix microseconds.
    pub first_seen_at: i64,
    /// Last heartbeat, in Unix microseconds.
    pub last_heartbeat_at: i64,
    /// Time of the last heartbeat, if that announced a stop.
    pub stopped_at: Option<i64>,
    /// Counters since it started.
    pub counters: Counters,
    /// Newest checkpoint reported.
    pub checkpoint_cursor: Option<String>,
    /// Time of that checkpoint, in Unix microseconds.
    pub checkpoint_updated_at: Option<i64>,
    /// Capabilities as JSON text.
    pub capabilities: Option<String>,
    /// Observed interval between its heartbeats, in microseconds.
    pub interval: Option<i64>,
    /// Received minus sent, in microseconds.
    pub drift: i64,
    /// Number of its heartbeats.
    pub beats: i64,
    /// Number of heartbeats that came after a newer one.
    pub late: i64,
    /// Number of times that its counters went down.
    pub resets: i64,
    /// Number of times that a counter jumped by the size of a Unix time, which does not count.
    pub jumps: i64,
}

/// A connector with its instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorDetail {
    /// The store's clock, in Unix microseconds.
    pub now: i64,
    /// The connector.
    pub connector: Connector,
    /// At most a hundred, newest heartbeat first.
    pub instances: Vec<ConnectorInstance>,
}

/// Query for a page of connectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectorQuery {
    /// Only connectors after this type and identity, in byte order.
    pub after: Option<(String, String)>,
    /// Maximum number of rows.
    pub limit: usize,
    /// Archived connectors instead of the others.
    pub archived: bool,
    /// Only of this endpoint.
    pub endpoint_identity: Option<String>,
}

/// A page of connectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorPage {
    /// The store's clock, in Unix microseconds.
    pub now: i64,
    /// By type and identity, in byte order.
    pub connectors: Vec<Connector>,
}

/// A heartbeat of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Number in the history.
    pub id: i64,
    /// Instance that sent it.
    pub instance_id: Uuid,
    /// `healthy`, `degraded` or `error`.
    pub state: String,
    /// Error message.
    pub error_message: Option<String>,
    /// Uptime in seconds.
    pub uptime_s: i64,
    /// Counters as sent.
    pub counters: Counters,
    /// Growth since the instance's previous heartbeat.
    pub deltas: Counters,
    /// Whether a newer heartbeat had arrived before.
    pub late: bool,
    /// Time of receipt by the store's clock, in Unix microseconds.
    pub received_at: i64,
    /// Time of sending, in Unix microseconds.
    pub sent_at: i64,
}

/// Query for a page of a connector's history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only entries before this time and id.
    pub before: Option<(i64, i64)>,
    /// Only entries that are not healthy.
    pub unhealthy: bool,
    /// Maximum number of rows.
    pub limit: usize,
}

/// Storage of connectors.
///
/// # Contract
/// 1. [`Registry::beat`] is one transaction: when it returns, the change is durable. Heartbeats of
///    one connector are serialized.
/// 2. A heartbeat is *late* if the instance's newest has an uptime and a send time that are both
///    not smaller. For this, a send time counts as at most five minutes after its arrival: a clock
///    that was once far ahead does not silence its instance. Two that are both further ahead are
///    compared as sent: a clock that is always ahead makes no heartbeat newer than those sent after
///    it. A late heartbeat enters the history with empty deltas, is counted in `beats` and `late`
///    of its instance, and changes nothing else.
/// 3. The delta of a heartbeat is the growth of its counters since the instance's newest. A counter
///    without an earlier value, or below it (a reset), starts at 0; growth by the size of a Unix
///    time is ignored ([`is_time`]). The connector's counters are the sum of the deltas of all
///    instances, and so are those of the history: deltas that could not be written there are owed,
///    and written with the instance's next heartbeat.
/// 4. One instance represents the connector. Another one replaces it when it started later (arrival
///    minus uptime; of an instance the earliest seen since its uptime last went down), or when the
///    representative was silent ([`MAX_SILENCE`]) or announced a stop ([`STOPPING`]). State,
///    message, version, uptime and checkpoint are those of the representative; a heartbeat without
///    a cursor keeps the previous checkpoint, one without capabilities those of its instance.
/// 5. `last_heartbeat_at`, `interval` and `drift` of a connector are those of the newest heartbeat
///    of any instance that was not late. The interval of an instance is the first gap between two
///    of its heartbeats, at most an hour; then (4 x before + min(gap, 2 x before)) / 5. A gap of
///    less than a second is ignored.
/// 6. Heartbeats and acknowledged outcomes are counted in the order in which they were stored,
///    whatever the clock shows: each once, in the hour and day (UTC) of its arrival, by any
///    replica. A step is one transaction with its progress; under an epoch older than the newest
///    seen it does nothing (R11). A step of the clock moves the periods with it, and back.
/// 7. Heartbeats of the history are kept until they are counted, whatever their retention.
#[async_trait]
pub trait Registry: Debug + Send + Sync + 'static {
    /// Stores a heartbeat.
    async fn beat(
        &self,
        beat: &ReceivedHeartbeat,
        when: TimeSource,
    ) -> StorageResult<HeartbeatOutcome>;
    /// Registers a connector before its first heartbeat. Returns `false` if it is known.
    async fn register(&self, name: &ConnectorKey, by: &str) -> StorageResult<bool>;
    /// Returns a page of connectors.
    async fn connectors(&self, query: &ConnectorQuery) -> StorageResult<ConnectorPage>;
    /// Reads a connector.
    async fn connector(&self, name: &ConnectorKey) -> StorageResult<Option<ConnectorDetail>>;
    /// Returns the types of the connectors of an endpoint, in byte order.
    async fn connector_types(&self, endpoint_identity: &str) -> StorageResult<Vec<String>>;
    /// Returns the history of a connector, newest first.
    async fn heartbeats(
        &self,
        name: &ConnectorKey,
        query: &HistoryQuery,
    ) -> StorageResult<Vec<HistoryEntry>>;
    /// Archives or restores a connector and records who did it. Returns `None` if it does not
    /// exist, `false` if nothing changed.
    async fn archive(
        &self,
        name: &ConnectorKey,
        archived: bool,
        decision: &Decision,
    ) -> Permitted<Option<bool>>;
    /// Deletes a connector with its history and records who did it. Outcomes of its messages stay,
    /// but are no longer counted for it.
    async fn delete(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<bool>;

    /// Recounts the hours, days and periods of a connector from the first day that is complete in
    /// the history, and records who did it. Returns that day in Unix microseconds; `None` if the
    /// connector does not exist.
    async fn recount(&self, name: &ConnectorKey, decision: &Decision) -> Permitted<Option<i64>>;

    /// Records the outcomes of a message by target. An acknowledgement is final; a failed target
    /// may acknowledge later.
    async fn report(
        &self,
        outcomes: &MessageOutcomes,
        when: TimeSource,
    ) -> Permitted<OutcomeReceipt>;
    /// Returns the targets of a message, and whether each has acknowledged it.
    async fn targets(&self, request_id: Uuid) -> StorageResult<Vec<(String, bool)>>;
    /// Returns the targets that have acknowledged a message, and those that have failed.
    async fn outcomes(&self, request_id: Uuid) -> StorageResult<(Vec<String>, Vec<String>)> {
        let targets = self.targets(request_id).await?;
        let of = |acked: bool| targets.iter().filter(move |it| it.1 == acked);
        let names = |acked| of(acked).map(|(name, _)| name.clone()).collect();
        Ok((names(true), names(false)))
    }

    /// Counts a bounded number of stored heartbeats and outcomes, in periods that end now.
    async fn roll_up(&self, epoch: Epoch, when: TimeSource) -> StorageResult<RollUpReport>;
    /// Returns the counts of a connector since a time, oldest first, without empty steps.
    async fn series(
        &self,
        name: &ConnectorKey,
        since: i64,
        step: SeriesStep,
    ) -> StorageResult<Vec<SeriesBucket>>;
    /// Returns the counts of every connector that is not archived, in a period that ends now.
    async fn sums(&self, period: Period) -> StorageResult<(i64, Vec<ConnectorSum>)>;
    /// Counts the messages that each target has acknowledged since a day (`2026-02-15`).
    async fn fanout(&self, since_day: &str) -> StorageResult<Vec<FanoutCount>>;
    /// Prepares for the next days and deletes a bounded number of rows past their retention.
    async fn prune_history(
        &self,
        keep: HistoryRetention,
        when: TimeSource,
    ) -> StorageResult<HistoryPruneReport>;
}

/// A connector's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectorKey {
    /// Type, such as `telegram_bot`.
    pub connector_type: String,
    /// The endpoint that it receives for.
    pub endpoint_identity: String,
}

impl ConnectorKey {
    /// Returns type and identity in one line, as in the audit trail.
    pub fn path(&self) -> String {
        let part = |text| percent_encoding::utf8_percent_encode(text, SEPARATORS);
        format!("{}/{}", part(&self.connector_type), part(&self.endpoint_identity))
    }
}

/// Characters that would make the end of a part of a path ambiguous.
const SEPARATORS: &percent_encoding::AsciiSet =
    &percent_encoding::CONTROLS.add(b'/').add(b'%').add(b' ');

#[cfg(test)]
mod tests {
    use super::is_time;

    #[test]
    fn growth_by_a_few_unix_times_is_told() {
        const NOW: i64 = 1_771_151_400;
        let at = NOW * 1_000_000;
        for grown in [NOW, NOW - 3_600, NOW + 5_000, 2 * NOW - 86_400, 16 * NOW] {
            assert!(is_time(grown, at), "{grown}");
        }
        let half = NOW + NOW / 2;
        for grown in [0, 1, -NOW, 999_999_999, 1_500_000_000, half, 17 * NOW, i64::MAX] {
            assert!(!is_time(grown, at), "{grown}");
        }
        assert!(!is_time(NOW, 0) && !is_time(NOW, i64::MIN));
    }
}
