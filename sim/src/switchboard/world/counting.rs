//! Holders of the statistics.

use tenure_core::Epoch;
use tenure_switchboard::storage::{Period, Registry as _, SeriesStep, TimeSource};

use super::{FOREVER, SwitchEvent, SwitchWorld, connector};
use crate::switchboard::story::SwitchStep;
use crate::switchboard::{Micros, SwitchFault};

/// A hold of the statistics.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatisticsHold {
    epoch: u64,
    /// It counts until then.
    ends: Micros,
}

impl SwitchWorld {
    /// Another holder counts; the earlier one stops, or goes on for a while.
    pub(super) fn take_over_statistics(&mut self) {
        let epoch = self.counters.last().map_or(1, |it| it.epoch + 1);
        let more = if self.has_old_counter() { self.scenario.heal / 6 } else { 0 };
        for earlier in &mut self.counters {
            earlier.ends = earlier.ends.min(self.now + more);
        }
        self.counters.push(StatisticsHold { epoch, ends: FOREVER });
        self.line("counter", || format!("epoch {epoch} takes over"));
    }

    fn has_old_counter(&self) -> bool {
        self.scenario.has(SwitchFault::OldCounter) && !self.is_healed
    }

    pub(super) fn count(&mut self) {
        let pause = if self.is_healed { self.scenario.heal / 4 } else { self.scenario.heal / 20 };
        self.soon(pause, SwitchEvent::Count);
        if self.rng.chance(150) {
            self.prune_history();
        }
        for hold in self.counters.clone() {
            if hold.ends > self.now && !self.strikes(SwitchFault::RequestLost, 100) {
                self.count_under(hold);
            }
        }
    }

    fn count_under(&mut self, hold: StatisticsHold) {
        // Epochs are small.
        let epoch = Epoch::new(hold.epoch).expect("an epoch");
        let answer = self.runtime.block_on(self.storage.roll_up(epoch, TimeSource::Now));
        let Some(report) = self.sound("roll_up", answer) else { return };
        self.reached(if report.fenced { "rolled-fenced" } else { "rolled" });
        let mut sums: [Vec<(usize, i64, i64)>; 3] = Default::default();
        for (sums, period) in sums.iter_mut().zip(Period::ALL) {
            let answer = self.runtime.block_on(self.storage.sums(period));
            let Some((_, shown)) = self.sound("sums", answer) else { return };
            *sums = shown
                .iter()
                .map(|it| {
                    let number = connector::number(&it.connector_type);
                    (number, it.messages_ingested, it.messages_failed)
                })
                .collect();
        }
        self.line("counter", || {
            let beats = if report.fenced { "refused".to_owned() } else { report.beats.to_string() };
            format!("counts heartbeats under epoch {}: {beats}", hold.epoch)
        });
        let wall = self.wall();
        let (epoch, fenced) = (hold.epoch, report.fenced);
        self.history.push(SwitchStep::Rolled { wall, epoch, fenced, sums });
    }

    /// Deletes what is past its retention from the history.
    fn prune_history(&mut self) {
        let keep = self.scenario.history;
        let answer = self.runtime.block_on(self.storage.prune_history(keep, TimeSource::Now));
        let Some(report) = self.sound("prune_history", answer) else { return };
        let deleted = report.heartbeat_rows_deleted;
        if deleted > 0 {
            self.reached("beats-pruned");
        }
        self.line("retention", || format!("deletes {deleted} heartbeats of the history"));
        self.history.push(SwitchStep::HistoryPruned { keep: keep.beats, deleted });
    }

    /// Counts everything under the newest hold.
    pub(super) fn count_all(&mut self) {
        if let Some(newest) = self.counters.last().copied() {
            self.count_under(newest);
        }
    }

    /// Records the series and counters of a connector.
    pub(super) fn read_series(&mut self, number: usize) {
        let name = connector::key(number, self.connectors[number].source);
        let series = |step| self.runtime.block_on(self.storage.series(&name, 0, step));
        let (hours, days) = (series(SeriesStep::Hour), series(SeriesStep::Day));
        let (hours, days) = (self.sound("hours", hours), self.sound("days", days));
        let found = self.runtime.block_on(self.storage.connector(&name));
        let found = self.sound("connector", found);
        if let (Some(hours), Some(days), Some(found)) = (hours, days, found) {
            let counters = found.map(|it| it.connector.counters);
            let counters = counters.map(|it| [it.messages_ingested, it.messages_failed]);
            self.history.push(SwitchStep::Series { connector: number, counters, hours, days });
        }
    }
}
