//! MCP server: the API as tools, for agents and for connectors.
//!
//! rmcp implements the protocol, without sessions, so that any replica answers any message.
//! This module adds tools that take an envelope verbatim, the older transport (an event stream and
//! posted messages), and forwarding between replicas.

mod forward;
mod handler;
mod hosts;
mod message;
mod read;
mod result;
mod sessions;
mod tools;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use uuid::Uuid;

use self::handler::ToolServer;
use self::hosts::Hosts;
use self::message::{ClientMessage, Unreadable};
use self::read::DutyStore;
use self::result::ToolResult;
use self::sessions::{SendOutcome, SessionId, SseEvent, SseSessions};
use crate::ServerSettings;
use crate::access::Principal;
use crate::budget::MemoryShare;
use crate::http::ServerState;
use crate::http::body::RequestBody;
use crate::http::response::{ApiError, ApiResult, Rejection};
use crate::lock;
use crate::tls::ServerCertificate;

pub(crate) use self::forward::{announce, forward, keep_announced};
pub(crate) use self::sessions::SseStream;

/// Maximum size of a message: an envelope and its wrapper.
pub(crate) const MAX_MESSAGE_BYTES: usize =
    crate::http::ingest::MAX_EVENT_BYTES + MAX_WRAPPER_BYTES;
/// Maximum size of a message without a tool's arguments. rmcp parses it into values, which take
/// many times the memory that was reserved for the message.
const MAX_WRAPPER_BYTES: usize = 64 << 10;

pub(crate) struct Mcp {
    service: StreamableHttpService<ToolServer, NeverSessionManager>,
    /// Random marker that stands for a tool's result inside rmcp.
    mark: Arc<str>,
    pub(crate) sessions: SseSessions,
    pub(crate) hosts: Hosts,
    duties: DutyStore,
    pub(crate) replica: Uuid,
    /// Address at which other replicas reach this one.
    pub(crate) advertised: Option<String>,
    tls: Option<Arc<ServerCertificate>>,
}

impl Mcp {
    pub(crate) fn new(
        settings: &ServerSettings,
        address: SocketAddr,
        tls: Option<Arc<ServerCertificate>>,
    ) -> Self {
        let own = (!address.ip().is_unspecified()).then(|| address.to_string());
        let mark: Arc<str> = Uuid::new_v4().to_string().into();
        let tools = ToolServer::new(Arc::clone(&mark));
        // Hosts are checked before, for both transports.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(MAX_WRAPPER_BYTES)
            .disable_allowed_hosts();
        let sessions = Arc::new(NeverSessionManager::default());
        Self {
            service: StreamableHttpService::new(move || Ok(tools.clone()), sessions, config),
            mark,
            sessions: SseSessions::new((settings.max_connections / 2).max(1)),
            hosts: Hosts::new(&settings.allowed_hosts),
            duties: DutyStore::new(settings.store.clone()),
            replica: Uuid::new_v4(),
            advertised: settings.advertise.clone().or(own),
            tls,
        }
    }
}

/// One message with its context.
pub(crate) struct ToolCall {
    state: Arc<ServerState>,
    caller: Principal,
    headers: HeaderMap,
    peer: IpAddr,
    arguments: Option<Bytes>,
    /// Memory of the message, until the tool takes it over.
    share: Mutex<Option<MemoryShare>>,
    result: Mutex<Option<ToolResult>>,
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    lock(slot).take()
}

#[derive(Debug)]
pub(crate) struct McpReply {
    pub(crate) status: StatusCode,
    /// JSON, or empty.
    pub(crate) body: Bytes,
    /// Whether it contains the id of its message.
    pub(crate) addressed: bool,
}

impl McpReply {
    fn error(status: StatusCode, id: &str, code: i32, message: &str) -> Self {
        let message = serde_json::Value::from(message);
        let error = format!(r#"{{"code":{code},"message":{message}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into();
        Self { status, body, addressed: id != "null" }
    }

    fn unreadable(why: Unreadable) -> Self {
        let bad = StatusCode::BAD_REQUEST;
        match why {
            Unreadable::NotJson => Self::error(bad, "null", -32700, "Parse error: not JSON"),
            Unreadable::NotMessage => {
                let says = "Invalid Request: expected one JSON-RPC message";
                Self::error(bad, "null", -32600, says)
            }
            Unreadable::BadParams(id) => Self::bad_params(bad, &id),
        }
    }

    fn bad_params(status: StatusCode, id: &str) -> Self {
        let says = "Invalid params: they do not match the method";
        Self::error(status, id, -32602, says)
    }
}

/// Returns whether rmcp does not know the method; such an answer is short.
fn is_unknown_method(body: &[u8]) -> bool {
    let error = Some(body).filter(|body| body.len() < 1024);
    let error = error.and_then(|body| serde_json::from_slice::<serde_json::Value>(body).ok());
    error.is_some_and(|answer| answer["error"]["code"] == -32601)
}

pub(crate) struct MessageOrigin<'a> {
    pub(crate) caller: Principal,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) peer: IpAddr,
}

pub(crate) async fn answer(
    state: &Arc<ServerState>,
    from: MessageOrigin<'_>,
    whole: RequestBody,
) -> ApiResult<McpReply> {
    let message = match ClientMessage::read(whole.bytes) {
        Ok(message) => message,
        Err(unreadable) => return Ok(McpReply::unreadable(unreadable)),
    };
    if message.text.len() > MAX_WRAPPER_BYTES {
        let says = format!(
            "Invalid Request: more than {MAX_WRAPPER_BYTES} bytes without the tool's arguments"
        );
        return Ok(McpReply::error(StatusCode::BAD_REQUEST, &message.id, -32600, &says));
    }
    let call = Arc::new(ToolCall {
        state: Arc::clone(state),
        caller: from.caller,
        headers: from.headers.clone(),
        peer: from.peer,
        arguments: message.arguments,
        share: Mutex::new(Some(whole.share)),
        result: Mutex::default(),
    });
    let request = request(&call, message.text);
    let response = state.mcp.service.handle(request).await;
    let (head, body) = response.into_parts();
    let is = |kind: &str| {
        head.headers.get(CONTENT_TYPE).is_some_and(|it| it.as_bytes() == kind.as_bytes())
    };
    // Streams are not expected: no tool sends anything before its result.
    if is("text/event-stream") {
        return Err(ApiError::internal());
    }
    let Ok(body) = body.collect().await;
    let body = body.to_bytes();
    if !body.is_empty() && !is("application/json") {
        // Plain text: rmcp could not read the message.
        let says = "Invalid Request: not an MCP message";
        let status =
            if head.status.is_server_error() { head.status } else { StatusCode::BAD_REQUEST };
        return Ok(McpReply::error(status, &message.id, -32600, says));
    }
    if message.known && is_unknown_method(&body) {
        return Ok(McpReply::bad_params(head.status, &message.id));
    }
    let addressed = message.id != "null";
    let body = match take(&call.result) {
        None => body,
        Some(result) => result.put_into(&body, &state.mcp.mark).ok_or_else(ApiError::internal)?,
    };
    Ok(McpReply { status: head.status, body, addressed })
}

/// Returns the message as a request for rmcp, with the MCP headers only.
fn request(call: &Arc<ToolCall>, text: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(text));
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    for (name, value) in &call.headers {
        if name.as_str().starts_with("mcp-") {
            headers.append(name, value.clone());
        }
    }
    headers.insert(HOST, HeaderValue::from_static("localhost"));
    // rmcp requires both types; clients that accept fewer are answered in JSON, too.
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.extensions_mut().insert(Arc::clone(call));
    request
}

pub(crate) fn session_id(text: &str) -> ApiResult<SessionId> {
    SessionId::parse(text).ok_or_else(no_session)
}

fn no_session() -> Rejection {
    ApiError::not_found("there is no such session")
}

/// Answers a message to a session of this replica, on its event stream.
pub(crate) async fn post(
    state: &Arc<ServerState>,
    number: u128,
    from: MessageOrigin<'_>,
    whole: RequestBody,
) -> ApiResult<McpReply> {
    let session = state.mcp.sessions.find(number, &from.caller).ok_or_else(no_session)?;
    let reply = answer(state, from, whole).await?;
    if reply.body.is_empty() || !reply.addressed {
        return Ok(reply);
    }
    let overloaded = || ApiError::overloaded("too many unread responses");
    let json = std::str::from_utf8(&reply.body).map_err(|_| ApiError::internal())?;
    let event = SseEvent::message(&state.budget, json).ok_or_else(overloaded)?;
    drop(reply);
    match state.mcp.sessions.send(number, &session, event, &state.timeouts).await {
        SendOutcome::Taken => {}
        SendOutcome::Behind => return Err(overloaded()),
        SendOutcome::Over => {
            return Err(ApiError::not_found(
                "the session has ended, because its stream was not read",
            ));
        }
    }
    Ok(McpReply { status: StatusCode::ACCEPTED, body: Bytes::new(), addressed: true })
}
