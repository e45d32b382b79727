//! Report of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::belief::Belief;
use crate::store::ChaosStore;

/// Outcome of one run.
#[derive(Debug)]
pub struct ChaosReport {
    /// The store.
    pub kind: ChaosStore,
    /// Seed of the faults.
    pub seed: u64,
    /// Length of the phase with faults.
    pub lasted: Duration,
    /// Occurrences of each fault.
    pub faults: BTreeMap<&'static str, usize>,
    /// Instances that were started.
    pub instances: usize,
    /// Effects that were accepted.
    pub effects: usize,
    /// Grants to another instance than before.
    pub moves: usize,
    /// The longest time without an effect, for each duty.
    pub gaps: Vec<(String, Duration)>,
    /// Accepted effects that overlapped those of a newer epoch.
    pub overlapping: usize,
    /// Overlap that the deadline alone would have allowed.
    pub belief: Belief,
    /// Commits under an older epoch that the store refused.
    pub refused: usize,
    /// Commits whose outcome the instance does not know.
    pub unknown: usize,
    /// Time from the end of the faults until every duty was held and acted on again, if measured.
    pub recovered: Option<Duration>,
    /// Findings; empty for a good run.
    pub wrong: Vec<String>,
}

impl ChaosReport {
    /// Whether there are no findings.
    pub fn is_sound(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Returns the longest gap of any duty.
    pub fn longest_gap(&self) -> Duration {
        self.gaps.iter().map(|(_, gap)| *gap).max().unwrap_or_default()
    }
}

/// Number of findings that are shown.
const MAX_SHOWN_FINDINGS: usize = 20;

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |nanos: u64| nanos / 1_000_000;
        let faults: Vec<_> =
            self.faults.iter().map(|(word, count)| format!("{word} {count}")).collect();
        let gaps: Vec<_> = self
            .gaps
            .iter()
            .map(|(duty, gap)| format!("{duty}: {:.1}", gap.as_secs_f64()))
            .collect();
        writeln!(f, "store                {} (seed {})", self.kind, self.seed)?;
        writeln!(f, "faults for           {:.0} s", self.lasted.as_secs_f64())?;
        writeln!(f, "faults               {}", faults.join(", "))?;
        writeln!(f, "instances started    {}", self.instances)?;
        writeln!(f, "effects accepted     {}", self.effects)?;
        writeln!(f, "duties moved         {}", self.moves)?;
        writeln!(f, "longest gap          {:.1} s", self.longest_gap().as_secs_f64())?;
        writeln!(f, "  by duty, s         {}", gaps.join(", "))?;
        writeln!(f, "overlapping effects  {}", self.overlapping)?;
        let Belief { overlap, longest, plain, plain_late } = self.belief;
        let (overlap, longest) = (ms(overlap), ms(longest));
        writeln!(f, "believed overlap     {overlap} ms in all, {longest} ms at most")?;
        writeln!(f, "  without a fence    {plain_late} of {plain} effects came too late")?;
        writeln!(f, "stale commits        {} refused by the store", self.refused)?;
        writeln!(f, "unknown outcomes     {}", self.unknown)?;
        if let Some(after) = self.recovered {
            writeln!(f, "recovered after      {:.1} s", after.as_secs_f64())?;
        }
        for wrong in self.wrong.iter().take(MAX_SHOWN_FINDINGS) {
            writeln!(f, "BROKEN: {wrong}")?;
        }
        let word = if self.is_sound() { "nothing was broken" } else { "BROKEN" };
        write!(f, "verdict              {word}")
    }
}
