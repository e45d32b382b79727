//! The fields of a heartbeat.

use uuid::Uuid;

use super::{
    ConnectorCheckpoint, Counters, Health, Heartbeat, InvalidEnvelope, MAX_CAPABILITIES_BYTES,
    MAX_TYPE_BYTES, SCHEMA_VERSION,
};
use crate::envelope::{self, JsonError, ObjectShape, Reader};

const ENVELOPE: ObjectShape = ObjectShape {
    required: &["schema_version", "connector", "status", "counters", "sent_at"],
    optional: &["checkpoint", "capabilities"],
};
const CONNECTOR: ObjectShape = ObjectShape {
    required: &["connector_type", "endpoint_identity", "instance_id"],
    optional: &["version"],
};
const STATUS: ObjectShape =
    ObjectShape { required: &["state", "uptime_s"], optional: &["error_message"] };
const COUNTERS: ObjectShape = ObjectShape {
    required: &["messages_ingested", "messages_failed", "source_api_calls", "checkpoint_saves"],
    optional: &["dedupe_accepted"],
};
const CHECKPOINT: ObjectShape = ObjectShape { required: &[], optional: &["cursor", "updated_at"] };

const MAX_VERSION_BYTES: usize = 256;
const MAX_MESSAGE_BYTES: usize = 4_096;
const MAX_CURSOR_BYTES: usize = 4_096;

/// Fields read so far.
#[derive(Default)]
struct HeartbeatDraft {
    connector_type: Option<String>,
    endpoint_identity: Option<String>,
    instance_id: Option<Uuid>,
    version: Option<String>,
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
    draft.mended = reader.mended();
    Ok(draft)
}

fn connector(reader: &mut Reader<'_>, draft: &mut HeartbeatDraft) -> Result<(), JsonError> {
    reader.object(&CONNECTOR, |reader, name| {
        match name {
            "connector_type" => draft.connector_type = connector_type(reader)?,
            "endpoint_identity" => draft.endpoint_identity = reader.identity()?,
            "instance_id" => draft.instance_id = reader.uuid()?,
            _ => draft.version = reader.remark(MAX_VERSION_BYTES)?,
        }
        Ok(())
    })
}

/// A type is a word that people read in lists: nothing in it moves their cursor.
fn connector_type(reader: &mut Reader<'_>) -> Result<Option<String>, JsonError> {
    let name = reader.name(MAX_TYPE_BYTES)?;
    if name.as_ref().is_some_and(|name| name.contains(char::is_control)) {
        reader.issue("invalid_text", "holds a control character".to_owned());
    }
    Ok(name)
}

fn status(reader: &mut Reader<'_>, draft: &mut HeartbeatDraft) -> Result<(), JsonError> {
    reader.object(&STATUS, |reader, name| {
        match name {
            "state" => {
                let words = Health::ALL.map(Health::as_str);
                let word = reader.one_of(&words)?;
                draft.state = word.and_then(Health::parse);
            }
            "uptime_s" => draft.uptime_s = count(reader)?,
            _ => draft.error_message = reader.remark(MAX_MESSAGE_BYTES)?,
        }
        Ok(())
    })
}

fn counters(reader: &mut Reader<'_>, counters: &mut Counters) -> Result<(), JsonError> {
    reader.object(&COUNTERS, |reader, name| {
        let counter = match name {
            "messages_ingested" => &mut counters.messages_ingested,
            "messages_failed" => &mut counters.messages_failed,
            "source_api_calls" => &mut counters.source_api_calls,
            "checkpoint_saves" => &mut counters.checkpoint_saves,
            _ => &mut counters.dedupe_accepted,
        };
        *counter = count(reader)?.unwrap_or(0);
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
    /// The heartbeat, if all that is required is there.
    fn finish(self) -> Option<Heartbeat> {
        Some(Heartbeat {
            connector_type: self.connector_type?,
            endpoint_identity: self.endpoint_identity?,
            instance_id: self.instance_id?,
            version: self.version,
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
