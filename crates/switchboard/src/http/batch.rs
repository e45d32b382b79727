//! Many events in one request, each with an outcome of its own.

use hyper::StatusCode;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tenure_wire::ingest::{self, BadBatch, IngestEvent};
use uuid::Uuid;

use super::content::BodyFormat;
use super::ingest::{MAX_EVENT_BYTES, count_rejected, invalid_envelope, submit, unstored};
use super::response::{ApiError, ApiResult, Rejection, json_value};
use super::{ApiRequest, content};
use crate::access::Principal;
use crate::commit::Unstored;
use crate::storage::{EventOutcome, IngestFence, Submission, SubmittedEvent};

pub(super) const MAX_BATCH_BYTES: usize = 8 << 20;
const MAX_BATCH_EVENTS: usize = 1_000;

impl ApiRequest<'_> {
    pub(super) async fn batch(self, body: Incoming) -> ApiResult {
        self.no_query()?;
        let fence = content::fence(&self.head.headers)?;
        let form = content::batch(&self.head.headers)?;
        let whole = self.body(body).await?;
        let parts = split(&whole.bytes, form)?;
        let mut errors = Vec::with_capacity(parts.len());
        let mut items = Vec::with_capacity(parts.len());
        let mut reading = self.state.channels.reader().await?;
        for part in &parts {
            let read = match part.len() > MAX_EVENT_BYTES {
                true => Err(ApiError::too_large(MAX_EVENT_BYTES)),
                false => reading.read(part).await?.map_err(|invalid| invalid_envelope(&invalid)),
            };
            match read.and_then(|event| permitted(event, self.caller)) {
                Ok(item) => {
                    items.push(item);
                    errors.push(None);
                }
                Err(error) => {
                    count_rejected(self.state, self.caller, &error, &self.state.metrics.rejected);
                    errors.push(Some(error));
                }
            }
        }
        drop(whole.bytes);
        let outcomes = match items.is_empty() && fence.is_none() {
            true => Vec::new(),
            false => {
                let token_id = self.caller.token_id().map(str::to_owned);
                let submission = Submission { items, fence: fence.clone(), token_id };
                submit(self.state, self.caller, submission, whole.share).await?
            }
        };
        Ok(json_value(StatusCode::ACCEPTED, &combine(errors, outcomes, fence.as_ref())))
    }
}

fn permitted(event: IngestEvent, caller: &Principal) -> ApiResult<SubmittedEvent> {
    caller.permits(&event.channel, &event.provider, &event.endpoint_identity)?;
    Ok(SubmittedEvent { request_id: Uuid::now_v7(), event })
}

/// Returns the response: errors found before, and outcomes of the rest.
fn combine(
    errors: Vec<Option<Rejection>>,
    outcomes: Vec<Result<EventOutcome, Unstored>>,
    fence: Option<&IngestFence>,
) -> Value {
    let (mut accepted, mut duplicates, mut rejected) = (0, 0, 0);
    let mut outcomes = outcomes.into_iter();
    let mut results = Vec::with_capacity(errors.len());
    for (index, error) in errors.into_iter().enumerate() {
        let outcome = match error {
            Some(error) => Err(error),
            None => outcomes
                .next()
                .unwrap_or(Err(Unstored::Content))
                .map_err(|why| unstored(fence, &why)),
        };
        results.push(match outcome {
            Ok(EventOutcome { request_id, duplicate, .. }) => {
                accepted += usize::from(!duplicate);
                duplicates += usize::from(duplicate);
                let request_id = request_id.to_string();
                json!({
                    "index": index, "status": "accepted",
                    "request_id": request_id, "duplicate": duplicate,
                })
            }
            Err(error) => {
                rejected += 1;
                error.item(index)
            }
        });
    }
    json!({
        "results": results,
        "accepted": accepted,
        "duplicates": duplicates,
        "rejected": rejected,
    })
}

/// Splits a batch into its envelopes without reading them.
fn split(bytes: &[u8], form: BodyFormat) -> ApiResult<Vec<&[u8]>> {
    let parts = match form {
        BodyFormat::Json => ingest::split_array(bytes, MAX_BATCH_EVENTS),
        BodyFormat::Lines => ingest::split_lines(bytes, MAX_BATCH_EVENTS),
    };
    parts.map_err(|bad| match bad {
        BadBatch::TooMany { most } => ApiError::too_many_items(most),
        bad => ApiError::bad_request(bad.to_string()),
    })
}
