//! Connections: who is let in, and when they end.
//!
//! There are as many as the limit says, and a few more for those who look after the server: a
//! surplus connection is answered `/health`, `/ready` and `/metrics`, anything else gets 503, and
//! it is closed after one answer. Beyond that a connection is closed at once. So a server that is
//! full still shows that it lives, which it could not if it stopped accepting. One address has a
//! share of the connections, and a smaller one of the surplus, so that it cannot take them all.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

use crate::address;
use crate::http::{self, Outgoing, Phase, State, Visit};
use crate::line::{Line, Notes, Watchman};
use crate::metrics::Overload;
use crate::notice::Notice;
use crate::tls::Tls;

/// A head may be as large, and a part of a body.
const BUFFER: usize = 16 << 10;
/// Connections beyond the limit, for those who look after the server.
const SURPLUS: usize = 32;
/// So many of them for one address that has used up its share.
const SURPLUS_OF_ONE: usize = 8;
/// How long one of them lasts.
const SURPLUS_LASTS: Duration = Duration::from_secs(5);
/// That an address has used up its share is not said again for so long.
const SAID: Duration = Duration::from_secs(60 * 60);
/// After the system could not give a connection, it is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Where connections come from.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) most: usize,
    pub(crate) most_of_one: usize,
}

/// How many connections each address has.
#[derive(Debug)]
struct Shares {
    most: usize,
    taken: Mutex<BTreeMap<String, usize>>,
}

impl Shares {
    /// One more for this address, and whether that is beyond its share; `None` far beyond it.
    fn take(self: &Arc<Self>, peer: IpAddr) -> Option<(Share, bool)> {
        let address = address::by_network(peer);
        let mut all = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = all.entry(address.clone()).or_default();
        if *taken >= self.most.saturating_add(SURPLUS_OF_ONE) {
            return None;
        }
        *taken += 1;
        let beyond = *taken > self.most;
        drop(all);
        Some((Share { shares: Arc::clone(self), address }, beyond))
    }
}

/// A connection of an address.
#[derive(Debug)]
struct Share {
    shares: Arc<Shares>,
    address: String,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.shares.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(&self.address) {
            Some(taken) if *taken > 1 => *taken -= 1,
            _ => drop(all.remove(&self.address)),
        }
    }
}

/// Lets connections in until the server leaves, and waits until they are gone.
pub(crate) async fn run(door: Door, state: Arc<State>) {
    let Door { listener, tls, most, most_of_one } = door;
    let shares = Arc::new(Shares { most: most_of_one, taken: Mutex::default() });
    let places = Arc::new(Semaphore::new(most));
    let surplus = Arc::new(Semaphore::new(SURPLUS));
    let mut phase = state.phase.subscribe();
    let mut said = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => break,
        };
        let Ok((socket, peer)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let free = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        let taken = shares.take(peer.ip());
        let crowded = taken.as_ref().is_none_or(|(_, beyond)| *beyond);
        if crowded && said.is_none_or(|at| BootClock.now().since(at) >= SAID) {
            said = Some(BootClock.now());
            let address = address::by_network(peer.ip());
            (state.log)(Notice::AddressFull { address, most: most_of_one });
        }
        let found = taken.and_then(|(share, beyond)| {
            let place = if beyond { None } else { free(&places) };
            let is_surplus = place.is_none();
            Some((place.or_else(|| free(&surplus))?, share, is_surplus))
        });
        let Some((place, share, is_surplus)) = found else {
            state.metrics.overloaded(Overload::Connections);
            continue;
        };
        let visit = Visit { peer: peer.ip(), surplus: is_surplus, crowded };
        let guest = Guest { state: Arc::clone(&state), visit, _place: place, _share: share };
        tokio::spawn(guest.welcome(socket, tls.clone()));
    }
    drop(listener);
    // All places are free when the last one has gone.
    let all = |places: usize| u32::try_from(places).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all(most)).await;
    let _ = surplus.acquire_many(all(SURPLUS)).await;
}

/// One connection.
struct Guest {
    state: Arc<State>,
    visit: Visit,
    _place: OwnedSemaphorePermit,
    _share: Share,
}

impl Guest {
    async fn welcome(self, socket: TcpStream, tls: Option<Arc<Tls>>) {
        // An answer is one write; there is nothing to wait for.
        let _ = socket.set_nodelay(true);
        let connections = &self.state.metrics.connections;
        connections.fetch_add(1, Ordering::Relaxed);
        match self.visit.surplus {
            false => self.attend(socket, tls).await,
            true => drop(timeout(SURPLUS_LASTS, self.attend(socket, tls)).await),
        }
        connections.fetch_sub(1, Ordering::Relaxed);
    }

    async fn attend(&self, socket: TcpStream, tls: Option<Arc<Tls>>) {
        let Some(tls) = tls else { return self.serve(socket).await };
        let mut phase = self.state.phase.subscribe();
        let shake = timeout(self.state.patience.handshake, tls.acceptor().accept(socket));
        let shaken = tokio::select! {
            shaken = shake => shaken,
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => return,
        };
        // Whoever does not speak TLS, or too slowly, gets no answer.
        if let Ok(Ok(socket)) = shaken {
            self.serve(socket).await;
        }
    }

    async fn serve(&self, socket: impl AsyncRead + AsyncWrite + Unpin) {
        let state = &self.state;
        let notes = Arc::new(Notes::default());
        let line = TokioIo::new(Line::new(socket, Arc::clone(&notes)));
        let service = service_fn(|request: Request<Incoming>| {
            let notes = &notes;
            async move {
                notes.begin();
                let has_body = !request.body().is_end_stream();
                let mut answer = http::serve(state, self.visit, request).await;
                match answer.body_mut() {
                    Outgoing::Stream(stream) => stream.keep(notes.hand_over()),
                    // Who is refused was perhaps not listened to until the end.
                    Outgoing::Whole(_) => notes.end(has_body && answer.status().as_u16() >= 400),
                }
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(BUFFER)
            .keep_alive(!self.visit.surplus)
            .serve_connection(line, service);
        let mut connection = pin!(connection);
        let mut ticks = interval(state.patience.tick);
        let mut watchman = Watchman::default();
        let (mut phase, mut last) = (state.phase.subscribe(), state.phase.subscribe());
        let mut draining = pin!(phase.wait_for(|phase| *phase >= Phase::Draining));
        let mut over = pin!(last.wait_for(|phase| *phase == Phase::Over));
        let mut leaving = false;
        loop {
            tokio::select! {
                // Whoever breaks off is not told; there is nobody to tell.
                _ = connection.as_mut() => return,
                _ = draining.as_mut(), if !leaving => {
                    leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = over.as_mut(), if leaving => return,
                _ = ticks.tick() => {
                    if watchman.look(&notes, &state.patience) {
                        return;
                    }
                }
            }
        }
    }
}

/// Binds the address; may be given port 0.
pub(crate) async fn bind(at: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(at).await
}
