//! Target list: JSON from a web server.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use tenure_core::{Listing, StoreError, Targets};
use tenure_http::{HttpClient, HttpError, Origin, OriginError};

use crate::url::TOKEN;
use crate::{bad, json, late, within};

/// No list is larger.
const MAX_BODY_BYTES: usize = 64 << 20;
/// No entry needs more: an id of 512 bytes, a zone, and what stands around them.
const MAX_ENTRY_BYTES: usize = 2048;

/// Request of a list over HTTP.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpSource {
    origin: Origin,
    /// Path and query, as they are sent.
    path: String,
    files: HttpTlsFiles,
}

/// Paths of PEM files.
#[derive(Clone, Default, PartialEq, Eq)]
struct HttpTlsFiles {
    cacert: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl HttpSource {
    /// Takes a URL apart, and says how it prints: without its query, which may be a secret.
    pub(crate) fn parse(text: &str) -> Result<(Self, String), StoreError> {
        let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
        let uri: Uri = url.parse().map_err(|_| bad("it is no URL of a web server"))?;
        let origin = Origin::parse(&uri).map_err(|error| match error {
            OriginError::Scheme => bad("it is no URL of a web server"),
            OriginError::Host => bad("the URL has no host"),
            OriginError::Credentials => {
                bad(format!("a web server gets no password; put a token into {TOKEN}"))
            }
        })?;
        let encrypted = origin.is_encrypted();
        if encrypted && !cfg!(feature = "tls") {
            let detail = "https:// needs the cargo feature tls";
            return Err(StoreError::refused(tenure_core::Code::NotBuilt, detail));
        }
        let files = HttpTlsFiles::parse(fragment)?;
        if files != HttpTlsFiles::default() && !encrypted {
            return Err(bad("cacert, cert and key go with https://"));
        }
        let scheme = uri.scheme_str().unwrap_or_default();
        let shown = format!("{scheme}://{}{}", origin.authority(), uri.path());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        Ok((Self { origin, path, files }, shown))
    }
}

impl HttpTlsFiles {
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
    settings: HttpSource,
    token: Option<String>,
    timeout: Duration,
}

impl HttpTargets {
    pub(crate) fn new(settings: HttpSource, token: Option<String>, timeout: Duration) -> Self {
        Self { settings, token, timeout }
    }

    async fn read(&self, most: usize) -> Result<Listing, StoreError> {
        let request = self.request()?;
        let connection = self.client().await?.connect().await.map_err(failed)?;
        let response = connection.send(request).await.map_err(failed)?;
        if response.status() != StatusCode::OK {
            // A redirect is none of ours either: the token is for this server.
            return Err(bad(format!("the server answered {}", response.status())));
        }
        if response.headers().contains_key(CONTENT_ENCODING) {
            return Err(bad("the server packed a list that was not to be packed"));
        }
        let largest = most.saturating_add(1).saturating_mul(MAX_ENTRY_BYTES).min(MAX_BODY_BYTES);
        let body = response.read(largest).await.map_err(failed)?;
        // It is in memory, but half a second of parsing would hold up others on this thread.
        let parsing = tokio::task::spawn_blocking(move || json::read(&*body, most));
        parsing.await.map_err(|_| bad("reading the list was ended"))?
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, StoreError> {
        let mut request = Request::get(&self.settings.path)
            .header(HOST, self.settings.origin.authority())
            .header(USER_AGENT, "tenure")
            .header(ACCEPT, "application/json");
        if let Some(token) = &self.token {
            if !self.settings.origin.is_private() {
                return Err(bad(format!("{TOKEN} is sent by https:// or to this host only")));
            }
            let value = tenure_http::bearer(token);
            let value = value.map_err(|_| bad(format!("{TOKEN} cannot stand in a header")))?;
            request = request.header(AUTHORIZATION, value);
        }
        request.body(Full::default()).map_err(|_| bad("the URL cannot be asked for"))
    }

    async fn client(&self) -> Result<HttpClient, StoreError> {
        let origin = self.settings.origin.clone();
        let client = HttpClient::new(origin, self.timeout, self.timeout);
        #[cfg(feature = "tls")]
        if self.settings.origin.is_encrypted() {
            let HttpTlsFiles { cacert, cert, key } = self.settings.files.clone();
            let config = tenure_store::connect::tls(cacert, cert.zip(key)).await;
            let config = config.map_err(|error| crate::of_the_way(&error))?;
            return Ok(client.with_tls(config.into(), self.settings.origin.host()));
        }
        Ok(client)
    }
}

fn failed(error: HttpError) -> StoreError {
    match &error {
        HttpError::ConnectTimeout(limit) | HttpError::ResponseTimeout(limit) => late(*limit),
        HttpError::Connect(error) => bad(format!("no connection: {error}")),
        #[cfg(feature = "tls")]
        HttpError::Tls(error) => {
            let why = tenure_store::connect::explain_tls(error);
            bad(why.unwrap_or_else(|| "the server ended the handshake".to_owned()))
        }
        _ => bad(error.to_string()),
    }
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
