//! One heartbeat over HTTP: one POST, no redirects, so that the token meets nobody else.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT,
};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tenure_core::{Code, StoreError};
use tenure_duty::process;
use tenure_store::connect;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::args::NOT_SHOWN;
use crate::env;
use crate::failure::Failure;

const PATH: &str = "/api/switchboard/heartbeat";
/// No answer to a heartbeat is larger.
const LARGEST: usize = 64 << 10;

/// A connection, encrypted or not.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// Where the switchboard is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    encrypted: bool,
    authority: Authority,
    path: String,
}

impl Place {
    /// Reads `http://HOST:PORT` or `https://HOST/PREFIX`. What it cannot read it does not repeat.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |what: &str| {
            Failure::Usage(format!(
                "--url ({}) {what}: it is http://HOST:PORT or https://HOST",
                env::SWITCHBOARD_URL
            ))
        };
        let uri: Uri = text.trim().parse().map_err(|_| wrong("is no URL"))?;
        let encrypted = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong("is no URL of a web server")),
        };
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| wrong("has no host"))?.clone();
        if authority.as_str().contains('@') {
            return Err(wrong("has a user or a password, and the switchboard takes none"));
        }
        if uri.query().is_some() || text.contains('#') {
            return Err(wrong("has more than a path"));
        }
        let path = format!("{}{PATH}", uri.path().trim_end_matches('/'));
        Ok(Self { encrypted, authority, path })
    }

    fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.encrypted { 443 } else { 80 })
    }
}

/// Reads a bearer token; it is never shown.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, Failure> {
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| {
        let what = "the token cannot stand in a header: it is one word, sw_live_... for example";
        Failure::Usage(what.to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a heartbeat is sent with.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) place: Place,
    pub(super) bearer: Option<HeaderValue>,
    /// A file with the authorities to trust, instead of those of the system.
    pub(super) cacert: Option<String>,
    /// For the connection, and then again for the answer.
    pub(super) timeout: Duration,
}

/// What the switchboard said.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) server_time: String,
    pub(super) warnings: Vec<String>,
    /// The wall clock here, halfway between question and answer, in microseconds since 1970.
    pub(super) halfway: i64,
}

impl Sender {
    pub(super) async fn send(&self, envelope: String) -> Result<Accepted, StoreError> {
        let late = |_| unreachable(format!("no connection within {:?}", self.timeout));
        let wire = timeout(self.timeout, self.connect()).await.map_err(late)??;
        let request = self.request(envelope)?;
        let sent = now();
        let late = |_| lost(format!("no answer within {:?}", self.timeout));
        let answer = timeout(self.timeout, exchange(wire, request)).await;
        let (status, body) = answer.map_err(late)??;
        let halfway = sent + (now() - sent) / 2;
        self.read(status, &body, halfway)
    }

    async fn connect(&self) -> Result<Box<dyn Wire>, StoreError> {
        let Place { authority, encrypted, .. } = &self.place;
        let socket = TcpStream::connect((self.place.host(), self.place.port())).await;
        let socket = socket.map_err(|error| unreachable(format!("{authority}: {error}")))?;
        if !encrypted {
            return Ok(Box::new(socket));
        }
        let config = connect::tls(self.cacert.clone(), None).await?;
        let no_tls = |why: String| StoreError::refused(Code::NoTls, why);
        let name = ServerName::try_from(self.place.host().to_owned());
        let name = name.map_err(|error| no_tls(error.to_string()))?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
        let stream = stream.map_err(|error| {
            no_tls(connect::explain_tls(&error).unwrap_or_else(|| error.to_string()))
        })?;
        Ok(Box::new(stream))
    }

    fn request(&self, envelope: String) -> Result<Request<Full<Bytes>>, StoreError> {
        let mut request = Request::post(&self.place.path)
            .header(HOST, self.place.authority.as_str())
            .header(USER_AGENT, concat!("tenure/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "close");
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(Full::new(envelope.into()));
        request.map_err(|error| unreachable(error.to_string()))
    }

    /// What an answer means.
    fn read(&self, status: StatusCode, body: &[u8], halfway: i64) -> Result<Accepted, StoreError> {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| answer[name].as_str().map(|text| self.without_token(text));
        if status == StatusCode::OK && answer["status"] == "accepted" {
            let warnings = answer["warnings"].as_array().into_iter().flatten();
            let warnings = warnings.filter_map(|warning| warning.as_str());
            return Ok(Accepted {
                server_time: text("server_time").unwrap_or_default(),
                warnings: warnings.map(|warning| self.without_token(warning)).collect(),
                halfway,
            });
        }
        let detail = match text("message") {
            Some(message) => format!("{status}: {message}"),
            None => {
                let Place { authority, path, .. } = &self.place;
                format!("{status} without a reason, from {authority}{path}")
            }
        };
        Err(match status.is_server_error() {
            // A store or a proxy that fails may have taken it before.
            true => StoreError::unknown(Code::NotTaken, detail),
            false => StoreError::refused(Code::NotTaken, detail),
        })
    }

    /// Whatever answers may repeat what it was sent.
    fn without_token(&self, text: &str) -> String {
        let bearer = self.bearer.as_ref().and_then(|bearer| bearer.to_str().ok());
        match bearer.and_then(|bearer| bearer.strip_prefix("Bearer ")) {
            Some(token) => text.replace(token, NOT_SHOWN),
            None => text.to_owned(),
        }
    }
}

/// Asks once, over a connection of its own.
async fn exchange(
    wire: Box<dyn Wire>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), StoreError> {
    let broke = |_| lost("the connection broke before the answer came".to_owned());
    let (mut sender, connection) = http1::handshake(TokioIo::new(wire)).await.map_err(broke)?;
    // It ends when the answer was read, or is dropped.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(broke)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    let body = body.map_err(|_| lost("the answer broke off, or is too long".to_owned()))?;
    Ok((status, body.to_bytes()))
}

fn unreachable(detail: String) -> StoreError {
    StoreError::refused(Code::NoSwitchboard, detail)
}

/// It was sent, and nobody knows what became of it.
fn lost(detail: String) -> StoreError {
    StoreError::unknown(Code::NoSwitchboard, detail)
}

fn now() -> i64 {
    i64::try_from(process::unix_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_others_not_repeated() {
        for (url, host, port, path) in [
            ("http://h:8420", "h", 8420, PATH.to_owned()),
            ("https://h/", "h", 443, PATH.to_owned()),
            ("http://[::1]:80/a/b/", "::1", 80, format!("/a/b{PATH}")),
            (" http://10.0.0.1 ", "10.0.0.1", 80, PATH.to_owned()),
        ] {
            let place = Place::parse(url).unwrap();
            assert_eq!((place.host(), place.port(), &place.path), (host, port, &path), "{url}");
        }
        for url in [
            "",
            "s3cret",
            "s3cret:1",
            "ftp://s3cret",
            "http://",
            "http:///s3cret",
            "http://me:s3cret@h",
            "http://h/?a=s3cret",
            "http://h/#s3cret",
            "http://h s3cret",
        ] {
            let Err(Failure::Usage(what)) = Place::parse(url) else { panic!("{url}") };
            assert!(what.contains("http://HOST:PORT") && !what.contains("s3cret"), "{what}");
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        let sender = Sender {
            place: Place::parse("http://h").unwrap(),
            bearer: Some(bearer("s3cret").unwrap()),
            cacert: None,
            timeout: Duration::from_secs(1),
        };
        assert!(!format!("{sender:?}").contains("s3cret"));
        assert!(bearer("s3cret\n2").is_err());
        let body = br#"{"message":"no Bearer s3cret here"}"#;
        let error = sender.read(StatusCode::UNAUTHORIZED, body, 0).unwrap_err();
        assert_eq!(error.problem().detail, "401 Unauthorized: no Bearer (not shown) here");
        assert!(!error.is_unknown());
    }

    #[test]
    fn what_answers_may_be_something_else() {
        let place = Place::parse("http://h").unwrap();
        let sender = Sender { place, bearer: None, cacert: None, timeout: Duration::ZERO };
        for (status, body, unknown) in [
            (200, "<html>", false),
            (200, r#"{"status":"ok"}"#, false),
            (202, r#"{"status":"accepted"}"#, false),
            (301, "", false),
            (404, "not found", false),
            (502, "<html>", true),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = sender.read(status, body.as_bytes(), 0).unwrap_err();
            assert_eq!((error.code(), error.is_unknown()), (Code::NotTaken, unknown), "{status}");
            assert!(error.problem().detail.contains("from h/api/switchboard/heartbeat"));
        }
    }
}
