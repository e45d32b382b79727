//! Checkers *sums* and *barrier*.

use std::collections::BTreeMap;

use tenure_switchboard::storage::{Period, SeriesBucket, SeriesStep};

use super::{HistoryJudge, SentBeat, SwitchStep};

/// Counts of an hour: messages ingested and failed, and heartbeats.
type BeatCounts = [i64; 3];

/// Expected counts of a connector.
#[derive(Clone, Debug, Default)]
struct ConnectorCounts {
    is_archived: bool,
    /// The newest heartbeat of each process.
    processes: BTreeMap<u64, SentBeat>,
    hours: BTreeMap<i64, BeatCounts>,
    /// Heartbeats that no step has counted yet.
    uncounted: Vec<(i64, BeatCounts)>,
}

/// Counts that follow from the stored heartbeats.
#[derive(Clone, Debug, Default)]
pub(super) struct SumJudge {
    /// The clock of retention.
    reached: i64,
    connectors: BTreeMap<usize, ConnectorCounts>,
}

impl SumJudge {
    fn beat(&mut self, beat: &SentBeat) -> Result<(), String> {
        if beat.is_ended {
            return Ok(());
        }
        let stamp = beat.wall.max(self.reached);
        if beat.received_at != stamp {
            return Err(format!("{beat:?} should have the time {stamp}"));
        }
        let connector = self.connectors.entry(beat.connector).or_default();
        let newest = connector.processes.get(&beat.instance);
        let is_older =
            newest.is_some_and(|it| it.uptime_s >= beat.uptime_s && it.sent_at >= beat.sent_at);
        if beat.late != is_older {
            return Err(format!("{beat:?} after {newest:?}: late is {}", beat.late));
        }
        if beat.late {
            return Ok(());
        }
        connector.is_archived = false;
        let before = connector.processes.insert(beat.instance, *beat).map_or(0, |it| it.done);
        // A counter that went down began again.
        let grown = |now: i64, before: i64| if now < before { now } else { now - before };
        let counts = [grown(beat.done, before), grown(beat.done / 2, before / 2), 1];
        connector.uncounted.push((stamp, counts));
        Ok(())
    }

    fn rolled(&mut self, wall: i64, sums: &[Vec<(usize, i64, i64)>; 3]) -> Result<(), String> {
        let now = wall.max(self.reached);
        for connector in self.connectors.values_mut() {
            for (stamp, counts) in std::mem::take(&mut connector.uncounted) {
                let hour = start(stamp, SeriesStep::Hour);
                add(connector.hours.entry(hour).or_default(), counts);
            }
        }
        for (period, sums) in Period::ALL.into_iter().zip(sums) {
            let since = period.since(now);
            let shown = self.connectors.iter().filter(|(_, it)| !it.is_archived);
            let expected: Vec<(usize, i64, i64)> = shown
                .map(|(connector, it)| {
                    let mut sum = BeatCounts::default();
                    it.hours.range(since..).for_each(|(_, counts)| add(&mut sum, *counts));
                    (*connector, sum[0], sum[1])
                })
                .collect();
            if *sums != expected {
                let name = period.as_str();
                return Err(format!("the sums of {name} are {sums:?} instead of {expected:?}"));
            }
        }
        Ok(())
    }

    fn series(
        &self,
        connector: usize,
        step: SeriesStep,
        buckets: &[SeriesBucket],
    ) -> Result<(), String> {
        let mut expected: BTreeMap<i64, BeatCounts> = BTreeMap::new();
        for (hour, counts) in self.connectors.get(&connector).iter().flat_map(|it| &it.hours) {
            add(expected.entry(start(*hour, step)).or_default(), *counts);
        }
        let shown: BTreeMap<i64, BeatCounts> = buckets
            .iter()
            .map(|SeriesBucket { start, measures: it }| {
                (*start, [it.messages_ingested, it.messages_failed, it.heartbeat_count])
            })
            .collect();
        if shown == expected && buckets.len() == expected.len() {
            return Ok(());
        }
        Err(format!("connector {connector} by {step:?} is {shown:?} instead of {expected:?}"))
    }
}

fn add(sum: &mut BeatCounts, counts: BeatCounts) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

fn start(time: i64, step: SeriesStep) -> i64 {
    time - time.rem_euclid(step.micros())
}

impl HistoryJudge for SumJudge {
    const NAME: &'static str = "sums";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        match step {
            SwitchStep::Ticked { reached, .. } => self.reached = *reached,
            SwitchStep::Beat(beat) => return self.beat(beat),
            SwitchStep::ConnectorDeleted(connector) => {
                self.connectors.remove(connector);
            }
            SwitchStep::Archived(connector, archived) => {
                if let Some(known) = self.connectors.get_mut(connector) {
                    known.is_archived = *archived;
                }
            }
            SwitchStep::Rolled { wall, fenced: false, sums, .. } => {
                return self.rolled(*wall, sums);
            }
            SwitchStep::Series { connector, hours, days } => {
                self.series(*connector, SeriesStep::Hour, hours)?;
                self.series(*connector, SeriesStep::Day, days)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// The newest epoch under which anything was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct BarrierJudge(u64);

impl HistoryJudge for BarrierJudge {
    const NAME: &'static str = "barrier";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        let SwitchStep::Rolled { epoch, fenced, .. } = step else { return Ok(()) };
        if *fenced != (*epoch < self.0) {
            return Err(format!("epoch {epoch} after {}: refused is {fenced}", self.0));
        }
        self.0 = self.0.max(*epoch);
        Ok(())
    }
}
