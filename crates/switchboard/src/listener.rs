//! HTTP listener and connection limits.
//!
//! Beyond the connection limit the listener accepts a few surplus connections for monitoring: a
//! surplus connection is served `/health`, `/ready` and `/metrics`, gets 503 for anything else,
//! and is closed after one response. Further connections are closed at once. So a full server
//! can still be monitored, which it could not if it stopped accepting. Each address has a share
//! of the connections, and a smaller one of the surplus, so that it cannot take them all.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Either;
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tenure_core::Clock;
use tenure_store::BootClock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{interval, sleep, timeout};

use crate::connection::{ConnectionActivity, StallDetector, TrackedStream};
use crate::http::{self, ConnectionInfo, ServerPhase, ServerState};
use crate::metrics::Overload;
use crate::notice::ServerNotice;
use crate::tls::ServerCertificate;
use crate::{address, lock};

/// Maximum size of a request head, and of one read.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Connections beyond the limit, for monitoring.
const SURPLUS_CONNECTIONS: usize = 32;
/// Surplus connections for one address that has used up its share.
const SURPLUS_PER_ADDRESS: usize = 8;
const SURPLUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum time between two notices that an address used up its share.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60 * 60);
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct HttpListener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<Arc<ServerCertificate>>,
    pub(crate) max_connections: usize,
    pub(crate) max_per_address: usize,
}

#[derive(Debug)]
struct AddressLimiter {
    max: usize,
    open: Mutex<BTreeMap<String, usize>>,
}

impl AddressLimiter {
    /// Counts a connection. Returns whether it is a surplus one; `None` if those are used up, too.
    fn take(self: &Arc<Self>, peer: IpAddr) -> Option<(AddressSlot, bool)> {
        let address = address::by_network(peer);
        let mut all = lock(&self.open);
        let open = all.entry(address.clone()).or_default();
        if *open >= self.max.saturating_add(SURPLUS_PER_ADDRESS) {
            return None;
        }
        *open += 1;
        let beyond = *open > self.max;
        drop(all);
        Some((AddressSlot { limiter: Arc::clone(self), address }, beyond))
    }
}

/// One counted connection of an address.
#[derive(Debug)]
struct AddressSlot {
    limiter: Arc<AddressLimiter>,
    address: String,
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let mut all = lock(&self.limiter.open);
        match all.get_mut(&self.address) {
            Some(open) if *open > 1 => *open -= 1,
            _ => drop(all.remove(&self.address)),
        }
    }
}

impl HttpListener {
    /// Accepts connections until the server drains, and waits until they are closed.
    pub(crate) async fn run(self, state: Arc<ServerState>) {
        let Self { socket, tls, max_connections, max_per_address } = self;
        let addresses = AddressLimiter { max: max_per_address, open: Mutex::default() };
        let addresses = Arc::new(addresses);
        let slots = Arc::new(Semaphore::new(max_connections));
        let surplus = Arc::new(Semaphore::new(SURPLUS_CONNECTIONS));
        let mut phase = state.phase.subscribe();
        let mut reported = None;
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                _ = phase.wait_for(|phase| *phase >= ServerPhase::Draining) => break,
            };
            let Ok((stream, peer)) = accepted else {
                sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            };
            let free = |slots: &Arc<Semaphore>| Arc::clone(slots).try_acquire_owned().ok();
            let address = addresses.take(peer.ip());
            let crowded = address.as_ref().is_none_or(|(_, beyond)| *beyond);
            if crowded && reported.is_none_or(|at| BootClock.now().since(at) >= NOTICE_INTERVAL) {
                reported = Some(BootClock.now());
                let address = address::by_network(peer.ip());
                (state.log)(ServerNotice::AddressFull { address, most: max_per_address });
            }
            let admitted = address.and_then(|(address, beyond)| {
                let slot = if beyond { None } else { free(&slots) };
                let is_surplus = slot.is_none();
                Some((slot.or_else(|| free(&surplus))?, address, is_surplus))
            });
            let Some((slot, address, is_surplus)) = admitted else {
                state.metrics.overloaded(Overload::Connections);
                continue;
            };
            let info = ConnectionInfo { peer: peer.ip(), surplus: is_surplus, crowded };
            let state = Arc::clone(&state);
            let connection = ServerConnection { state, info, _slot: slot, _address: address };
            tokio::spawn(connection.run(stream, tls.clone()));
        }
        drop(socket);
        // All slots are free when the last connection is closed.
        let all = |slots: usize| u32::try_from(slots).unwrap_or(u32::MAX);
        let _ = slots.acquire_many(all(max_connections)).await;
        let _ = surplus.acquire_many(all(SURPLUS_CONNECTIONS)).await;
    }
}

struct ServerConnection {
    state: Arc<ServerState>,
    info: ConnectionInfo,
    _slot: OwnedSemaphorePermit,
    _address: AddressSlot,
}

impl ServerConnection {
    async fn run(self, socket: TcpStream, tls: Option<Arc<ServerCertificate>>) {
        // A response is one write; there is nothing to wait for.
        let _ = socket.set_nodelay(true);
        let connections = &self.state.metrics.connections;
        connections.fetch_add(1, Ordering::Relaxed);
        match self.info.surplus {
            false => self.handshake(socket, tls).await,
            true => drop(timeout(SURPLUS_TIMEOUT, self.handshake(socket, tls)).await),
        }
        connections.fetch_sub(1, Ordering::Relaxed);
    }

    async fn handshake(&self, socket: TcpStream, tls: Option<Arc<ServerCertificate>>) {
        let Some(tls) = tls else { return self.serve(socket).await };
        let mut phase = self.state.phase.subscribe();
        let accept = timeout(self.state.timeouts.handshake, tls.acceptor().accept(socket));
        let accepted = tokio::select! {
            accepted = accept => accepted,
            _ = phase.wait_for(|phase| *phase >= ServerPhase::Draining) => return,
        };
        // A client that fails the handshake, or is too slow, gets no answer.
        if let Ok(Ok(socket)) = accepted {
            self.serve(socket).await;
        }
    }

    async fn serve(&self, socket: impl AsyncRead + AsyncWrite + Unpin) {
        let state = &self.state;
        let activity = Arc::new(ConnectionActivity::default());
        let stream = TokioIo::new(TrackedStream::new(socket, Arc::clone(&activity)));
        let service = service_fn(|request: Request<Incoming>| {
            let activity = &activity;
            async move {
                activity.begin();
                let has_body = !request.body().is_end_stream();
                let mut answer = http::serve(state, self.info, request).await;
                match answer.body_mut() {
                    Either::Right(stream) => stream.hold_request(activity.begin_stream()),
                    // The body of a rejected request may be unread.
                    Either::Left(_) => {
                        activity.end(has_body && answer.status().as_u16() >= 400);
                    }
                }
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(MAX_HEAD_BYTES)
            .keep_alive(!self.info.surplus)
            .serve_connection(stream, service);
        let mut connection = pin!(connection);
        let mut ticks = interval(state.timeouts.tick);
        let mut stalls = StallDetector::default();
        let (mut phase, mut last) = (state.phase.subscribe(), state.phase.subscribe());
        let mut draining = pin!(phase.wait_for(|phase| *phase >= ServerPhase::Draining));
        let mut over = pin!(last.wait_for(|phase| *phase == ServerPhase::Over));
        let mut leaving = false;
        loop {
            tokio::select! {
                // A client that disconnects gets no answer.
                _ = connection.as_mut() => return,
                _ = draining.as_mut(), if !leaving => {
                    leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = over.as_mut(), if leaving => return,
                _ = ticks.tick() => {
                    if stalls.is_stalled(&activity, &state.timeouts) {
                        return;
                    }
                }
            }
        }
    }
}
