//! Responses and errors of the HTTP API.

use std::borrow::Cow;

use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};
use tenure_core::text::counted;
use tenure_core::{Code, StoreError};
use tenure_wire::ingest::InboxCursor;

use crate::error::SwitchboardError;
use crate::mcp::SseStream;
use crate::storage::{
    BadFence, Diverged, IngestFence, MAX_FENCES_PER_SOURCE, SubmissionRejection, TokenEnd,
};

/// Response of the HTTP API: a complete body, or an event stream.
pub(crate) type ApiResponse = Response<Either<Full<Bytes>, Box<SseStream>>>;
/// Error of a request. Boxed, because it is rare and large.
pub(crate) type Rejection = Box<ApiError>;
/// Result of a request, or of a step of one.
pub(crate) type ApiResult<T = ApiResponse> = Result<T, Rejection>;

pub(crate) fn json_text(status: StatusCode, body: impl Into<Bytes>) -> ApiResponse {
    typed(status, "application/json", body.into())
}

pub(crate) fn json_value(status: StatusCode, body: &Value) -> ApiResponse {
    json_text(status, body.to_string())
}

pub(crate) fn ok(body: &Value) -> ApiResult {
    Ok(json_value(StatusCode::OK, body))
}

pub(crate) fn typed(status: StatusCode, kind: &'static str, body: Bytes) -> ApiResponse {
    let mut answer = Response::new(Either::Left(Full::new(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Error of the HTTP API: status, name, message and further fields.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) error: &'static str,
    message: Cow<'static, str>,
    more: Map<String, Value>,
    header: Option<(HeaderName, HeaderValue)>,
    close: bool,
    /// Error of the store, for operators only.
    pub(crate) cause: Option<SwitchboardError>,
}

impl ApiError {
    fn new(status: u16, error: &'static str, message: impl Into<Cow<'static, str>>) -> Rejection {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let message = message.into();
        let (more, header) = (Map::new(), None);
        Box::new(Self { status, error, message, more, header, close: false, cause: None })
    }

    fn with(mut self: Box<Self>, name: &str, value: impl Into<Value>) -> Rejection {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    fn header(mut self: Box<Self>, name: HeaderName, value: HeaderValue) -> Rejection {
        self.header = Some((name, value));
        self
    }

    fn retry_after(self: Box<Self>, seconds: u64) -> Rejection {
        self.header(RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Makes the response close the connection, because the rest of the request is not read.
    pub(crate) fn closing(mut self: Box<Self>) -> Rejection {
        self.close = true;
        self
    }

    pub(crate) fn bad_request(message: impl Into<Cow<'static, str>>) -> Rejection {
        Self::new(400, "bad_request", message)
    }

    pub(crate) fn invalid_token(message: &'static str) -> Rejection {
        let bearer = HeaderValue::from_static("Bearer");
        Self::new(401, "invalid_token", message).header(WWW_AUTHENTICATE, bearer)
    }

    pub(crate) fn token_ended(ended: TokenEnd) -> Rejection {
        Self::invalid_token(match ended {
            TokenEnd::Revoked => "Token has been revoked",
            TokenEnd::Expired => "Token has expired",
            TokenEnd::Gone => "Token is not known",
        })
    }

    pub(crate) fn forbidden(message: impl Into<Cow<'static, str>>) -> Rejection {
        Self::new(403, "forbidden", message)
    }

    pub(crate) fn not_found(message: &'static str) -> Rejection {
        Self::new(404, "not_found", message)
    }

    pub(crate) fn method_not_allowed(allow: &str) -> Rejection {
        let error = Self::new(405, "method_not_allowed", format!("use {allow}"));
        // The names of methods are visible ASCII.
        let allow = HeaderValue::try_from(allow);
        error.header(ALLOW, allow.unwrap_or(HeaderValue::from_static("")))
    }

    pub(crate) fn timeout() -> Rejection {
        Self::new(408, "timeout", "the body did not arrive in time").closing()
    }

    pub(crate) fn rejected(fence: Option<&IngestFence>, why: &SubmissionRejection) -> Rejection {
        let newest = match why {
            SubmissionRejection::Fenced(newest) => newest,
            SubmissionRejection::TokenEnded(ended) => return Self::token_ended(*ended),
            SubmissionRejection::BadFence(BadFence::EpochAhead) => {
                let message = "Tenure-Epoch is more than a day above the store's clock in Unix \
                    microseconds: no store grants such an epoch; nothing was stored";
                return Self::new(403, "epoch_ahead", message);
            }
            SubmissionRejection::BadFence(BadFence::TooMany) => {
                let message = format!(
                    "this source already has fences for {MAX_FENCES_PER_SOURCE} duties, which is \
                     the limit; nothing was stored. Reset the fences of duties that are gone: \
                     `tenure fence list`, `tenure fence reset`"
                );
                return Self::new(403, "too_many_fences", message);
            }
        };
        let message = "not stored: a newer hold of this duty exists";
        let mut error = Self::new(409, "fenced", message);
        if let Some(IngestFence { duty, epoch, instance }) = fence {
            error = error.with("duty", duty.to_string()).with("epoch", epoch.get());
            error = error.with("instance", instance.as_str());
        }
        if let Some(newest) = newest {
            error = error.with("newest_epoch", newest.epoch.get());
            error = error.with("newest_instance", newest.instance.as_str());
        }
        error
    }

    pub(crate) fn conflict(message: impl Into<Cow<'static, str>>) -> Rejection {
        Self::new(409, "conflict", message)
    }

    pub(crate) fn cursor_diverged(cursor: InboxCursor, inbox: Diverged) -> Rejection {
        let Diverged { last, trimmed } = inbox;
        let message = format!(
            "cursor {cursor} is not from this inbox: the inbox has lost messages since, or the \
             cursor is from another inbox. Nothing was read. Continue from an older cursor, or \
             from after=0, and skip every request_id that you already have; see \
             `tenure errors SW008`"
        );
        Self::new(409, "cursor_diverged", message)
            .with("code", Code::CursorDiverged.as_str())
            .with("after", cursor.to_string())
            .with("last", last)
            .with("trimmed", trimmed)
    }

    pub(crate) fn gone(first_seen_at: &str) -> Rejection {
        let message = "the message is past its retention";
        Self::new(410, "gone", message).with("first_seen_at", first_seen_at)
    }

    pub(crate) fn too_large(limit_bytes: usize) -> Rejection {
        let message = format!("the body has more than {limit_bytes} bytes");
        Self::new(413, "too_large", message).with("limit_bytes", limit_bytes).closing()
    }

    pub(crate) fn too_many_items(limit_items: usize) -> Rejection {
        let message = format!("the batch has more than {limit_items} items");
        Self::new(413, "too_large", message).with("limit_items", limit_items)
    }

    pub(crate) fn unsupported(message: &'static str) -> Rejection {
        Self::new(415, "unsupported_media_type", message)
    }

    /// Returns an error with a `detail` of one line and a list of `errors`.
    pub(crate) fn invalid(detail: &str, errors: Value) -> Rejection {
        Self::new(422, "validation_error", detail.to_owned())
            .with("detail", detail)
            .with("errors", errors)
    }

    pub(crate) fn overloaded(message: &'static str) -> Rejection {
        Self::new(429, "overload_rejected", message).retry_after(1)
    }

    pub(crate) fn too_many_attempts(retry_after: u64) -> Rejection {
        let minutes = counted(retry_after.div_ceil(60).max(1), "minute", "minutes");
        let message = format!("Too many failed attempts. Please wait {minutes}.");
        Self::new(429, "too_many_attempts", message).retry_after(retry_after.max(1))
    }

    pub(crate) fn internal() -> Rejection {
        Self::new(500, "internal_error", "internal server error")
    }

    pub(crate) fn unstorable() -> Rejection {
        let message = "the store rejects this content; submitting it again will not help";
        Self::new(500, "internal_error", message)
    }

    pub(crate) fn store_unavailable() -> Rejection {
        let message =
            "the store did not answer; send the request again, duplicate events are detected";
        Self::new(503, "store_unavailable", message).retry_after(1)
    }

    /// Returns the error of a full store. Nothing is lost, but an operator must free space.
    pub(crate) fn store_full(cause: SwitchboardError) -> Rejection {
        let message = "the store is full (ST008); send the request again when space has been freed";
        let mut error = Self::new(503, "store_full", message).with("code", Code::Full.as_str());
        error.cause = Some(cause);
        error.retry_after(10)
    }

    pub(crate) fn too_many_sessions() -> Rejection {
        let message = "too many sessions; use /mcp, which needs none";
        Self::new(503, "overload_rejected", message).retry_after(1)
    }

    pub(crate) fn unreachable(message: &'static str) -> Rejection {
        Self::new(503, "replica_unreachable", message).retry_after(1)
    }

    pub(crate) fn too_many_connections(crowded: bool) -> Rejection {
        let message = match crowded {
            false => "too many connections (--max-connections)",
            true => "this address has too many connections (--max-connections-per-address)",
        };
        Self::new(503, "overload_rejected", message).retry_after(1).closing()
    }

    pub(crate) fn shutting_down() -> Rejection {
        let message = "this replica is shutting down; nothing was stored";
        Self::new(503, "shutting_down", message).retry_after(1).closing()
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the response, for dashboards in the format that they use.
    pub(crate) fn response(self, dashboard: bool) -> ApiResponse {
        let mut body = json!({ "error": self.error, "message": self.message });
        if dashboard {
            let details = if self.more.is_empty() { Value::Null } else { self.more.into() };
            body = json!({ "error": {
                "code": self.error,
                "message": self.message,
                "butler": "switchboard",
                "details": details,
            }});
        } else if let Value::Object(fields) = &mut body {
            fields.extend(self.more);
        }
        let mut answer = json_value(self.status, &body);
        if let Some((name, value)) = self.header {
            answer.headers_mut().insert(name, value);
        }
        if self.close {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    /// Returns the error as the outcome of one item of a batch.
    pub(crate) fn item(self, index: usize) -> Value {
        let mut item = json!({ "index": index, "status": "error", "error": self.error });
        if let Value::Object(fields) = &mut item {
            if !self.more.contains_key("detail") {
                fields.insert("message".to_owned(), self.message.into());
            }
            fields.extend(self.more);
        }
        item
    }
}

/// The detail is not sent: it may name hosts and statements.
impl From<SwitchboardError> for Rejection {
    fn from(error: SwitchboardError) -> Self {
        match error.code() {
            Code::Unstorable | Code::BadInput => ApiError::unstorable(),
            Code::Full => ApiError::store_full(error),
            _ => ApiError::store_unavailable(),
        }
    }
}

impl From<StoreError> for Rejection {
    fn from(error: StoreError) -> Self {
        SwitchboardError::from(error).into()
    }
}
