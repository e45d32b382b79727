//! Client of the local API, for programs in Rust and for the commands of the command line.

use std::io::{self, ErrorKind};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, ETAG, HOST, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use tenure_core::store::Checkpoint;
use tenure_core::{Code, Document, Epoch, InstanceId, StoreError, Version};
use tenure_duty::PutOutcome;
use tenure_http::{HttpClient, HttpError, Origin, bearer};
use tenure_wire::hold_api::{
    EPOCH_HEADER, HoldAnswer, HoldResult, HoldView, INSTANCE_HEADER, WRITTEN_MS_HEADER,
};

use super::{API_VARIABLE, TOKEN_VARIABLE};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the calls that a request makes to the store.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_RESPONSE_BYTES: usize = Document::MAX_DOCUMENT_BYTES + (64 << 10);

/// Client of the hold that this process was started under.
#[derive(Debug)]
pub struct ApiClient {
    http: HttpClient,
    host: HeaderValue,
    token: Option<HeaderValue>,
}

/// Response of the API.
struct ClientResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl ApiClient {
    /// Finds the API in the environment; `None` if this process does not run under a hold.
    pub fn from_env() -> Result<Option<Self>, StoreError> {
        let bad = |name: &str, why: &str| {
            StoreError::refused(Code::BadInput, format!("{name} {why}; only tenure sets it"))
        };
        let Some(place) = std::env::var_os(API_VARIABLE).filter(|place| !place.is_empty()) else {
            return Ok(None);
        };
        if place.as_encoded_bytes().starts_with(b"/") {
            let http = HttpClient::unix(place, CONNECT_TIMEOUT, RESPONSE_TIMEOUT);
            return Ok(Some(Self { http, host: HeaderValue::from_static("tenure"), token: None }));
        }
        let wrong = || bad(API_VARIABLE, "is neither the path of a socket nor an http:// URL");
        let uri: Uri = place.to_str().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let origin = Origin::parse(&uri).map_err(|_| wrong())?;
        if !origin.is_private() || origin.is_encrypted() {
            return Err(wrong());
        }
        let host = HeaderValue::try_from(origin.authority()).map_err(|_| wrong())?;
        let token = std::env::var(TOKEN_VARIABLE).ok().and_then(|token| bearer(&token).ok());
        let token = token.ok_or_else(|| bad(TOKEN_VARIABLE, "has no token"))?;
        let http = HttpClient::new(origin, CONNECT_TIMEOUT, RESPONSE_TIMEOUT);
        Ok(Some(Self { http, host, token: Some(token) }))
    }

    /// Returns the hold.
    pub async fn hold(&self) -> Result<HoldView, StoreError> {
        let response = self.send(Method::GET, "/hold", [], Bytes::new()).await?;
        if response.status != StatusCode::OK {
            return Err(response.error());
        }
        serde_json::from_slice(&response.body).map_err(|_| unexpected(&response))
    }

    /// Returns the newest checkpoint of the duty.
    pub async fn checkpoint(&self) -> Result<Option<Checkpoint>, StoreError> {
        let response = self.send(Method::GET, "/checkpoint", [], Bytes::new()).await?;
        if response.status == StatusCode::OK {
            return response.checkpoint().map(Some);
        }
        match response.answer()?.result {
            HoldResult::Absent => Ok(None),
            _ => Err(response.error()),
        }
    }

    /// Stores a checkpoint over version `over`, [`Version::ZERO`] for none; without a version, over
    /// the newest one.
    pub async fn put(
        &self,
        document: Document,
        over: Option<Version>,
    ) -> Result<PutOutcome, StoreError> {
        let condition = over.map(|version| match version {
            Version::ZERO => (IF_NONE_MATCH, HeaderValue::from_static("*")),
            version => (IF_MATCH, HeaderValue::from(version.get())),
        });
        let body = document.as_bytes().to_vec().into();
        let sent = self.send(Method::PUT, "/checkpoint", condition, body).await;
        let response = sent.map_err(|error| match error.code() {
            // The supervisor may have stored it.
            Code::Lost => error.or_happened(),
            _ => error,
        })?;
        let answer = response.answer()?;
        let version = answer.version.map(Version::new).transpose()?;
        match (answer.result, version) {
            (HoldResult::Stored, Some(version)) => Ok(PutOutcome::Stored(version)),
            (HoldResult::Conflict, Some(newest)) => Ok(PutOutcome::Conflict { newest }),
            _ => Err(response.error()),
        }
    }

    /// Returns whether an effect that takes up to `needed` can begin now, and the time left.
    pub async fn check(&self, needed: Duration) -> Result<(bool, Duration), StoreError> {
        let path = format!("/check?seconds={}", needed.as_secs_f64());
        let response = self.send(Method::POST, &path, [], Bytes::new()).await?;
        let answer = response.answer()?;
        let left = Duration::from_millis(answer.remaining_ms.unwrap_or(0));
        match answer.result {
            HoldResult::Ok => Ok((true, left)),
            HoldResult::Short => Ok((false, left)),
            _ => Err(response.error()),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<ClientResponse, StoreError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap_or_default();
        request.headers_mut().extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        request.headers_mut().insert(HOST, self.host.clone());
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        let exchange = async {
            let response = self.http.connect().await?.send(request).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = response.read(MAX_RESPONSE_BYTES).await?;
            Ok(ClientResponse { status, headers, body })
        };
        exchange.await.map_err(|error: HttpError| match error {
            // The socket is there as long as the grant.
            HttpError::Connect(error) if is_absent(&error) => {
                let detail = format!("the hold of this command has ended: {error}");
                StoreError::refused(Code::Fenced, detail)
            }
            error => StoreError::refused(Code::Lost, format!("the supervisor: {error}")),
        })
    }
}

/// Whether nobody listens there.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

impl ClientResponse {
    fn answer(&self) -> Result<HoldAnswer, StoreError> {
        serde_json::from_slice(&self.body).map_err(|_| unexpected(self))
    }

    fn checkpoint(&self) -> Result<Checkpoint, StoreError> {
        let header = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name| header(name)?.trim_matches('"').parse::<u64>().ok();
        let wrong = || unexpected(self);
        let instance = header(INSTANCE_HEADER).ok_or_else(wrong)?;
        Ok(Checkpoint {
            version: Version::new(number(ETAG.as_str()).ok_or_else(wrong)?)?,
            epoch: Epoch::new(number(EPOCH_HEADER).ok_or_else(wrong)?)?,
            instance: InstanceId::unescape(instance)?,
            document: Document::new(self.body.to_vec())?,
            unix_ms: number(WRITTEN_MS_HEADER).ok_or_else(wrong)?,
        })
    }

    /// Returns the error that the answer describes.
    fn error(&self) -> StoreError {
        let Ok(HoldAnswer { result, error: Some(error), .. }) = self.answer() else {
            return unexpected(self);
        };
        let code = error.code.and_then(|code| Code::parse(&code)).unwrap_or(Code::Failed);
        match result {
            HoldResult::Unknown => StoreError::unknown(code, error.detail),
            _ => StoreError::refused(code, error.detail),
        }
    }
}

fn unexpected(response: &ClientResponse) -> StoreError {
    let detail = format!("the supervisor sent an unexpected response, status {}", response.status);
    StoreError::refused(Code::Failed, detail)
}
