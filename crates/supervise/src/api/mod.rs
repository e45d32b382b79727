//! Local API: HTTP for the program under a hold.
//!
//! Each grant has a Unix socket of its own in a private folder, so that a request of an older grant
//! cannot reach a newer one. With a port, one listener on the loopback address serves all grants of
//! this process, and a secret tells them apart.

mod body;
mod client;
mod route;
mod server;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io};

use tenure_core::{Code, StoreError};
use tenure_duty::{Guard, process};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::SuperviseError;
use crate::observe::Recorder;

pub use client::ApiClient;
use server::PortListener;

/// Variable with the path of the socket, or with the URL of the port.
pub const API_VARIABLE: &str = "TENURE_API";
/// Variable with the secret of a grant, if there is a port.
pub const TOKEN_VARIABLE: &str = "TENURE_API_TOKEN";

/// The longest path of a Unix socket.
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// The longest name of a socket: a number of up to 20 digits.
const MAX_SOCKET_NAME_BYTES: usize = "/18446744073709551615.sock".len();

/// Place of a duty among the shards of its group: its number, and how many there are, if that is
/// known.
pub(crate) type ShardNumber = Option<(u32, Option<u32>)>;

/// The local API of a process.
#[derive(Debug)]
pub(crate) struct LocalApi {
    /// `None` if each grant has a socket.
    port: Option<PortListener>,
    sockets: AtomicU64,
    recorder: Recorder,
}

/// A grant as the API serves it.
#[derive(Debug)]
struct HoldGrant {
    hold: Guard,
    shard: ShardNumber,
    /// Time before the deadline at which the command is told to end.
    grace: Duration,
    recorder: Recorder,
    /// Whether the program has asked to give the duty back.
    released: watch::Sender<bool>,
}

/// The API of one grant. When this is dropped, its socket is removed and its connections end.
#[derive(Debug)]
pub(crate) struct GrantApi {
    grant: Arc<HoldGrant>,
    variables: Vec<(String, OsString)>,
    access: GrantAccess,
}

#[derive(Debug)]
enum GrantAccess {
    Socket { path: PathBuf, task: JoinHandle<()> },
    Port { port: PortListener, key: server::TokenKey },
}

impl LocalApi {
    /// Prepares the API; `folder` is where sockets will be. Fails before anything is claimed if the
    /// port is in use or the folder's path is too long.
    pub(crate) fn start(
        port: Option<u16>,
        folder: &Path,
        recorder: Recorder,
    ) -> Result<Self, SuperviseError> {
        let refused = |detail: String| StoreError::refused(Code::Machine, detail);
        let port = match port {
            Some(port) => {
                let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let listening = PortListener::start(at);
                Some(
                    listening
                        .map_err(|error| refused(format!("cannot listen on {at}: {error}")))?,
                )
            }
            None => {
                let bytes = folder.as_os_str().len() + MAX_SOCKET_NAME_BYTES;
                if bytes > MAX_SOCKET_PATH_BYTES {
                    return Err(refused(format!(
                        "the path of a socket in {} would have {bytes} bytes, and the limit is \
                         {MAX_SOCKET_PATH_BYTES}; set TMPDIR to a folder with a shorter path",
                        folder.display()
                    ))
                    .into());
                }
                None
            }
        };
        Ok(Self { port, sockets: AtomicU64::new(1), recorder })
    }

    /// Serves a grant; its socket is created in `folder`.
    pub(crate) fn serve(
        &self,
        folder: &Path,
        hold: &Guard,
        shard: ShardNumber,
        grace: Duration,
    ) -> io::Result<GrantApi> {
        let released = watch::Sender::new(false);
        let recorder = self.recorder.clone();
        let grant = Arc::new(HoldGrant { hold: hold.clone(), shard, grace, recorder, released });
        let (variables, access) = match &self.port {
            None => {
                let number = self.sockets.fetch_add(1, Ordering::Relaxed);
                let path = folder.join(format!("{number}.sock"));
                let task = server::serve_socket(&path, Arc::clone(&grant))?;
                let variables = vec![(API_VARIABLE.to_owned(), path.clone().into())];
                (variables, GrantAccess::Socket { path, task })
            }
            Some(port) => {
                let token = format!("{:032x}{:032x}", process::entropy(), process::entropy());
                let key = port.add(&token, Arc::clone(&grant));
                let variables = vec![
                    (API_VARIABLE.to_owned(), format!("http://{}", port.address()).into()),
                    (TOKEN_VARIABLE.to_owned(), token.into()),
                ];
                (variables, GrantAccess::Port { port: port.clone(), key })
            }
        };
        Ok(GrantApi { grant, variables, access })
    }
}

impl GrantApi {
    /// Variables by which the program finds the API.
    pub(crate) fn variables(&self) -> &[(String, OsString)] {
        &self.variables
    }

    /// Returns a receiver that becomes true when the program asks to give the duty back.
    pub(crate) fn released(&self) -> watch::Receiver<bool> {
        self.grant.released.subscribe()
    }
}

impl Drop for GrantApi {
    fn drop(&mut self) {
        self.grant.recorder.remove_lag(self.grant.hold.duty());
        match &self.access {
            GrantAccess::Socket { path, task } => {
                task.abort();
                // Its folder is removed later, in any case.
                let _ = fs::remove_file(path);
            }
            GrantAccess::Port { port, key } => port.remove(key),
        }
    }
}
