//! Connection I/O that records activity, and detection of stalled connections.
//!
//! hyper's timeout for request heads also closes connections that idle between requests, and it
//! has none for clients that do not read their response. So the stream records its activity,
//! without reading a clock, and a detector looks at it every few seconds.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::ClientTimeouts;

#[derive(Debug, Default)]
pub(crate) struct ConnectionActivity {
    /// Incremented when a request begins and when it ends, so it is even between requests.
    transitions: AtomicU32,
    head: AtomicBool,
    /// Bytes are waiting that the client does not read.
    blocked: AtomicBool,
    /// Grows with each write.
    written: AtomicU32,
    /// The rest of the request will not be read.
    unread: AtomicBool,
    /// The response was sent, and the rest of the request is discarded.
    lingers: AtomicBool,
    /// The response is a stream without a fixed end.
    streams: AtomicBool,
}

impl ConnectionActivity {
    /// Records that the head of a request was read.
    pub(crate) fn begin(&self) {
        self.head.store(false, Ordering::Relaxed);
        self.transitions.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the response is ready; part of the request may be unread.
    pub(crate) fn end(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
        self.transitions.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a guard for a streamed response: the request ends when it is dropped.
    pub(crate) fn begin_stream(self: &Arc<Self>) -> StreamingRequest {
        self.streams.store(true, Ordering::Relaxed);
        StreamingRequest(Arc::clone(self))
    }

    fn is_busy(&self) -> bool {
        !self.transitions.load(Ordering::Relaxed).is_multiple_of(2)
    }
}

/// A request whose response is still being streamed.
#[derive(Debug)]
pub(crate) struct StreamingRequest(Arc<ConnectionActivity>);

impl Drop for StreamingRequest {
    fn drop(&mut self) {
        self.0.end(false);
    }
}

#[derive(Debug)]
pub(crate) struct TrackedStream<S> {
    inner: S,
    activity: Arc<ConnectionActivity>,
    /// The client closed its half.
    ended: bool,
}

impl<S> TrackedStream<S> {
    pub(crate) fn new(inner: S, activity: Arc<ConnectionActivity>) -> Self {
        Self { inner, activity, ended: false }
    }

    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.blocked.store(polled.is_pending(), Ordering::Relaxed);
        if polled.is_ready() {
            self.activity.written.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        self.ended = buffer.filled().len() == before;
        if !self.ended && !self.activity.is_busy() {
            self.activity.head.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
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
        // TLS buffers writes, so a blocked socket may be noticed only here.
        self.activity.blocked.store(polled.is_pending(), Ordering::Relaxed);
        polled
    }

    /// Closes this half. If part of the request is unread, it is read and discarded: closing a
    /// socket with unread bytes resets the connection, and the response is lost.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let of = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if !of(&self.activity.lingers) {
            // A head that hyper could not parse is unread, too.
            let unread = of(&self.activity.unread) || of(&self.activity.head);
            ready!(Pin::new(&mut self.inner).poll_shutdown(context))?;
            if !unread {
                return Poll::Ready(Ok(()));
            }
            self.activity.lingers.store(true, Ordering::Relaxed);
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

/// Detects connections that exceed a client timeout.
#[derive(Debug, Default)]
pub(crate) struct StallDetector {
    transitions: u32,
    resting: u32,
    heading: u32,
    written: u32,
    stuck: u32,
    blocked: u32,
    lingering: u32,
}

impl StallDetector {
    /// Returns whether the connection exceeds a timeout. Called every [`ClientTimeouts::tick`].
    pub(crate) fn is_stalled(
        &mut self,
        activity: &ConnectionActivity,
        timeouts: &ClientTimeouts,
    ) -> bool {
        let transitions = activity.transitions.load(Ordering::Relaxed);
        let unchanged = transitions == self.transitions;
        self.transitions = transitions;
        let idle = transitions.is_multiple_of(2);
        let heading = activity.head.load(Ordering::Relaxed);
        count_ticks(&mut self.resting, idle && unchanged && !heading);
        count_ticks(&mut self.heading, idle && unchanged && heading);
        let written = activity.written.load(Ordering::Relaxed);
        let blocked = activity.blocked.load(Ordering::Relaxed);
        count_ticks(&mut self.stuck, blocked && written == self.written);
        count_ticks(&mut self.blocked, blocked && !activity.streams.load(Ordering::Relaxed));
        self.written = written;
        count_ticks(&mut self.lingering, activity.lingers.load(Ordering::Relaxed));
        let ticks = |time: std::time::Duration| {
            let ticks = time.as_nanos().div_ceil(timeouts.tick.as_nanos().max(1));
            u32::try_from(ticks).unwrap_or(u32::MAX)
        };
        // A connection that never sent anything is not idle between two requests.
        let rest = if transitions == 0 { timeouts.first_byte } else { timeouts.idle };
        // The connection is not idle while a response is being sent.
        (self.resting > ticks(rest) && !blocked)
            || self.heading > ticks(timeouts.head)
            || self.stuck > ticks(timeouts.write_stall)
            || self.blocked > ticks(timeouts.write)
            || self.lingering > 1
    }
}

fn count_ticks(times: &mut u32, again: bool) {
    *times = if again { *times + 1 } else { 0 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn timeouts() -> ClientTimeouts {
        let second = Duration::from_secs;
        ClientTimeouts {
            tick: second(1),
            first_byte: second(3),
            head: second(2),
            idle: second(5),
            write_stall: second(2),
            write: second(6),
            ..ClientTimeouts::default()
        }
    }

    /// Returns the tick at which the connection is stalled, if `happens` runs before each tick.
    fn visits(mut happens: impl FnMut(&ConnectionActivity)) -> Option<u32> {
        let activity = ConnectionActivity::default();
        let mut detector = StallDetector::default();
        (1..100).find(|_| {
            happens(&activity);
            detector.is_stalled(&activity, &timeouts())
        })
    }

    #[test]
    fn who_rests_is_given_longer_than_who_dawdles() {
        assert_eq!(visits(|_| {}), Some(4), "it has never said anything");
        assert_eq!(visits(|activity| activity.transitions.store(2, Ordering::Relaxed)), Some(7));
        assert_eq!(visits(|activity| activity.head.store(true, Ordering::Relaxed)), Some(3));
        assert_eq!(visits(|activity| activity.transitions.store(1, Ordering::Relaxed)), None);
        let work = |activity: &ConnectionActivity| {
            activity.begin();
            activity.end(false);
        };
        assert_eq!(visits(work), None);
    }

    #[test]
    fn who_does_not_read_is_cut_off() {
        let block = |activity: &ConnectionActivity| activity.blocked.store(true, Ordering::Relaxed);
        assert_eq!(visits(block), Some(3));
        let trickle = |activity: &ConnectionActivity| {
            activity.begin();
            activity.blocked.store(true, Ordering::Relaxed);
            activity.written.fetch_add(1, Ordering::Relaxed);
        };
        assert_eq!(visits(trickle), Some(7));
        // A stream may be read slowly for ever, but must not stall longer than other responses.
        let stream =
            |activity: &ConnectionActivity| activity.streams.store(true, Ordering::Relaxed);
        assert_eq!(visits(|activity| (stream(activity), trickle(activity)).1), None);
        assert_eq!(visits(|activity| (stream(activity), block(activity)).1), Some(3));
        assert_eq!(visits(|activity| activity.lingers.store(true, Ordering::Relaxed)), Some(2));
    }
}
