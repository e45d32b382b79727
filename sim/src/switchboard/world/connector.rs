//! Connectors, which send heartbeats.

use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{
    ConnectorKey, HeartbeatOutcome, ReceivedHeartbeat, Registry as _, TimeSource,
};
use tenure_wire::heartbeat::{Counters, Health, Heartbeat, Labels};
use uuid::Uuid;

use super::convert::endpoint;
use super::{SwitchEvent, SwitchWorld};
use crate::switchboard::story::{BeatAnswer, SentBeat, SwitchStep};
use crate::switchboard::{Micros, SECOND, SwitchFault};

/// Interval of heartbeats after the faults.
const QUIET_INTERVAL: Micros = 250 * SECOND;

/// A connector and its process.
#[derive(Clone, Debug)]
pub(super) struct SimConnector {
    pub(super) source: usize,
    pub(super) token: Option<usize>,
    pub(super) process: u64,
    pub(super) started: Micros,
    pub(super) done: i64,
    pub(super) interval: Micros,
    /// It is silent until then.
    pub(super) away_until: Micros,
    pub(super) is_stopped: bool,
    /// The time with which its last heartbeat was stored.
    pub(super) received_at: Option<i64>,
}

/// A heartbeat on its way.
#[derive(Clone, Debug)]
pub(super) struct BeatDraft {
    connector: usize,
    process: u64,
    token: Option<usize>,
    done: i64,
    uptime_s: i64,
    sent_at: i64,
}

/// Returns the name of a connector.
pub(super) fn key(number: usize, source: usize) -> ConnectorKey {
    ConnectorKey { connector_type: format!("bot{number}"), endpoint_identity: endpoint(source) }
}

/// Returns the number of a connector from its type.
pub(super) fn number(connector_type: &str) -> usize {
    connector_type.trim_start_matches("bot").parse().unwrap_or(usize::MAX)
}

impl SwitchWorld {
    pub(super) fn enlist_connector(&mut self) {
        let source = self.rng.below(self.scenario.sources as u64) as usize;
        let token = self.rng.chance(400).then(|| self.token(source));
        self.instances += 1;
        self.connectors.push(SimConnector {
            source,
            token,
            process: self.instances,
            started: self.now,
            done: 0,
            interval: self.rng.between(60, 280) as Micros * SECOND,
            away_until: 0,
            is_stopped: false,
            received_at: None,
        });
    }

    pub(super) fn beat(&mut self, number: usize) {
        let interval = self.connectors[number].interval;
        let next = if self.is_healed { interval.max(QUIET_INTERVAL) } else { interval };
        self.at(self.now + next, SwitchEvent::Beat(number));
        let grown = self.rng.between(0, 9) as i64;
        let (now, sent_at) = (self.now, self.unix());
        let it = &mut self.connectors[number];
        if it.is_stopped || it.away_until > now {
            return;
        }
        it.done += grown;
        let draft = BeatDraft {
            connector: number,
            process: it.process,
            token: it.token,
            done: it.done,
            uptime_s: (now - it.started) / SECOND,
            sent_at,
        };
        if self.strikes(SwitchFault::RequestLost, 60) {
            return;
        }
        if self.strikes(SwitchFault::BeatLate, 100) {
            return self.at(now + interval * 3 / 2, SwitchEvent::LateBeat(Box::new(draft)));
        }
        let repeats = self.strikes(SwitchFault::BeatRepeat, 100);
        self.store_beat(draft.clone());
        if repeats {
            self.store_beat(draft);
        }
    }

    pub(super) fn store_beat(&mut self, draft: BeatDraft) {
        let BeatDraft { connector, process, token, done, uptime_s, sent_at } = draft;
        let name = key(connector, self.connectors[connector].source);
        let counters =
            Counters { messages_ingested: done, messages_failed: done / 2, ..Counters::default() };
        let heartbeat = Heartbeat {
            connector_type: name.connector_type,
            endpoint_identity: name.endpoint_identity,
            instance_id: Uuid::from_u128(u128::from(process)),
            labels: Labels::default(),
            state: Health::Healthy,
            error_message: None,
            uptime_s,
            counters,
            checkpoint: None,
            capabilities: None,
            sent_at_micros: sent_at,
            mended: Vec::new(),
        };
        let beat = ReceivedHeartbeat {
            heartbeat,
            token_id: token.map(|token| format!("tok_{token}")),
            longest_interval: Policy::Usual.longest_interval(),
        };
        let answer = self.runtime.block_on(self.storage.beat(&beat, TimeSource::Now));
        let Some(outcome) = self.sound("beat", answer) else { return };
        let answer = match outcome {
            HeartbeatOutcome::Accepted(it) => {
                BeatAnswer::Accepted { received_at: it.received_at, late: it.late }
            }
            HeartbeatOutcome::TokenEnded(end) => BeatAnswer::Ended(end),
            HeartbeatOutcome::TooMany => BeatAnswer::TooMany,
        };
        self.line(&format!("c{connector}"), || {
            let token = token.map_or_else(String::new, |it| format!(" with t{it}"));
            format!("beats{token}: process {process}, up {uptime_s} s, done {done}: {answer}")
        });
        self.history.push(SwitchStep::Beat(SentBeat {
            at: self.now,
            wall: self.wall(),
            connector,
            instance: process,
            done,
            token,
            uptime_s,
            sent_at,
            answer,
        }));
        match answer {
            BeatAnswer::Accepted { late: true, .. } => self.reached("beat-late"),
            BeatAnswer::Accepted { received_at, .. } => {
                self.reached("beat");
                self.connectors[connector].received_at = Some(received_at);
            }
            BeatAnswer::Ended(_) => {
                self.reached("beat-ended");
                if self.rng.chance(500) {
                    let token = self.make_token(self.connectors[connector].source);
                    self.connectors[connector].token = Some(token);
                }
            }
            BeatAnswer::TooMany => {}
        }
    }
}
