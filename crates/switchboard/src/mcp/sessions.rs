//! Sessions of the older MCP transport: event streams for answers.
//!
//! A posted message is answered like any other; the answer is sent on the event stream that the
//! client holds open. A session is the sending end of that stream, and ends with it.
//!
//! Why: docs/decisions/0039-sse-sessions-are-stateless.md

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tenure_core::{Clock, LocalInstant};
use tenure_duty::process;
use tenure_store::BootClock;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Interval, interval, timeout};
use uuid::Uuid;

use crate::ClientTimeouts;
use crate::access::Principal;
use crate::budget::{Budget, MemoryShare};
use crate::connection::StreamingRequest;
use crate::http::ServerPhase;
use crate::lock;

/// Maximum number of queued answers of a session; a further post waits.
const MAX_QUEUED_EVENTS: usize = 32;
/// Maximum size of queued answers: the largest page, as text and as structured content.
const MAX_QUEUED_BYTES: usize = 12 << 20;
/// Bytes handed to the connection at a time, so that slow reading of a large event is noticed.
const CHUNK_BYTES: usize = 64 << 10;
/// Interval of keep-alive comments on a stream.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Time without posts after which a session ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Time without posts after which a session may be evicted for a new one: else a client that
/// abandons its sessions would lock out the others.
const EVICTION_AGE: Duration = Duration::from_secs(5 * 60);

#[derive(Debug)]
pub(crate) struct SseSessions {
    most: usize,
    ping: Duration,
    idle: Duration,
    spare: Duration,
    open: Arc<Mutex<OpenSessions>>,
}

type OpenSessions = BTreeMap<u128, Arc<SseSession>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionId {
    pub(crate) replica: Uuid,
    pub(crate) number: u128,
}

impl SessionId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let (replica, number) = text.split_at_checked(32).filter(|_| text.len() == 64 && is_hex)?;
        let replica = Uuid::try_parse(replica).ok()?;
        Some(Self { replica, number: u128::from_str_radix(number, 16).ok()? })
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:032x}", self.replica.simple(), self.number)
    }
}

#[derive(Debug)]
pub(super) struct SseSession {
    outlet: mpsc::Sender<Bytes>,
    /// Token of its owner: nobody else may post to it.
    token_id: Option<String>,
    posted: Mutex<LocalInstant>,
    idle: Duration,
    room: Arc<Budget>,
    /// Notified when the client reads.
    read: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    Taken,
    /// The client reads, but too many events wait.
    Behind,
    /// The session ended: the client went away, or does not read.
    Over,
}

impl SseSession {
    /// Queues an event; gives it back if the queue is full. `None` if the stream is closed.
    fn put(&self, mut event: SseEvent) -> Option<Result<(), SseEvent>> {
        let slot = match self.outlet.try_reserve() {
            Ok(slot) => slot,
            Err(TrySendError::Full(())) => return Some(Err(event)),
            Err(TrySendError::Closed(())) => return None,
        };
        event.room = self.room.take(event.text.len());
        if event.room.is_none() {
            return Some(Err(event));
        }
        event.read = Some(Arc::clone(&self.read));
        slot.send(Bytes::from_owner(event));
        Some(Ok(()))
    }

    fn is_idle(&self) -> bool {
        BootClock.now().since(*lock(&self.posted)) >= self.idle
    }
}

impl SseSessions {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            ping: PING_INTERVAL,
            idle: IDLE_TIMEOUT,
            spare: EVICTION_AGE,
            open: Arc::default(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.open).len()
    }

    /// Opens a session; `None` when there are too many. It lives as long as its stream.
    pub(crate) fn open(
        &self,
        replica: Uuid,
        caller: &Principal,
        mut phase: watch::Receiver<ServerPhase>,
    ) -> Option<SseStream> {
        let id = SessionId { replica, number: process::entropy() };
        let (outlet, events) = mpsc::channel(MAX_QUEUED_EVENTS);
        let token_id = caller.token_id().map(str::to_owned);
        let session = Arc::new(SseSession {
            outlet,
            token_id,
            posted: BootClock.now().into(),
            idle: self.idle,
            room: Budget::new(MAX_QUEUED_BYTES),
            read: Arc::default(),
        });
        let mut open = lock(&self.open);
        if open.len() >= self.most && !self.evict_idle(&mut open) {
            return None;
        }
        open.insert(id.number, Arc::clone(&session));
        drop(open);
        let place = SessionSlot { open: Arc::clone(&self.open), number: id.number };
        let first = format!("event: endpoint\ndata: /messages?session_id={id}\n\n");
        let mut pings = interval(self.ping);
        pings.reset();
        let leaving = Box::pin(async move {
            let _ = phase.wait_for(|phase| *phase >= ServerPhase::Draining).await;
        });
        Some(SseStream {
            rest: first.into(),
            events,
            session: Arc::downgrade(&session),
            read: Arc::clone(&session.read),
            pings,
            leaving,
            _place: place,
            request: None,
        })
    }

    /// Evicts the session that was unused for the longest, if that is long enough.
    fn evict_idle(&self, open: &mut OpenSessions) -> bool {
        let first = open.iter().map(|(number, session)| (*lock(&session.posted), *number)).min();
        let spare = first.filter(|(posted, _)| BootClock.now().since(*posted) >= self.spare);
        spare.is_some_and(|(_, number)| open.remove(&number).is_some())
    }

    /// Returns the session if the caller owns it, and marks it as used.
    pub(super) fn find(&self, number: u128, caller: &Principal) -> Option<Arc<SseSession>> {
        let session = lock(&self.open).get(&number).map(Arc::clone)?;
        if session.token_id.as_deref() != caller.token_id() {
            return None;
        }
        *lock(&session.posted) = BootClock.now();
        Some(session)
    }

    /// Sends an event to a client. If the queue is full, it waits as long as the client reads;
    /// a client that reads nothing for a while loses its session.
    pub(super) async fn send(
        &self,
        number: u128,
        session: &SseSession,
        event: SseEvent,
        timeouts: &ClientTimeouts,
    ) -> SendOutcome {
        let sending = async {
            let mut event = event;
            loop {
                // Registered before looking, so that no read is missed.
                let read = session.read.notified();
                event = match session.put(event) {
                    Some(Ok(())) => return SendOutcome::Taken,
                    Some(Err(event)) => event,
                    None => return SendOutcome::Over,
                };
                if timeout(timeouts.write_stall, read).await.is_err() {
                    lock(&self.open).remove(&number);
                    return SendOutcome::Over;
                }
            }
        };
        timeout(timeouts.write, sending).await.unwrap_or(SendOutcome::Behind)
    }
}

/// Event of a stream, with reserved memory.
#[derive(Debug)]
pub(super) struct SseEvent {
    text: String,
    _share: MemoryShare,
    room: Option<MemoryShare>,
    /// Notified when the event leaves the queue.
    read: Option<Arc<Notify>>,
}

impl Drop for SseEvent {
    fn drop(&mut self) {
        self.room = None;
        if let Some(read) = &self.read {
            read.notify_waiters();
        }
    }
}

impl SseEvent {
    /// Returns an answer as an event; `None` when there is no memory for it.
    pub(super) fn message(budget: &Arc<Budget>, json: &str) -> Option<Self> {
        let text = format!("event: message\ndata: {json}\n\n");
        let share = budget.take(text.len())?;
        Some(Self { text, _share: share, room: None, read: None })
    }
}

impl AsRef<[u8]> for SseEvent {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Removes the session when its stream is dropped.
#[derive(Debug)]
struct SessionSlot {
    open: Arc<Mutex<OpenSessions>>,
    number: u128,
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.number);
    }
}

pub(crate) struct SseStream {
    /// The unsent part of the current event.
    rest: Bytes,
    events: mpsc::Receiver<Bytes>,
    /// Weak, because removing the session ends the stream.
    session: Weak<SseSession>,
    read: Arc<Notify>,
    pings: Interval,
    leaving: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: SessionSlot,
    request: Option<StreamingRequest>,
}

impl Body for SseStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl fmt::Debug for SseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SseStream(..)")
    }
}

impl SseStream {
    /// Marks the connection as busy for as long as the stream lives.
    pub(crate) fn hold_request(&mut self, request: StreamingRequest) {
        self.request = Some(request);
    }

    /// Polls for the next bytes; `None` at the end.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // Queued answers are sent before the end.
        if self.rest.is_empty()
            && let Poll::Ready(next) = self.events.poll_recv(context)
        {
            let Some(next) = next else { return Poll::Ready(None) };
            self.rest = next;
        }
        if !self.rest.is_empty() {
            // The connection has room again, so the client reads.
            self.read.notify_waiters();
            let piece = self.rest.len().min(CHUNK_BYTES);
            return Poll::Ready(Some(self.rest.split_to(piece)));
        }
        if self.leaving.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if self.pings.poll_tick(context).is_ready() {
            let over = self.session.upgrade().is_none_or(|session| session.is_idle());
            return Poll::Ready((!over).then(|| Bytes::from_static(b": ping\n\n")));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn next(stream: &mut SseStream) -> Poll<Option<Bytes>> {
        stream.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    fn opened(sessions: &SseSessions, phase: &watch::Sender<ServerPhase>) -> (u128, SseStream) {
        let stream = sessions.open(Uuid::from_u128(7), &Principal::Open, phase.subscribe());
        let mut stream = stream.unwrap();
        let Poll::Ready(Some(first)) = next(&mut stream) else { panic!() };
        let text = String::from_utf8(first.to_vec()).unwrap();
        let (_, id) = text.trim_end().rsplit_once('=').unwrap();
        let id = SessionId::parse(id).unwrap();
        assert_eq!(id.replica, Uuid::from_u128(7));
        (id.number, stream)
    }

    #[tokio::test]
    async fn events_go_down_the_stream_until_the_server_leaves() {
        let (sessions, phase) = (SseSessions::new(1), watch::Sender::new(ServerPhase::Running));
        let budget = Budget::new(1000);
        let (number, mut stream) = opened(&sessions, &phase);
        assert!(sessions.open(Uuid::nil(), &Principal::Open, phase.subscribe()).is_none());
        let session = sessions.find(number, &Principal::Open).unwrap();
        assert!(next(&mut stream).is_pending());
        let event = SseEvent::message(&budget, "{}").unwrap();
        let sent = sessions.send(number, &session, event, &ClientTimeouts::default()).await;
        assert_eq!(sent, SendOutcome::Taken);
        assert!(budget.taken() > 0);
        let Poll::Ready(Some(event)) = next(&mut stream) else { panic!() };
        assert_eq!(event, "event: message\ndata: {}\n\n");
        drop(event);
        assert_eq!((budget.taken(), session.room.taken()), (0, 0));
        phase.send_replace(ServerPhase::LameDuck);
        assert!(next(&mut stream).is_pending());
        phase.send_replace(ServerPhase::Draining);
        assert_eq!(next(&mut stream), Poll::Ready(None));
        drop(stream);
        assert_eq!(sessions.count(), 0);
    }

    #[tokio::test]
    async fn who_lets_too_much_wait_loses_the_session() {
        for (size, most) in [(10, MAX_QUEUED_EVENTS), (MAX_QUEUED_BYTES / 2, 1)] {
            let (sessions, phase) = (SseSessions::new(1), watch::Sender::new(ServerPhase::Running));
            let budget = Budget::new(usize::MAX);
            let (number, mut stream) = opened(&sessions, &phase);
            let session = sessions.find(number, &Principal::Open).unwrap();
            let text = "x".repeat(size);
            let timeouts = ClientTimeouts {
                write_stall: Duration::from_millis(1),
                ..ClientTimeouts::default()
            };
            let mut sent = 0;
            loop {
                let event = SseEvent::message(&budget, &text).unwrap();
                if sessions.send(number, &session, event, &timeouts).await != SendOutcome::Taken {
                    break;
                }
                sent += 1;
            }
            assert_eq!(sent, most);
            assert!(sessions.find(number, &Principal::Open).is_none());
            drop(session);
            // Queued events are still delivered before the stream ends.
            let mut left = most * SseEvent::message(&budget, &text).unwrap().text.len();
            while let Poll::Ready(Some(piece)) = next(&mut stream) {
                left -= piece.len();
            }
            assert_eq!((left, next(&mut stream)), (0, Poll::Ready(None)));
            assert_eq!(budget.taken(), 0);
        }
    }

    /// A client that keeps reading receives far more events than the queue holds.
    #[tokio::test]
    async fn who_reads_gets_everything() {
        let (sessions, phase) = (SseSessions::new(1), watch::Sender::new(ServerPhase::Running));
        let budget = Budget::new(usize::MAX);
        let (number, mut stream) = opened(&sessions, &phase);
        let session = sessions.find(number, &Principal::Open).unwrap();
        let timeouts = ClientTimeouts::default();
        let posting = async {
            for n in 0..3 * MAX_QUEUED_EVENTS {
                let event = SseEvent::message(&budget, &n.to_string()).unwrap();
                assert_eq!(
                    sessions.send(number, &session, event, &timeouts).await,
                    SendOutcome::Taken
                );
            }
        };
        let reading = async {
            for n in 0..3 * MAX_QUEUED_EVENTS {
                let next = std::future::poll_fn(|context| stream.poll_next(context)).await;
                assert_eq!(next.unwrap(), format!("event: message\ndata: {n}\n\n"));
            }
        };
        tokio::join!(posting, reading);
        // A client that does not keep up gets an error, but keeps its session.
        let hurry = ClientTimeouts { write: Duration::from_millis(20), ..timeouts };
        let sent = async {
            loop {
                let event = SseEvent::message(&budget, "{}").unwrap();
                let sent = sessions.send(number, &session, event, &hurry).await;
                if sent != SendOutcome::Taken {
                    return sent;
                }
            }
        };
        assert_eq!(sent.await, SendOutcome::Behind);
        assert!(sessions.find(number, &Principal::Open).is_some());
    }

    /// Each piece of a large event counts as progress, not only the last one.
    #[tokio::test]
    async fn who_takes_a_part_of_an_event_reads() {
        let (sessions, phase) = (SseSessions::new(1), watch::Sender::new(ServerPhase::Running));
        let budget = Budget::new(usize::MAX);
        let (number, mut stream) = opened(&sessions, &phase);
        let session = sessions.find(number, &Principal::Open).unwrap();
        let event = SseEvent::message(&budget, &"x".repeat(CHUNK_BYTES * 2)).unwrap();
        let whole = event.text.len();
        sessions.send(number, &session, event, &ClientTimeouts::default()).await;
        let mut taken = Vec::new();
        for size in [CHUNK_BYTES, CHUNK_BYTES, whole - 2 * CHUNK_BYTES] {
            let mut read = std::pin::pin!(session.read.notified());
            assert!(!read.as_mut().enable());
            let Poll::Ready(Some(piece)) = next(&mut stream) else { panic!() };
            assert_eq!((piece.len(), read.enable()), (size, true));
            taken.push(piece);
        }
        // All of it stays reserved until the last piece is dropped.
        assert_eq!(session.room.taken(), whole);
        drop(taken);
        assert_eq!((session.room.taken(), budget.taken()), (0, 0));
    }

    #[tokio::test]
    async fn a_stream_says_that_it_is_there_until_nobody_uses_it() {
        let phase = watch::Sender::new(ServerPhase::Running);
        for (idle, expected) in [(IDLE_TIMEOUT, Some(": ping\n\n".into())), (Duration::ZERO, None)]
        {
            let ping = Duration::from_millis(1);
            let sessions = SseSessions { ping, idle, ..SseSessions::new(1) };
            let (_, mut stream) = opened(&sessions, &phase);
            let told = std::future::poll_fn(|context| stream.poll_next(context)).await;
            assert_eq!(told, expected);
        }
    }

    #[tokio::test]
    async fn a_session_that_nobody_uses_gives_way() {
        let phase = watch::Sender::new(ServerPhase::Running);
        let sessions = SseSessions { spare: Duration::ZERO, ..SseSessions::new(2) };
        let (number, mut used) = opened(&sessions, &phase);
        let (_, mut left) = opened(&sessions, &phase);
        drop(sessions.find(number, &Principal::Open).unwrap());
        let (_, mut new) = opened(&sessions, &phase);
        assert_eq!((sessions.count(), next(&mut left)), (2, Poll::Ready(None)));
        assert!(next(&mut used).is_pending() && next(&mut new).is_pending());
        drop(left);
        assert_eq!(sessions.count(), 2);
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = SessionId { replica: Uuid::from_u128(1), number: 2 };
        assert_eq!(SessionId::parse(&id.to_string()), Some(id));
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(65), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(SessionId::parse(bad), None, "{bad}");
        }
    }
}
