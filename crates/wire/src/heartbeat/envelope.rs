//! The fields of a heartbeat.

use uuid::Uuid;

use super::{
    COUNTER_NAMES, ConnectorCheckpoint, Counters, Health, Heartbeat, InvalidEnvelope, LABEL_NAMES,
    Labels, MAX_CAPABILITIES_BYTES, MAX_LABEL_BYTES, MAX_TYPE_BYTES, REQUIRED_COUNTERS,
    SCHEMA_VERSION,
};
use crate::envelope::{self, JsonError, ObjectShape, Reader};

const ENVELOPE: ObjectShape = ObjectShape(
    &["schema_version", "connector", "status", "counters", "sent_at"],
    &["checkpoint", "capabilities"],
);
const CONNECTOR: ObjectShape =
    ObjectShape(&["connector_type", "endpoint_identity", "instance_id"], &LABEL_NAMES);
const STATUS: ObjectShape = ObjectShape(&["state", "uptime_s"], &["error_message"]);
const COUNTERS: ObjectShape = {
    let names: &[&str] = &COUNTER_NAMES;
    let (required, optional) = names.split_at(REQUIRED_COUNTERS);
    ObjectShape(required, optional)
};
const CHECKPOINT: ObjectShape = ObjectShape(&[], &["cursor", "updated_at"]);

const MAX_MESSAGE_BYTES: usize = 4_096;
const MAX_CURSOR_BYTES: usize = 4_096;

/// Fields read so far.
#[derive(Default)]
struct HeartbeatDraft {
    connector_type: Option<String>,
    endpoint_identity: Option<String>,
    instance_id: Option<Uuid>,
    labels: Labels,
    state: Option<Health>,
    error_message: Option<String>,
    uptime_s: Option<i64>,
    counters: Counters,
    checkpoint: Option<ConnectorCheckpoint>,
    capabilities: Option<String>,
    sent_at_micros: Option<i64>,
    mended: Vec<String>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Heartbeat, InvalidEnvelope> {
    let (draft, _) = envelope::read(SCHEMA_VERSION, bytes, draft)?;
    draft.finish().ok_or_else(|| InvalidEnvelope::missing(SCHEMA_VERSION))
}

fn draft(reader: &mut Reader<'_>) -> Result<HeartbeatDraft, JsonError> {
    let mut draft = HeartbeatDraft::default();
    reader.object(&ENVELOPE, |reader, name| {
        match name {
            "schema_version" => reader.version()?,
            "connector" => connector(reader, &mut draft)?,
            "status" => status(reader, &mut draft)?,
            "counters" => counters(reader, &mut draft.counters)?,
            "sent_at" => draft.sent_at_micros = reader.time()?,
            "checkpoint" => draft.checkpoint = reader.nullable(checkpoint)?,
            _ => {
                let object = |reader: &mut Reader<'_>| reader.small_object(MAX_CAPABILITIES_BYTES);
                draft.capabilities = reader.nullable(object)?;
            }
        }
        Ok(())
    })?;
    draft.mended = std::mem::take(&mut reader.mended);
    Ok(draft)
}

fn connector(reader: &mut Reader<'_>, draft: &mut HeartbeatDraft) -> Result<(), JsonError> {
    reader.object(&CONNECTOR, |reader, name| {
        match name {
            "connector_type" => draft.connector_type = connector_type(reader)?,
            "endpoint_identity" => draft.endpoint_identity = reader.identity()?,
            "instance_id" => draft.instance_id = reader.uuid()?,
            label => {
                if let Some(label) = draft.labels.get_mut(label) {
                    *label = reader.remark(MAX_LABEL_BYTES)?;
                }
            }
        }
        Ok(())
    })
}

/// Reads a connector type. People read it in lists, so it must not contain control characters.
fn connector_type(reader: &mut Reader<'_>) -> Result<Option<String>, JsonError> {
    let name = reader.name(MAX_TYPE_BYTES)?;
    if name.as_ref().is_some_and(|name| name.contains(char::is_control)) {
        reader.issue("invalid_text", "contains a control character".to_owned());
    }
    Ok(name)
}

fn status(reader: &mut Reader<'_>, draft: &mut HeartbeatDraft) -> Result<(), JsonError> {
    reader.object(&STATUS, |reader, name| {
        match name {
            "state" => {
                let words: Vec<_> = Health::ALL.iter().map(|state| state.as_str()).collect();
                draft.state = reader.one_of(&words)?.and_then(Health::parse);
            }
            "uptime_s" => draft.uptime_s = count(reader)?,
            _ => draft.error_message = reader.remark(MAX_MESSAGE_BYTES)?,
        }
        Ok(())
    })
}

fn counters(reader: &mut Reader<'_>, counters: &mut Counters) -> Result<(), JsonError> {
    reader.object(&COUNTERS, |reader, name| {
        if let Some(counter) = counters.get_mut(name) {
            *counter = count(reader)?.unwrap_or(0);
        }
        Ok(())
    })
}

fn count(reader: &mut Reader<'_>) -> Result<Option<i64>, JsonError> {
    Ok(reader.integer(0)?.and_then(|count| i64::try_from(count).ok()))
}

fn checkpoint(reader: &mut Reader<'_>) -> Result<Option<ConnectorCheckpoint>, JsonError> {
    let mut checkpoint = ConnectorCheckpoint::default();
    reader.object(&CHECKPOINT, |reader, name| {
        match name {
            "cursor" => checkpoint.cursor = reader.remark(MAX_CURSOR_BYTES)?,
            _ => checkpoint.updated_at_micros = reader.nullable(Reader::time)?,
        }
        Ok(())
    })?;
    Ok(Some(checkpoint))
}

impl HeartbeatDraft {
    /// Returns the heartbeat if all required fields are there.
    fn finish(self) -> Option<Heartbeat> {
        Some(Heartbeat {
            connector_type: self.connector_type?,
            endpoint_identity: self.endpoint_identity?,
            instance_id: self.instance_id?,
            labels: self.labels,
            state: self.state?,
            error_message: self.error_message,
            uptime_s: self.uptime_s?,
            counters: self.counters,
            checkpoint: self.checkpoint,
            capabilities: self.capabilities,
            sent_at_micros: self.sent_at_micros?,
            mended: self.mended,
        })
    }
}
