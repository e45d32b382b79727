//! gRPC over HTTP/2: one connection with unary calls and streams.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::channel::{Channel as Feed, Sender};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE, USER_AGENT};
use hyper::{Request, StatusCode, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::message::{LeaseKeepAliveRequest, LeaseKeepAliveResponse, WatchResponse};

/// A message is preceded by a compression flag (one byte) and its length.
const FRAME_HEADER_BYTES: usize = 5;

/// Time limit of an unsent request for learning why it was not sent.
const END_REASON_TIMEOUT: Duration = Duration::from_millis(100);

/// Body of a request: one message, or a stream of messages.
type Body = Either<Full<Bytes>, Feed<Bytes, Infallible>>;

type BoxError = Box<dyn StdError + Send + Sync>;

/// A boxed call, so that HTTP/2 is compiled once here, not in each crate that awaits it.
type BoxedCall<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A stream of bytes to the server.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No byte of the request was sent.
    #[error("not sent")]
    NotSent(#[source] BoxError),
    /// The request may have been sent, but no answer was read.
    #[error("no answer")]
    Lost(#[source] BoxError),
    /// The server, or a proxy in between, returned an error.
    #[error("gRPC status {code}: {message}")]
    Status {
        /// gRPC status code.
        code: i32,
        /// Message of the status.
        message: String,
    },
}

impl Error {
    pub(crate) fn not_sent(cause: impl Into<BoxError>) -> Self {
        Self::NotSent(cause.into())
    }

    pub(crate) fn lost(cause: impl Into<BoxError>) -> Self {
        Self::Lost(cause.into())
    }
}

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// After a call has waited this long, the server is checked with a ping.
    pub silence: Duration,
    /// Time limit for the answer to a ping, after which the connection is closed.
    pub answer: Duration,
    /// Maximum size of a received message, in bytes.
    pub largest: usize,
}

impl Default for Limits {
    /// etcd rejects pings more often than every five seconds.
    fn default() -> Self {
        let (silence, answer) = (Duration::from_secs(6), Duration::from_secs(2));
        Self { silence, answer, largest: 256 << 20 }
    }
}

#[derive(Clone)]
pub(crate) struct GrpcChannel {
    sender: SendRequest<Body>,
    origin: Uri,
    largest: usize,
    ended: watch::Receiver<Option<String>>,
    /// Authentication token.
    pub(crate) token: Option<HeaderValue>,
}

impl GrpcChannel {
    pub(crate) fn new(
        stream: Box<dyn ByteStream>,
        origin: Uri,
        limits: Limits,
    ) -> BoxedCall<'static, Self> {
        Box::pin(async move {
            let handshake = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(limits.silence)
                .keep_alive_timeout(limits.answer)
                .handshake(TokioIo::new(stream));
            let (sender, connection) = handshake.await.map_err(Error::not_sent)?;
            let (reason, ended) = watch::channel(None);
            // The task ends when the last user of the connection is gone.
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    reason.send_replace(Some(words(&error)));
                }
            });
            Ok(Self { sender, origin, largest: limits.largest, ended, token: None })
        })
    }

    /// Waits for the reason why the connection has ended, which the error of an unsent request
    /// lacks.
    async fn end(&self) -> Option<String> {
        let mut ended = self.ended.clone();
        let known = timeout(END_REASON_TIMEOUT, ended.wait_for(Option::is_some)).await;
        known.ok()?.ok()?.clone()
    }

    fn request(&self, path: &'static str, body: Body) -> Result<Request<Body>, Error> {
        let mut parts = self.origin.clone().into_parts();
        parts.path_and_query = Some(hyper::http::uri::PathAndQuery::from_static(path));
        let uri = Uri::from_parts(parts).map_err(Error::not_sent)?;
        let mut request = Request::new(body);
        *request.method_mut() = hyper::Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(USER_AGENT, HeaderValue::from_static("tenure"));
        // Makes a server without a leader return an error instead of waiting for one.
        headers.insert("hasleader", HeaderValue::from_static("true"));
        if let Some(token) = &self.token {
            headers.insert("token", token.clone());
        }
        Ok(request)
    }

    /// Sends a request; returns its response once the headers have arrived.
    fn send(&self, path: &'static str, body: Body) -> BoxedCall<'_, Incoming> {
        Box::pin(async move {
            let request = self.request(path, body)?;
            let response = match self.sender.clone().try_send_request(request).await {
                Ok(response) => response,
                Err(mut failed) => match failed.take_message() {
                    Some(_) => {
                        let why = self.end().await.unwrap_or_else(|| words(failed.error()));
                        return Err(Error::not_sent(why));
                    }
                    None => return Err(Error::lost(failed.into_error())),
                },
            };
            let status = response.status();
            // A refusal without a body has its status in the headers.
            if let Some(refused) = refusal(response.headers()) {
                return Err(refused);
            }
            if status != StatusCode::OK {
                return Err(Error::lost(format!("HTTP status {status}")));
            }
            Ok(response.into_body())
        })
    }

    fn answers<A>(&self, body: Incoming) -> ResponseStream<A> {
        ResponseStream { body, buffer: BytesMut::new(), largest: self.largest, kind: PhantomData }
    }

    /// Makes a unary call.
    pub(crate) async fn call<Q, A>(&self, path: &'static str, question: &Q) -> Result<A, Error>
    where
        Q: Message,
        A: Message + Default,
    {
        let body = Either::Left(Full::new(framed(question)?));
        let mut answers = self.answers::<A>(self.send(path, body).await?);
        let missing = || Error::lost("the answer is empty");
        let answer = answers.next().await?.ok_or_else(missing)?;
        // The trailers that follow hold the status.
        match answers.next().await? {
            None => Ok(answer),
            Some(_) => Err(Error::lost("more than one answer")),
        }
    }

    /// Opens a stream. It begins with a request, because the server sends nothing before.
    pub(crate) async fn open<Q, A>(
        &self,
        path: &'static str,
        question: &Q,
    ) -> Result<BidiStream<A>, Error>
    where
        Q: Message,
        A: Message + Default,
    {
        let (mut questions, feed) = Feed::new(1);
        questions.send_data(framed(question)?).await.map_err(Error::not_sent)?;
        let answers = self.answers(self.send(path, Either::Right(feed)).await?);
        Ok(BidiStream { questions, answers })
    }
}

/// Joins the messages of an error and its sources.
fn words(error: &(dyn StdError + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns the error in headers or trailers, if any.
fn refusal(headers: &HeaderMap) -> Option<Error> {
    let code = headers.get("grpc-status")?.to_str().ok().and_then(|code| code.parse().ok());
    let words = headers.get("grpc-message").map_or(&b""[..], HeaderValue::as_bytes);
    let message = percent_encoding::percent_decode(words).decode_utf8_lossy().into_owned();
    match code {
        Some(0) => None,
        Some(code) => Some(Error::Status { code, message }),
        None => Some(Error::lost("the status cannot be read")),
    }
}

/// Encodes a message with its frame header.
fn framed(message: &impl Message) -> Result<Bytes, Error> {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(FRAME_HEADER_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).map_err(Error::not_sent)?);
    message.encode(&mut bytes).map_err(Error::not_sent)?;
    Ok(bytes.freeze())
}

/// Takes one complete message from the buffer.
fn unframed(buffer: &mut BytesMut, largest: usize) -> Result<Option<Bytes>, Error> {
    let Some(mut prefix) = buffer.get(..FRAME_HEADER_BYTES) else { return Ok(None) };
    if prefix.get_u8() != 0 {
        return Err(Error::lost("the answer is compressed"));
    }
    let length = prefix.get_u32() as usize;
    if length > largest {
        let detail = format!("the answer has {length} bytes, more than the limit of {largest}");
        return Err(Error::lost(detail));
    }
    if buffer.len() < FRAME_HEADER_BYTES + length {
        return Ok(None);
    }
    buffer.advance(FRAME_HEADER_BYTES);
    Ok(Some(buffer.split_to(length).freeze()))
}

struct ResponseStream<A> {
    body: Incoming,
    buffer: BytesMut,
    largest: usize,
    kind: PhantomData<fn() -> A>,
}

impl<A: Message + Default> ResponseStream<A> {
    /// Returns the next response; `None` if the server has ended the call without error. Cancel
    /// safe.
    async fn next(&mut self) -> Result<Option<A>, Error> {
        loop {
            if let Some(message) = unframed(&mut self.buffer, self.largest)? {
                return A::decode(message).map(Some).map_err(Error::lost);
            }
            let Some(frame) = self.body.frame().await else {
                return Err(Error::lost("the call ended without a status"));
            };
            match frame.map_err(Error::lost)?.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => {
                    let Ok(trailers) = frame.into_trailers() else { continue };
                    let complete = trailers.contains_key("grpc-status") && self.buffer.is_empty();
                    return match refusal(&trailers) {
                        Some(refused) => Err(refused),
                        None if complete => Ok(None),
                        None => Err(Error::lost("the answer was cut off")),
                    };
                }
            }
        }
    }
}

/// An open stream of requests and responses.
pub struct BidiStream<A> {
    questions: Sender<Bytes, Infallible>,
    answers: ResponseStream<A>,
}

/// Changes of watched keys.
pub type WatchStream = BidiStream<WatchResponse>;

impl<A: Message + Default> BidiStream<A> {
    /// Returns the next response; `None` when the server has ended the stream. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<A>, Error> {
        self.answers.next().await
    }

    /// Returns the response to the request that opened the stream.
    pub(crate) async fn first(&mut self) -> Result<A, Error> {
        self.next().await?.ok_or_else(|| Error::lost("the stream ended without an answer"))
    }
}

/// A stream that extends one lease.
pub struct KeepAlive {
    pub(crate) stream: BidiStream<LeaseKeepAliveResponse>,
    pub(crate) request: LeaseKeepAliveRequest,
}

impl KeepAlive {
    /// Extends the lease; a TTL of zero means that the lease does not exist. After a cancelled call
    /// the stream must not be used again: the next call would take the late answer for its own.
    pub async fn extend(&mut self) -> Result<LeaseKeepAliveResponse, Error> {
        let sent = self.stream.questions.send_data(framed(&self.request)?).await;
        sent.map_err(Error::not_sent)?;
        self.stream.first().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{KeyValue, RangeResponse};

    fn answer() -> RangeResponse {
        let found = KeyValue { key: b"a".to_vec(), version: 300, ..KeyValue::default() };
        RangeResponse { kvs: vec![found], more: true, ..RangeResponse::default() }
    }

    #[test]
    fn a_message_is_read_once_it_is_whole() {
        let whole = framed(&answer()).unwrap();
        let mut buffer = BytesMut::new();
        for byte in &whole[..whole.len() - 1] {
            buffer.put_u8(*byte);
            assert!(unframed(&mut buffer, 100).unwrap().is_none());
        }
        buffer.extend_from_slice(&whole[whole.len() - 1..]);
        buffer.extend_from_slice(&whole);
        for _ in 0..2 {
            let message = unframed(&mut buffer, 100).unwrap().unwrap();
            assert_eq!(RangeResponse::decode(message).unwrap(), answer());
        }
        assert!(buffer.is_empty());
    }

    #[test]
    fn what_is_too_large_or_compressed_is_not_waited_for() {
        for bad in [&[0, 0, 0, 0, 101][..], &[1, 0, 0, 0, 1], &[0, 255, 255, 255, 255]] {
            let read = unframed(&mut BytesMut::from(bad), 100);
            assert!(matches!(read, Err(Error::Lost(_))), "{bad:?}");
        }
    }

    #[test]
    fn a_refusal_has_a_number_and_words() {
        let told = |status: &'static str, message: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", HeaderValue::from_static(status));
            headers.insert("grpc-message", HeaderValue::from_static(message));
            refusal(&headers)
        };
        assert!(told("0", "").is_none() && refusal(&HeaderMap::new()).is_none());
        let Some(Error::Status { code, message }) = told("5", "no%20such%0Akey") else { panic!() };
        assert_eq!((code, message.as_str()), (5, "no such\nkey"));
        assert!(matches!(told("x", ""), Some(Error::Lost(_))));
    }
}
