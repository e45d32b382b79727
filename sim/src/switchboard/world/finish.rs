//! The end of faults, and the end of a run.

use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{ConnectorQuery, Registry as _};

use super::{SwitchEvent, SwitchWorld, connector};
use crate::switchboard::story::SwitchStep;
use crate::switchboard::{MINUTE, Micros};

/// Pages after which a reader must be at the end.
const MAX_PAGES: usize = 1_000;
/// Longest time between two moves of the clock of retention.
const RETENTION_LAG: Micros = 30 * MINUTE;

impl SwitchWorld {
    /// Ends all faults: clocks are right, replicas run, some connectors stop for ever.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.offset = 0;
        self.set_wall();
        self.line("!", || "everything heals".to_owned());
        self.adopt();
        for replica in &mut self.replicas {
            replica.is_alive = true;
        }
        for connector in &mut self.connectors {
            connector.is_stopped = self.rng.chance(500);
            (connector.away_until, connector.token) = (0, None);
        }
        // Two producers go on, so that everything from before that gets old.
        let quiet = self.producers.len().saturating_sub(2);
        self.producers[..quiet].iter_mut().for_each(|it| it.ends = self.now);
        self.producers[quiet..].iter_mut().for_each(|it| it.ends = Micros::MAX);
        for producer in quiet..self.producers.len() {
            self.soon(MINUTE, SwitchEvent::Submit(producer));
        }
        // Whatever was under way has arrived.
        self.queue.retain(|_, event| !matches!(event, SwitchEvent::SlowTick(..)));
        // The clock of retention waits until the right clock has reached it, or catches up.
        self.tick(0, None);
        let reached = self.history.iter().rev().find_map(|step| match step {
            SwitchStep::Ticked { reached, .. } => Some(*reached),
            _ => None,
        });
        let lead = reached.map_or(0, |reached| reached - self.unix());
        self.sleep(lead.abs());
        self.healed_at = self.now;
        self.take_over_statistics();
        let last = (self.scenario.keep.bodies + 50 * MINUTE).max(70 * MINUTE);
        self.at(self.now + last, SwitchEvent::End);
    }

    /// Reads everything once more, for the checkers.
    pub(super) fn finish(&mut self) {
        self.is_over = true;
        self.history.push(SwitchStep::ClocksRight);
        self.tick(0, None);
        // Once a message with a right time is old, everything before it goes.
        let old = self.now - self.scenario.keep.bodies - RETENTION_LAG;
        let stored_after = self.history.iter().rev().find_map(|step| match step {
            SwitchStep::Committed { at, sent, .. } if *at < old && *at >= self.healed_at => {
                let is_new = sent.iter().any(super::check::has_new);
                is_new.then_some(*at)
            }
            _ => None,
        });
        // A message that seems young, because the clock was ahead, keeps those after it.
        let young = self.unix() - self.scenario.keep.bodies - RETENTION_LAG..self.unix();
        let is_kept = self.ahead.iter().any(|stamp| young.contains(stamp));
        self.prune_now(stored_after.filter(|_| !is_kept).unwrap_or(1));
        for reader in 0..self.readers.len() {
            if !(0..MAX_PAGES).any(|_| self.read_page(reader)) {
                let what = format!("reader {reader} does not reach the end");
                self.odd.push(crate::check::CheckFinding { checker: "follow", what });
            }
        }
        self.count_all();
        self.recount(0);
        for connector in 0..self.connectors.len() {
            self.read_series(connector);
        }
        self.judge_connectors(false);
        self.judge_connectors(true);
    }

    fn judge_connectors(&mut self, archived: bool) {
        let query = ConnectorQuery { limit: 100, archived, ..ConnectorQuery::default() };
        let answer = self.runtime.block_on(self.storage.connectors(&query));
        let Some(page) = self.sound("connectors", answer) else { return };
        for shown in page.connectors {
            let number = connector::number(&shown.connector_type);
            let liveness = Policy::Usual.judge(page.now, shown.last_heartbeat_at, shown.interval);
            let it = &self.connectors[number];
            let Some((stored, received_at)) = it.stored else { continue };
            let (silent, beats) = (self.now - stored, !it.is_stopped);
            if shown.last_heartbeat_at.is_some_and(|at| at < received_at) {
                self.reached("corrected");
            }
            self.line("registry", || format!("c{number}: {liveness} after {silent} us"));
            self.history.push(SwitchStep::Judged { connector: number, silent, beats, liveness });
        }
    }
}
