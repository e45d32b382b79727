//! `connector.heartbeat.v1`: a connector says that it lives, how it is and what it has done.
//!
//! The shape is closed, as that of `ingest.v1` is. `capabilities` is one more field than the
//! first version of the protocol has: connectors tell there which part they play.

mod envelope;
mod names;

#[cfg(test)]
mod tests;

use uuid::Uuid;

pub use crate::envelope::{InvalidEnvelope, Issue};
pub use names::{connector_type_of, fits};

/// Value of `schema_version`.
pub const SCHEMA_VERSION: &str = "connector.heartbeat.v1";

/// The `error_message` of a last heartbeat, in state `degraded`, of an instance that ends.
pub const STOPPING: &str = "stopping";

/// The longest `connector.connector_type`, in bytes.
pub const MAX_TYPE_BYTES: usize = 128;

/// The longest `capabilities`, in bytes of JSON.
pub const MAX_CAPABILITIES_BYTES: usize = 4_096;

/// Reads one heartbeat. All that is wrong with it is told at once, unless it is not even JSON.
///
/// No text in it holds a NUL or a lone surrogate. A connector is not taken for dead for what it
/// says of itself: texts for people are mended, and a `sent_at` that is far away is read.
pub fn read(bytes: &[u8]) -> Result<Heartbeat, InvalidEnvelope> {
    envelope::read(bytes)
}

/// Warnings about a valid heartbeat, for its sender.
pub fn warnings(heartbeat: &Heartbeat) -> Vec<String> {
    let mut warnings = heartbeat.mended.clone();
    let state = heartbeat.state;
    if state != Health::Healthy && heartbeat.error_message.is_none() {
        warnings.push(format!("state is {} without an error_message", state.as_str()));
    }
    warnings
}

/// A heartbeat that was read and fits every rule. Texts are trimmed and hold no NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// `connector.connector_type`, as in `telegram_bot`.
    pub connector_type: String,
    /// `connector.endpoint_identity`: who it receives for.
    pub endpoint_identity: String,
    /// `connector.instance_id`: this process.
    pub instance_id: Uuid,
    /// `connector.version`.
    pub version: Option<String>,
    /// `status.state`.
    pub state: Health,
    /// `status.error_message`.
    pub error_message: Option<String>,
    /// `status.uptime_s`.
    pub uptime_s: i64,
    /// Counters since the process started.
    pub counters: Counters,
    /// `checkpoint`, which tells of the connector's own: nothing resumes from it.
    pub checkpoint: Option<ConnectorCheckpoint>,
    /// `capabilities` as JSON text.
    pub capabilities: Option<String>,
    /// `sent_at`, in Unix microseconds.
    pub sent_at_micros: i64,
    /// Notes of values that were cut, replaced or left out so that the rest can be kept.
    pub mended: Vec<String>,
}

/// Reported health of a connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It ingests.
    Healthy,
    /// It ingests, with trouble.
    Degraded,
    /// It cannot ingest.
    Error,
}

impl Health {
    /// Every state there is.
    pub const ALL: [Self; 3] = [Self::Healthy, Self::Degraded, Self::Error];

    /// As it stands in `status.state`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Error => "error",
        }
    }

    /// The state of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// Counters of a process since it started, or between two heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Submitted and accepted as new.
    pub messages_ingested: i64,
    /// Given up.
    pub messages_failed: i64,
    /// Calls to the source.
    pub source_api_calls: i64,
    /// Checkpoints that were stored.
    pub checkpoint_saves: i64,
    /// Submitted and accepted as seen before.
    pub dedupe_accepted: i64,
}

impl Counters {
    /// Names of the counters, in the order of their fields.
    pub const COUNTER_NAMES: [&str; 5] = [
        "messages_ingested",
        "messages_failed",
        "source_api_calls",
        "checkpoint_saves",
        "dedupe_accepted",
    ];

    /// Returns the counters in the order of [`Counters::COUNTER_NAMES`].
    pub fn values(&self) -> [i64; 5] {
        let Self {
            messages_ingested,
            messages_failed,
            source_api_calls,
            checkpoint_saves,
            dedupe_accepted,
        } = *self;
        [messages_ingested, messages_failed, source_api_calls, checkpoint_saves, dedupe_accepted]
    }

    /// Makes counters from values in the order of [`Counters::COUNTER_NAMES`].
    pub fn from_values(values: [i64; 5]) -> Self {
        let [
            messages_ingested,
            messages_failed,
            source_api_calls,
            checkpoint_saves,
            dedupe_accepted,
        ] = values;
        Self {
            messages_ingested,
            messages_failed,
            source_api_calls,
            checkpoint_saves,
            dedupe_accepted,
        }
    }
}

/// Reported position of a connector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectorCheckpoint {
    /// `checkpoint.cursor`.
    pub cursor: Option<String>,
    /// `checkpoint.updated_at`, in Unix microseconds.
    pub updated_at_micros: Option<i64>,
}
