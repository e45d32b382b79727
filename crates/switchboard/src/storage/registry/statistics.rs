//! Statistics of connectors, and the outcomes they are counted from.
//!
//! Why: docs/decisions/0038-running-period-sums.md

use uuid::Uuid;

use crate::storage::row::{DatabaseRow, FromRow, RowReader, from_row};

/// Counts of a connector over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// New messages.
    pub messages_ingested: i64,
    /// Messages that were given up.
    pub messages_failed: i64,
    /// Calls to the source.
    pub source_api_calls: i64,
    /// Messages that were seen before.
    pub dedupe_accepted: i64,
    /// Heartbeats in any state.
    pub heartbeat_count: i64,
    /// Heartbeats in state `healthy`.
    pub healthy_count: i64,
    /// Heartbeats in state `degraded`.
    pub degraded_count: i64,
    /// Heartbeats in state `error`.
    pub error_count: i64,
}

/// Length of a step of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesStep {
    /// A full hour.
    Hour,
    /// A day (UTC).
    Day,
}

/// A step of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesBucket {
    /// Start, in Unix microseconds.
    pub start: i64,
    /// The counts.
    pub measures: Measures,
}

/// Period that ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// This hour and the 23 before.
    Day,
    /// This hour and the 167 before.
    Week,
    /// Today and the 29 days before.
    Month,
}

impl Period {
    /// All periods.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    /// Returns the name used in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "24h",
            Self::Week => "7d",
            Self::Month => "30d",
        }
    }

    /// Parses a name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.as_str() == text)
    }

    /// Returns the length of its steps.
    pub const fn step(self) -> SeriesStep {
        match self {
            Self::Day | Self::Week => SeriesStep::Hour,
            Self::Month => SeriesStep::Day,
        }
    }

    /// Returns the number of its steps.
    pub const fn steps(self) -> i64 {
        match self {
            Self::Day => 24,
            Self::Week => 168,
            Self::Month => 30,
        }
    }

    /// Returns its start, given `now`, in Unix microseconds.
    pub const fn since(self, now: i64) -> i64 {
        let step = self.step().micros();
        (now.div_euclid(step) - (self.steps() - 1)) * step
    }
}

impl SeriesStep {
    /// Returns the length in microseconds.
    pub const fn micros(self) -> i64 {
        match self {
            Self::Hour => 3_600 * 1_000_000,
            Self::Day => 24 * 3_600 * 1_000_000,
        }
    }
}

/// Counts of a connector in a period, and the inputs of its liveness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorSum {
    /// Type, such as `telegram_bot`.
    pub connector_type: String,
    /// The endpoint that it receives for.
    pub endpoint_identity: String,
    /// Time of the last heartbeat, in Unix microseconds.
    pub last_heartbeat_at: Option<i64>,
    /// Observed interval between heartbeats, in microseconds.
    pub interval: Option<i64>,
    /// New messages.
    pub messages_ingested: i64,
    /// Messages that were given up.
    pub messages_failed: i64,
}

/// Outcomes of a message, by target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageOutcomes {
    /// The message.
    pub request_id: Uuid,
    /// Type of the connector that sent it.
    pub connector_type: String,
    /// Its endpoint.
    pub endpoint_identity: String,
    /// Targets that have acknowledged it.
    pub acked: Vec<String>,
    /// Targets that have failed.
    pub failed: Vec<String>,
    /// Id of the token that reported; `None` if the switchboard is open.
    pub token_id: Option<String>,
}

/// Effect of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeReceipt {
    /// Number of targets that changed.
    pub changed: usize,
    /// Whether the message is in the inbox. If not, nothing was recorded.
    pub found: bool,
}

/// Number of messages that a target has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanoutCount {
    /// Type, such as `telegram_bot`.
    pub connector_type: String,
    /// The endpoint that it receives for.
    pub endpoint_identity: String,
    /// The target.
    pub target: String,
    /// Number of messages.
    pub messages: i64,
}

/// Result of a step of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollUpReport {
    /// A newer hold counts: nothing was done.
    pub fenced: bool,
    /// Heartbeats that were counted.
    pub beats: i64,
    /// Acknowledged outcomes that were counted.
    pub outcomes: i64,
    /// Age of the newest heartbeat of this step in microseconds, if there is more to count.
    pub behind: i64,
    /// Whether there is more to count now.
    pub more: bool,
}

/// Retention of the history, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRetention {
    /// Heartbeats: whole days.
    pub beats: i64,
    /// Counts by hour.
    pub hours: i64,
    /// Counts by day, and fanout.
    pub days: i64,
    /// Outcomes, and silent instances.
    pub outcomes: i64,
}

impl Default for HistoryRetention {
    fn default() -> Self {
        let days = |days: i64| days * SeriesStep::Day.micros();
        Self { beats: days(7), hours: days(30), days: days(365), outcomes: days(30) }
    }
}

/// Rows and partitions that were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryPruneReport {
    /// Whole days of heartbeats (PostgreSQL).
    pub heartbeat_partitions_dropped: u64,
    /// Single heartbeats.
    pub heartbeat_rows_deleted: u64,
    /// Counts by hour.
    pub hourly_rows_deleted: u64,
    /// Counts by day.
    pub daily_rows_deleted: u64,
    /// Days of fanout.
    pub fanout_rows_deleted: u64,
    /// Outcomes.
    pub outcome_rows_deleted: u64,
    /// Instances.
    pub instances_deleted: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl FromRow for Measures {
    /// Reads eight columns, all NULL if nothing was counted.
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        let mut number = || Ok(row.get::<Option<_>>()?.unwrap_or(0));
        Ok(Self {
            messages_ingested: number()?,
            messages_failed: number()?,
            source_api_calls: number()?,
            dedupe_accepted: number()?,
            heartbeat_count: number()?,
            healthy_count: number()?,
            degraded_count: number()?,
            error_count: number()?,
        })
    }
}
impl HistoryPruneReport {
    /// Returns the report for rows of heartbeats, hours, days, fanout, outcomes and instances. A
    /// table with `max_rows` deletions may have more.
    pub(in crate::storage) fn new(days_dropped: u64, rows: [u64; 6], max_rows: u64) -> Self {
        Self {
            heartbeat_partitions_dropped: days_dropped,
            heartbeat_rows_deleted: rows[0],
            hourly_rows_deleted: rows[1],
            daily_rows_deleted: rows[2],
            fanout_rows_deleted: rows[3],
            outcome_rows_deleted: rows[4],
            instances_deleted: rows[5],
            more: rows.into_iter().any(|deleted| deleted >= max_rows),
        }
    }
}

from_row! { RollUpReport, |row| fenced, beats, outcomes, behind, more }
from_row! { OutcomeReceipt, |row|
    changed = usize::try_from(row.get::<i64>()?).unwrap_or(0), found,
}
from_row! { SeriesBucket, |row| start, measures }
from_row! { ConnectorSum, |row|
    connector_type, endpoint_identity, last_heartbeat_at, interval, messages_ingested,
    messages_failed,
}
from_row! { FanoutCount, |row| connector_type, endpoint_identity, target, messages }
