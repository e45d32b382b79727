//! Statistics of connectors, and the outcomes they are counted from.
//!
//! Why: docs/decisions/0038-running-period-sums.md

use uuid::Uuid;

use crate::storage::row::{DatabaseRow, FromRow, RowReader};

/// Counts of a connector in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// Messages that were new.
    pub messages_ingested: i64,
    /// Messages that were given up.
    pub messages_failed: i64,
    /// Calls to the source.
    pub source_api_calls: i64,
    /// Messages that were seen before.
    pub dedupe_accepted: i64,
    /// Beats that came, and how many of them told which state.
    pub heartbeat_count: i64,
    /// `healthy`.
    pub healthy_count: i64,
    /// `degraded`.
    pub degraded_count: i64,
    /// `error`.
    pub error_count: i64,
}

/// Length of a step of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesStep {
    /// From the full hour.
    Hour,
    /// From midnight (UTC).
    Day,
}

/// A step of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesBucket {
    /// When it begins, in Unix microseconds.
    pub start: i64,
    /// The counts.
    pub measures: Measures,
}

/// A time that ends now.
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
    /// Every period there is.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    /// As it is asked for.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "24h",
            Self::Week => "7d",
            Self::Month => "30d",
        }
    }

    /// The period of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.as_str() == text)
    }

    /// Length of its steps.
    pub const fn step(self) -> SeriesStep {
        match self {
            Self::Day | Self::Week => SeriesStep::Hour,
            Self::Month => SeriesStep::Day,
        }
    }

    /// Number of its steps.
    pub const fn steps(self) -> i64 {
        match self {
            Self::Day => 24,
            Self::Week => 168,
            Self::Month => 30,
        }
    }

    /// When it began, if it is `now` (Unix microseconds).
    pub const fn since(self, now: i64) -> i64 {
        let step = self.step().micros();
        (now.div_euclid(step) - (self.steps() - 1)) * step
    }
}

impl SeriesStep {
    /// In microseconds.
    pub const fn micros(self) -> i64 {
        match self {
            Self::Hour => 3_600 * 1_000_000,
            Self::Day => 24 * 3_600 * 1_000_000,
        }
    }
}

/// Counts of a connector in a period, and what its liveness is judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorSum {
    /// As in `telegram_bot`.
    pub connector_type: String,
    /// The endpoint that it receives for.
    pub endpoint_identity: String,
    /// In Unix microseconds.
    pub last_heartbeat_at: Option<i64>,
    /// In microseconds.
    pub interval: Option<i64>,
    /// Messages that were new.
    pub messages_ingested: i64,
    /// Messages that were given up.
    pub messages_failed: i64,
}

/// To whom a message went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageOutcomes {
    /// Which message; it is in the inbox.
    pub request_id: Uuid,
    /// The type of the connector that it came by.
    pub connector_type: String,
    /// Its endpoint.
    pub endpoint_identity: String,
    /// Targets that have acknowledged it.
    pub acked: Vec<String>,
    /// Targets that have failed.
    pub failed: Vec<String>,
    /// `None` where the switchboard is open.
    pub token_id: Option<String>,
}

/// Effect of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeReceipt {
    /// Targets of which something new was told.
    pub changed: usize,
    /// Whether the message is in the inbox. Without it nothing was noted.
    pub found: bool,
}

/// Number of messages that a target has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanoutCount {
    /// As in `telegram_bot`.
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
    /// A newer hold has counted: nothing was done.
    pub fenced: bool,
    /// Beats that were counted.
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
    /// Beats: whole days.
    pub beats: i64,
    /// Hours.
    pub hours: i64,
    /// Days, and what went to whom.
    pub days: i64,
    /// Outcomes, one by one, and instances that nobody hears any more.
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
    /// Whole days of beats (PostgreSQL).
    pub heartbeat_partitions_dropped: u64,
    /// Beats, one by one.
    pub heartbeat_rows_deleted: u64,
    /// Hours.
    pub hourly_rows_deleted: u64,
    /// Days.
    pub daily_rows_deleted: u64,
    /// Days of what went to whom.
    pub fanout_rows_deleted: u64,
    /// Outcomes.
    pub outcome_rows_deleted: u64,
    /// Instances.
    pub instances_deleted: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl FromRow for Measures {
    /// Eight columns, all of them NULL where nothing was counted.
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        let mut number = || Ok(row.maybe()?.unwrap_or(0));
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

impl FromRow for SeriesBucket {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self { start: row.time()?, measures: Measures::from_row(row)? })
    }
}

impl FromRow for ConnectorSum {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            connector_type: row.get()?,
            endpoint_identity: row.get()?,
            last_heartbeat_at: row.maybe_time()?,
            interval: row.maybe()?,
            messages_ingested: row.get()?,
            messages_failed: row.get()?,
        })
    }
}

impl FromRow for FanoutCount {
    fn from_row<R: DatabaseRow>(row: &mut RowReader<'_, R>) -> Result<Self, R::Error> {
        Ok(Self {
            connector_type: row.get()?,
            endpoint_identity: row.get()?,
            target: row.get()?,
            messages: row.get()?,
        })
    }
}
