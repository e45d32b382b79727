//! The same for clients that speak MCP: agents, and connectors that are told to report by a tool.
//!
//! rmcp reads and writes the protocol, without sessions, so that any replica answers any message.
//! What it does not do is here: tools that take an envelope as it came, the older transport (a
//! stream of events and messages that are posted beside it), and what replicas do for each other.

mod forward;
mod handler;
mod hosts;
mod message;
mod read;
mod result;
mod sessions;
mod tools;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tenure_store::StoreUrl;
use uuid::Uuid;

use self::handler::Tools;
use self::hosts::Hosts;
use self::message::{Message, Unreadable};
use self::read::Duties;
use self::result::Told;
use self::sessions::{Event, Sent, SessionId, Sessions};
use crate::access::Caller;
use crate::budget::Share;
use crate::http::State;
use crate::http::answer::{Refusal, Refused};
use crate::http::body::Whole;
use crate::tls::Tls;

pub(crate) use self::forward::{announce, announce_on};
pub(crate) use self::sessions::Stream;

/// The largest message: an envelope, and what stands around it.
pub(crate) const LARGEST: usize = crate::http::ingest::LARGEST + AROUND;
/// What a message may have besides a tool's arguments. rmcp makes values of it, which take many
/// times as much memory as the message has paid for.
const AROUND: usize = 64 << 10;

/// What a replica has for MCP.
pub(crate) struct Mcp {
    service: StreamableHttpService<Tools, NeverSessionManager>,
    /// Stands for a tool's result on its way through rmcp. Nobody outside knows it.
    mark: Arc<str>,
    pub(crate) sessions: Sessions,
    hosts: Hosts,
    duties: Duties,
    pub(crate) replica: Uuid,
    /// Where the other replicas reach this one, if they do.
    pub(crate) advertised: Option<String>,
    tls: Option<Arc<Tls>>,
}

/// What it is made of.
pub(crate) struct Parts {
    pub(crate) most_sessions: usize,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) store: Option<StoreUrl>,
    pub(crate) advertised: Option<String>,
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Mcp {
    pub(crate) fn new(parts: Parts) -> Self {
        let mark: Arc<str> = Uuid::new_v4().to_string().into();
        let tools = Tools::new(Arc::clone(&mark));
        // Hosts are judged before, and for both transports.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(AROUND)
            .disable_allowed_hosts();
        let sessions = Arc::new(NeverSessionManager::default());
        Self {
            service: StreamableHttpService::new(move || Ok(tools.clone()), sessions, config),
            mark,
            sessions: Sessions::new(parts.most_sessions),
            hosts: Hosts::new(parts.allowed_hosts),
            duties: Duties::new(parts.store),
            replica: Uuid::new_v4(),
            advertised: parts.advertised,
            tls: parts.tls,
        }
    }

    /// Whether a request names a host under which this may be asked.
    pub(crate) fn check_host(&self, headers: &HeaderMap) -> Result<(), Refused> {
        self.hosts.check(headers)
    }

    /// Whether a request that a browser sends is for a page of this host, or of an allowed one.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refused> {
        self.hosts.check_origin(headers)
    }
}

/// One message, and everything that is needed to answer it.
pub(crate) struct Call {
    state: Arc<State>,
    caller: Caller,
    headers: HeaderMap,
    peer: IpAddr,
    arguments: Option<Bytes>,
    /// What the message costs, until somebody takes it over.
    share: Mutex<Option<Share>>,
    told: Mutex<Option<Told>>,
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// What goes back for a message.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// JSON, or nothing.
    pub(crate) body: Bytes,
    /// Whether it says to which message it belongs.
    pub(crate) addressed: bool,
}

impl Reply {
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
                let says = "Invalid Request: one JSON-RPC message is expected";
                Self::error(bad, "null", -32600, says)
            }
            Unreadable::BadParams(id) => Self::bad_params(bad, &id),
        }
    }

    fn bad_params(status: StatusCode, id: &str) -> Self {
        let says = "Invalid params: they are not those of the method";
        Self::error(status, id, -32602, says)
    }
}

/// Whether rmcp says that it does not know the method; such an answer is short.
fn is_unknown_method(body: &[u8]) -> bool {
    let error = Some(body).filter(|body| body.len() < 1024);
    let error = error.and_then(|body| serde_json::from_slice::<serde_json::Value>(body).ok());
    error.is_some_and(|answer| answer["error"]["code"] == -32601)
}

/// Who says something, with which headers, from where.
pub(crate) struct From<'a> {
    pub(crate) caller: Caller,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) peer: IpAddr,
}

/// Answers one message.
pub(crate) async fn answer(
    state: &Arc<State>,
    from: From<'_>,
    whole: Whole,
) -> Result<Reply, Refused> {
    let message = match Message::read(whole.bytes) {
        Ok(message) => message,
        Err(unreadable) => return Ok(Reply::unreadable(unreadable)),
    };
    if message.text.len() > AROUND {
        let says = format!("Invalid Request: more than {AROUND} bytes besides a tool's arguments");
        return Ok(Reply::error(StatusCode::BAD_REQUEST, &message.id, -32600, &says));
    }
    let call = Arc::new(Call {
        state: Arc::clone(state),
        caller: from.caller,
        headers: from.headers.clone(),
        peer: from.peer,
        arguments: message.arguments,
        share: Mutex::new(Some(whole.share)),
        told: Mutex::default(),
    });
    let request = request(&call, message.text);
    let response = state.mcp.service.handle(request).await;
    let (head, body) = response.into_parts();
    let is = |kind: &str| {
        head.headers.get(CONTENT_TYPE).is_some_and(|it| it.as_bytes() == kind.as_bytes())
    };
    // It would have to be streamed; no tool says anything before its result.
    if is("text/event-stream") {
        return Err(Refusal::internal());
    }
    let Ok(body) = body.collect().await;
    let body = body.to_bytes();
    if !body.is_empty() && !is("application/json") {
        // Told in words: it could not be read.
        let says = "Invalid Request: not a message of MCP";
        let status =
            if head.status.is_server_error() { head.status } else { StatusCode::BAD_REQUEST };
        return Ok(Reply::error(status, &message.id, -32600, says));
    }
    if message.known && is_unknown_method(&body) {
        return Ok(Reply::bad_params(head.status, &message.id));
    }
    let addressed = message.id != "null";
    let body = match take(&call.told) {
        None => body,
        Some(told) => told.put_into(&body, &state.mcp.mark).ok_or_else(Refusal::internal)?,
    };
    Ok(Reply { status: head.status, body, addressed })
}

/// The message as rmcp wants it: what else a client sends along means nothing to it.
fn request(call: &Arc<Call>, text: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(text));
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    for (name, value) in &call.headers {
        if name.as_str().starts_with("mcp-") {
            headers.append(name, value.clone());
        }
    }
    headers.insert(HOST, HeaderValue::from_static("localhost"));
    // Whoever does not say so is answered in JSON, too.
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.extensions_mut().insert(Arc::clone(call));
    request
}

/// Opens a session for a client that wants a stream.
pub(crate) fn open(state: &State, caller: &Caller) -> Result<Stream, Refused> {
    let Mcp { sessions, replica, .. } = &state.mcp;
    let opened = sessions.open(*replica, caller, state.phase.subscribe());
    opened.ok_or_else(Refusal::too_many_sessions)
}

/// Where a message to a session has to go.
pub(crate) enum Way {
    /// To a session of this replica.
    Here(u128),
    /// To another replica.
    There(Uuid),
}

/// Reads the id of a session.
pub(crate) fn way(state: &State, session_id: &str) -> Result<Way, Refused> {
    let id = SessionId::parse(session_id).ok_or_else(no_session)?;
    Ok(if id.replica == state.mcp.replica { Way::Here(id.number) } else { Way::There(id.replica) })
}

fn no_session() -> Refused {
    Refusal::not_found("there is no such session")
}

/// Answers a message to a session of this replica: down its stream.
pub(crate) async fn post(
    state: &Arc<State>,
    number: u128,
    from: From<'_>,
    whole: Whole,
) -> Result<Reply, Refused> {
    let session = state.mcp.sessions.find(number, &from.caller).ok_or_else(no_session)?;
    let reply = answer(state, from, whole).await?;
    if reply.body.is_empty() || !reply.addressed {
        return Ok(reply);
    }
    let overloaded = || Refusal::overloaded("too many answers wait to be read");
    let json = std::str::from_utf8(&reply.body).map_err(|_| Refusal::internal())?;
    let event = Event::message(&state.budget, json).ok_or_else(overloaded)?;
    drop(reply);
    match state.mcp.sessions.send(number, &session, event, &state.patience).await {
        Sent::Taken => {}
        Sent::Behind => return Err(overloaded()),
        Sent::Over => {
            return Err(Refusal::not_found("the session is over: its stream was not read"));
        }
    }
    Ok(Reply { status: StatusCode::ACCEPTED, body: Bytes::new(), addressed: true })
}

/// Sends a message to the replica whose session it is for.
pub(crate) use self::forward::forward;
