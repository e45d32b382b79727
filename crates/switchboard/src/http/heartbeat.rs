//! A connector says that it lives.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;
use tenure_wire::heartbeat::{self, Heartbeat};

use super::answer::{Answer, Refusal, Refused, json_value};
use super::body::Whole;
use super::ingest::invalid_envelope;
use super::{Asked, State, body, content, time};
use crate::access::{Caller, Need};
use crate::notice::{ConnectorName, Drift, News, Notice};
use crate::storage::{Beat, Beaten, MAX_CONNECTORS_PER_TOKEN, Name, Taken, When};
use crate::token::Role;

/// The largest envelope: with room for messages that are cut to a few thousand bytes.
pub(crate) const LARGEST: usize = 1 << 20;
/// A clock may be off by so many microseconds before it is said.
const OFF: i64 = 5_000_000;
/// How often it is said that the history cannot be written.
const SAID_EVERY: Duration = Duration::from_secs(60);

impl Asked<'_> {
    /// `POST /api/switchboard/heartbeat`.
    pub(super) async fn heartbeat(self, body: Incoming) -> Result<Answer, Refused> {
        let caller = self.caller(Need::Role(Role::Ingest)).await?;
        let whole = self.beat(body).await;
        let whole = whole.inspect_err(|refusal| refused(self.state, &caller, refusal))?;
        let answer = take(self.state, &caller, &whole.bytes).await?;
        Ok(json_value(StatusCode::OK, &answer))
    }

    async fn beat(self, body: Incoming) -> Result<Whole, Refused> {
        self.no_query()?;
        content::json(&self.head.headers)?;
        body::read(self.state, body, LARGEST).await
    }
}

/// Takes a heartbeat, from whichever way it came, counts what became of it and says what operators
/// must know.
pub(crate) async fn take(
    state: &State,
    caller: &Caller,
    envelope: &[u8],
) -> Result<Value, Refused> {
    let taken = take_in(state, caller, envelope).await;
    let (heartbeat, taken) = taken.inspect_err(|refusal| refused(state, caller, refusal))?;
    match taken.late {
        true => state.metrics.beats_late.add(1),
        false => state.metrics.beats.add(1),
    }
    tell(state, &heartbeat, &taken);
    let mut answer = json!({ "status": "accepted", "server_time": time(taken.received_at) });
    let warnings = warnings(&heartbeat, &taken);
    if !warnings.is_empty() {
        answer["warnings"] = warnings.into();
    }
    Ok(answer)
}

async fn take_in(
    state: &State,
    caller: &Caller,
    envelope: &[u8],
) -> Result<(Heartbeat, Taken), Refused> {
    let heartbeat = heartbeat::read(envelope).map_err(|invalid| invalid_envelope(&invalid))?;
    let rules = state.channels.current().await?;
    caller.permits_heartbeat(&heartbeat.connector_type, &heartbeat.endpoint_identity, &rules)?;
    let token_id = caller.token_id().map(str::to_owned);
    let longest_interval = state.liveness.longest_interval();
    let beat = Beat { heartbeat, token_id, longest_interval };
    match state.storage.beat(&beat, When::Now).await? {
        Beaten::Taken(taken) => Ok((beat.heartbeat, taken)),
        Beaten::TokenEnded(ended) => Err(state.token_ended(caller, ended)),
        Beaten::TooMany => Err(Refusal::forbidden(format!(
            "{MAX_CONNECTORS_PER_TOKEN} connectors were registered with this token, and no more \
             are taken"
        ))),
    }
}

/// Counts a heartbeat that was not taken, unless it may come again.
fn refused(state: &State, caller: &Caller, refusal: &Refusal) {
    if refusal.status.is_client_error() && refusal.status != StatusCode::TOO_MANY_REQUESTS {
        state.metrics.beats_refused.add(1);
        if let Some(token_id) = caller.token_id() {
            state.access.used(token_id, |usage| usage.refused += 1);
        }
    }
}

/// What whoever sent it should know.
fn warnings(heartbeat: &Heartbeat, taken: &Taken) -> Vec<String> {
    let mut warnings = heartbeat::warnings(heartbeat);
    if !taken.late && side(taken.drift) != 0 {
        warnings.push(format!("{}", Drift(taken.drift)));
    }
    if taken.jumped {
        warnings.push(News::CounterJumped.to_string());
    }
    if taken.unwritten.is_some() {
        let lost = "the history could not be written: this heartbeat is missing there, and what \
                    it has counted comes with the next one";
        warnings.push(lost.to_owned());
    }
    warnings
}

/// On which side of right a clock is: received minus sent. A beat that was on its way for long
/// says nothing of clocks, and is not asked.
fn side(drift: i64) -> i64 {
    if drift.saturating_abs() > OFF { drift.signum() } else { 0 }
}

/// Says what operators must know.
fn tell(state: &State, heartbeat: &Heartbeat, taken: &Taken) {
    let name = || {
        ConnectorName::of(&Name {
            connector_type: heartbeat.connector_type.clone(),
            endpoint_identity: heartbeat.endpoint_identity.clone(),
        })
    };
    let say = |news| (state.log)(Notice::Connector { connector: name(), news });
    if taken.registered {
        say(News::Registered);
    }
    if taken.revived {
        say(News::Revived);
    }
    if let Some(from) = taken.replaced {
        say(News::Replaced { from, to: heartbeat.instance_id });
    }
    if taken.reset {
        say(News::CountersReset);
    }
    if taken.jumped {
        say(News::CounterJumped);
    }
    let was = taken.drift_before.map_or(0, side);
    match side(taken.drift) {
        _ if taken.late => {}
        now if now == was => {}
        0 => say(News::ClockRight),
        _ => say(News::ClockOff(taken.drift)),
    }
    if let Some(why) = &taken.unwritten {
        state.metrics.history_lost.add(1);
        if let Some(besides) = state.history_said.due() {
            (state.log)(Notice::HistoryUnwritten { connector: name(), why: why.clone(), besides });
        }
    }
}

/// When something was said last that may be said with every request.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<(Option<LocalInstant>, u64)>);

impl Said {
    /// Whether it is time to say it again; then, how often it was not said since.
    fn due(&self) -> Option<u64> {
        let now = BootClock.now();
        // Nothing that is done under this lock can be done by half.
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.0.is_some_and(|at| now.since(at) < SAID_EVERY) {
            said.1 += 1;
            return None;
        }
        said.0 = Some(now);
        Some(std::mem::take(&mut said.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_seldom() {
        let said = Said::default();
        assert_eq!([said.due(), said.due(), said.due()], [Some(0), None, None]);
        said.0.lock().unwrap().0 = None;
        assert_eq!([said.due(), said.due()], [Some(2), None]);
    }

    #[test]
    fn a_clock_is_right_within_five_seconds() {
        assert_eq!([side(5_000_000), side(-5_000_000), side(0)], [0, 0, 0]);
        assert_eq!([side(5_000_001), side(-5_000_001), side(i64::MIN)], [1, -1, -1]);
    }
}
