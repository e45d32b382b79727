//! Bodies are read within limits on size, time and memory.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use tenure_core::Clock;
use tenure_store::BootClock;
use tokio::time::timeout;

use super::State;
use super::answer::{Refusal, Refused};
use crate::budget::Share;
use crate::metrics::Overload;

/// What a body costs while it is worked on: itself, what is read from it, and what is stored.
const COPIES: usize = 3;
/// A body of unknown length pays so much ahead.
const STEP: usize = 64 << 10;

/// The bytes of a body and what they cost.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    pub(crate) share: Share,
}

/// Reads a body of at most `limit` bytes. What it costs is taken before anything is read.
pub(crate) async fn read(
    state: &State,
    mut body: Incoming,
    limit: usize,
) -> Result<Whole, Refused> {
    let told = body.size_hint().exact().map(|told| usize::try_from(told).unwrap_or(usize::MAX));
    if told.is_some_and(|told| told > limit) {
        return Err(Refusal::too_large(limit));
    }
    let mut paid = told.unwrap_or(STEP.min(limit));
    let Some(mut share) = state.budget.take(paid * COPIES) else { return Err(full(state)) };
    let ends = BootClock.now().plus(state.patience.body);
    let mut first = Bytes::new();
    let mut rest = Vec::new();
    loop {
        let left = ends.since(BootClock.now()).min(state.patience.body_stall);
        let data = match next(&mut body, left).await? {
            Some(data) if first.is_empty() => {
                first = data;
                &first
            }
            Some(data) => {
                if rest.is_empty() {
                    rest.reserve_exact(told.unwrap_or(first.len() + data.len()));
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&data);
                &first
            }
            None => break,
        };
        let length = rest.len().max(data.len());
        if length > limit {
            return Err(Refusal::too_large(limit));
        }
        if told == Some(length) {
            break;
        }
        // Only where nobody said how long it is.
        while told.is_none() && length + STEP > paid && paid < limit {
            if !share.grow(STEP * COPIES) {
                return Err(full(state));
            }
            paid += STEP;
        }
    }
    let bytes = if rest.is_empty() { first } else { rest.into() };
    share.shrink(bytes.len() * COPIES);
    Ok(Whole { bytes, share })
}

fn full(state: &State) -> Refused {
    state.metrics.overloaded(Overload::Memory);
    Refusal::overloaded("too many bytes are under way; nothing was read").closing()
}

/// The next part; `None` at the end.
async fn next(body: &mut Incoming, left: Duration) -> Result<Option<Bytes>, Refused> {
    match timeout(left, Next(body)).await {
        Ok(Ok(data)) => Ok(data),
        Ok(Err(_)) => Err(Refusal::bad_request("the body broke off").closing()),
        Err(_) => Err(Refusal::timeout()),
    }
}

struct Next<'a>(&'a mut Incoming);

impl Future for Next<'_> {
    type Output = Result<Option<Bytes>, hyper::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let frame = ready!(Pin::new(&mut *self.0).poll_frame(context));
            match frame.transpose()?.map(hyper::body::Frame::into_data) {
                None => return Poll::Ready(Ok(None)),
                Some(Ok(data)) if !data.is_empty() => return Poll::Ready(Ok(Some(data))),
                // Trailers, or nothing.
                Some(_) => {}
            }
        }
    }
}
