//! `/health` and `/metrics`, on a thread of their own.
//!
//! hyper alone: two paths need no router. Whoever asks gets one answer per connection, within
//! limits on time, size and number, so that nobody can keep it busy.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
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

use super::{Watch, metrics};
use crate::failure::Failure;

/// How long somebody may take to ask.
const ASKING: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// How long somebody may take to ask and to read the answer.
const WHOLE: Duration = Duration::from_secs(15);
/// How many may do so at once.
const AT_ONCE: usize = 32;
/// No request is larger, with all of its headers.
const LARGEST: usize = 16 << 10;
/// After the system could not give a connection, it is asked again.
const PAUSE: Duration = Duration::from_millis(100);

type Answer = Response<Full<Bytes>>;

/// The server; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(at: SocketAddr, watch: Arc<Watch>) -> Result<Self, Failure> {
        let unusable = |error: std::io::Error| {
            let detail = format!("cannot listen on {at}: {error}");
            Failure::Store(StoreError::refused(Code::Machine, detail))
        };
        let listener = TcpListener::bind(at).map_err(unusable)?;
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime of the metrics")?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("tenure-metrics".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = serve(listener, watch) => {}
                }
            });
        });
        let thread = thread.context("cannot start the thread of the metrics")?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, watch: Arc<Watch>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let watch = Arc::clone(&watch);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = answer(&request, &watch);
                async { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(ASKING)
                .max_buf_size(LARGEST)
                .keep_alive(false)
                .serve_connection(TokioIo::new(socket), service);
            // Whoever breaks off or is too slow gets no answer; there is nobody to tell.
            let _ = timeout(WHOLE, connection).await;
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, watch: &Watch) -> Answer {
    let path = request.uri().path();
    if !matches!(path, "/health" | "/metrics") {
        return plain(StatusCode::NOT_FOUND, "there are /health and /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    if path == "/metrics" {
        return with_type(StatusCode::OK, metrics::CONTENT_TYPE, watch.metrics());
    }
    let health = watch.health();
    let status = if health.is_well() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // Text and numbers: this cannot fail.
    let body = serde_json::to_string(&health).unwrap_or_default();
    with_type(status, "application/json", body + "\n")
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    with_type(status, "text/plain; charset=utf-8", text.to_owned())
}

fn with_type(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
