//! Listeners of the local API, and their limits.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fs::{Permissions, set_permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::sleep;

use super::HoldGrant;
use super::route::{self, HoldResponse};

/// Limit of connections to a socket.
const MAX_CONNECTIONS: usize = 64;
/// Limit of connections to a port that have sent no valid secret: any user can make them. A new one
/// ends the oldest.
const MAX_UNKNOWN_CONNECTIONS: usize = 64;
/// Limit of connections to a port that have sent one.
const MAX_KNOWN_CONNECTIONS: usize = 4096;
/// Size of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Grants that have ended whose requests are still answered as fenced.
const MAX_ENDED_GRANTS: usize = 10_000;

/// Digest of a secret: the time that a lookup takes says nothing about the secret itself.
pub(super) type TokenKey = [u8; 32];

/// Creates a socket that only this user can use, and serves it.
pub(super) fn serve_socket(path: &Path, grant: Arc<HoldGrant>) -> io::Result<JoinHandle<()>> {
    let listener = UnixListener::bind(path)?;
    // Nobody else can reach it meanwhile: its folder is private.
    set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                    let Ok((socket, _)) = accepted else {
                        sleep(ACCEPT_RETRY_DELAY).await;
                        continue;
                    };
                    // The file's mode keeps others out; this holds wherever it is mounted.
                    if is_own(&socket) {
                        connections.spawn(serve(socket, Arc::clone(&grant), respond));
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }))
}

/// Whether the peer runs as this user, or as root, which could read this process's memory, too.
fn is_own(socket: &UnixStream) -> bool {
    let peer = socket.peer_cred().map(|peer| peer.uid());
    peer.is_ok_and(|uid| uid == geteuid().as_raw() || uid == 0)
}

async fn respond(request: Request<Incoming>, grant: Arc<HoldGrant>) -> HoldResponse {
    route::respond(request, &grant).await
}

/// Serves a connection until the client closes it.
async fn serve<S, F, Fut>(stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<S>, respond: F)
where
    F: Fn(Request<Incoming>, Arc<S>) -> Fut,
    Fut: Future<Output = HoldResponse>,
{
    let service = service_fn(|request| {
        let response = respond(request, Arc::clone(&state));
        async { Ok::<_, Infallible>(response.await) }
    });
    // No limit on idle connections: they end with the program, and are few.
    let connection = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A client that disconnects gets no response.
    let _ = connection.await;
}

/// A listener on a loopback port, for all grants of this process.
#[derive(Clone, Debug)]
pub(super) struct PortListener(Arc<PortState>);

#[derive(Debug)]
struct PortState {
    address: SocketAddr,
    grants: Arc<GrantTable>,
    task: JoinHandle<()>,
}

impl Drop for PortState {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection to a port.
#[derive(Debug)]
struct PortConnection {
    grants: Arc<GrantTable>,
    address: SocketAddr,
    /// Whether it has sent the secret of a grant.
    known: Arc<AtomicBool>,
}

/// Grants by the digest of their secret.
#[derive(Debug, Default)]
struct GrantTable(Mutex<Grants>);

#[derive(Debug, Default)]
struct Grants {
    /// `None` for a grant that has ended.
    by_key: BTreeMap<TokenKey, Option<Arc<HoldGrant>>>,
    ended: VecDeque<TokenKey>,
}

impl GrantTable {
    fn lock(&self) -> MutexGuard<'_, Grants> {
        // The collections are consistent at any time, also after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PortListener {
    pub(super) fn start(at: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let grants = Arc::new(GrantTable::default());
        let served = Arc::clone(&grants);
        let task = tokio::spawn(async move {
            let (mut connections, mut unknown) = (JoinSet::new(), VecDeque::new());
            let most = MAX_KNOWN_CONNECTIONS + MAX_UNKNOWN_CONNECTIONS;
            loop {
                tokio::select! {
                    accepted = listener.accept(), if connections.len() < most => {
                        let Ok((socket, _)) = accepted else {
                            sleep(ACCEPT_RETRY_DELAY).await;
                            continue;
                        };
                        // It only costs latency when it fails.
                        let _ = socket.set_nodelay(true);
                        let known = Arc::new(AtomicBool::new(false));
                        let connection = PortConnection {
                            grants: Arc::clone(&served),
                            address,
                            known: Arc::clone(&known),
                        };
                        let served = serve(socket, Arc::new(connection), respond_at);
                        let task = connections.spawn(served);
                        unknown.retain(|(known, task): &(Arc<AtomicBool>, AbortHandle)| {
                            !known.load(Ordering::Relaxed) && !task.is_finished()
                        });
                        unknown.push_back((known, task));
                        if unknown.len() > MAX_UNKNOWN_CONNECTIONS
                            && let Some((_, oldest)) = unknown.pop_front()
                        {
                            oldest.abort();
                        }
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self(Arc::new(PortState { address, grants, task })))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(super) fn add(&self, token: &str, grant: Arc<HoldGrant>) -> TokenKey {
        let key = digest(token.as_bytes());
        self.0.grants.lock().by_key.insert(key, Some(grant));
        key
    }

    /// Ends a grant: requests with its secret are fenced from now on.
    pub(super) fn remove(&self, key: &TokenKey) {
        let mut grants = self.0.grants.lock();
        grants.by_key.insert(*key, None);
        grants.ended.push_back(*key);
        if grants.ended.len() > MAX_ENDED_GRANTS
            && let Some(oldest) = grants.ended.pop_front()
        {
            grants.by_key.remove(&oldest);
        }
    }
}

fn digest(token: &[u8]) -> TokenKey {
    Sha256::digest(token).into()
}

/// Checks `Host`, which a web page cannot choose, and the secret.
async fn respond_at(request: Request<Incoming>, connection: Arc<PortConnection>) -> HoldResponse {
    let header = |name| request.headers().get(name).map(HeaderValue::as_bytes);
    let PortConnection { grants, address, known } = &*connection;
    let hosts = [address.to_string(), format!("localhost:{}", address.port())];
    if !header(HOST).is_some_and(|host| hosts.iter().any(|own| own.as_bytes() == host)) {
        return route::wrong_host();
    }
    let token = header(AUTHORIZATION).and_then(|value| value.strip_prefix(b"Bearer "));
    let grant = token.and_then(|token| grants.lock().by_key.get(&digest(token)).cloned());
    known.fetch_or(grant.is_some(), Ordering::Relaxed);
    match grant {
        Some(Some(grant)) => route::respond(request, &grant).await,
        Some(None) => route::ended_grant(),
        None => route::unauthorized(),
    }
}
