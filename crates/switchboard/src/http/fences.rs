//! What is known of duties' holds.

use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::DutyKey;

use super::answer::{Answer, Refusal, Refused, json_value};
use super::letters::{LONGEST_REASON, SMALL, check, parsed, sound};
use super::{Asked, State, body, content, time};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    duty: String,
    reason: String,
}

impl Asked<'_> {
    /// `GET /api/switchboard/fences`.
    pub(super) async fn fences(self) -> Result<Answer, Refused> {
        self.reader().await?;
        let mut query = self.query()?;
        let after = query.text("after").unwrap_or_default();
        let limit = query.number("limit", (1, 1000))?.unwrap_or(100);
        query.end()?;
        let answer = list(self.state, &after, limit).await?;
        Ok(json_value(StatusCode::OK, &answer))
    }

    /// `POST /api/switchboard/fences/reset`.
    pub(super) async fn reset_fence(self, body: Incoming) -> Result<Answer, Refused> {
        let caller = self.admin().await?;
        self.no_query()?;
        content::json(&self.head.headers)?;
        let whole = body::read(self.state, body, SMALL).await?;
        let asked: Reset = parsed(&whole.bytes, "reset request")?;
        let mut wrong = Vec::new();
        check(&mut wrong, "reason", &asked.reason, LONGEST_REASON);
        if asked.duty.parse::<DutyKey>().is_err() {
            wrong.push(("duty", "is not GROUP/DUTY as tenure prints it".to_owned()));
        }
        sound("reset request", wrong)?;
        let by = caller.recorded();
        let was = self.state.storage.reset_fence(&asked.duty, by, &asked.reason).await?;
        let Some(was) = was else {
            return Err(Refusal::not_found("no hold of this duty was seen"));
        };
        let answer = json!({
            "duty": was.duty,
            "was": { "epoch": was.epoch.get(), "instance": was.instance },
        });
        Ok(json_value(StatusCode::OK, &answer))
    }
}

/// What is known of duties' holds, by name, after the duty `after`.
pub(crate) async fn list(state: &State, after: &str, limit: usize) -> Result<Value, Refused> {
    let found = state.storage.fences(after, limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.duty.clone());
    let data = found.iter().map(|standing| {
        json!({
            "duty": standing.duty,
            "epoch": standing.epoch.get(),
            "instance": standing.instance,
            "updated_at": time(standing.updated_at),
        })
    });
    let data = Value::Array(data.collect());
    Ok(json!({ "data": data, "meta": { "next_after": next } }))
}
