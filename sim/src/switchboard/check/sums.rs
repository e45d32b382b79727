//! Checkers *sums* and *barrier*.

use std::collections::BTreeMap;

use tenure_switchboard::storage::SeriesBucket;

use super::{BeatAnswer, HistoryJudge, SentBeat, StampClock, SwitchStep};
use crate::switchboard::{DAY, HOUR, MINUTE, Micros};

/// The periods: the length of their steps, and how many steps each has besides the current one.
const PERIODS: [(Micros, i64); 3] = [(HOUR, 23), (HOUR, 167), (DAY, 29)];
/// A send time counts as at most this long after its arrival.
const MAX_SENT_AHEAD: Micros = 5 * MINUTE;

/// Counts of an hour: messages ingested and failed, and heartbeats.
type BeatCounts = [i64; 3];

/// Expected counts of a connector.
#[derive(Clone, Debug, Default)]
struct ConnectorCounts {
    is_archived: bool,
    /// The newest heartbeat of each process.
    processes: BTreeMap<u64, NewestBeat>,
    /// Messages ingested and failed, and heartbeats, of all time.
    total: BeatCounts,
    hours: BTreeMap<i64, BeatCounts>,
    /// The history.
    log: Vec<LoggedBeat>,
}

/// The newest heartbeat of a process.
#[derive(Clone, Copy, Debug)]
struct NewestBeat {
    beat: SentBeat,
    /// The store's clock was behind it, so its send time may be stored as an earlier one.
    is_capped: bool,
}

/// A heartbeat of the history.
#[derive(Clone, Copy, Debug)]
struct LoggedBeat {
    stamp: i64,
    counts: BeatCounts,
    is_counted: bool,
}

/// Counts that follow from the stored heartbeats.
#[derive(Clone, Debug, Default)]
pub(super) struct SumJudge {
    clock: StampClock,
    connectors: BTreeMap<usize, ConnectorCounts>,
    /// Time of the last step of counting, from which the periods reach back.
    counted_at: Option<i64>,
}

impl SumJudge {
    fn beat(&mut self, beat: &SentBeat) -> Result<(), String> {
        let BeatAnswer::Accepted { received_at, late } = beat.answer else { return Ok(()) };
        let stamp = self.clock.stamp(beat.wall);
        if received_at != stamp {
            return Err(format!("{beat:?} should have the time {stamp}"));
        }
        let connector = self.connectors.entry(beat.connector).or_default();
        let newest = connector.processes.get(&beat.instance).copied();
        let is_capped = beat.sent_at > stamp + MAX_SENT_AHEAD;
        let candidate = newest.filter(|it| it.beat.uptime_s >= beat.uptime_s);
        let is_older = candidate.is_some_and(|it| it.beat.sent_at >= beat.sent_at);
        // Send times that were capped may be compared otherwise.
        let is_known = candidate.is_none_or(|it| !it.is_capped && !is_capped);
        if is_known && late != is_older {
            return Err(format!("{beat:?} after {newest:?}: late is {late}"));
        }
        let mut counts = BeatCounts::default();
        if !late {
            connector.is_archived = false;
            connector.processes.insert(beat.instance, NewestBeat { beat: *beat, is_capped });
            let before = newest.map_or(0, |it| it.beat.done);
            // A counter that went down began again.
            let grown = |now: i64, before: i64| if now < before { now } else { now - before };
            counts = [grown(beat.done, before), grown(beat.done / 2, before / 2), 1];
            add(&mut connector.total, counts);
        }
        connector.log.push(LoggedBeat { stamp, counts, is_counted: false });
        Ok(())
    }

    /// A correction may lower send times to the store's clock.
    fn ticked(&mut self, wall: i64) {
        for newest in self.connectors.values_mut().flat_map(|it| it.processes.values_mut()) {
            newest.is_capped |= newest.beat.sent_at > wall;
        }
    }

    fn rolled(&mut self, wall: i64) {
        self.counted_at = Some(self.clock.stamp(wall));
        for connector in self.connectors.values_mut() {
            for beat in connector.log.iter_mut().filter(|it| !it.is_counted) {
                beat.is_counted = true;
                if beat.counts[2] > 0 {
                    let hour = start(beat.stamp, HOUR);
                    add(connector.hours.entry(hour).or_default(), beat.counts);
                }
            }
        }
    }

    /// Compares the periods with the hours that were counted.
    fn sums(&self, sums: &[Vec<(usize, i64, i64)>; 3]) -> Result<(), String> {
        let Some(now) = self.counted_at else { return Ok(()) };
        for ((step, before), sums) in PERIODS.into_iter().zip(sums) {
            let since = start(now, step) - before * step;
            let shown = self.connectors.iter().filter(|(_, it)| !it.is_archived);
            let expected: Vec<(usize, i64, i64)> = shown
                .map(|(connector, it)| {
                    let mut sum = BeatCounts::default();
                    it.hours.range(since..).for_each(|(_, counts)| add(&mut sum, *counts));
                    (*connector, sum[0], sum[1])
                })
                .collect();
            if *sums != expected {
                return Err(format!("the sums since {since} are {sums:?} instead of {expected:?}"));
            }
        }
        Ok(())
    }

    /// Judges a deletion from the history: whole days, and only heartbeats that were counted.
    fn pruned(&mut self, keep: Micros, deleted: u64) -> Result<(), String> {
        let before = start(self.clock.reached - keep, DAY);
        let mut expected = 0;
        for connector in self.connectors.values_mut() {
            let all = connector.log.len();
            connector.log.retain(|it| it.stamp >= before || !it.is_counted);
            expected += (all - connector.log.len()) as u64;
        }
        if deleted == expected {
            return Ok(());
        }
        Err(format!("{deleted} heartbeats were deleted instead of {expected}"))
    }

    fn series(
        &self,
        connector: usize,
        step: Micros,
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
        Err(format!("connector {connector} by {step} us is {shown:?} instead of {expected:?}"))
    }

    fn counters(&self, connector: usize, counters: Option<[i64; 2]>) -> Result<(), String> {
        let expected = self.connectors.get(&connector).map(|it| [it.total[0], it.total[1]]);
        if counters == expected {
            return Ok(());
        }
        Err(format!("the counters of {connector} are {counters:?} instead of {expected:?}"))
    }
}

fn add(sum: &mut BeatCounts, counts: BeatCounts) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

fn start(time: i64, step: Micros) -> i64 {
    time - time.rem_euclid(step)
}

impl HistoryJudge for SumJudge {
    const NAME: &'static str = "sums";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        self.clock.see(step);
        match step {
            SwitchStep::Ticked { wall, .. } => self.ticked(*wall),
            SwitchStep::Beat(beat) => return self.beat(beat),
            SwitchStep::ConnectorDeleted(connector) => {
                self.connectors.remove(connector);
            }
            SwitchStep::Archived(connector, archived) => {
                if let Some(known) = self.connectors.get_mut(connector) {
                    known.is_archived = *archived;
                }
            }
            SwitchStep::Rolled { wall, fenced, sums, .. } => {
                if !fenced {
                    self.rolled(*wall);
                }
                return self.sums(sums);
            }
            SwitchStep::HistoryPruned { keep, deleted } => return self.pruned(*keep, *deleted),
            SwitchStep::Series { connector, counters, hours, days } => {
                self.counters(*connector, *counters)?;
                self.series(*connector, HOUR, hours)?;
                self.series(*connector, DAY, days)?;
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
