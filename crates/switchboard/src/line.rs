//! A connection as hyper sees it, and what a watchman has to know of it.
//!
//! hyper's own limit on heads also closes connections that rest between requests, and it has none
//! for those who do not read what they are sent. So the connection notes what happens, without
//! looking at a clock, and a watchman comes by every few seconds.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Patience;

/// What happened on a connection.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Even while no request is worked on; grows when one begins and when one ends.
    turn: AtomicU32,
    /// A head has begun to come.
    head: AtomicBool,
    /// Bytes are waiting that the other side does not take.
    blocked: AtomicBool,
    /// Grows with what it took.
    written: AtomicU32,
    /// The rest of a request is not wanted.
    unread: AtomicBool,
    /// The answer was sent and what still comes is thrown away.
    lingers: AtomicBool,
    /// The answer has no end of its own: it may take as long as it is read.
    streams: AtomicBool,
}

impl Notes {
    /// A request has come, whole but for its body.
    pub(crate) fn begin(&self) {
        self.head.store(false, Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    /// Its answer is there; perhaps not all of the request was read.
    pub(crate) fn end(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer is a stream: its turn ends when it does.
    pub(crate) fn hand_over(self: &Arc<Self>) -> Turn {
        self.streams.store(true, Ordering::Relaxed);
        Turn(Arc::clone(self))
    }

    fn is_busy(&self) -> bool {
        !self.turn.load(Ordering::Relaxed).is_multiple_of(2)
    }
}

/// A request that is still worked on after its head was answered.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Notes>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.end(false);
    }
}

/// A connection that takes notes.
#[derive(Debug)]
pub(crate) struct Line<S, N> {
    inner: S,
    notes: N,
    /// The other side has closed its half.
    ended: bool,
}

impl<S, N: AsRef<Notes>> Line<S, N> {
    pub(crate) fn new(inner: S, notes: N) -> Self {
        Self { inner, notes, ended: false }
    }

    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let notes = self.notes.as_ref();
        notes.blocked.store(polled.is_pending(), Ordering::Relaxed);
        if polled.is_ready() {
            notes.written.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncRead + Unpin, N: AsRef<Notes> + Unpin> AsyncRead for Line<S, N> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        self.ended = buffer.filled().len() == before;
        let notes = self.notes.as_ref();
        if !self.ended && !notes.is_busy() {
            notes.head.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, N: AsRef<Notes> + Unpin> AsyncWrite for Line<S, N> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, data);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, data);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        // TLS takes what is written at once, and may wait with it here.
        self.notes.as_ref().blocked.store(polled.is_pending(), Ordering::Relaxed);
        polled
    }

    /// Closes this half. Where something was not read, what still comes is thrown away: a system
    /// that is told to close a connection with unread bytes breaks it off, and the answer is lost.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let of = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let notes = self.notes.as_ref();
        if !of(&notes.lingers) {
            // A head that hyper could not read was never begun with.
            let unread = of(&notes.unread) || of(&notes.head);
            ready!(Pin::new(&mut self.inner).poll_shutdown(context))?;
            if !unread {
                return Poll::Ready(Ok(()));
            }
            self.notes.as_ref().lingers.store(true, Ordering::Relaxed);
        }
        let mut waste = [0; 4096];
        while !self.ended {
            let mut buffer = ReadBuf::new(&mut waste);
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut buffer))?;
            self.ended = buffer.filled().is_empty();
        }
        Poll::Ready(Ok(()))
    }
}

/// Comes by and says when a connection has taken too long.
#[derive(Debug, Default)]
pub(crate) struct Watchman {
    turn: u32,
    resting: u32,
    heading: u32,
    written: u32,
    stuck: u32,
    blocked: u32,
    lingering: u32,
}

impl Watchman {
    /// What is wrong with it, if something is. To be called every [`Patience::tick`].
    pub(crate) fn look(&mut self, notes: &Notes, patience: &Patience) -> bool {
        let turn = notes.turn.load(Ordering::Relaxed);
        let same_turn = turn == self.turn;
        self.turn = turn;
        let idle = turn.is_multiple_of(2);
        let heading = notes.head.load(Ordering::Relaxed);
        count(&mut self.resting, idle && same_turn && !heading);
        count(&mut self.heading, idle && same_turn && heading);
        let written = notes.written.load(Ordering::Relaxed);
        let blocked = notes.blocked.load(Ordering::Relaxed);
        count(&mut self.stuck, blocked && written == self.written);
        count(&mut self.blocked, blocked && !notes.streams.load(Ordering::Relaxed));
        self.written = written;
        count(&mut self.lingering, notes.lingers.load(Ordering::Relaxed));
        let ticks = |time: std::time::Duration| {
            let ticks = time.as_nanos().div_ceil(patience.tick.as_nanos().max(1));
            u32::try_from(ticks).unwrap_or(u32::MAX)
        };
        // A connection that has never said anything is nobody's pause between two requests.
        let rest = if turn == 0 { patience.first_byte } else { patience.idle };
        // While an answer is on its way the connection does not rest.
        (self.resting > ticks(rest) && !blocked)
            || self.heading > ticks(patience.head)
            || self.stuck > ticks(patience.write_stall)
            || self.blocked > ticks(patience.write)
            || self.lingering > 1
    }
}

fn count(times: &mut u32, again: bool) {
    *times = if again { *times + 1 } else { 0 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn patience() -> Patience {
        let second = Duration::from_secs;
        Patience {
            tick: second(1),
            first_byte: second(3),
            head: second(2),
            idle: second(5),
            write_stall: second(2),
            write: second(6),
            ..Patience::default()
        }
    }

    /// How many visits it takes, if before each something happens.
    fn visits(mut happens: impl FnMut(&Notes)) -> Option<u32> {
        let notes = Notes::default();
        let mut watchman = Watchman::default();
        (1..100).find(|_| {
            happens(&notes);
            watchman.look(&notes, &patience())
        })
    }

    #[test]
    fn who_rests_is_given_longer_than_who_dawdles() {
        assert_eq!(visits(|_| {}), Some(4), "it has never said anything");
        assert_eq!(visits(|notes| notes.turn.store(2, Ordering::Relaxed)), Some(7));
        assert_eq!(visits(|notes| notes.head.store(true, Ordering::Relaxed)), Some(3));
        assert_eq!(visits(|notes| notes.turn.store(1, Ordering::Relaxed)), None);
        let work = |notes: &Notes| {
            notes.begin();
            notes.end(false);
        };
        assert_eq!(visits(work), None);
    }

    #[test]
    fn who_does_not_read_is_cut_off() {
        let block = |notes: &Notes| notes.blocked.store(true, Ordering::Relaxed);
        assert_eq!(visits(block), Some(3));
        let trickle = |notes: &Notes| {
            notes.begin();
            notes.blocked.store(true, Ordering::Relaxed);
            notes.written.fetch_add(1, Ordering::Relaxed);
        };
        assert_eq!(visits(trickle), Some(7));
        // A stream may be read slowly for ever, and not at all no longer than others.
        let stream = |notes: &Notes| notes.streams.store(true, Ordering::Relaxed);
        assert_eq!(visits(|notes| (stream(notes), trickle(notes)).1), None);
        assert_eq!(visits(|notes| (stream(notes), block(notes)).1), Some(3));
        assert_eq!(visits(|notes| notes.lingers.store(true, Ordering::Relaxed)), Some(2));
    }
}
