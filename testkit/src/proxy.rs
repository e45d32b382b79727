//! TCP proxy that breaks the connections between a client and its server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::Result;

use crate::ports::on_a_free_port;

/// Proxy that passes connections on to a server of this machine, until told to break them.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    wire: Arc<ProxyLink>,
    /// `None` while cut: then nothing listens, and the system refuses connections.
    listening: Mutex<Option<JoinHandle<()>>>,
}

/// State shared by the threads.
#[derive(Debug)]
struct ProxyLink {
    target: u16,
    closing: AtomicBool,
    stalled: Mutex<bool>,
    resumed: Condvar,
    swallowing: AtomicBool,
    swallowed: AtomicU64,
    connections: Mutex<Vec<ProxyConnection>>,
}

#[derive(Debug)]
struct ProxyConnection {
    client: TcpStream,
    server: TcpStream,
    /// Whether replies were discarded, which leaves a gap in the stream that TCP never would.
    torn: Arc<AtomicBool>,
    threads: [JoinHandle<()>; 2],
}

impl Proxy {
    /// Listens on a free port and passes each connection on to `target_port`.
    pub fn start(target_port: u16) -> Result<Self> {
        let wire = Arc::new(ProxyLink {
            target: target_port,
            closing: AtomicBool::new(false),
            stalled: Mutex::new(false),
            resumed: Condvar::new(),
            swallowing: AtomicBool::new(false),
            swallowed: AtomicU64::new(0),
            connections: Mutex::new(Vec::new()),
        });
        let mut listening = None;
        let port = on_a_free_port(|port| {
            listening = Some(listen(port, &wire)?);
            Ok(())
        })?;
        Ok(Self { port, wire, listening: Mutex::new(listening) })
    }

    /// The TCP port on 127.0.0.1; kept across [`Proxy::cut`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends every connection and refuses new ones until [`Proxy::restore`].
    pub fn cut(&self) {
        let mut listening = lock(&self.listening);
        if let Some(thread) = listening.take() {
            self.wire.closing.store(true, SeqCst);
            // The listener checks its state only when a client connects.
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
            join(thread);
        }
        self.wire.set_stalled(false);
        self.wire.end(|_| true);
    }

    /// Holds back all bytes in both directions until [`Proxy::restore`], which delivers them.
    pub fn stall(&self) {
        self.wire.set_stalled(true);
    }

    /// Discards the server's responses, while requests still reach it, until [`Proxy::restore`].
    pub fn swallow_replies(&self) {
        self.wire.swallowing.store(true, SeqCst);
    }

    /// Returns the number of discarded reply bytes so far.
    #[must_use]
    pub fn swallowed(&self) -> u64 {
        self.wire.swallowed.load(SeqCst)
    }

    /// Passes everything again. Connections that lost replies are ended: their streams have gaps.
    pub fn restore(&self) -> Result<()> {
        self.wire.set_stalled(false);
        self.wire.swallowing.store(false, SeqCst);
        self.wire.end(|connection| connection.torn.load(SeqCst));
        let mut listening = lock(&self.listening);
        if listening.is_none() {
            self.wire.closing.store(false, SeqCst);
            *listening = Some(listen(self.port, &self.wire)?);
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

impl ProxyLink {
    fn connect(self: &Arc<Self>, client: TcpStream) -> std::io::Result<()> {
        // A request and its reply must not wait for each other's acknowledgement.
        client.set_nodelay(true)?;
        let server = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.target)))?;
        server.set_nodelay(true)?;
        let torn = Arc::new(AtomicBool::new(false));
        let requests = {
            let wire = Arc::clone(self);
            pump(client.try_clone()?, server.try_clone()?, move |_| {
                wire.wait_while_stalled();
                true
            })
        };
        let replies = {
            let (wire, torn) = (Arc::clone(self), Arc::clone(&torn));
            pump(server.try_clone()?, client.try_clone()?, move |length| {
                wire.wait_while_stalled();
                let passes = !wire.swallowing.load(SeqCst);
                if !passes {
                    torn.store(true, SeqCst);
                    wire.swallowed.fetch_add(length as u64, SeqCst);
                }
                passes
            })
        };
        let connection = ProxyConnection { client, server, torn, threads: [requests, replies] };
        lock(&self.connections).push(connection);
        Ok(())
    }

    fn set_stalled(&self, stalled: bool) {
        *lock(&self.stalled) = stalled;
        self.resumed.notify_all();
    }

    fn wait_while_stalled(&self) {
        let stalled = lock(&self.stalled);
        drop(self.resumed.wait_while(stalled, |stalled| *stalled));
    }

    /// Ends the connections that match, and waits until their threads are gone.
    fn end(&self, matching: impl Fn(&ProxyConnection) -> bool) {
        let ended: Vec<ProxyConnection> =
            lock(&self.connections).extract_if(.., |connection| matching(connection)).collect();
        for connection in ended {
            // Either side may have closed already.
            let _ = connection.client.shutdown(Shutdown::Both);
            let _ = connection.server.shutdown(Shutdown::Both);
            connection.threads.into_iter().for_each(join);
        }
    }

    fn forget_finished(&self) {
        self.end(|connection| connection.threads.iter().all(JoinHandle::is_finished));
    }
}

fn listen(port: u16, wire: &Arc<ProxyLink>) -> Result<JoinHandle<()>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let wire = Arc::clone(wire);
    Ok(thread::spawn(move || {
        for client in listener.incoming() {
            if wire.closing.load(SeqCst) {
                return;
            }
            wire.forget_finished();
            // If the server is down, the client sees a connection that ends at once.
            let _ = client.and_then(|client| wire.connect(client));
        }
    }))
}

/// Copies bytes in a thread of its own until either side closes; `passes` decides about each piece.
fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    passes: impl Fn(usize) -> bool + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut piece = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            if passes(length) && to.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        // The other direction may have closed it already.
        let _ = to.shutdown(Shutdown::Write);
    })
}

fn join(thread: JoinHandle<()>) {
    // These threads do not panic; if one did, the test would fail for lack of its connection.
    let _ = thread.join();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
