//! One event, and what all submissions have in common.

use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};
use tenure_wire::ingest::Invalid;
use uuid::Uuid;

use super::answer::{Answer, Refusal, Refused, json_text};
use super::body::Whole;
use super::{Asked, State, body, content};
use crate::access::{Caller, Need};
use crate::budget::Share;
use crate::commit::{self, Trouble, Unstored};
use crate::metrics::Overload;
use crate::storage::{Fence, Item, Outcome, Submission};
use crate::token::Role;

/// The largest envelope.
pub(crate) const LARGEST: usize = 1 << 20;

impl Asked<'_> {
    /// `POST /api/switchboard/ingest`.
    pub(super) async fn ingest(self, body: Incoming) -> Result<Answer, Refused> {
        let caller = self.caller(Need::Role(Role::Ingest)).await?;
        let (fence, whole) = match self.submitted(body).await {
            Ok(submitted) => submitted,
            Err(refusal) => {
                refused(self.state, &caller, &refusal, 1);
                return Err(refusal);
            }
        };
        let outcome = take(self.state, &caller, whole.bytes, fence, whole.share).await?;
        let (id, duplicate) = (outcome.request_id.as_hyphenated(), outcome.duplicate);
        let text =
            format!(r#"{{"request_id":"{id}","status":"accepted","duplicate":{duplicate}}}"#);
        Ok(json_text(StatusCode::ACCEPTED, text))
    }

    async fn submitted(self, body: Incoming) -> Result<(Option<Fence>, Whole), Refused> {
        self.no_query()?;
        let fence = content::fence(&self.head.headers)?;
        content::json(&self.head.headers)?;
        let whole = body::read(self.state, body, LARGEST).await?;
        Ok((fence, whole))
    }
}

/// Takes in one event, from whichever way it came, and counts what became of it.
pub(crate) async fn take(
    state: &State,
    caller: &Caller,
    envelope: Bytes,
    fence: Option<Fence>,
    share: Share,
) -> Result<Outcome, Refused> {
    let outcome = take_in(state, caller, envelope, fence, share).await;
    if let Err(refusal) = &outcome {
        refused(state, caller, refusal, 1);
    }
    outcome
}

async fn take_in(
    state: &State,
    caller: &Caller,
    envelope: Bytes,
    fence: Option<Fence>,
    share: Share,
) -> Result<Outcome, Refused> {
    let read = state.channels.reading().await?.read(&envelope).await?;
    let event = read.map_err(|invalid| invalid_envelope(&invalid))?;
    drop(envelope);
    caller.permits(&event.channel, &event.provider, &event.endpoint_identity)?;
    let items = vec![Item { request_id: Uuid::now_v7(), event }];
    let token_id = caller.token_id().map(str::to_owned);
    let submission = Submission { items, fence, token_id };
    // Nothing was stored before the only one: a hold or token that has ended refuses the whole.
    let outcome = submit(state, caller, submission, share).await?.pop();
    outcome.and_then(Result::ok).ok_or_else(Refusal::unstorable)
}

/// Counts events that were not taken in, unless they may come again.
pub(super) fn refused(state: &State, caller: &Caller, refusal: &Refusal, events: usize) {
    if refusal.status.is_client_error() && refusal.status != StatusCode::TOO_MANY_REQUESTS {
        state.metrics.rejected.add(events);
        if let Some(token_id) = caller.token_id() {
            state.access.used(token_id, |usage| usage.refused += events as i64);
        }
    }
}

/// Why one event was not stored, and others of its batch may be.
pub(super) fn unstored(fence: Option<&Fence>, why: &Unstored) -> Refused {
    match why {
        Unstored::Content => Refusal::unstorable(),
        Unstored::Fenced(newest) => Refusal::fenced(fence, newest.as_ref()),
        Unstored::BadFence(bad) => Refusal::bad_fence(*bad),
        Unstored::TokenEnded(ended) => Refusal::token_ended(*ended),
    }
}

/// Commits a submission; an outcome for each event.
pub(super) async fn submit(
    state: &State,
    caller: &Caller,
    submission: Submission,
    share: Share,
) -> Result<Vec<Result<Outcome, Unstored>>, Refused> {
    let fence = submission.fence.clone();
    match state.committer.submit_holding(submission, Some(share)).await {
        Ok(commit::Answer::Stored(outcomes)) => {
            count(state, caller, &outcomes);
            Ok(outcomes)
        }
        Ok(commit::Answer::Fenced(newest)) => {
            state.metrics.fenced.add(1);
            Err(Refusal::fenced(fence.as_ref(), newest.as_ref()))
        }
        Ok(commit::Answer::BadFence(bad)) => Err(Refusal::bad_fence(bad)),
        Ok(commit::Answer::TokenEnded(ended)) => Err(state.token_ended(caller, ended)),
        Err(trouble) => {
            if trouble == Trouble::Full {
                state.metrics.overloaded(Overload::Queue);
            }
            Err(trouble.into())
        }
    }
}

fn count(state: &State, caller: &Caller, outcomes: &[Result<Outcome, Unstored>]) {
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
        state.follow.nudge();
    }
    if let Some(token_id) = caller.token_id() {
        state.access.used(token_id, |usage| {
            usage.accepted += accepted as i64;
            usage.duplicates += duplicates as i64;
            usage.refused += (outcomes.len() - stored) as i64;
        });
    }
}

/// What is wrong with an envelope.
pub(super) fn invalid_envelope(invalid: &Invalid) -> Refused {
    let issues = invalid.issues.iter();
    let errors: Vec<_> = issues.map(|it| error(it.kind, &it.at, &it.says)).collect();
    Refusal::invalid(&invalid.to_string(), errors.into())
}

/// One thing that is wrong, as it is told.
pub(super) fn error(kind: &str, at: &str, says: &str) -> Value {
    let place: Vec<_> = at.split('.').filter(|part| !part.is_empty()).collect();
    json!({ "type": kind, "loc": place, "msg": says })
}
