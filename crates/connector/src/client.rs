//! Heartbeat request: one POST, no redirects, so that the token reaches only the switchboard.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, InvalidHeaderValue,
    USER_AGENT,
};
use hyper::{Request, StatusCode, Uri};
use serde_json::Value;
use tenure_duty::process;
use tenure_http::{HttpClient, Origin, OriginError, bearer};
use tenure_store::connect;

use crate::ConnectorError;

const HEARTBEAT_PATH: &str = "/api/switchboard/heartbeat";
/// Size limit of a response to a heartbeat.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Replacement for a token that a server repeats.
const REDACTED: &str = "(not shown)";

/// URL of a switchboard: `http://HOST:PORT` or `https://HOST`, perhaps with a path.
#[derive(Clone, Debug)]
pub struct SwitchboardUrl {
    origin: Origin,
    path: String,
}

impl SwitchboardUrl {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Self, ConnectorError> {
        let wrong = |what| Err(ConnectorError::Url(what));
        let Ok(uri) = text.trim().parse::<Uri>() else { return wrong("is not a URL") };
        let origin = match Origin::parse(&uri) {
            Ok(origin) => origin,
            Err(OriginError::Scheme) => return wrong("is not an http or https URL"),
            Err(OriginError::Host) => return wrong("has no host"),
            Err(OriginError::Credentials) => {
                return wrong("contains a user or password, which the switchboard does not accept");
            }
        };
        if uri.query().is_some() || text.contains('#') {
            return wrong("has a query or a fragment");
        }
        let path = format!("{}{HEARTBEAT_PATH}", uri.path().trim_end_matches('/'));
        Ok(Self { origin, path })
    }
}

/// Client that sends heartbeats to a switchboard. Its token is never printed.
#[derive(Clone, Debug)]
pub struct HeartbeatClient {
    url: SwitchboardUrl,
    bearer: Option<HeaderValue>,
    ca_file: Option<String>,
    timeout: Duration,
}

/// Response of the switchboard to a heartbeat that it accepted.
#[derive(Debug)]
pub struct HeartbeatAccepted {
    /// Time of the switchboard.
    pub server_time: String,
    /// Problems that the operator should know about.
    pub warnings: Vec<String>,
    /// Wall clock of this machine halfway between request and response, in microseconds since 1970.
    halfway: i64,
}

impl HeartbeatAccepted {
    /// Returns how far the clock of this machine is behind the switchboard's, in microseconds.
    pub fn drift_micros(&self) -> Option<i64> {
        let time: jiff::Timestamp = self.server_time.parse().ok()?;
        Some(time.as_microsecond().saturating_sub(self.halfway))
    }
}

impl HeartbeatClient {
    /// Creates a client without a token. `timeout` applies to the connection and then to the
    /// response.
    pub fn new(url: SwitchboardUrl, timeout: Duration) -> Self {
        Self { url, bearer: None, ca_file: None, timeout }
    }

    /// Sets the token. Fails if it is not valid in a header.
    pub fn with_token(mut self, token: &str) -> Result<Self, InvalidHeaderValue> {
        self.bearer = Some(bearer(token)?);
        Ok(self)
    }

    /// Sets a PEM file with the authorities to trust, instead of those of the system.
    pub fn with_ca_file(mut self, file: String) -> Self {
        self.ca_file = Some(file);
        self
    }

    /// Sends an envelope.
    pub(crate) async fn send(&self, envelope: String) -> Result<HeartbeatAccepted, ConnectorError> {
        let request = self.request(envelope)?;
        let connection = self.http_client().await?.connect().await?;
        let sent = now();
        let response = connection.send(request).await?;
        let status = response.status();
        let body = response.read(MAX_RESPONSE_BYTES).await?;
        let halfway = sent + (now() - sent) / 2;
        self.interpret(status, &body, halfway)
    }

    async fn http_client(&self) -> Result<HttpClient, ConnectorError> {
        let origin = &self.url.origin;
        let client = HttpClient::new(origin.clone(), self.timeout, self.timeout);
        if !origin.is_encrypted() {
            return Ok(client);
        }
        let config = connect::tls(self.ca_file.clone(), None).await?;
        Ok(client.with_tls(Arc::new(config), origin.host()))
    }

    fn request(&self, envelope: String) -> Result<Request<Full<Bytes>>, ConnectorError> {
        let mut request = Request::post(&self.url.path)
            .header(HOST, self.url.origin.authority())
            .header(USER_AGENT, concat!("tenure/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "close");
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(Full::new(envelope.into()));
        request.map_err(|_| ConnectorError::Url("has an invalid path"))
    }

    /// Interprets a response.
    fn interpret(
        &self,
        status: StatusCode,
        body: &[u8],
        halfway: i64,
    ) -> Result<HeartbeatAccepted, ConnectorError> {
        let response: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| response[name].as_str().map(|text| self.without_token(text));
        if status == StatusCode::OK && response["status"] == "accepted" {
            let warnings = response["warnings"].as_array().into_iter().flatten();
            let warnings = warnings.filter_map(|warning| warning.as_str());
            return Ok(HeartbeatAccepted {
                server_time: text("server_time").unwrap_or_default(),
                warnings: warnings.map(|warning| self.without_token(warning)).collect(),
                halfway,
            });
        }
        let message = match text("message") {
            Some(message) => format!("{status}: {message}"),
            None => {
                let SwitchboardUrl { origin, path } = &self.url;
                format!("{status} without a reason, from {}{path}", origin.authority())
            }
        };
        // A store or a proxy that fails may have accepted the heartbeat before.
        let may_be_taken = status.is_server_error();
        Err(ConnectorError::NotAccepted { message, may_be_taken })
    }

    /// Removes the token from a response: a server may repeat the request.
    fn without_token(&self, text: &str) -> String {
        let bearer = self.bearer.as_ref().and_then(|bearer| bearer.to_str().ok());
        match bearer.and_then(|bearer| bearer.strip_prefix("Bearer ")) {
            Some(token) => text.replace(token, REDACTED),
            None => text.to_owned(),
        }
    }
}

fn now() -> i64 {
    i64::try_from(process::unix_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> HeartbeatClient {
        HeartbeatClient::new(SwitchboardUrl::parse("http://h").unwrap(), Duration::ZERO)
    }

    #[test]
    fn urls_are_read_and_others_not_repeated() {
        for (url, host, port, path) in [
            ("http://h:8420", "h", 8420, HEARTBEAT_PATH.to_owned()),
            ("https://h/", "h", 443, HEARTBEAT_PATH.to_owned()),
            ("http://[::1]:80/a/b/", "::1", 80, format!("/a/b{HEARTBEAT_PATH}")),
            (" http://10.0.0.1 ", "10.0.0.1", 80, HEARTBEAT_PATH.to_owned()),
        ] {
            let parsed = SwitchboardUrl::parse(url).unwrap();
            let seen = (parsed.origin.host(), parsed.origin.port(), &parsed.path);
            assert_eq!(seen, (host, port, &path), "{url}");
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
            let error = SwitchboardUrl::parse(url).unwrap_err();
            assert!(matches!(error, ConnectorError::Url(_)), "{url}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        let client = client().with_token("s3cret").unwrap();
        assert!(!format!("{client:?}").contains("s3cret"));
        assert!(client.clone().with_token("s3cret\n2").is_err());
        let body = br#"{"message":"no Bearer s3cret here"}"#;
        let error = client.interpret(StatusCode::UNAUTHORIZED, body, 0).unwrap_err();
        assert_eq!(error.to_string(), "401 Unauthorized: no Bearer (not shown) here");
        assert!(!error.is_unknown());
    }

    #[test]
    fn what_answers_may_be_something_else() {
        for (status, body, unknown) in [
            (200, "<html>", false),
            (200, r#"{"status":"ok"}"#, false),
            (202, r#"{"status":"accepted"}"#, false),
            (301, "", false),
            (404, "not found", false),
            (502, "<html>", true),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = client().interpret(status, body.as_bytes(), 0).unwrap_err();
            assert!(matches!(error, ConnectorError::NotAccepted { .. }), "{status}");
            assert_eq!(error.is_unknown(), unknown, "{status}");
            assert!(error.to_string().contains("from h/api/switchboard/heartbeat"));
        }
    }
}
