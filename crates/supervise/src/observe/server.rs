//! HTTP server for `/health`, `/ready` and `/metrics`, on a thread of its own.
//!
//! hyper alone: three paths need no router. Each connection gets one response, within limits on
//! time, size and number of connections.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tenure_core::{Code, StoreError};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::{InstanceObserver, metrics};
use crate::error::{SuperviseError, SystemContext as _};

/// Limit on receiving a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// Limit on a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_CONNECTIONS: usize = 32;
/// Size of a request with its headers.
const MAX_REQUEST_BYTES: usize = 16 << 10;
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

type HealthResponse = Response<Full<Bytes>>;

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub(super) struct HealthServer {
    pub(super) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HealthServer {
    pub(super) fn start(
        at: SocketAddr,
        observer: Arc<InstanceObserver>,
    ) -> Result<Self, SuperviseError> {
        let unusable = |error: std::io::Error| {
            let detail = format!("cannot listen on {at}: {error}");
            SuperviseError::Store(StoreError::refused(Code::Machine, detail))
        };
        let listener = TcpListener::bind(at).map_err(unusable)?;
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime of the metrics server")?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("tenure-metrics".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = serve(listener, observer) => {}
                }
            });
        });
        let thread = thread.context("cannot start the thread of the metrics server")?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, observer: Arc<InstanceObserver>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let observer = Arc::clone(&observer);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = respond(&request, &observer);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST_TIMEOUT)
                .max_buf_size(MAX_REQUEST_BYTES)
                .keep_alive(false)
                .serve_connection(TokioIo::new(socket), service);
            // A client that disconnects or is too slow gets no response.
            let _ = timeout(CONNECTION_TIMEOUT, connection).await;
            drop(permit);
        });
    }
}

fn respond(request: &Request<Incoming>, observer: &InstanceObserver) -> HealthResponse {
    let path = request.uri().path();
    if !matches!(path, "/health" | "/ready" | "/metrics") {
        return plain(StatusCode::NOT_FOUND, "not found; available: /health, /ready, /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed; use GET\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    if path == "/metrics" {
        return with_type(StatusCode::OK, metrics::CONTENT_TYPE, observer.metrics());
    }
    if path == "/ready" {
        return match observer.not_ready() {
            None => plain(StatusCode::OK, "ready\n"),
            Some(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
        };
    }
    let health = observer.health();
    let status = if health.is_healthy() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // Text and numbers: this cannot fail.
    let body = serde_json::to_string(&health).unwrap_or_default();
    with_type(status, "application/json", body + "\n")
}

fn plain(status: StatusCode, text: impl Into<String>) -> HealthResponse {
    with_type(status, "text/plain; charset=utf-8", text.into())
}

fn with_type(status: StatusCode, kind: &'static str, body: String) -> HealthResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
