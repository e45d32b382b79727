//! A connector says that it lives.

use hyper::StatusCode;
use hyper::body::Incoming;
use serde_json::Value;

use super::answer::{Answer, Refusal, Refused, json_value};
use super::{Asked, State, body, content};
use crate::access::{Caller, Need};
use crate::token::Role;

/// The largest envelope.
pub(crate) const LARGEST: usize = 64 << 10;

impl Asked<'_> {
    /// `POST /api/switchboard/heartbeat`.
    pub(super) async fn heartbeat(self, body: Incoming) -> Result<Answer, Refused> {
        let caller = self.caller(Need::Role(Role::Ingest)).await?;
        self.no_query()?;
        content::json(&self.head.headers)?;
        let whole = body::read(self.state, body, LARGEST).await?;
        let answer = take(self.state, &caller, &whole.bytes).await?;
        Ok(json_value(StatusCode::OK, &answer))
    }
}

/// Takes a heartbeat, from whichever way it came, counts what became of it and says what operators
/// must know.
pub(crate) async fn take(
    _state: &State,
    _caller: &Caller,
    _envelope: &[u8],
) -> Result<Value, Refused> {
    Err(Refusal::internal())
}
