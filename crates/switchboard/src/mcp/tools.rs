//! Table of tools: name, role, description, arguments and function.

use std::pin::Pin;
use std::sync::Arc;

use hyper::body::Bytes;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use tenure_wire::heartbeat::COUNTER_NAMES;

use super::result::ToolResult;
use super::{ToolCall, read, take};
use crate::http::response::{ApiError, ApiResult};
use crate::http::{connectors, content, heartbeat, ingest};
use crate::token::Role;

pub(super) const INSTRUCTIONS: &str = "The switchboard ingests events exactly once and tracks \
    connectors. Submit events with `ingest`, send heartbeats with `connector.heartbeat`, and read \
    with the other tools. A result with status \"error\" says what is wrong with the arguments.";

type ToolFuture<'a> = Pin<Box<dyn Future<Output = ApiResult<ToolResult>> + Send + 'a>>;

pub(super) struct ToolSpec {
    name: &'static str,
    role: Role,
    description: &'static str,
    /// JSON schema of the arguments, for clients. The envelope readers validate.
    schema: fn() -> Value,
    run: for<'a> fn(&'a ToolCall) -> ToolFuture<'a>,
}

const TOOLS: [ToolSpec; 7] = [
    ToolSpec {
        name: "ingest",
        run: |call| Box::pin(ingest_event(call)),
        role: Role::Ingest,
        description: "Submits one event (an ingest.v1 envelope). For a duplicate, returns the \
                      request_id of the first event, and duplicate is true.",
        schema: envelope_schema,
    },
    ToolSpec {
        name: "connector.heartbeat",
        run: |call| Box::pin(record_heartbeat(call)),
        role: Role::Ingest,
        description: "Sends a heartbeat of a connector, with its counters (a \
                      connector.heartbeat.v1 envelope).",
        schema: heartbeat_schema,
    },
    ToolSpec {
        name: "connectors.list",
        run: |call| Box::pin(read::connectors(call)),
        role: Role::Read,
        description: "Lists connectors with their liveness.",
        schema: || {
            let after =
                json!({ "type": "string", "description": "next_after of the previous page" });
            let archived = json!({ "type": "boolean" });
            let limit = integer(1, connectors::MAX_PAGE_ROWS);
            object(json!({ "limit": limit, "after": after, "archived": archived }), &[])
        },
    },
    ToolSpec {
        name: "connectors.show",
        run: |call| Box::pin(read::connector(call)),
        role: Role::Read,
        description: "Shows the details of one connector.",
        schema: || {
            let fields = ["connector_type", "endpoint_identity"];
            object(json!({ fields[0]: text(), fields[1]: text() }), &fields)
        },
    },
    ToolSpec {
        name: "inbox.list",
        run: |call| Box::pin(read::inbox(call)),
        role: Role::Read,
        description: "Lists messages of the inbox after a cursor, in the order of storage.",
        schema: inbox_schema,
    },
    ToolSpec {
        name: "inbox.show",
        run: |call| Box::pin(read::message(call)),
        role: Role::Read,
        description: "Shows one message of the inbox with its outcomes.",
        schema: || object(json!({ "request_id": text() }), &["request_id"]),
    },
    ToolSpec {
        name: "duties.list",
        run: |call| Box::pin(read::duties(call)),
        role: Role::Read,
        description: "Lists the duties of one group or of all groups, with holder and epoch.",
        schema: || object(json!({ "group": text(), "limit": integer(1, read::MAX_DUTIES) }), &[]),
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

fn text() -> Value {
    json!({ "type": "string" })
}

fn integer(min: usize, max: usize) -> Value {
    json!({ "type": "integer", "minimum": min, "maximum": max })
}

fn part(says: &str) -> Value {
    json!({ "type": "object", "description": says })
}

fn envelope_schema() -> Value {
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

fn heartbeat_schema() -> Value {
    let maybe = |says: &str| json!({ "type": ["object", "null"], "description": says });
    object(
        json!({
            "schema_version": { "type": "string", "const": "connector.heartbeat.v1" },
            "connector": part("connector_type, endpoint_identity, instance_id and version"),
            "status": part("state (healthy, degraded or error), error_message and uptime_s"),
            "counters": part(&format!("{}, since the start", COUNTER_NAMES.join(", "))),
            "checkpoint": maybe("cursor and updated_at"),
            "capabilities": maybe("capabilities of the connector"),
            "sent_at": { "type": "string", "format": "date-time" },
        }),
        &["schema_version", "connector", "status", "counters", "sent_at"],
    )
}

fn inbox_schema() -> Value {
    let text = text();
    let time = json!({ "type": "string", "format": "date-time" });
    object(
        json!({
            "after": {
                "type": ["string", "integer"],
                "description": "next_after of the previous page; 0 from the start",
            },
            "limit": integer(1, 1000),
            "channel": text,
            "provider": text,
            "endpoint": text,
            "sender": text,
            "thread": text,
            "since": time,
            "until": time,
            "wait": integer(0, 30),
        }),
        &[],
    )
}

/// Returns the list of tools. Results are open objects, so that clients pass them on unchanged.
pub(super) fn all() -> Vec<Tool> {
    let schema = |value: Value| match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    };
    let open = Arc::new(schema(json!({ "type": "object", "additionalProperties": true })));
    let tool = |spec: &ToolSpec| {
        let schema = Arc::new(schema((spec.schema)()));
        let mut tool = Tool::new(spec.name, spec.description, schema);
        tool.output_schema = Some(Arc::clone(&open));
        let annotations = match spec.role {
            Role::Read => ToolAnnotations::new().read_only(true),
            _ => ToolAnnotations::new().destructive(false).idempotent(true),
        };
        tool.annotations = Some(annotations.open_world(false));
        tool
    };
    TOOLS.iter().map(tool).collect()
}

pub(super) fn find(name: &str) -> Option<&'static ToolSpec> {
    TOOLS.iter().find(|tool| tool.name == name)
}

pub(super) async fn run(call: &ToolCall, tool: &ToolSpec) -> ApiResult<ToolResult> {
    let ToolCall { state, caller, .. } = call;
    // The store checks the token of a submission again; reads are checked here.
    if tool.role != Role::Ingest {
        state.access.check_again(caller, &call.headers, call.peer).await?;
    }
    state.access.check_role(caller, tool.role)?;
    (tool.run)(call).await
}

fn envelope_of(call: &ToolCall, limit: usize) -> ApiResult<Bytes> {
    let envelope = call.arguments.clone().unwrap_or(Bytes::from_static(b"{}"));
    if envelope.len() > limit { Err(ApiError::too_large(limit)) } else { Ok(envelope) }
}

async fn ingest_event(call: &ToolCall) -> ApiResult<ToolResult> {
    let envelope = envelope_of(call, ingest::MAX_EVENT_BYTES)?;
    let fence = content::fence(&call.headers)?;
    let share = take(&call.share).ok_or_else(ApiError::internal)?;
    let outcome = ingest::submit_event(&call.state, &call.caller, envelope, fence, share).await?;
    Ok(small_result(&json!({
        "request_id": outcome.request_id.to_string(),
        "status": "accepted",
        "duplicate": outcome.duplicate,
    })))
}

async fn record_heartbeat(call: &ToolCall) -> ApiResult<ToolResult> {
    let envelope = envelope_of(call, heartbeat::MAX_HEARTBEAT_BYTES)?;
    Ok(small_result(&heartbeat::record(&call.state, &call.caller, &envelope).await?))
}

pub(super) fn small_result(value: &Value) -> ToolResult {
    ToolResult::new(value.to_string(), None)
}
