//! Endpoint: submit one event. Also the steps that all submissions share.

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
use crate::commit::{SubmitError, Unstored};
use crate::metrics::{EventCounter, Overload};
use crate::storage::{EventOutcome, IngestFence, Submission, SubmittedEvent};

pub(crate) const MAX_EVENT_BYTES: usize = 1 << 20;

impl ApiRequest<'_> {
    pub(super) async fn ingest(self, body: Incoming) -> ApiResult {
        let (state, caller) = (self.state, self.caller);
        let read = async {
            let fence = content::fence(&self.head.headers)?;
            Ok::<_, Rejection>((fence, self.json(body).await?))
        };
        let read = read.await;
        let read = read.inspect_err(|error| {
            count_rejected(state, caller, error, &state.metrics.rejected);
        });
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
    let rejected = &state.metrics.rejected;
    submitted.await.inspect_err(|error| count_rejected(state, caller, error, rejected))
}

/// Counts a rejected event or heartbeat, unless it may be sent again.
pub(super) fn count_rejected(
    state: &ServerState,
    caller: &Principal,
    error: &ApiError,
    counter: &EventCounter,
) {
    if error.status.is_client_error() && error.status != StatusCode::TOO_MANY_REQUESTS {
        counter.add(1);
        if let Some(token_id) = caller.token_id() {
            state.access.used(token_id, |usage| usage.refused += 1);
        }
    }
}

/// Returns the error of one event, while others of its batch may be stored.
pub(super) fn unstored(fence: Option<&IngestFence>, why: &Unstored) -> Rejection {
    match why {
        Unstored::Content => ApiError::unstorable(),
        Unstored::Rejected(why) => ApiError::rejected(fence, why),
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
        Ok(outcomes) => {
            count(state, caller, &outcomes);
            Ok(outcomes)
        }
        Err(SubmitError::Rejected(why)) => Err(state.rejected(caller, fence.as_ref(), &why)),
        Err(SubmitError::Full) => {
            state.metrics.overloaded(Overload::Queue);
            Err(ApiError::overloaded("too many queued submissions; nothing was stored"))
        }
        Err(SubmitError::Closed) => Err(ApiError::shutting_down()),
        Err(SubmitError::Store(error)) => Err(error.into()),
    }
}

fn count(state: &ServerState, caller: &Principal, outcomes: &[Result<EventOutcome, Unstored>]) {
    if let Some(Err(Unstored::Rejected(why))) = outcomes.last() {
        drop(state.rejected(caller, None, why));
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
