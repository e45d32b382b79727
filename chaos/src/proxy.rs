//! Proxy between instances and a server that can drop connections, and hold back and delay data.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Current state of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// Requests are held back while this is set, as by a network that loses packets and a sender
    /// that retransmits: they arrive late, even from a client that is gone.
    pub(crate) hole_requests: bool,
    /// Replies are held back while this is set.
    pub(crate) hole_replies: bool,
    /// Delay of each piece of data, in both directions.
    pub(crate) delay: Duration,
    /// Port of the server for new connections.
    pub(crate) target: u16,
    /// Counter: connections that were made before it was incremented are ended.
    pub(crate) dropped: u64,
}

/// Most bytes of a stream that are held back; then its sender waits.
const HELD: usize = 1 << 20;

/// Proxy that listens on a port of its own until it is dropped.
#[derive(Debug)]
pub(crate) struct DelayProxy {
    port: u16,
    wire: watch::Sender<LinkState>,
    listening: JoinHandle<()>,
}

impl DelayProxy {
    /// Starts a proxy that passes each connection on to `target` of this machine.
    pub(crate) async fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (wire, state) = watch::channel(LinkState { target, ..LinkState::default() });
        let listening = tokio::spawn(async move {
            loop {
                // The process may have too many open files; retry.
                let Ok((client, _)) = listener.accept().await else { continue };
                tokio::spawn(connect(client, state.clone()));
            }
        });
        Ok(Self { port, wire, listening })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Changes the link, also for data in flight.
    pub(crate) fn change(&self, change: impl FnOnce(&mut LinkState)) {
        self.wire.send_modify(change);
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn connect(client: TcpStream, mut wire: watch::Receiver<LinkState>) {
    let LinkState { target, dropped, .. } = *wire.borrow_and_update();
    // If the server is down, the client sees a connection that ends at once.
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
    let Ok(server) = TcpStream::connect(server).await else { return };
    // A request and its reply must not wait for each other's acknowledgement.
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = pump(from_client, to_server, wire.clone(), |wire| wire.hole_requests);
    let replies = pump(from_server, to_client, wire.clone(), |wire| wire.hole_replies);
    tokio::select! {
        _ = async { tokio::join!(requests, replies) } => {}
        // An error means that the proxy was dropped.
        _ = wire.wait_for(|wire| wire.dropped != dropped) => {}
    }
}

/// Copies one direction until its source ends; data that was read is delivered first.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut wire: watch::Receiver<LinkState>,
    holed: fn(&LinkState) -> bool,
) {
    let mut held = Vec::new();
    let mut open = true;
    while open || !held.is_empty() {
        let now = *wire.borrow_and_update();
        if !held.is_empty() && !holed(&now) {
            if !now.delay.is_zero() {
                tokio::time::sleep(now.delay).await;
            }
            if to.write_all(&held).await.is_err() {
                return;
            }
            held.clear();
            continue;
        }
        tokio::select! {
            read = from.read_buf(&mut held), if open && held.len() < HELD => {
                open = matches!(read, Ok(1..));
            }
            changed = wire.changed() => if changed.is_err() { return },
        }
    }
    // Only this direction ends: the other may continue.
    let _ = to.shutdown().await;
}
