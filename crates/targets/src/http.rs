//! Target list: JSON from a web server.

use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use tenure_core::Listing;
use tenure_http::{HttpClient, HttpError, Origin, OriginError};

use crate::error::{TargetsError, bad, late};
use crate::url::TOKEN;
use crate::{blocking, json};

/// Maximum size of a list.
const MAX_BODY_BYTES: usize = 64 << 20;
/// Maximum size of an entry: an id of 512 bytes, a zone, and JSON around them.
const MAX_ENTRY_BYTES: usize = 2048;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpSource {
    origin: Origin,
    /// Path and query, as they are sent.
    path: String,
    /// Paths of PEM files: certificate authorities, certificate, key.
    files: [Option<String>; 3],
}

impl HttpSource {
    /// Parses a URL; also returns its printable form, without its query, which may be a secret.
    pub(crate) fn parse(text: &str) -> Result<(Self, String), TargetsError> {
        let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
        let uri: Uri = url.parse().map_err(|_| bad("not a valid http:// or https:// URL"))?;
        let origin = Origin::parse(&uri).map_err(|error| match error {
            OriginError::Scheme => bad("not a valid http:// or https:// URL"),
            OriginError::Host => bad("the URL has no host"),
            OriginError::Credentials => {
                bad(format!("the URL must not contain a user or password; set a token in {TOKEN}"))
            }
        })?;
        let encrypted = origin.is_encrypted();
        if encrypted && !cfg!(feature = "tls") {
            let detail = "https:// needs the cargo feature tls";
            return Err(TargetsError::new(tenure_core::Code::NotBuilt, detail));
        }
        let files = tls_files(fragment)?;
        if !encrypted && files.iter().any(Option::is_some) {
            return Err(bad("cacert, cert and key require https://"));
        }
        let scheme = uri.scheme_str().unwrap_or_default();
        let shown = format!("{scheme}://{}{}", origin.authority(), uri.path());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        Ok((Self { origin, path, files }, shown))
    }
}

/// Parses `cacert=PATH&cert=PATH&key=PATH`: after `#`, because the rest of the URL is the server's.
fn tls_files(fragment: &str) -> Result<[Option<String>; 3], TargetsError> {
    let mut files = [None, None, None];
    for parameter in fragment.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let at = ["cacert", "cert", "key"].iter().position(|known| *known == name);
        let at = at.ok_or_else(|| bad("only cacert, cert and key are allowed after #"))?;
        let value = percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| bad("the part after # is not UTF-8"))?;
        files[at] = Some(value.into_owned());
    }
    match &files {
        [_, Some(_), None] | [_, None, Some(_)] => Err(bad("cert and key must be given together")),
        _ => Ok(files),
    }
}

impl HttpSource {
    pub(crate) async fn read(
        &self,
        token: Option<&str>,
        most: usize,
        timeout: Duration,
    ) -> Result<Listing, TargetsError> {
        let request = self.request(token)?;
        let connection = self.client(timeout).await?.connect().await.map_err(failed)?;
        let response = connection.send(request).await.map_err(failed)?;
        if response.status() != StatusCode::OK {
            // Redirects are not followed either: the token is for this server.
            return Err(bad(format!("the server answered {}", response.status())));
        }
        if response.headers().contains_key(CONTENT_ENCODING) {
            return Err(bad("the server sent a compressed list although none was requested"));
        }
        let largest = most.saturating_add(1).saturating_mul(MAX_ENTRY_BYTES).min(MAX_BODY_BYTES);
        let body = response.read(largest).await.map_err(failed)?;
        // Parsing takes up to half a second and would block other tasks on this thread.
        blocking(move || json::read(&*body, most)).await
    }

    fn request(&self, token: Option<&str>) -> Result<Request<Full<Bytes>>, TargetsError> {
        let mut request = Request::get(&self.path)
            .header(HOST, self.origin.authority())
            .header(USER_AGENT, "tenure")
            .header(ACCEPT, "application/json");
        if let Some(token) = token {
            if !self.origin.is_private() {
                return Err(bad(format!("{TOKEN} is sent only over https:// or to this host")));
            }
            let value = tenure_http::bearer(token);
            let value = value.map_err(|_| bad(format!("{TOKEN} is not a valid header value")))?;
            request = request.header(AUTHORIZATION, value);
        }
        request.body(Full::default()).map_err(|_| bad("the URL is not valid in an HTTP request"))
    }

    async fn client(&self, timeout: Duration) -> Result<HttpClient, TargetsError> {
        let client = HttpClient::new(self.origin.clone(), timeout, timeout);
        #[cfg(feature = "tls")]
        if self.origin.is_encrypted() {
            let [cacert, cert, key] = self.files.clone();
            let config = tenure_store::connect::tls(cacert, cert.zip(key)).await?;
            return Ok(client.with_tls(config.into(), self.origin.host()));
        }
        Ok(client)
    }
}

fn failed(error: HttpError) -> TargetsError {
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
