//! Endpoints: fences, the newest hold seen of each duty.

use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::DutyKey;

use super::content::reject;
use super::response::{ApiError, ApiResult, ok};
use super::{ApiRequest, time};
use crate::storage::{KnownFence, SourceScope};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetRequest {
    duty: String,
    source: Option<SourceScope>,
    reason: String,
}

impl ApiRequest<'_> {
    pub(super) async fn fences(self, _: Incoming) -> ApiResult {
        let mut query = self.query()?;
        let after = query.text("after").unwrap_or_default();
        let limit = query.number("limit", (1, 1000))?.unwrap_or(100);
        query.end()?;
        // Restricted to the fences that the caller may read.
        let found = self.state.storage.fences(self.caller.reads_only(), &after, limit).await?;
        let next = found.last().filter(|_| found.len() == limit).map(KnownFence::cursor);
        let data: Vec<Value> = found.iter().map(fence).collect();
        ok(&json!({ "data": data, "meta": { "next_after": next } }))
    }

    pub(super) async fn reset_fence(self, body: Incoming) -> ApiResult {
        let command = self.command(body, "reset request", |it: &ResetRequest| &it.reason);
        let (ResetRequest { duty, source, .. }, decision) = command.await?;
        if duty.parse::<DutyKey>().is_err() {
            let wrong = "must be GROUP/DUTY, as printed by tenure".to_owned();
            reject("reset request", vec![("duty", wrong)])?;
        }
        let was = self.state.storage.reset_fence(&duty, source.as_ref(), &decision).await?;
        let was = self.permitted(was)?;
        if was.is_empty() {
            return Err(ApiError::not_found("no hold of this duty was seen"));
        }
        let was: Vec<Value> = was.iter().map(fence).collect();
        ok(&json!({ "duty": duty, "was": was }))
    }
}

fn fence(known: &KnownFence) -> Value {
    let KnownFence { source, newest } = known;
    json!({
        "duty": newest.duty,
        "source": source,
        "epoch": newest.epoch.get(),
        "instance": newest.instance,
        "updated_at": time(newest.updated_at),
    })
}
