//! Server for unit tests, and a client that sends raw requests.

use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tenure_store::{IfAbsent, StoreUrl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::notice::ServerNotice;
use crate::server::{ServerHandle, ServerSettings, serve};
use crate::storage::{self, Storage};

pub(crate) async fn storage() -> (Arc<dyn Storage>, TempDir) {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("tenure.db").display());
    let url = StoreUrl::parse(&url).unwrap();
    (storage::open(&url, IfAbsent::Create).await.unwrap(), folder)
}

pub(crate) struct Server {
    pub(crate) handle: ServerHandle,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) notices: Arc<Mutex<Vec<ServerNotice>>>,
    stop: oneshot::Sender<()>,
    _folder: TempDir,
}

impl Server {
    pub(crate) async fn start(settings: ServerSettings) -> Self {
        let (storage, folder) = storage().await;
        let notices = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&notices);
        let settings = ServerSettings {
            listen: ([127, 0, 0, 1], 0).into(),
            log: Arc::new(move |notice| told.lock().unwrap().push(notice)),
            ..settings
        };
        let (stop, stopped) = oneshot::channel();
        let shutdown = Box::pin(async {
            let _ = stopped.await;
        });
        let handle = serve(settings, Arc::clone(&storage), shutdown).await.unwrap();
        Self { handle, storage, notices, stop, _folder: folder }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.handle.address()).await.unwrap())
    }

    /// Sends one request on a new connection.
    pub(crate) async fn ask(&self, request: &str) -> ToolResult {
        let mut client = self.connect().await;
        client.send(request).await;
        client.answer().await.unwrap()
    }

    /// Begins the shutdown.
    pub(crate) fn stop(self) -> ServerHandle {
        let _ = self.stop.send(());
        self.handle
    }
}

/// Returns a POST request with a body.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    )
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

pub(crate) fn envelope(id: &str) -> String {
    serde_json::json!({
        "schema_version": "ingest.v1",
        "source": { "channel": "api", "provider": "internal", "endpoint_identity": "here" },
        "event": { "external_event_id": id, "observed_at": "2026-02-15T10:30:00Z" },
        "sender": { "identity": "me" },
        "payload": { "raw": {}, "normalized_text": "Hello" },
    })
    .to_string()
}

pub(crate) struct Client(pub(crate) TcpStream);

/// Response to a raw request.
#[derive(Debug)]
pub(crate) struct ToolResult {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: serde_json::Value,
}

impl Client {
    pub(crate) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Returns the next response; `None` if the connection was closed.
    pub(crate) async fn answer(&mut self) -> Option<ToolResult> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let field = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().to_owned())
        };
        let length = field("content-length:").map_or(0, |text| text.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(ToolResult { status, head, body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    /// Returns the data of the next event of a stream.
    pub(crate) async fn event(&mut self) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\n\n\r\n") {
            text.push(self.0.read_u8().await.unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        let (_, data) = text.split_once("data: ").unwrap();
        data.trim_end().to_owned()
    }

    /// Returns whether the server closes the connection without sending more.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).await.is_ok_and(|_| rest.is_empty())
    }
}
