//! The end of faults, and the end of a run.

use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{ConnectorQuery, Registry as _};

use super::{FOREVER, SwitchEvent, SwitchWorld, connector};
use crate::switchboard::MINUTE;
use crate::switchboard::story::{ListedConnector, SwitchStep};

/// Pages after which a reader must be at the end.
const MAX_PAGES: usize = 1_000;

impl SwitchWorld {
    /// Ends all faults: clocks are right, replicas run, some connectors stop for ever.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.offset = 0;
        self.set_wall();
        self.line("!", || "everything heals".to_owned());
        self.adopt();
        self.last_at_heal = self.observed.position;
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
        self.producers[quiet..].iter_mut().for_each(|it| it.ends = FOREVER);
        for producer in quiet..self.producers.len() {
            self.soon(MINUTE, SwitchEvent::Submit(producer));
        }
        // No tick is under way any more.
        self.queue.retain(|_, event| !matches!(event, SwitchEvent::SlowTick(..)));
        // The clock of retention waits until the right clock has reached it, or catches up, as one
        // replica measures it.
        self.tick(0, None);
        let reached = self.history.iter().rev().find_map(|step| match step {
            SwitchStep::Ticked { reached, .. } => Some(*reached),
            _ => None,
        });
        let lead = reached.map_or(0, |reached| reached - self.unix());
        self.sleep(lead.abs());
        self.tick(0, self.measured(0));
        self.take_over_statistics();
        let last = (self.scenario.keep.bodies + 50 * MINUTE).max(70 * MINUTE);
        self.at(self.now + last, SwitchEvent::End);
    }

    /// Reads everything once more, for the checkers.
    pub(super) fn finish(&mut self) {
        self.is_over = true;
        self.history.push(SwitchStep::ClocksRight);
        self.tick(0, None);
        if self.prune_now() >= self.last_at_heal && self.last_at_heal > 0 {
            self.reached("old-gone");
        }
        for reader in 0..self.readers.len() {
            if !(0..MAX_PAGES).any(|_| self.read_page(reader)) {
                self.find("follow", format!("reader {reader} does not reach the end"));
            }
        }
        self.count_all();
        self.recount(0);
        for connector in 0..self.connectors.len() {
            self.read_series(connector);
        }
        self.list_connectors();
    }

    /// Records the list of connectors.
    fn list_connectors(&mut self) {
        let mut connectors = Vec::new();
        for is_archived in [false, true] {
            let query =
                ConnectorQuery { limit: 100, archived: is_archived, ..ConnectorQuery::default() };
            let answer = self.runtime.block_on(self.storage.connectors(&query));
            let Some(page) = self.sound("connectors", answer) else { return };
            for shown in page.connectors {
                let connector = connector::number(&shown.connector_type);
                let (last, interval) = (shown.last_heartbeat_at, shown.interval);
                let liveness = Policy::Usual.judge(page.now, last, interval);
                let received_at = self.connectors.get(connector).and_then(|it| it.received_at);
                if last < received_at {
                    self.reached("corrected");
                }
                self.line("list", || {
                    let archived = if is_archived { ", archived" } else { "" };
                    format!("c{connector} is {liveness}{archived}")
                });
                connectors.push(ListedConnector { connector, is_archived, liveness });
            }
        }
        let sends = |number: &usize| !self.connectors[*number].is_stopped;
        let sending = (0..self.connectors.len()).filter(sends).collect();
        self.history.push(SwitchStep::Listed { at: self.now, sending, connectors });
    }
}
