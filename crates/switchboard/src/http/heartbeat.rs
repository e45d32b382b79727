//! Endpoint: heartbeats of connectors.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;
use tenure_wire::heartbeat::{self, Heartbeat};

use super::ingest::invalid_envelope;
use super::response::{ApiError, ApiResult, json_value};
use super::{ApiRequest, ServerState, time};
use crate::access::Principal;
use crate::notice::{ConnectorEvent, ConnectorName, Drift, ServerNotice};
use crate::storage::{
    AcceptedHeartbeat, ConnectorKey, HeartbeatOutcome, MAX_CONNECTORS_PER_TOKEN, ReceivedHeartbeat,
    TimeSource,
};

/// Maximum size of an envelope, with room for messages that are cut to a few thousand bytes.
pub(crate) const MAX_HEARTBEAT_BYTES: usize = 1 << 20;
/// Clock drift beyond which the connector is warned.
const MAX_CLOCK_DRIFT_MICROS: i64 = 5_000_000;
/// Minimum time between two notices that the history cannot be written.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60);

impl ApiRequest<'_> {
    /// `POST /api/switchboard/heartbeat`.
    pub(super) async fn heartbeat(self, body: Incoming) -> ApiResult {
        let whole = self.json(body).await;
        let whole = whole.inspect_err(|error| count_rejected(self.state, self.caller, error))?;
        let answer = record(self.state, self.caller, &whole.bytes).await?;
        Ok(json_value(StatusCode::OK, &answer))
    }
}

/// Records a heartbeat, of HTTP or MCP, counts its outcome and reports changes to operators.
pub(crate) async fn record(
    state: &ServerState,
    caller: &Principal,
    envelope: &[u8],
) -> ApiResult<Value> {
    let stored = store(state, caller, envelope).await;
    let (heartbeat, taken) = stored.inspect_err(|error| count_rejected(state, caller, error))?;
    match taken.late {
        true => state.metrics.beats_late.add(1),
        false => state.metrics.beats.add(1),
    }
    report(state, &heartbeat, &taken);
    let mut answer = json!({ "status": "accepted", "server_time": time(taken.received_at) });
    let warnings = warnings(&heartbeat, &taken);
    if !warnings.is_empty() {
        answer["warnings"] = warnings.into();
    }
    Ok(answer)
}

async fn store(
    state: &ServerState,
    caller: &Principal,
    envelope: &[u8],
) -> ApiResult<(Heartbeat, AcceptedHeartbeat)> {
    let heartbeat = heartbeat::read(envelope).map_err(|invalid| invalid_envelope(&invalid))?;
    let rules = state.channels.current().await?;
    caller.permits_heartbeat(&heartbeat.connector_type, &heartbeat.endpoint_identity, &rules)?;
    let token_id = caller.token_id().map(str::to_owned);
    let longest_interval = state.liveness.longest_interval();
    let beat = ReceivedHeartbeat { heartbeat, token_id, longest_interval };
    match state.storage.beat(&beat, TimeSource::Now).await? {
        HeartbeatOutcome::Accepted(taken) => Ok((beat.heartbeat, taken)),
        HeartbeatOutcome::TokenEnded(ended) => Err(state.token_ended(caller, ended)),
        HeartbeatOutcome::TooMany => Err(ApiError::forbidden(format!(
            "{MAX_CONNECTORS_PER_TOKEN} connectors were registered with this token, and no more \
             are taken"
        ))),
    }
}

/// Counts a rejected heartbeat, unless it may be sent again.
fn count_rejected(state: &ServerState, caller: &Principal, error: &ApiError) {
    if error.status.is_client_error() && error.status != StatusCode::TOO_MANY_REQUESTS {
        state.metrics.beats_refused.add(1);
        if let Some(token_id) = caller.token_id() {
            state.access.used(token_id, |usage| usage.refused += 1);
        }
    }
}

/// Returns warnings for the sender.
fn warnings(heartbeat: &Heartbeat, taken: &AcceptedHeartbeat) -> Vec<String> {
    let mut warnings = heartbeat::warnings(heartbeat);
    if !taken.late && drift_sign(taken.drift) != 0 {
        warnings.push(format!("{}", Drift(taken.drift)));
    }
    if taken.jumped {
        warnings.push(ConnectorEvent::CounterJumped.to_string());
    }
    if taken.unwritten.is_some() {
        let lost = "the history could not be written: this heartbeat is missing there, and what \
                    it has counted comes with the next one";
        warnings.push(lost.to_owned());
    }
    warnings
}

/// Returns the sign of a clock drift (received minus sent), 0 if it is small. A late heartbeat says
/// nothing about clocks and is not judged.
fn drift_sign(drift: i64) -> i64 {
    if drift.saturating_abs() > MAX_CLOCK_DRIFT_MICROS { drift.signum() } else { 0 }
}

/// Reports changes to operators.
fn report(state: &ServerState, heartbeat: &Heartbeat, taken: &AcceptedHeartbeat) {
    let name = || {
        ConnectorName::of(&ConnectorKey {
            connector_type: heartbeat.connector_type.clone(),
            endpoint_identity: heartbeat.endpoint_identity.clone(),
        })
    };
    let say = |news| (state.log)(ServerNotice::Connector { connector: name(), news });
    if taken.registered {
        say(ConnectorEvent::Registered);
    }
    if taken.revived {
        say(ConnectorEvent::Revived);
    }
    if let Some(from) = taken.replaced {
        say(ConnectorEvent::Replaced { from, to: heartbeat.instance_id });
    }
    if taken.reset {
        say(ConnectorEvent::CountersReset);
    }
    if taken.jumped {
        say(ConnectorEvent::CounterJumped);
    }
    let was = taken.drift_before.map_or(0, drift_sign);
    match drift_sign(taken.drift) {
        _ if taken.late => {}
        now if now == was => {}
        0 => say(ConnectorEvent::ClockRight),
        _ => say(ConnectorEvent::ClockOff(taken.drift)),
    }
    if let Some(why) = &taken.unwritten {
        state.metrics.history_lost.add(1);
        if let Some(besides) = state.history_notice.due() {
            (state.log)(ServerNotice::HistoryUnwritten {
                connector: name(),
                why: why.clone(),
                besides,
            });
        }
    }
}

/// Throttle for a notice that every request may cause.
#[derive(Debug, Default)]
pub(crate) struct NoticeThrottle(Mutex<(Option<LocalInstant>, u64)>);

impl NoticeThrottle {
    /// Returns how many notices were suppressed, if it is time for the next one.
    fn due(&self) -> Option<u64> {
        let now = BootClock.now();
        // Nothing that is done under this lock can be done by half.
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.0.is_some_and(|at| now.since(at) < NOTICE_INTERVAL) {
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
        let said = NoticeThrottle::default();
        assert_eq!([said.due(), said.due(), said.due()], [Some(0), None, None]);
        said.0.lock().unwrap().0 = None;
        assert_eq!([said.due(), said.due()], [Some(2), None]);
    }

    #[test]
    fn a_clock_is_right_within_five_seconds() {
        assert_eq!([drift_sign(5_000_000), drift_sign(-5_000_000), drift_sign(0)], [0, 0, 0]);
        assert_eq!(
            [drift_sign(5_000_001), drift_sign(-5_000_001), drift_sign(i64::MIN)],
            [1, -1, -1]
        );
    }
}
