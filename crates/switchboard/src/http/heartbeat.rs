//! Endpoint: heartbeats of connectors.

use std::sync::Mutex;
use std::time::Duration;

use hyper::body::Incoming;
use serde_json::{Value, json};
use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;
use tenure_wire::heartbeat::{self, Heartbeat};

use super::ingest::{count_rejected, invalid_envelope};
use super::response::{ApiError, ApiResult, ok};
use super::{ApiRequest, ServerState, time};
use crate::access::Principal;
use crate::lock;
use crate::notice::{ConnectorEvent, Drift, ServerNotice, connector_name};
use crate::storage::{
    AcceptedHeartbeat, HeartbeatOutcome, MAX_CONNECTORS_PER_TOKEN, ReceivedHeartbeat, TimeSource,
};

/// Maximum size of an envelope, with room for messages that are cut to a few thousand bytes.
pub(crate) const MAX_HEARTBEAT_BYTES: usize = 1 << 20;
/// Clock drift beyond which the connector is warned.
const MAX_CLOCK_DRIFT_MICROS: i64 = 5_000_000;
/// Minimum time between two notices that the history cannot be written.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60);

impl ApiRequest<'_> {
    pub(super) async fn heartbeat(self, body: Incoming) -> ApiResult {
        let whole = self.json(body).await;
        let refused = &self.state.metrics.beats_refused;
        let whole =
            whole.inspect_err(|error| count_rejected(self.state, self.caller, error, refused))?;
        ok(&record(self.state, self.caller, &whole.bytes).await?)
    }
}

/// Records a heartbeat, of HTTP or MCP, counts its outcome and reports changes to operators.
pub(crate) async fn record(
    state: &ServerState,
    caller: &Principal,
    envelope: &[u8],
) -> ApiResult<Value> {
    let stored = store(state, caller, envelope).await;
    let refused = &state.metrics.beats_refused;
    let (heartbeat, taken) =
        stored.inspect_err(|error| count_rejected(state, caller, error, refused))?;
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
            "this token has registered {MAX_CONNECTORS_PER_TOKEN} connectors, which is the limit"
        ))),
    }
}

fn warnings(heartbeat: &Heartbeat, taken: &AcceptedHeartbeat) -> Vec<String> {
    let mut warnings = heartbeat::warnings(heartbeat);
    if !taken.late && drift_sign(taken.drift) != 0 {
        warnings.push(format!("{}", Drift(taken.drift)));
    }
    if taken.jumped {
        warnings.push(ConnectorEvent::CounterJumped.to_string());
    }
    if taken.unwritten.is_some() {
        let lost = "the history could not be written: this heartbeat is missing there; its \
                    counts will be added with the next one";
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
    let name = || connector_name(&heartbeat.connector_type, &heartbeat.endpoint_identity);
    let say = |news| (state.log)(ServerNotice::Connector { connector: name(), news });
    let to = heartbeat.instance_id;
    let events = [
        taken.registered.then_some(ConnectorEvent::Registered),
        taken.revived.then_some(ConnectorEvent::Revived),
        taken.replaced.map(|from| ConnectorEvent::Replaced { from, to }),
        taken.reset.then_some(ConnectorEvent::CountersReset),
        taken.jumped.then_some(ConnectorEvent::CounterJumped),
    ];
    events.into_iter().flatten().for_each(say);
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
        let mut said = lock(&self.0);
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
