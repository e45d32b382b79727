//! Table of tools: name, role, description, arguments and function.

use std::sync::Arc;

use hyper::body::Bytes;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::result::ToolResult;
use super::{ToolCall, read, take};
use crate::http::response::{ApiError, Rejection};
use crate::http::{content, heartbeat, ingest};
use crate::token::Role;

/// Instructions for clients.
pub(super) const INSTRUCTIONS: &str = "A switchboard takes events in: each takes effect once. \
    Submit with `ingest`, report with `connector.heartbeat`, and look with the other tools. A \
    result with status \"error\" says what is wrong with what was sent.";

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolName {
    Ingest,
    Heartbeat,
    Connectors,
    Connector,
    Inbox,
    Message,
    Duties,
}

struct ToolSpec {
    name: ToolName,
    text: &'static str,
    role: Role,
    says: &'static str,
    /// JSON schema of the arguments, for clients. The envelope readers validate.
    takes: fn() -> Value,
}

const TOOLS: [ToolSpec; 7] = [
    ToolSpec {
        name: ToolName::Ingest,
        text: "ingest",
        role: Role::Ingest,
        says: "Submits one event, an ingest.v1 envelope. The same event again is recognised: it \
               has the request_id of the first, and duplicate is true.",
        takes: envelope,
    },
    ToolSpec {
        name: ToolName::Heartbeat,
        text: "connector.heartbeat",
        role: Role::Ingest,
        says: "Reports that a connector lives, and its counters: a connector.heartbeat.v1 \
               envelope.",
        takes: beat,
    },
    ToolSpec {
        name: ToolName::Connectors,
        text: "connectors.list",
        role: Role::Read,
        says: "The connectors that are known, with their liveness.",
        takes: || {
            object(
                json!({
                    "limit": { "type": "integer", "minimum": 1, "maximum": 10000 },
                    "after": { "type": "string", "description": "next_after of the page before" },
                    "archived": { "type": "boolean" },
                }),
                &[],
            )
        },
    },
    ToolSpec {
        name: ToolName::Connector,
        text: "connectors.show",
        role: Role::Read,
        says: "Everything that is known of one connector.",
        takes: || {
            let fields = ["connector_type", "endpoint_identity"];
            object(
                json!({ fields[0]: { "type": "string" }, fields[1]: { "type": "string" } }),
                &fields,
            )
        },
    },
    ToolSpec {
        name: ToolName::Inbox,
        text: "inbox.list",
        role: Role::Read,
        says: "Messages of the inbox in the order in which they were stored, after a cursor.",
        takes: inbox,
    },
    ToolSpec {
        name: ToolName::Message,
        text: "inbox.show",
        role: Role::Read,
        says: "One message of the inbox, and to whom it went.",
        takes: || object(json!({ "request_id": { "type": "string" } }), &["request_id"]),
    },
    ToolSpec {
        name: ToolName::Duties,
        text: "duties.list",
        role: Role::Read,
        says: "Duties of a group, or of all, with their holder and epoch.",
        takes: || {
            object(
                json!({
                    "group": { "type": "string" },
                    "limit": { "type": "integer", "minimum": 1, "maximum": read::MAX_DUTIES },
                }),
                &[],
            )
        },
    },
];

fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn envelope() -> Value {
    let part = |says: &str| json!({ "type": "object", "description": says });
    object(
        json!({
            "schema_version": { "type": "string", "const": "ingest.v1" },
            "source": part("channel, provider and endpoint_identity"),
            "event": part("external_event_id, external_thread_id and observed_at"),
            "sender": part("identity and display_name"),
            "payload": part("raw, normalized_text and attachments"),
            "control": part("idempotency_key, trace_context and policy_tier"),
        }),
        &["schema_version", "source", "event", "sender", "payload"],
    )
}

fn beat() -> Value {
    let part = |says: &str| json!({ "type": "object", "description": says });
    let maybe = |says: &str| json!({ "type": ["object", "null"], "description": says });
    object(
        json!({
            "schema_version": { "type": "string", "const": "connector.heartbeat.v1" },
            "connector": part("connector_type, endpoint_identity, instance_id and version"),
            "status": part("state (healthy, degraded or error), error_message and uptime_s"),
            "counters": part("messages_ingested, messages_failed, source_api_calls, \
                              checkpoint_saves and dedupe_accepted, since the instance started"),
            "checkpoint": maybe("cursor and updated_at"),
            "capabilities": maybe("whatever the connector can do"),
            "sent_at": { "type": "string", "format": "date-time" },
        }),
        &["schema_version", "connector", "status", "counters", "sent_at"],
    )
}

fn inbox() -> Value {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "format": "date-time" });
    object(
        json!({
            "after": {
                "type": ["string", "integer"],
                "description": "next_after of the page before; 0 from the start",
            },
            "limit": { "type": "integer", "minimum": 1, "maximum": 1000 },
            "channel": text,
            "provider": text,
            "endpoint": text,
            "sender": text,
            "thread": text,
            "since": time,
            "until": time,
            "wait": { "type": "integer", "minimum": 0, "maximum": 30 },
        }),
        &[],
    )
}

/// Returns all tools as they are listed. Their result is an open object, so that clients pass it on
/// unchanged.
pub(super) fn all() -> Vec<Tool> {
    let schema = |value: Value| match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    };
    let open = Arc::new(schema(json!({ "type": "object", "additionalProperties": true })));
    let tool = |kind: &ToolSpec| {
        let mut tool = Tool::new(kind.text, kind.says, Arc::new(schema((kind.takes)())));
        tool.output_schema = Some(Arc::clone(&open));
        let annotations = match kind.role {
            Role::Read => ToolAnnotations::new().read_only(true),
            _ => ToolAnnotations::new().destructive(false).idempotent(true),
        };
        tool.annotations = Some(annotations.open_world(false));
        tool
    };
    TOOLS.iter().map(tool).collect()
}

pub(super) fn find(text: &str) -> Option<ToolName> {
    TOOLS.iter().find(|kind| kind.text == text).map(|kind| kind.name)
}

/// Runs a tool.
pub(super) async fn run(call: &ToolCall, name: ToolName) -> Result<ToolResult, Rejection> {
    let ToolCall { state, caller, .. } = call;
    let role = TOOLS.iter().find(|kind| kind.name == name).map_or(Role::Admin, |kind| kind.role);
    // The store checks the token of a submission again; reads are checked here.
    if role != Role::Ingest {
        state.access.check_again(caller, &call.headers, call.peer).await?;
    }
    state.access.check_role(caller, role)?;
    match name {
        ToolName::Ingest => submit(call).await,
        ToolName::Heartbeat => report(call).await,
        ToolName::Connectors => read::connectors(call).await,
        ToolName::Connector => read::connector(call).await,
        ToolName::Inbox => read::inbox(call).await,
        ToolName::Message => read::message(call).await,
        ToolName::Duties => read::duties(call).await,
    }
}

fn envelope_of(call: &ToolCall, limit: usize) -> Result<Bytes, Rejection> {
    let envelope = call.arguments.clone().unwrap_or(Bytes::from_static(b"{}"));
    if envelope.len() > limit { Err(ApiError::too_large(limit)) } else { Ok(envelope) }
}

async fn submit(call: &ToolCall) -> Result<ToolResult, Rejection> {
    let envelope = envelope_of(call, ingest::MAX_EVENT_BYTES)?;
    let fence = content::fence(&call.headers)?;
    let share = take(&call.share).ok_or_else(ApiError::internal)?;
    let outcome = ingest::submit_event(&call.state, &call.caller, envelope, fence, share).await?;
    Ok(said(&json!({
        "request_id": outcome.request_id.to_string(),
        "status": "accepted",
        "duplicate": outcome.duplicate,
    })))
}

async fn report(call: &ToolCall) -> Result<ToolResult, Rejection> {
    let envelope = envelope_of(call, heartbeat::MAX_HEARTBEAT_BYTES)?;
    Ok(said(&heartbeat::record(&call.state, &call.caller, &envelope).await?))
}

/// Returns a small result.
pub(super) fn said(value: &Value) -> ToolResult {
    ToolResult::new(value.to_string(), None)
}
