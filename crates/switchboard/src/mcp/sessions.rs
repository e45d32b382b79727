//! Sessions of clients that speak the older transport: each is only an outlet.
//!
//! What a client posts is answered like any other message; the answer goes down the stream that it
//! holds open. So a session is nothing but that stream's other end, and ends with it.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Bytes;
use tenure_core::{Clock, LocalInstant};
use tenure_duty::process;
use tenure_store::BootClock;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Interval, interval, timeout};
use uuid::Uuid;

use crate::Patience;
use crate::access::Caller;
use crate::budget::{Budget, Share};
use crate::http::Phase;
use crate::line::Turn;

/// Answers that wait until their client reads; more wait with whoever posts.
const MOST_WAITING: usize = 32;
/// And so many bytes of them: the largest page, as text and as it is.
const ROOM: usize = 12 << 20;
/// So many bytes go to the connection at a time: a client that takes a large event slowly is seen
/// to read it.
const PIECE: usize = 64 << 10;
/// How often a stream says that it is there, so that nobody in between takes it for dead.
const PING: Duration = Duration::from_secs(15);
/// A session that nothing was posted to for so long is over.
const IDLE: Duration = Duration::from_secs(60 * 60);
/// When there are too many, one that nothing was posted to for so long gives way: else a client
/// that opens sessions and leaves them would keep the others out.
const SPARE: Duration = Duration::from_secs(5 * 60);

/// The open sessions of this replica.
#[derive(Debug)]
pub(crate) struct Sessions {
    most: usize,
    ping: Duration,
    idle: Duration,
    spare: Duration,
    open: Arc<Mutex<Open>>,
}

type Open = BTreeMap<u128, Arc<Session>>;

/// Names a session, and the replica that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionId {
    pub(super) replica: Uuid,
    pub(super) number: u128,
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

/// One of them.
#[derive(Debug)]
pub(super) struct Session {
    outlet: mpsc::Sender<Bytes>,
    /// Whose it is: nobody else posts to it.
    token_id: Option<String>,
    posted: Mutex<LocalInstant>,
    idle: Duration,
    room: Arc<Budget>,
    /// Something was read.
    read: Arc<Notify>,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is on its way.
    Taken,
    /// The client reads, but has too much before it.
    Behind,
    /// The session is over: the client has gone, or does not read.
    Over,
}

impl Session {
    /// Puts an event into the stream; gives it back where there is no room. `None` when the stream
    /// is gone.
    fn put(&self, mut event: Event) -> Option<Result<(), Event>> {
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

impl Sessions {
    pub(super) fn new(most: usize) -> Self {
        Self { most, ping: PING, idle: IDLE, spare: SPARE, open: Arc::default() }
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.open).len()
    }

    /// Opens one; `None` when there are too many. It lives as long as its stream.
    pub(super) fn open(
        &self,
        replica: Uuid,
        caller: &Caller,
        mut phase: watch::Receiver<Phase>,
    ) -> Option<Stream> {
        let id = SessionId { replica, number: process::entropy() };
        let (outlet, events) = mpsc::channel(MOST_WAITING);
        let token_id = caller.token_id().map(str::to_owned);
        let session = Arc::new(Session {
            outlet,
            token_id,
            posted: BootClock.now().into(),
            idle: self.idle,
            room: Budget::new(ROOM),
            read: Arc::default(),
        });
        let mut open = lock(&self.open);
        if open.len() >= self.most && !self.make_room(&mut open) {
            return None;
        }
        open.insert(id.number, Arc::clone(&session));
        drop(open);
        let place = Place { open: Arc::clone(&self.open), number: id.number };
        let first = format!("event: endpoint\ndata: /messages?session_id={id}\n\n");
        let mut pings = interval(self.ping);
        pings.reset();
        let leaving = Box::pin(async move {
            let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
        });
        Some(Stream {
            rest: first.into(),
            events,
            session: Arc::downgrade(&session),
            read: Arc::clone(&session.read),
            pings,
            leaving,
            _place: place,
            turn: None,
        })
    }

    /// Ends the session that was not used for the longest, if that is long.
    fn make_room(&self, open: &mut Open) -> bool {
        let first = open.iter().map(|(number, session)| (*lock(&session.posted), *number)).min();
        let spare = first.filter(|(posted, _)| BootClock.now().since(*posted) >= self.spare);
        spare.is_some_and(|(_, number)| open.remove(&number).is_some())
    }

    /// The session of that number, if it is this caller's; it is in use from now on.
    pub(super) fn find(&self, number: u128, caller: &Caller) -> Option<Arc<Session>> {
        let session = lock(&self.open).get(&number).map(Arc::clone)?;
        if session.token_id.as_deref() != caller.token_id() {
            return None;
        }
        *lock(&session.posted) = BootClock.now();
        Some(session)
    }

    /// Sends an event to a client. Where much waits already, it waits as long as the client reads;
    /// a client that takes nothing for a while loses its session.
    pub(super) async fn send(
        &self,
        number: u128,
        session: &Session,
        event: Event,
        patience: &Patience,
    ) -> Sent {
        let sending = async {
            let mut event = event;
            loop {
                // Asked for before looking: what is read meanwhile is not missed.
                let read = session.read.notified();
                event = match session.put(event) {
                    Some(Ok(())) => return Sent::Taken,
                    Some(Err(event)) => event,
                    None => return Sent::Over,
                };
                if timeout(patience.write_stall, read).await.is_err() {
                    lock(&self.open).remove(&number);
                    return Sent::Over;
                }
            }
        };
        timeout(patience.write, sending).await.unwrap_or(Sent::Behind)
    }
}

/// What is sent down a stream. It may wait there for long, so it is paid for.
#[derive(Debug)]
pub(super) struct Event {
    text: String,
    _share: Share,
    room: Option<Share>,
    /// Told when it was taken out of the stream, or given up.
    read: Option<Arc<Notify>>,
}

impl Drop for Event {
    fn drop(&mut self) {
        self.room = None;
        if let Some(read) = &self.read {
            read.notify_waiters();
        }
    }
}

impl Event {
    /// An answer as an event; `None` when there is no memory for it.
    pub(super) fn message(budget: &Arc<Budget>, json: &str) -> Option<Self> {
        let text = format!("event: message\ndata: {json}\n\n");
        let share = budget.take(text.len())?;
        Some(Self { text, _share: share, room: None, read: None })
    }
}

impl AsRef<[u8]> for Event {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Takes its session away when the stream is gone, however that came about.
#[derive(Debug)]
struct Place {
    open: Arc<Mutex<Open>>,
    number: u128,
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.number);
    }
}

/// What goes down a connection until the session ends.
pub(crate) struct Stream {
    /// The unsent part of the current event.
    rest: Bytes,
    events: mpsc::Receiver<Bytes>,
    /// Not the session itself: that it was taken away ends the stream.
    session: Weak<Session>,
    read: Arc<Notify>,
    pings: Interval,
    leaving: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: Place,
    turn: Option<Turn>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream(..)")
    }
}

impl Stream {
    /// The connection is at work as long as this is.
    pub(crate) fn keep(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    /// The next bytes; `None` at the end.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // What is answered already still goes out.
        if self.rest.is_empty()
            && let Poll::Ready(next) = self.events.poll_recv(context)
        {
            let Some(next) = next else { return Poll::Ready(None) };
            self.rest = next;
        }
        if !self.rest.is_empty() {
            // The connection has room again, so the client reads.
            self.read.notify_waiters();
            let piece = self.rest.len().min(PIECE);
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

/// Nothing that is done under these locks can be done by half.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn next(stream: &mut Stream) -> Poll<Option<Bytes>> {
        stream.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    fn opened(sessions: &Sessions, phase: &watch::Sender<Phase>) -> (u128, Stream) {
        let stream = sessions.open(Uuid::from_u128(7), &Caller::Open, phase.subscribe());
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
        let (sessions, phase) = (Sessions::new(1), watch::Sender::new(Phase::Running));
        let budget = Budget::new(1000);
        let (number, mut stream) = opened(&sessions, &phase);
        assert!(sessions.open(Uuid::nil(), &Caller::Open, phase.subscribe()).is_none());
        let session = sessions.find(number, &Caller::Open).unwrap();
        assert!(next(&mut stream).is_pending());
        let event = Event::message(&budget, "{}").unwrap();
        let sent = sessions.send(number, &session, event, &Patience::default()).await;
        assert_eq!(sent, Sent::Taken);
        assert!(budget.taken() > 0);
        let Poll::Ready(Some(event)) = next(&mut stream) else { panic!() };
        assert_eq!(event, "event: message\ndata: {}\n\n");
        drop(event);
        assert_eq!((budget.taken(), session.room.taken()), (0, 0));
        phase.send_replace(Phase::LameDuck);
        assert!(next(&mut stream).is_pending());
        phase.send_replace(Phase::Draining);
        assert_eq!(next(&mut stream), Poll::Ready(None));
        drop(stream);
        assert_eq!(sessions.count(), 0);
    }

    #[tokio::test]
    async fn who_lets_too_much_wait_loses_the_session() {
        for (size, most) in [(10, MOST_WAITING), (ROOM / 2, 1)] {
            let (sessions, phase) = (Sessions::new(1), watch::Sender::new(Phase::Running));
            let budget = Budget::new(usize::MAX);
            let (number, mut stream) = opened(&sessions, &phase);
            let session = sessions.find(number, &Caller::Open).unwrap();
            let text = "x".repeat(size);
            let patience =
                Patience { write_stall: Duration::from_millis(1), ..Patience::default() };
            let mut sent = 0;
            loop {
                let event = Event::message(&budget, &text).unwrap();
                if sessions.send(number, &session, event, &patience).await != Sent::Taken {
                    break;
                }
                sent += 1;
            }
            assert_eq!(sent, most);
            assert!(sessions.find(number, &Caller::Open).is_none());
            drop(session);
            // What was sent before is still there, and then it is over.
            let mut left = most * Event::message(&budget, &text).unwrap().text.len();
            while let Poll::Ready(Some(piece)) = next(&mut stream) {
                left -= piece.len();
            }
            assert_eq!((left, next(&mut stream)), (0, Poll::Ready(None)));
            assert_eq!(budget.taken(), 0);
        }
    }

    /// Far more than fits at a time goes to a client that reads one after the other.
    #[tokio::test]
    async fn who_reads_gets_everything() {
        let (sessions, phase) = (Sessions::new(1), watch::Sender::new(Phase::Running));
        let budget = Budget::new(usize::MAX);
        let (number, mut stream) = opened(&sessions, &phase);
        let session = sessions.find(number, &Caller::Open).unwrap();
        let patience = Patience::default();
        let posting = async {
            for n in 0..3 * MOST_WAITING {
                let event = Event::message(&budget, &n.to_string()).unwrap();
                assert_eq!(sessions.send(number, &session, event, &patience).await, Sent::Taken);
            }
        };
        let reading = async {
            for n in 0..3 * MOST_WAITING {
                let next = std::future::poll_fn(|context| stream.poll_next(context)).await;
                assert_eq!(next.unwrap(), format!("event: message\ndata: {n}\n\n"));
            }
        };
        tokio::join!(posting, reading);
        // One that reads, but too slowly for all that is posted, is told so and stays.
        let hurry = Patience { write: Duration::from_millis(20), ..patience };
        let sent = async {
            loop {
                let event = Event::message(&budget, "{}").unwrap();
                let sent = sessions.send(number, &session, event, &hurry).await;
                if sent != Sent::Taken {
                    return sent;
                }
            }
        };
        assert_eq!(sent.await, Sent::Behind);
        assert!(sessions.find(number, &Caller::Open).is_some());
    }

    /// Each piece of a large event is a sign of life, not only the end of it.
    #[tokio::test]
    async fn who_takes_a_part_of_an_event_reads() {
        let (sessions, phase) = (Sessions::new(1), watch::Sender::new(Phase::Running));
        let budget = Budget::new(usize::MAX);
        let (number, mut stream) = opened(&sessions, &phase);
        let session = sessions.find(number, &Caller::Open).unwrap();
        let event = Event::message(&budget, &"x".repeat(PIECE * 2)).unwrap();
        let whole = event.text.len();
        sessions.send(number, &session, event, &Patience::default()).await;
        let mut taken = Vec::new();
        for size in [PIECE, PIECE, whole - 2 * PIECE] {
            let mut read = std::pin::pin!(session.read.notified());
            assert!(!read.as_mut().enable());
            let Poll::Ready(Some(piece)) = next(&mut stream) else { panic!() };
            assert_eq!((piece.len(), read.enable()), (size, true));
            taken.push(piece);
        }
        // All of it is paid for until the last piece is gone.
        assert_eq!(session.room.taken(), whole);
        drop(taken);
        assert_eq!((session.room.taken(), budget.taken()), (0, 0));
    }

    #[tokio::test]
    async fn a_stream_says_that_it_is_there_until_nobody_uses_it() {
        let phase = watch::Sender::new(Phase::Running);
        for (idle, expected) in [(IDLE, Some(": ping\n\n".into())), (Duration::ZERO, None)] {
            let ping = Duration::from_millis(1);
            let sessions = Sessions { ping, idle, ..Sessions::new(1) };
            let (_, mut stream) = opened(&sessions, &phase);
            let told = std::future::poll_fn(|context| stream.poll_next(context)).await;
            assert_eq!(told, expected);
        }
    }

    #[tokio::test]
    async fn a_session_that_nobody_uses_gives_way() {
        let phase = watch::Sender::new(Phase::Running);
        let sessions = Sessions { spare: Duration::ZERO, ..Sessions::new(2) };
        let (number, mut used) = opened(&sessions, &phase);
        let (_, mut left) = opened(&sessions, &phase);
        drop(sessions.find(number, &Caller::Open).unwrap());
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
