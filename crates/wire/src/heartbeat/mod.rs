//! `connector.heartbeat.v1`: liveness, state and counters of a connector.
//!
//! Unknown fields are rejected, as in `ingest.v1`.

mod envelope;
mod fields;
mod names;

#[cfg(test)]
mod tests;

use uuid::Uuid;

pub use crate::envelope::{InvalidEnvelope, Issue};
pub use fields::{COUNTER_NAMES, Counters, LABEL_NAMES, Labels, REQUIRED_COUNTERS};
pub use names::{connector_type_of, fits};

/// Value of `schema_version`.
pub const SCHEMA_VERSION: &str = "connector.heartbeat.v1";

/// `error_message` of an instance's last heartbeat before it exits, with state `degraded`.
pub const STOPPING: &str = "stopping";

/// Maximum length of `connector.connector_type`, in bytes.
pub const MAX_TYPE_BYTES: usize = 128;

/// Maximum length of a label, in bytes.
pub const MAX_LABEL_BYTES: usize = 256;

/// Maximum length of `capabilities`, in bytes of JSON.
pub const MAX_CAPABILITIES_BYTES: usize = 4_096;

/// Reads one heartbeat. The error lists all problems, unless the text is not JSON.
///
/// Texts in the result contain no NUL and no lone surrogate. An invalid remark does not make a
/// connector look offline: texts for people are repaired, and any `sent_at` is accepted.
pub fn read(bytes: &[u8]) -> Result<Heartbeat, InvalidEnvelope> {
    envelope::read(bytes)
}

/// Returns warnings about a valid heartbeat, for its sender.
pub fn warnings(heartbeat: &Heartbeat) -> Vec<String> {
    let mut warnings = heartbeat.mended.clone();
    let state = heartbeat.state;
    if state != Health::Healthy && heartbeat.error_message.is_none() {
        warnings.push(format!("state is {} without an error_message", state.as_str()));
    }
    warnings
}

/// A valid heartbeat. Texts are trimmed and contain no NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// `connector.connector_type`, as in `telegram_bot`.
    pub connector_type: String,
    /// `connector.endpoint_identity`: the endpoint that it receives for.
    pub endpoint_identity: String,
    /// `connector.instance_id`: this process.
    pub instance_id: Uuid,
    /// Optional texts of `connector`, such as `version`.
    pub labels: Labels,
    /// `status.state`.
    pub state: Health,
    /// `status.error_message`.
    pub error_message: Option<String>,
    /// `status.uptime_s`.
    pub uptime_s: i64,
    /// Counters since the process started.
    pub counters: Counters,
    /// `checkpoint` of the connector, for people: nothing resumes from it.
    pub checkpoint: Option<ConnectorCheckpoint>,
    /// `capabilities` as JSON text.
    pub capabilities: Option<String>,
    /// `sent_at`, in Unix microseconds.
    pub sent_at_micros: i64,
    /// Notes about values that were cut, replaced or left out.
    pub mended: Vec<String>,
}

tenure_core::text_enum! {
    /// Reported health of a connector.
    pub enum Health {
        Healthy "healthy" "It ingests."
        Degraded "degraded" "It ingests, with trouble."
        Error "error" "It cannot ingest."
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
