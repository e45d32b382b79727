//! Many events in one request, each with an outcome of its own.

use hyper::StatusCode;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tenure_wire::ingest::{self, BadBatch, IngestEvent};
use uuid::Uuid;

use super::content::BodyFormat;
use super::ingest::{MAX_EVENT_BYTES, count_rejected, invalid_envelope, submit, unstored};
use super::response::{ApiError, ApiResult, json_value};
use super::{ApiRequest, content};
use crate::access::Principal;
use crate::commit::Unstored;
use crate::storage::{EventOutcome, IngestFence, Submission, SubmittedEvent};

/// The largest batch, in bytes.
pub(super) const MAX_BATCH_BYTES: usize = 8 << 20;
/// The most events of a batch.
const MAX_BATCH_EVENTS: usize = 1_000;

impl ApiRequest<'_> {
    /// `POST /api/switchboard/ingest/batch`.
    pub(super) async fn batch(self, body: Incoming) -> ApiResult {
        self.no_query()?;
        let fence = content::fence(&self.head.headers)?;
        let form = content::batch(&self.head.headers)?;
        let whole = self.body(body).await?;
        let parts = split(&whole.bytes, form)?;
        let mut results = Vec::with_capacity(parts.len());
        let mut items = Vec::with_capacity(parts.len());
        let mut reading = self.state.channels.reader().await?;
        for (index, part) in parts.iter().enumerate() {
            let read = match part.len() > MAX_EVENT_BYTES {
                true => Err(ApiError::too_large(MAX_EVENT_BYTES)),
                false => reading.read(part).await?.map_err(|invalid| invalid_envelope(&invalid)),
            };
            match read.and_then(|event| permitted(event, self.caller)) {
                Ok(item) => {
                    items.push(item);
                    results.push(None);
                }
                Err(error) => {
                    count_rejected(self.state, self.caller, &error, 1);
                    results.push(Some(error.item(index)));
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
        Ok(json_value(StatusCode::ACCEPTED, &combine(results, outcomes, fence.as_ref())))
    }
}

fn permitted(event: IngestEvent, caller: &Principal) -> ApiResult<SubmittedEvent> {
    caller.permits(&event.channel, &event.provider, &event.endpoint_identity)?;
    Ok(SubmittedEvent { request_id: Uuid::now_v7(), event })
}

/// Returns the response: errors found before, and outcomes of the rest.
fn combine(
    results: Vec<Option<Value>>,
    outcomes: Vec<Result<EventOutcome, Unstored>>,
    fence: Option<&IngestFence>,
) -> Value {
    let (mut accepted, mut duplicates, mut rejected) = (0, 0, 0);
    let mut outcomes = outcomes.into_iter();
    let mut combined = Vec::with_capacity(results.len());
    for (index, result) in results.into_iter().enumerate() {
        let result = result.or_else(|| match outcomes.next().unwrap_or(Err(Unstored::Content)) {
            Err(why) => Some(unstored(fence, &why).item(index)),
            Ok(outcome) => {
                accepted += usize::from(!outcome.duplicate);
                duplicates += usize::from(outcome.duplicate);
                combined.push(json!({
                    "index": index,
                    "status": "accepted",
                    "request_id": outcome.request_id.to_string(),
                    "duplicate": outcome.duplicate,
                }));
                None
            }
        });
        if let Some(error) = result {
            rejected += 1;
            combined.push(error);
        }
    }
    json!({
        "results": combined,
        "accepted": accepted,
        "duplicates": duplicates,
        "rejected": rejected,
    })
}

/// The envelopes of a batch, not read yet.
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
