//! Response bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};

use crate::mcp::SseStream;

/// Body of a response. A complete one is not boxed: events use it.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    /// The whole body.
    Complete(Full<Bytes>),
    /// An event stream.
    Stream(Box<SseStream>),
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self::Complete(Full::new(bytes))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Complete(whole) => Pin::new(whole).poll_frame(context),
            Self::Stream(stream) => {
                stream.poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Complete(whole) if whole.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Complete(whole) => whole.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
