//! What replicas do for each other: a message that reached the wrong one is sent on.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tenure_core::Code;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
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
/// How long the other replica may take to be reached.
const CONNECT: Duration = Duration::from_secs(3);
/// And to answer: as long as a message may wait for the inbox, and a while.
const ANSWER: Duration = Duration::from_secs(40);
/// The answer goes down its own stream; what comes back is small.
const LARGEST: usize = 64 << 10;
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
    let socket = timeout(CONNECT, TcpStream::connect(&address)).await;
    let socket = socket.ok().and_then(Result::ok).ok_or_else(lost)?;
    let _ = socket.set_nodelay(true);
    let request = request(head, body);
    let sent = async {
        match &state.mcp.tls {
            None => send(socket, request).await,
            Some(tls) => send(tls.connect(socket).await?, request).await,
        }
    };
    let reply = timeout(ANSWER, sent).await.ok().flatten().ok_or_else(lost)?;
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

async fn send(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Option<Reply> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.ok()?;
    let talk = async {
        let response = sender.send_request(request).await.ok()?;
        read(response).await
    };
    // The connection is driven here and nowhere else: it ends with this request.
    tokio::select! {
        reply = talk => reply,
        _ = async { let _ = connection.await; std::future::pending::<()>().await } => None,
    }
}

async fn read(response: Response<hyper::body::Incoming>) -> Option<Reply> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LARGEST).collect().await.ok()?.to_bytes();
    Some(Reply { status: head.status, body, addressed: true })
}
