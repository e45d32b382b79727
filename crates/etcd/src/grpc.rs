//! gRPC over HTTP/2: one connection, calls with one answer, and streams.

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

/// A message begins with a byte that says whether it is compressed, and its length.
const FRAME_HEADER_BYTES: usize = 5;

/// So long a request that was not sent waits to hear why.
const END_REASON_TIMEOUT: Duration = Duration::from_millis(100);

/// Body of a request: one message, or a stream of them.
type Body = Either<Full<Bytes>, Feed<Bytes, Infallible>>;

type BoxError = Box<dyn StdError + Send + Sync>;

/// A boxed call: HTTP/2 is compiled here, once, and not in each crate that awaits it.
type BoxedCall<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A stream of bytes to the server.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No byte of the request has left.
    #[error("not sent")]
    NotSent(#[source] BoxError),
    /// The request may have left, and no answer was read.
    #[error("no answer")]
    Lost(#[source] BoxError),
    /// The server, or somebody between, has said no.
    #[error("gRPC status {code}: {message}")]
    Status {
        /// gRPC's number for the kind of failure.
        code: i32,
        /// The server's words.
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
    /// The server is asked whether it is there when a call has waited for so long.
    pub silence: Duration,
    /// So long it may take to say so, before the connection is given up.
    pub answer: Duration,
    /// The largest message that is read, in bytes.
    pub largest: usize,
}

impl Default for Limits {
    /// etcd does not like to be asked more often than every five seconds.
    fn default() -> Self {
        let (silence, answer) = (Duration::from_secs(6), Duration::from_secs(2));
        Self { silence, answer, largest: 256 << 20 }
    }
}

/// One connection.
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
            let (told, ended) = watch::channel(None);
            // It ends when nobody can use it any more.
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    told.send_replace(Some(words(&error)));
                }
            });
            Ok(Self { sender, origin, largest: limits.largest, ended, token: None })
        })
    }

    /// Why the connection has ended; a request that it did not take is not told.
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
        // A server without a leader says so instead of waiting for one.
        headers.insert("hasleader", HeaderValue::from_static("true"));
        if let Some(token) = &self.token {
            headers.insert("token", token.clone());
        }
        Ok(request)
    }

    /// Sends a request, and gives its answer once that has begun.
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
            // A short refusal has no body, and its status stands in the head.
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

    /// A call with one answer.
    pub(crate) async fn call<Q, A>(&self, path: &'static str, question: &Q) -> Result<A, Error>
    where
        Q: Message,
        A: Message + Default,
    {
        let body = Either::Left(Full::new(framed(question)?));
        let mut answers = self.answers::<A>(self.send(path, body).await?);
        let missing = || Error::lost("the answer is empty");
        let answer = answers.next().await?.ok_or_else(missing)?;
        // What follows says whether the server means it.
        match answers.next().await? {
            None => Ok(answer),
            Some(_) => Err(Error::lost("more than one answer")),
        }
    }

    /// A call that goes on; it begins with a question, since a server is silent before.
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

/// An error with what it comes from.
fn words(error: &(dyn StdError + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The failure that headers or trailers tell of, if any.
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

/// A message as it goes over the wire.
fn framed(message: &impl Message) -> Result<Bytes, Error> {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(FRAME_HEADER_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).map_err(Error::not_sent)?);
    message.encode(&mut bytes).map_err(Error::not_sent)?;
    Ok(bytes.freeze())
}

/// Takes one whole message from what was read so far.
fn unframed(buffer: &mut BytesMut, largest: usize) -> Result<Option<Bytes>, Error> {
    let Some(mut prefix) = buffer.get(..FRAME_HEADER_BYTES) else { return Ok(None) };
    if prefix.get_u8() != 0 {
        return Err(Error::lost("the answer is compressed"));
    }
    let length = prefix.get_u32() as usize;
    if length > largest {
        return Err(Error::lost(format!("an answer of {length} bytes")));
    }
    if buffer.len() < FRAME_HEADER_BYTES + length {
        return Ok(None);
    }
    buffer.advance(FRAME_HEADER_BYTES);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// The answers of one call.
struct ResponseStream<A> {
    body: Incoming,
    buffer: BytesMut,
    largest: usize,
    kind: PhantomData<fn() -> A>,
}

impl<A: Message + Default> ResponseStream<A> {
    /// The next answer; `None` when the server has ended the call well. Nothing is lost when the
    /// caller stops waiting.
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

/// A call that goes on: questions and answers.
pub struct BidiStream<A> {
    questions: Sender<Bytes, Infallible>,
    answers: ResponseStream<A>,
}

/// The changes of some keys.
pub type WatchStream = BidiStream<WatchResponse>;

impl<A: Message + Default> BidiStream<A> {
    /// The next answer; `None` when the server has ended the stream. Nothing is lost when the
    /// caller stops waiting.
    pub async fn next(&mut self) -> Result<Option<A>, Error> {
        self.answers.next().await
    }

    /// The answer to the question that the stream was opened with.
    pub(crate) async fn first(&mut self) -> Result<A, Error> {
        self.next().await?.ok_or_else(|| Error::lost("the stream ended without an answer"))
    }
}

/// A stream on which one lease is extended.
pub struct KeepAlive {
    pub(crate) stream: BidiStream<LeaseKeepAliveResponse>,
    pub(crate) request: LeaseKeepAliveRequest,
}

impl KeepAlive {
    /// Extends the lease; a TTL of zero says that there is none. Whoever stops waiting must not use
    /// the stream again: it would take the answer for that to its next question.
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
