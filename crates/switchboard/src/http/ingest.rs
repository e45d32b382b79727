//! Endpoint: submit one event; and submission in general.

use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};
use tenure_wire::ingest::InvalidEnvelope;
use uuid::Uuid;

use super::body::RequestBody;
use super::response::{ApiError, ApiResult, Rejection, json_text};
use super::{ApiRequest, ServerState, content};
use crate::access::Principal;
use crate::budget::MemoryShare;
use crate::commit::{SubmitError, SubmitOutcome, Unstored};
use crate::metrics::Overload;
use crate::storage::{EventOutcome, IngestFence, Submission, SubmittedEvent};

/// Maximum size of an envelope.
pub(crate) const MAX_EVENT_BYTES: usize = 1 << 20;

impl ApiRequest<'_> {
    /// `POST /api/switchboard/ingest`.
    pub(super) async fn ingest(self, body: Incoming) -> ApiResult {
        let (state, caller) = (self.state, self.caller);
        let read = async {
            let fence = content::fence(&self.head.headers)?;
            Ok::<_, Rejection>((fence, self.json(body).await?))
        };
        let read = read.await.inspect_err(|error| count_rejected(state, caller, error, 1));
        let (fence, RequestBody { bytes, share }) = read?;
        let outcome = submit_event(state, caller, bytes, fence, share).await?;
        let (id, duplicate) = (outcome.request_id.as_hyphenated(), outcome.duplicate);
        let text =
            format!(r#"{{"request_id":"{id}","status":"accepted","duplicate":{duplicate}}}"#);
        Ok(json_text(StatusCode::ACCEPTED, text))
    }
}

/// Submits one event, of HTTP or MCP, and counts its outcome.
pub(crate) async fn submit_event(
    state: &ServerState,
    caller: &Principal,
    envelope: Bytes,
    fence: Option<IngestFence>,
    share: MemoryShare,
) -> ApiResult<EventOutcome> {
    let submitted = async {
        let read = state.channels.reader().await?.read(&envelope).await?;
        let event = read.map_err(|invalid| invalid_envelope(&invalid))?;
        drop(envelope);
        caller.permits(&event.channel, &event.provider, &event.endpoint_identity)?;
        let items = vec![SubmittedEvent { request_id: Uuid::now_v7(), event }];
        let token_id = caller.token_id().map(str::to_owned);
        let submission = Submission { items, fence, token_id };
        // It is the only event, so a hold or token that has ended rejects the submission.
        let outcome = submit(state, caller, submission, share).await?.pop();
        outcome.and_then(Result::ok).ok_or_else(ApiError::unstorable)
    };
    submitted.await.inspect_err(|error| count_rejected(state, caller, error, 1))
}

/// Counts rejected events, unless they may be sent again.
pub(super) fn count_rejected(
    state: &ServerState,
    caller: &Principal,
    error: &ApiError,
    events: usize,
) {
    if error.status.is_client_error() && error.status != StatusCode::TOO_MANY_REQUESTS {
        state.metrics.rejected.add(events);
        if let Some(token_id) = caller.token_id() {
            state.access.used(token_id, |usage| usage.refused += events as i64);
        }
    }
}

/// Returns the error of one event, while others of its batch may be stored.
pub(super) fn unstored(fence: Option<&IngestFence>, why: &Unstored) -> Rejection {
    match why {
        Unstored::Content => ApiError::unstorable(),
        Unstored::Fenced(newest) => ApiError::fenced(fence, newest.as_ref()),
        Unstored::BadFence(bad) => ApiError::bad_fence(*bad),
        Unstored::TokenEnded(ended) => ApiError::token_ended(*ended),
    }
}

/// Commits a submission; returns an outcome for each event.
pub(super) async fn submit(
    state: &ServerState,
    caller: &Principal,
    submission: Submission,
    share: MemoryShare,
) -> ApiResult<Vec<Result<EventOutcome, Unstored>>> {
    let fence = submission.fence.clone();
    match state.committer.submit_with(submission, Some(share)).await {
        Ok(SubmitOutcome::Stored(outcomes)) => {
            count(state, caller, &outcomes);
            Ok(outcomes)
        }
        Ok(SubmitOutcome::Fenced(newest)) => {
            state.metrics.fenced.add(1);
            Err(ApiError::fenced(fence.as_ref(), newest.as_ref()))
        }
        Ok(SubmitOutcome::BadFence(bad)) => Err(ApiError::bad_fence(bad)),
        Ok(SubmitOutcome::TokenEnded(ended)) => Err(state.token_ended(caller, ended)),
        Err(trouble) => {
            if trouble == SubmitError::Full {
                state.metrics.overloaded(Overload::Queue);
            }
            Err(trouble.into())
        }
    }
}

fn count(state: &ServerState, caller: &Principal, outcomes: &[Result<EventOutcome, Unstored>]) {
    match outcomes.last() {
        Some(Err(Unstored::Fenced(_))) => state.metrics.fenced.add(1),
        Some(Err(Unstored::TokenEnded(ended))) => drop(state.token_ended(caller, *ended)),
        _ => {}
    }
    let duplicates = outcomes.iter().flatten().filter(|it| it.duplicate).count();
    let reused = outcomes.iter().flatten().filter(|it| it.reused).count();
    let stored = outcomes.iter().flatten().count();
    let accepted = stored - duplicates;
    state.metrics.accepted.add(accepted);
    state.metrics.duplicates.add(duplicates);
    state.metrics.reused.add(reused);
    state.metrics.rejected.add(outcomes.len() - stored);
    if accepted > 0 {
        state.follow.notify();
    }
    if let Some(token_id) = caller.token_id() {
        state.access.used(token_id, |usage| {
            usage.accepted += accepted as i64;
            usage.duplicates += duplicates as i64;
            usage.refused += (outcomes.len() - stored) as i64;
        });
    }
}

/// Returns the error of an invalid envelope.
pub(super) fn invalid_envelope(invalid: &InvalidEnvelope) -> Rejection {
    let issues = invalid.issues.iter();
    let errors: Vec<_> = issues.map(|it| error(it.kind, &it.at, &it.says)).collect();
    ApiError::invalid(&invalid.to_string(), errors.into())
}

/// Returns one entry of `errors`.
pub(super) fn error(kind: &str, at: &str, says: &str) -> Value {
    let place: Vec<_> = at.split('.').filter(|part| !part.is_empty()).collect();
    json!({ "type": kind, "loc": place, "msg": says })
}
