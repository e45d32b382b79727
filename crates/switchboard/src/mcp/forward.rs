//! What replicas do for each other: a message that reached the wrong one is sent on.

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

use super::{Reply, no_session};
use crate::error::SwitchboardError;
use crate::http::State;
use crate::http::answer::{Refusal, Refused};
use crate::notice::Notice;
use crate::server::Log;

/// Said by a replica that sends something on: then it goes no further.
pub(crate) const FORWARDED: &str = "tenure-forwarded";
/// How often a replica says that it runs.
const ROUND: Duration = Duration::from_secs(10);
/// How long the store may take for that.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for the connection to another replica, TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout for its response: a message may wait 30 seconds for the inbox.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(40);
/// The answer goes down its own stream; the response itself is small.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Of one connection, or said anew by the client that sends.
const NOT_SENT_ON: [&str; 9] = [
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

/// Says where this replica can be reached; before anybody has a session here.
pub(crate) async fn announce(state: &State) -> Result<(), SwitchboardError> {
    let Some(address) = &state.mcp.advertised else { return Ok(()) };
    let late = |_| Err(SwitchboardError::refused(Code::Lost, "it did not answer in 5 seconds"));
    let told = timeout(PATIENCE, state.storage.announce(state.mcp.replica, address)).await;
    told.unwrap_or_else(late)
}

/// Says it again every now and then.
pub(crate) async fn announce_on(
    state: Arc<State>,
    mut last: Result<(), SwitchboardError>,
    log: Log,
) {
    loop {
        sleep(ROUND).await;
        let told = announce(&state).await;
        if let (Ok(()), Err(error)) = (last, &told) {
            log(Notice::NotAnnounced(error.clone()));
        }
        last = told;
    }
}

/// Sends a message to the replica that has its session.
pub(crate) async fn forward(
    state: &State,
    replica: Uuid,
    head: &Parts,
    body: Bytes,
) -> Result<Reply, Refused> {
    if head.headers.contains_key(FORWARDED) {
        return Err(no_session());
    }
    let Some(address) = state.storage.replica(replica).await? else {
        return Err(Refusal::not_found(
            "there is no such session, or its replica cannot be reached by this one",
        ));
    };
    let lost = || Refusal::unreachable("the replica of this session cannot be reached");
    let origin = address.parse().ok();
    let origin = origin.and_then(|it| Origin::new(state.mcp.tls.is_some(), it).ok());
    let mut client = HttpClient::new(origin.ok_or_else(lost)?, CONNECT_TIMEOUT, RESPONSE_TIMEOUT);
    if let Some(tls) = &state.mcp.tls {
        // Names say nothing here: the certificate itself is compared.
        client = client.with_tls(tls.client(), "replica");
    }
    let reply = async {
        let response = client.connect().await?.send(request(head, body)).await?;
        let status = response.status();
        let body = response.read(MAX_RESPONSE_BYTES).await?;
        Ok::<_, HttpError>(Reply { status, body, addressed: true })
    };
    let reply = reply.await.map_err(|_| lost())?;
    state.metrics.forwarded.add(1);
    Ok(reply)
}

/// The same request. Its host stays: the other replica judges it as this one does.
fn request(head: &Parts, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    for (name, value) in &head.headers {
        if !NOT_SENT_ON.contains(&name.as_str()) {
            request.headers_mut().append(name, value.clone());
        }
    }
    let forwarded = HeaderName::from_static(FORWARDED);
    request.headers_mut().insert(forwarded, HeaderValue::from_static("1"));
    request
}
