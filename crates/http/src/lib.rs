//! HTTP/1.1 client: one request per connection, with timeouts and a response limit.
//!
//! It is built on hyper and rustls, which the server needs anyway. It follows no redirect, uses no
//! proxy and keeps no cookies, so a bearer token reaches only the server that it is for.
//! `hyper-util`'s client adds a connection pool that no caller wants and verifies certificates by
//! the name in the URL, while replicas pin theirs; `ureq` blocks a thread for each request.

mod error;
mod origin;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderMap, HeaderValue, InvalidHeaderValue};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep, timeout};

pub use error::HttpError;
pub use origin::{Origin, OriginError};

/// Boxed, so that callers do not compile hyper's state machines again.
type HttpFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, HttpError>> + Send + 'a>>;

/// Client of one server.
#[derive(Clone, Debug)]
pub struct HttpClient {
    server: ServerAddress,
    #[cfg(feature = "tls")]
    tls: Option<(Arc<rustls::ClientConfig>, String)>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

#[derive(Clone, Debug)]
enum ServerAddress {
    Origin(Origin),
    Socket(PathBuf),
}

impl HttpClient {
    /// Creates a client. `connect_timeout` covers the TCP connection and the TLS handshake,
    /// `response_timeout` everything from the start of a request to the end of its response.
    pub fn new(origin: Origin, connect_timeout: Duration, response_timeout: Duration) -> Self {
        Self::to(ServerAddress::Origin(origin), connect_timeout, response_timeout)
    }

    /// Like [`HttpClient::new`], for a server at a Unix socket.
    pub fn unix(
        socket: impl Into<PathBuf>,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        Self::to(ServerAddress::Socket(socket.into()), connect_timeout, response_timeout)
    }

    fn to(server: ServerAddress, connect_timeout: Duration, response_timeout: Duration) -> Self {
        Self {
            server,
            #[cfg(feature = "tls")]
            tls: None,
            connect_timeout,
            response_timeout,
        }
    }

    /// Sets the TLS configuration, which `https` requires, and the name that the server's
    /// certificate is verified against.
    #[cfg(feature = "tls")]
    pub fn with_tls(mut self, config: Arc<rustls::ClientConfig>, server_name: &str) -> Self {
        self.tls = Some((config, server_name.to_owned()));
        self
    }

    /// Opens a connection.
    pub fn connect(&self) -> HttpFuture<'_, HttpConnection> {
        Box::pin(async {
            let late = |_| HttpError::ConnectTimeout(self.connect_timeout);
            timeout(self.connect_timeout, self.open()).await.map_err(late)?
        })
    }

    async fn open(&self) -> Result<HttpConnection, HttpError> {
        let origin = match &self.server {
            ServerAddress::Origin(origin) => origin,
            ServerAddress::Socket(path) => {
                let socket = UnixStream::connect(path).await.map_err(HttpError::Connect)?;
                return self.handshake(socket).await;
            }
        };
        let address = (origin.host(), origin.port());
        let socket = TcpStream::connect(address).await.map_err(HttpError::Connect)?;
        // It only costs latency when it fails.
        let _ = socket.set_nodelay(true);
        if origin.is_encrypted() {
            return self.open_encrypted(socket).await;
        }
        self.handshake(socket).await
    }

    #[cfg(feature = "tls")]
    async fn open_encrypted(&self, socket: TcpStream) -> Result<HttpConnection, HttpError> {
        let (config, name) = self.tls.clone().ok_or(HttpError::NoTls)?;
        let name = rustls::pki_types::ServerName::try_from(name);
        let name = name.map_err(|_| HttpError::ServerName)?;
        let connector = tokio_rustls::TlsConnector::from(config);
        let stream = connector.connect(name, socket).await.map_err(HttpError::Tls)?;
        self.handshake(stream).await
    }

    #[cfg(not(feature = "tls"))]
    async fn open_encrypted(&self, _: TcpStream) -> Result<HttpConnection, HttpError> {
        Err(HttpError::NoTls)
    }

    async fn handshake(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<HttpConnection, HttpError> {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(HttpError::Exchange)?;
        let task = tokio::spawn(async move {
            // The caller that waits for the response gets the same error.
            let _ = connection.await;
        });
        let timeout = self.response_timeout;
        Ok(HttpConnection { sender, task: ConnectionTask(task), timeout })
    }
}

/// The task that reads and writes the socket. The connection closes when this is dropped.
#[derive(Debug)]
struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Deadline of a response, and the timeout that led to it.
#[derive(Debug)]
struct ResponseDeadline(Pin<Box<Sleep>>, Duration);

impl ResponseDeadline {
    async fn within<T>(&mut self, work: impl Future<Output = T>) -> Result<T, HttpError> {
        tokio::select! {
            done = work => Ok(done),
            () = &mut self.0 => Err(HttpError::ResponseTimeout(self.1)),
        }
    }
}

/// An open connection, for one request.
#[derive(Debug)]
pub struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    task: ConnectionTask,
    timeout: Duration,
}

impl HttpConnection {
    /// Sends the request and waits for the head of the response. The request needs a `Host` header.
    pub fn send(mut self, request: Request<Full<Bytes>>) -> HttpFuture<'static, HttpResponse> {
        Box::pin(async move {
            let mut deadline = ResponseDeadline(Box::pin(sleep(self.timeout)), self.timeout);
            let response = deadline.within(self.sender.send_request(request)).await?;
            let response = response.map_err(HttpError::Exchange)?;
            let (head, body) = response.into_parts();
            Ok(HttpResponse { head, body, task: self.task, deadline })
        })
    }
}

/// A response whose body was not read yet.
#[derive(Debug)]
pub struct HttpResponse {
    head: Parts,
    body: Incoming,
    task: ConnectionTask,
    deadline: ResponseDeadline,
}

impl HttpResponse {
    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// Reads the body; fails if it has more than `max_bytes`.
    pub fn read(self, max_bytes: usize) -> HttpFuture<'static, Bytes> {
        Box::pin(async move {
            let Self { body, task: _driver, mut deadline, .. } = self;
            let body = deadline.within(Limited::new(body, max_bytes).collect()).await?;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => HttpError::TooLarge { max_bytes },
                false => HttpError::Body(error),
            })?;
            Ok(body.to_bytes())
        })
    }
}

/// Returns an `Authorization` header for a bearer token. `Debug` does not print it.
pub fn bearer(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
