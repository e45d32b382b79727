//! Endpoints: fences, the newest hold seen of each duty.

use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::DutyKey;

use super::content::reject;
use super::dead_letters::EventSource;
use super::response::{ApiError, ApiResult, json_value};
use super::{ApiRequest, ServerState, time};
use crate::access::Principal;
use crate::storage::{KnownFence, SourceScope};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetRequest {
    duty: String,
    source: Option<EventSource>,
    reason: String,
}

impl ApiRequest<'_> {
    /// `GET /api/switchboard/fences`.
    pub(super) async fn fences(self) -> ApiResult {
        let mut query = self.query()?;
        let after = query.text("after").unwrap_or_default();
        let limit = query.number("limit", (1, 1000))?.unwrap_or(100);
        query.end()?;
        let answer = list(self.state, self.caller, &after, limit).await?;
        Ok(json_value(StatusCode::OK, &answer))
    }

    /// `POST /api/switchboard/fences/reset`.
    pub(super) async fn reset_fence(self, body: Incoming) -> ApiResult {
        let asked = self.command(body, "reset request", |it: &ResetRequest| &it.reason).await?;
        if asked.duty.parse::<DutyKey>().is_err() {
            let wrong = "is not GROUP/DUTY as tenure prints it".to_owned();
            reject("reset request", vec![("duty", wrong)])?;
        }
        let (source, decision) =
            (asked.source.map(SourceScope::from), self.caller.decision(&asked.reason));
        let was = self.state.storage.reset_fence(&asked.duty, source.as_ref(), &decision).await?;
        let was = was.map_err(|ended| self.state.token_ended(self.caller, ended))?;
        if was.is_empty() {
            return Err(ApiError::not_found("no hold of this duty was seen"));
        }
        let was: Vec<Value> = was.iter().map(fence).collect();
        let answer = json!({ "duty": asked.duty, "was": was });
        Ok(json_value(StatusCode::OK, &answer))
    }
}

/// Returns a page of fences, by name, as far as the caller may read them.
async fn list(
    state: &ServerState,
    caller: &Principal,
    after: &str,
    limit: usize,
) -> ApiResult<Value> {
    let found = state.storage.fences(caller.reads_only(), after, limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(KnownFence::cursor);
    let data: Vec<Value> = found.iter().map(fence).collect();
    Ok(json!({ "data": data, "meta": { "next_after": next } }))
}

fn fence(known: &KnownFence) -> Value {
    let KnownFence { source, newest } = known;
    let source = source.as_ref().map(|source| {
        json!({
            "channel": source.channel,
            "provider": source.provider,
            "endpoint_identity": source.endpoint_identity,
        })
    });
    json!({
        "duty": newest.duty,
        "source": source,
        "epoch": newest.epoch.get(),
        "instance": newest.instance,
        "updated_at": time(newest.updated_at),
    })
}
