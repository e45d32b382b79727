//! Endpoints: read and follow the inbox.

use std::fmt::{Display, Write};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tenure_core::Clock;
use tenure_store::BootClock;
use tenure_wire::ingest::{self, InboxCursor};
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;
use uuid::Uuid;

use super::response::{ApiError, ApiResult, Rejection, json_text};
use super::{ApiRequest, ServerPhase, ServerState, time};
use crate::access::Principal;
use crate::budget::{MemoryShare, paid};
use crate::inbox_watch::InboxFollower;
use crate::metrics::Overload;
use crate::storage::{InboxMessage, InboxPage, InboxQuery, InboxRead, MessageLookup};

/// Memory reserved for a page: 4 MiB of envelopes and one more, and the response built from them.
const MAX_PAGE_MEMORY: usize = 9 << 20;
/// Maximum size of a trace context that is shown beside the envelope.
const MAX_CONTEXT_BYTES: usize = 1024;
/// Maximum wait for a permit to build a page.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

impl ApiRequest<'_> {
    pub(super) async fn inbox(self, _: Incoming) -> ApiResult {
        let query = self.head.uri.query().unwrap_or_default();
        let (query, wait) = parse_query(query, self.caller)?;
        page(self.state, query, wait).await?.response()
    }

    pub(super) async fn message(self, _: Incoming) -> ApiResult {
        self.no_query()?;
        message(self.state, self.caller, self.parameters[0]).await?.response()
    }
}

/// Reads a query of the inbox, restricted to what the caller may read, and the time to wait for
/// messages.
pub(crate) fn parse_query(query: &str, caller: &Principal) -> ApiResult<(InboxQuery, Duration)> {
    let read = ingest::inbox_query(query);
    let (mut read, wait) = read.map_err(|bad| ApiError::bad_request(bad.to_string()))?;
    let InboxQuery { channel, provider, endpoint_identity, .. } = &mut read;
    caller.narrow([channel, provider, endpoint_identity])?;
    Ok((read, Duration::from_secs(wait)))
}

/// Returns a page of the inbox; waits up to `wait` for one that is not empty.
pub(crate) async fn page(
    state: &ServerState,
    mut query: InboxQuery,
    wait: Duration,
) -> ApiResult<JsonPage<'_>> {
    let ends = BootClock.now().plus(wait);
    let mut follower = (wait > Duration::ZERO).then(|| state.follow.start());
    loop {
        // Read before the page, so that no later message is missed.
        let seen = follower.as_mut().map(InboxFollower::current);
        let reserved = reserve(state, MAX_PAGE_MEMORY).await?;
        let page = match state.storage.inbox(&query).await? {
            InboxRead::Page(page) => page,
            InboxRead::Diverged(inbox) => {
                return Err(ApiError::cursor_diverged(query.after, inbox));
            }
        };
        let left = ends.since(BootClock.now());
        let over = left.is_zero() || state.is_leaving();
        if !page.messages.is_empty() || over {
            return Ok(write_page(reserved, page));
        }
        drop(reserved);
        query.after = page.next_after;
        if page.at_end
            && let (Some(follower), Some(seen)) = (&mut follower, seen)
        {
            let mut phase = state.phase.subscribe();
            tokio::select! {
                () = follower.changed(seen) => {}
                () = tokio::time::sleep(left) => {}
                // Not `changed`: the phase may have changed since the check above.
                _ = phase.wait_for(|phase| *phase != ServerPhase::Running) => {}
            }
        }
    }
}

pub(crate) async fn message<'a>(
    state: &'a ServerState,
    caller: &Principal,
    id: &str,
) -> ApiResult<JsonPage<'a>> {
    let id = Uuid::try_parse(id).map_err(|_| not_found())?;
    let mut page = reserve(state, MAX_PAGE_MEMORY / 4).await?;
    match state.storage.message(id).await? {
        MessageLookup::Message(it)
            if !caller.may_read(&it.channel, &it.provider, &it.endpoint_identity) =>
        {
            Err(not_found())
        }
        // The source of a deleted message is unknown, so a restricted caller may not see it.
        MessageLookup::Trimmed { .. } if caller.reads_only().is_some() => Err(not_found()),
        MessageLookup::Message(message) => {
            let (acked, failed) = state.storage.outcomes(id).await?;
            let outcomes =
                json!({ "request_id": id.to_string(), "acked": acked, "failed": failed });
            page.text.push_str("{\"data\":");
            write_message(&mut page.text, &message);
            page.text.pop();
            // Writing to a String never fails.
            let _ = write!(page.text, ",\"dispatch_outcomes\":{outcomes}}}}}");
            Ok(page)
        }
        MessageLookup::Trimmed { first_seen_at } => Err(ApiError::gone(&time(first_seen_at))),
        MessageLookup::Nothing => Err(not_found()),
    }
}

pub(super) fn not_found() -> Rejection {
    ApiError::not_found("there is no message with this id")
}

/// JSON text of a response, and the memory reserved for it.
pub(crate) struct JsonPage<'a> {
    pub(crate) text: String,
    share: MemoryShare,
    _permit: SemaphorePermit<'a>,
}

/// Waits a while for a permit, and reserves memory without waiting.
pub(super) async fn reserve(state: &ServerState, bytes: usize) -> ApiResult<JsonPage<'_>> {
    let overloaded = || {
        state.metrics.overloaded(Overload::Memory);
        ApiError::overloaded("too many large reads at once; try again")
    };
    let Ok(Ok(permit)) = timeout(RESERVE_TIMEOUT, state.pages.acquire()).await else {
        return Err(overloaded());
    };
    let bytes = bytes.min(state.budget.size() / 2);
    let share = state.budget.take(bytes).ok_or_else(overloaded)?;
    Ok(JsonPage { text: String::new(), share, _permit: permit })
}

impl JsonPage<'_> {
    /// Begins the next item of the list `data`.
    pub(super) fn item(&mut self) -> &mut String {
        self.text.push_str(if self.text.is_empty() { "{\"data\":[" } else { "," });
        &mut self.text
    }

    /// Ends the list `data`.
    pub(super) fn end(mut self, meta: impl Display) -> Self {
        if self.text.is_empty() {
            self.item();
        }
        // Writing to a String never fails.
        let _ = write!(self.text, "],\"meta\":{meta}}}");
        self
    }

    pub(super) fn with(self, text: impl ToString) -> Self {
        Self { text: text.to_string(), ..self }
    }

    /// Sets `data`, without `meta`.
    pub(super) fn data(self, data: impl Display) -> Self {
        self.with(format_args!("{{\"data\":{data},\"meta\":{{}}}}"))
    }

    /// Returns the response. It releases the memory when it has been sent.
    pub(crate) fn response(self) -> ApiResult {
        Ok(json_text(StatusCode::OK, paid(self.text, self.share)))
    }

    pub(crate) fn into_parts(mut self) -> (String, MemoryShare) {
        self.share.shrink(self.text.len());
        (self.text, self.share)
    }
}

fn write_page(mut reserved: JsonPage<'_>, page: InboxPage) -> JsonPage<'_> {
    let size = page.messages.iter().map(|message| message.envelope.len() + 1024).sum();
    reserved.text.reserve_exact(size);
    // Consumes the messages one by one, so that none is in memory twice.
    for message in page.messages {
        write_message(reserved.item(), &message);
    }
    let InboxPage { next_after, at_end, trimmed, .. } = page;
    reserved.end(format_args!(
        "{{\"next_after\":\"{next_after}\",\"at_end\":{at_end},\"trimmed\":{trimmed}}}"
    ))
}

#[derive(Default, Deserialize)]
struct Control<'a> {
    idempotency_key: Option<String>,
    #[serde(borrow)]
    trace_context: Option<&'a RawValue>,
}

/// Reads `control` of an envelope that was validated before.
fn control(envelope: &str) -> Control<'_> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        control: Option<Control<'a>>,
    }
    let read = serde_json::from_str::<Envelope<'_>>(envelope).ok();
    read.and_then(|envelope| envelope.control).unwrap_or_default()
}

/// Returns the trace context, `null` if it is large: it must not double the size of a page.
fn shown_context(context: Option<&RawValue>) -> String {
    let context = context.map_or("{}", RawValue::get);
    if context.len() > MAX_CONTEXT_BYTES { "null" } else { context }.to_owned()
}

/// Writes a message. The envelope is JSON already and is written unchanged.
fn write_message(out: &mut String, message: &InboxMessage) {
    let id = message.request_id.as_hyphenated();
    let received_at = time(message.received_at);
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let or_null = |text: &Option<String>| text.as_deref().map_or("null".to_owned(), quoted);
    let Control { idempotency_key, trace_context } = control(&message.envelope);
    let context = [
        ("request_id", format!("\"{id}\"")),
        ("received_at", quoted(&received_at)),
        ("source_channel", quoted(&message.channel)),
        ("source_provider", quoted(&message.provider)),
        ("source_endpoint_identity", quoted(&message.endpoint_identity)),
        ("source_sender_identity", quoted(&message.sender_identity)),
        ("source_thread_identity", or_null(&message.thread_identity)),
        ("idempotency_key", or_null(&idempotency_key)),
        ("trace_context", shown_context(trace_context)),
        ("dedupe_key", quoted(&message.dedupe_key)),
        ("dedupe_strategy", "\"connector_api\"".to_owned()),
        ("authenticated_token_id", or_null(&message.token_id)),
    ];
    let position = message.position;
    let state = quoted(&message.lifecycle_state);
    let cursor = InboxCursor::new(position, Some(message.request_id));
    let _ = write!(out, "{{\"position\":{position},\"cursor\":\"{cursor}\",");
    let _ = write!(out, "\"request_id\":\"{id}\",");
    let _ = write!(out, "\"received_at\":\"{received_at}\",\"lifecycle_state\":{state},");
    out.push_str("\"request_context\":{");
    for (n, (name, value)) in context.iter().enumerate() {
        let _ = write!(out, "{}\"{name}\":{value}", if n == 0 { "" } else { "," });
    }
    out.push_str("},\"envelope\":");
    out.push_str(&message.envelope);
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_as_json() {
        let message = InboxMessage {
            position: 7,
            request_id: Uuid::from_u128(1),
            received_at: 1_771_151_400_123_456,
            channel: "api".to_owned(),
            provider: "internal".to_owned(),
            endpoint_identity: "a\"b\\\n\u{1}".to_owned(),
            sender_identity: "ä".to_owned(),
            thread_identity: None,
            dedupe_key: "event:x".to_owned(),
            token_id: Some("tok_1".to_owned()),
            lifecycle_state: "accepted".to_owned(),
            envelope: concat!(
                r#"{"x":1e400,"y":"\ud800","control":{"policy_tier":"default","#,
                r#""idempotency_key":"k\"1","trace_context":{"a": 1e400}}}"#
            )
            .to_owned(),
        };
        let page = InboxPage {
            messages: vec![message.clone(), message],
            next_after: InboxCursor::new(7, Some(Uuid::from_u128(1))),
            at_end: true,
            trimmed: 3,
        };
        let permits = tokio::sync::Semaphore::new(1);
        let reserved = JsonPage {
            text: String::new(),
            share: crate::budget::Budget::new(0).take(0).unwrap(),
            _permit: permits.try_acquire().unwrap(),
        };
        let text = write_page(reserved, page).text;
        // A number and a surrogate that some JSON readers reject are returned unchanged.
        assert!(text.contains(r#""envelope":{"x":1e400,"y":"\ud800","#));
        assert!(text.contains(r#""trace_context":{"a": 1e400},"dedupe_key""#));
        let text = text.replace("1e400", "1").replace("\\ud800", "");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let first = &read["data"][1];
        assert_eq!(first["request_id"], "00000000-0000-0000-0000-000000000001");
        assert_eq!((&first["position"], &first["cursor"]), (&json!(7), &json!("7.000000000001")));
        assert_eq!(read["meta"]["next_after"], "7.000000000001");
        assert_eq!(first["received_at"], "2026-02-15T10:30:00.123456Z");
        let context = &first["request_context"];
        assert_eq!(context["source_endpoint_identity"], "a\"b\\\n\u{1}");
        assert!(context["source_thread_identity"].is_null());
        assert_eq!(context["idempotency_key"], "k\"1");
        assert_eq!(read["meta"]["trimmed"], 3);
    }
}
