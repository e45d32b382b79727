//! Forwarding of messages to the replica that has their session.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use tenure_core::Code;
use tenure_http::{HttpClient, HttpError, Origin};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{McpReply, no_session};
use crate::error::SwitchboardError;
use crate::http::ServerState;
use crate::http::response::{ApiError, ApiResult};
use crate::notice::{NoticeSink, ServerNotice};

/// Header set by a replica that forwards a message, so that it is forwarded only once.
pub(crate) const FORWARDED_HEADER: &str = "tenure-forwarded";
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(10);
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the connection to another replica, TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout for its response: a message may wait 30 seconds for the inbox.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(40);
/// Maximum size of a response, which is short: answers are sent on the event stream.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Headers not forwarded: those of one connection, and those that the HTTP client sets.
const HOP_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Announces the address of this replica, before any session exists.
pub(crate) async fn announce(state: &ServerState) -> Result<(), SwitchboardError> {
    let Some(address) = &state.mcp.advertised else { return Ok(()) };
    let late =
        |_| Err(SwitchboardError::refused(Code::Lost, "the store did not answer within 5 seconds"));
    let announced =
        timeout(STORE_TIMEOUT, state.storage.announce(state.mcp.replica, address)).await;
    announced.unwrap_or_else(late)
}

/// Announces the address again at an interval.
pub(crate) async fn keep_announced(
    state: Arc<ServerState>,
    mut last: Result<(), SwitchboardError>,
    log: NoticeSink,
) {
    loop {
        sleep(ANNOUNCE_INTERVAL).await;
        let announced = announce(&state).await;
        if let (Ok(()), Err(error)) = (last, &announced) {
            log(ServerNotice::NotAnnounced(error.clone()));
        }
        last = announced;
    }
}

/// Forwards a message to the replica that has its session.
pub(crate) async fn forward(
    state: &ServerState,
    replica: Uuid,
    head: &Parts,
    body: Bytes,
) -> ApiResult<McpReply> {
    if head.headers.contains_key(FORWARDED_HEADER) {
        return Err(no_session());
    }
    let Some(address) = state.storage.replica(replica).await? else {
        return Err(ApiError::not_found(
            "there is no such session, or this replica cannot reach the one that has it",
        ));
    };
    let lost = || ApiError::unreachable("the replica of this session cannot be reached");
    let origin = address.parse().ok();
    let origin = origin.and_then(|it| Origin::new(state.mcp.tls.is_some(), it).ok());
    let mut client = HttpClient::new(origin.ok_or_else(lost)?, CONNECT_TIMEOUT, RESPONSE_TIMEOUT);
    if let Some(tls) = &state.mcp.tls {
        // The name does not matter: the certificate itself is compared.
        client = client.with_tls(tls.client(), "replica");
    }
    let reply = async {
        let response = client.connect().await?.send(request(head, body)).await?;
        let status = response.status();
        let body = response.read(MAX_RESPONSE_BYTES).await?;
        Ok::<_, HttpError>(McpReply { status, body, addressed: true })
    };
    let reply = reply.await.map_err(|_| lost())?;
    state.metrics.forwarded.add(1);
    Ok(reply)
}

/// Returns the same request. The `Host` header stays, and the other replica checks it, too.
fn request(head: &Parts, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    for (name, value) in &head.headers {
        if !HOP_HEADERS.contains(&name.as_str()) {
            request.headers_mut().append(name, value.clone());
        }
    }
    let forwarded = HeaderName::from_static(FORWARDED_HEADER);
    request.headers_mut().insert(forwarded, HeaderValue::from_static("1"));
    request
}
