//! A JSON list from a web server.
//!
//! One GET over hyper, which the workspace has anyway. A client library would bring redirects,
//! cookies, pools and proxies; a list needs none of them, and a bearer token should meet none.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, HOST, HeaderValue, USER_AGENT};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tenure_core::{Listing, StoreError, Targets};
use tokio::net::TcpStream;

use crate::url::TOKEN;
use crate::{bad, json, within};

/// No list is larger.
const LARGEST: usize = 64 << 20;
/// No entry needs more: an id of 512 bytes, a zone, and what stands around them.
const LARGEST_ENTRY: usize = 2048;

/// What is asked for where.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    encrypted: bool,
    authority: Authority,
    /// Path and query, as they are sent.
    path: String,
    files: Files,
}

/// Paths of PEM files.
#[derive(Clone, Default, PartialEq, Eq)]
struct Files {
    cacert: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl Settings {
    /// Takes a URL apart, and says how it prints: without its query, which may be a secret.
    pub(crate) fn parse(text: &str) -> Result<(Self, String), StoreError> {
        let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
        let uri: Uri = url.parse().map_err(|_| bad("it is no URL of a web server"))?;
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| bad("the URL has no host"))?.clone();
        if authority.as_str().contains('@') {
            return Err(bad(format!("a web server gets no password; put a token into {TOKEN}")));
        }
        let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        if encrypted && !cfg!(feature = "tls") {
            let detail = "https:// needs the cargo feature tls";
            return Err(StoreError::refused(tenure_core::Code::NotBuilt, detail));
        }
        let files = Files::parse(fragment)?;
        if files != Files::default() && !encrypted {
            return Err(bad("cacert, cert and key go with https://"));
        }
        let shown = format!("{}://{authority}{}", uri.scheme_str().unwrap_or_default(), uri.path());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        Ok((Self { encrypted, authority, path, files }, shown))
    }

    fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.encrypted { 443 } else { 80 })
    }

    /// Whether nobody on the way can read along.
    fn is_private(&self) -> bool {
        let loopback = self.host().parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.encrypted || loopback || self.host() == "localhost"
    }
}

impl Files {
    /// `cacert=PATH&cert=PATH&key=PATH`: after `#`, because what stands before it is the server's.
    fn parse(fragment: &str) -> Result<Self, StoreError> {
        let mut files = Self::default();
        for parameter in fragment.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let file = match name {
                "cacert" => &mut files.cacert,
                "cert" => &mut files.cert,
                "key" => &mut files.key,
                _ => return Err(bad("after # there are cacert, cert and key, no others")),
            };
            let value = percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| bad("what comes after # is no UTF-8"))?;
            *file = Some(value.into_owned());
        }
        if files.cert.is_some() != files.key.is_some() {
            return Err(bad("cert and key come together"));
        }
        Ok(files)
    }
}

/// The targets that a web server names.
pub(crate) struct HttpTargets {
    settings: Settings,
    token: Option<String>,
    timeout: Duration,
}

impl HttpTargets {
    pub(crate) fn new(settings: Settings, token: Option<String>, timeout: Duration) -> Self {
        Self { settings, token, timeout }
    }

    async fn read(&self, most: usize) -> Result<Listing, StoreError> {
        let request = self.request()?;
        let socket = TcpStream::connect((self.settings.host(), self.settings.port())).await;
        let socket = socket.map_err(|error| bad(format!("no connection: {error}")))?;
        let response = match self.settings.encrypted {
            true => self.ask_encrypted(socket, request).await?,
            false => ask(TokioIo::new(socket), request).await?,
        };
        if response.status() != StatusCode::OK {
            // A redirect is none of ours either: the token is for this server.
            return Err(bad(format!("the server answered {}", response.status())));
        }
        if response.headers().contains_key(CONTENT_ENCODING) {
            return Err(bad("the server packed a list that was not to be packed"));
        }
        let largest = most.saturating_add(1).saturating_mul(LARGEST_ENTRY).min(LARGEST);
        let body = Limited::new(response.into_body(), largest).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => bad(format!("the answer has more than {largest} bytes")),
            false => bad("the answer broke off"),
        })?;
        let body = body.to_bytes();
        // It is in memory, but half a second of parsing would hold up others on this thread.
        let parsing = tokio::task::spawn_blocking(move || json::read(&*body, most));
        parsing.await.map_err(|_| bad("reading the list was ended"))?
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, StoreError> {
        let mut request = Request::get(&self.settings.path)
            .header(HOST, self.settings.authority.as_str())
            .header(USER_AGENT, "tenure")
            .header(ACCEPT, "application/json");
        if let Some(token) = &self.token {
            if !self.settings.is_private() {
                return Err(bad(format!("{TOKEN} is sent by https:// or to this host only")));
            }
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| bad(format!("{TOKEN} cannot stand in a header")))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        request.body(Empty::new()).map_err(|_| bad("the URL cannot be asked for"))
    }

    #[cfg(feature = "tls")]
    async fn ask_encrypted(
        &self,
        socket: TcpStream,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, StoreError> {
        use rustls::pki_types::ServerName;
        use tenure_store::connect;

        let Files { cacert, cert, key } = self.settings.files.clone();
        let config = connect::tls(cacert, cert.zip(key)).await;
        let config = config.map_err(|error| crate::of_the_way(&error))?;
        let name = ServerName::try_from(self.settings.host().to_owned());
        let name = name.map_err(|_| bad("the host is no name for a certificate"))?;
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let stream = connector.connect(name, socket).await.map_err(|error| {
            let why = connect::explain_tls(&error);
            bad(why.unwrap_or_else(|| "the server ended the handshake".to_owned()))
        })?;
        ask(TokioIo::new(stream), request).await
    }

    #[cfg(not(feature = "tls"))]
    async fn ask_encrypted(
        &self,
        _: TcpStream,
        _: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, StoreError> {
        Err(bad("https:// needs the cargo feature tls"))
    }
}

async fn ask(
    stream: impl hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, StoreError> {
    let broke = |_| bad("the server broke off before it answered");
    let (mut sender, connection) = http1::handshake(stream).await.map_err(broke)?;
    // It ends when the answer was read, or is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(broke)
}

#[async_trait]
impl Targets for HttpTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        within(self.timeout, self.read(most)).await
    }
}

impl fmt::Debug for HttpTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTargets").finish_non_exhaustive()
    }
}
