//! Connector status, and its heartbeat envelope.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::{Clock, LocalInstant};
use tenure_duty::process;
use tenure_store::BootClock;
use tenure_wire::heartbeat::{
    self, COUNTER_NAMES, Counters, Health, InvalidEnvelope, LABEL_NAMES, Labels, SCHEMA_VERSION,
};
use uuid::Uuid;

/// Identity and state of a connector.
#[derive(Clone, Debug)]
pub struct ConnectorStatus {
    /// Type, as in `telegram_bot`.
    pub connector_type: String,
    /// Endpoint that it receives for.
    pub endpoint_identity: String,
    /// Id of the process that counts; it changes only when the counters restart.
    pub instance_id: Uuid,
    /// Optional texts, such as the version.
    pub labels: Labels,
    /// Health.
    pub state: Health,
    /// Description of a problem, for people.
    pub message: Option<String>,
    /// Checkpoint that it has reached.
    pub cursor: Option<String>,
    /// Time of that checkpoint, RFC 3339.
    pub cursor_at: Option<String>,
    /// Uptime at an instant.
    uptime: (Duration, LocalInstant),
}

impl ConnectorStatus {
    /// Creates the status of a healthy connector that has just started.
    pub fn new(connector_type: &str, endpoint_identity: &str, instance_id: Uuid) -> Self {
        Self {
            connector_type: connector_type.to_owned(),
            endpoint_identity: endpoint_identity.to_owned(),
            instance_id,
            labels: Labels::default(),
            state: Health::Healthy,
            message: None,
            cursor: None,
            cursor_at: None,
            uptime: (Duration::ZERO, BootClock.now()),
        }
    }

    /// Sets the uptime as of now.
    pub fn set_uptime(&mut self, uptime: Duration) {
        self.uptime = (uptime, BootClock.now());
    }

    /// Checks the heartbeat by the rules of the switchboard, before anything is sent.
    pub fn check(&self) -> Result<(), InvalidEnvelope> {
        heartbeat::read(self.envelope(Counters::default()).as_bytes()).map(drop)
    }

    /// Returns the heartbeat as of now.
    pub(crate) fn envelope(&self, counters: Counters) -> String {
        let (uptime, at) = self.uptime;
        let uptime = uptime.saturating_add(BootClock.now().since(at));
        let cursor = self.cursor.as_ref();
        let checkpoint =
            cursor.map(|cursor| json!({ "cursor": cursor, "updated_at": self.cursor_at }));
        let now = i64::try_from(process::unix_ms()).unwrap_or(i64::MAX);
        let sent_at = jiff::Timestamp::from_millisecond(now).unwrap_or_default();
        let counters: Value =
            COUNTER_NAMES.into_iter().zip(counters.fields().map(|n| *n)).collect();
        let mut envelope = json!({
            "schema_version": SCHEMA_VERSION,
            "connector": {
                "connector_type": self.connector_type,
                "endpoint_identity": self.endpoint_identity,
                "instance_id": self.instance_id.to_string(),
            },
            "status": {
                "state": self.state.as_str(),
                "error_message": self.message,
                "uptime_s": uptime.as_secs(),
            },
            "counters": counters,
            "checkpoint": checkpoint,
            "sent_at": format!("{sent_at:.3}"),
        });
        for (name, label) in LABEL_NAMES.into_iter().zip(self.labels.fields()) {
            envelope["connector"][name] = json!(label);
        }
        envelope.to_string()
    }
}
