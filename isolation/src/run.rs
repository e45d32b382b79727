//! Runs all pairs at all levels with several workers, and sums up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use crate::bench::{Alone, Bench};
use crate::contract;
use crate::discover::{FoundStops, discover};
use crate::judge::{ScheduleVerdict, Serial, judge};
use crate::level::{ConnectionPath, IsolationLevel};
use crate::operations::{Answer, Kind, TestedOperation};
use crate::server::{PreparedServer, Side};
use crate::stop::{COMMIT, Stop};

/// Choice of pairs, levels and stops.
#[derive(Clone, Debug, Default)]
pub struct IsolationOptions {
    /// Only these pairs, the first of each being stopped; all if empty.
    pub pairs: Vec<(String, String)>,
    /// Only at these levels; all if empty.
    pub levels: Vec<IsolationLevel>,
    /// Only stops whose text contains this.
    pub stop: Option<String>,
    /// Number of workers; 4 if zero.
    pub jobs: usize,
}

/// A schedule that no serial order explains.
#[derive(Clone, Debug)]
pub struct IsolationFinding {
    /// The operation that was stopped, and the one that ran meanwhile.
    pub pair: [&'static str; 2],
    /// The stop of the first.
    pub stop: String,
    /// The level.
    pub level: IsolationLevel,
    /// Differences.
    pub lines: Vec<String>,
}

/// Numbers and findings of a run.
#[derive(Clone, Debug, Default)]
pub struct IsolationReport {
    /// Operations that were stopped somewhere, by level.
    pub operations: usize,
    /// Operations that are refused at a raw level, also alone, by level.
    pub refused_alone: usize,
    /// Operations that never wait for a lock.
    pub never_blocked: BTreeSet<&'static str>,
    /// Places where an operation was stopped, by level and operation.
    pub stops: usize,
    /// Ordered pairs that were run.
    pub pairs: usize,
    /// Ordered pairs that share no table and no lock.
    pub apart: usize,
    /// Schedules.
    pub schedules: usize,
    /// Schedules in which the second operation waited for the first.
    pub waited: usize,
    /// Schedules in which an operation was refused and changed nothing.
    pub refused: usize,
    /// Schedules in which an operation answered that it lost against the other one.
    pub lost: usize,
    /// Schedules in which an operation skipped a locked row.
    pub skipped: usize,
    /// Refusals, where the operation alone is not refused, by operation and text.
    pub refusals: BTreeMap<String, usize>,
    /// Schedules that no serial order explains.
    pub findings: Vec<IsolationFinding>,
}

/// Parts of the subject that no schedule reaches.
pub const NOT_COVERED: &str = "\
not covered: three operations at once; an operation stopped twice; pauses between two calls of one
client, or between two statements of a call where the second takes no lock; reads are run while the
other is stopped, and not stopped themselves; opening a store (migrations, trimming the audit
trail), dropping partitions of the history, notifications, standbys";

impl IsolationReport {
    fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.refused_alone += other.refused_alone;
        self.never_blocked.extend(other.never_blocked);
        self.stops += other.stops;
        self.pairs += other.pairs;
        self.apart += other.apart;
        self.schedules += other.schedules;
        self.waited += other.waited;
        self.refused += other.refused;
        self.lost += other.lost;
        self.skipped += other.skipped;
        for (refusal, count) in other.refusals {
            *self.refusals.entry(refusal).or_default() += count;
        }
        self.findings.extend(other.findings);
    }
}

impl fmt::Display for IsolationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let Self { operations, stops, pairs, apart, schedules, waited, .. } = self;
        writeln!(f, "{operations} operations stopped at {stops} places, {pairs} pairs")?;
        writeln!(f, "{apart} more pairs share no table and no lock")?;
        let alone = self.refused_alone;
        writeln!(f, "{alone} operations were refused for their level, also alone")?;
        writeln!(
            f,
            "{schedules} schedules: in {waited} the second operation waited for the first"
        )?;
        let Self { refused, lost, skipped, .. } = self;
        writeln!(
            f,
            "{refused} refused without effect, {lost} lost, {skipped} skipped a locked row"
        )?;
        for (refusal, count) in &self.refusals {
            writeln!(f, "  {count} x {refusal}")?;
        }
        let never: Vec<&str> = self.never_blocked.iter().copied().collect();
        writeln!(f, "never blocked by a lock: {}", never.join(", "))?;
        writeln!(f, "{NOT_COVERED}")?;
        write!(f, "{} findings", self.findings.len())
    }
}

impl fmt::Display for IsolationFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pair: [a, b], stop, level, lines } = self;
        writeln!(f, "FOUND {a} stopped at: {stop}; meanwhile {b}; level {level}")?;
        for line in lines {
            writeln!(f, "  {line}")?;
        }
        let repeat = format!("--pairs {a},{b} --level {level} --stop '{stop}'");
        writeln!(f, "  repeat it: cargo xtask isolation {repeat}")
    }
}

/// Runs pairs of these operations on a prepared server.
pub async fn run(
    server: Arc<PreparedServer>,
    operations: &[TestedOperation],
    options: &IsolationOptions,
    progress: fn(&str),
) -> Result<IsolationReport> {
    for name in options.pairs.iter().flat_map(|(a, b)| [a, b]) {
        ensure!(operations.iter().any(|it| it.name == name), "there is no operation {name:?}");
    }
    let jobs = if options.jobs == 0 { 4 } else { options.jobs };
    let databases: Vec<String> = (0..jobs).map(|job| format!("iso_{job}")).collect();
    for database in &databases {
        server.create(database)?;
    }
    let levels = if options.levels.is_empty() {
        IsolationLevel::ALL.to_vec()
    } else {
        options.levels.clone()
    };
    let mut report = IsolationReport::default();
    for level in levels {
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        for database in databases.clone() {
            let (server, operations) = (server.clone(), operations.to_vec());
            let (options, next) = (options.clone(), next.clone());
            workers.spawn(async move {
                let bench = Bench::open(&server, &database, level).await?;
                ScheduleWorker::new(bench, operations, options, progress).work(&next).await
            });
        }
        while let Some(done) = workers.join_next().await {
            report.add(done??);
        }
    }
    Ok(report)
}

/// One worker at one level.
struct ScheduleWorker {
    bench: Bench,
    operations: Vec<TestedOperation>,
    options: IsolationOptions,
    progress: fn(&str),
    alone: BTreeMap<&'static str, Alone>,
    found: BTreeMap<&'static str, FoundStops>,
    report: IsolationReport,
}

impl ScheduleWorker {
    fn new(
        bench: Bench,
        operations: Vec<TestedOperation>,
        options: IsolationOptions,
        progress: fn(&str),
    ) -> Self {
        let (alone, found, report) = Default::default();
        Self { bench, operations, options, progress, alone, found, report }
    }

    async fn work(mut self, next: &AtomicUsize) -> Result<IsolationReport> {
        let operations = self.operations.clone();
        let total = operations.len();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(a) = operations.get(index) else { return Ok(self.report) };
            let others: Vec<&TestedOperation> =
                operations.iter().filter(|b| self.wants(a, b)).collect();
            if others.is_empty() || a.kind == Kind::Read {
                continue;
            }
            self.stop_everywhere(a, &others).await?;
            let (level, schedules) = (self.bench.level, self.report.schedules);
            let name = a.name;
            (self.progress)(&format!(
                "{level} {}/{total} {name}: {schedules} schedules",
                index + 1
            ));
        }
    }

    fn wants(&self, a: &TestedOperation, b: &TestedOperation) -> bool {
        let is = |(first, second): &(String, String)| first == a.name && second == b.name;
        if !self.options.pairs.is_empty() {
            return self.options.pairs.iter().any(is);
        }
        let is_main = self.is_full() || a.name == b.name || contract::is_final(b, a);
        is_main && a.part == b.part
    }

    /// Whether all pairs and stops are run: elsewhere the same statements run at the same level.
    fn is_full(&self) -> bool {
        let level = self.bench.level;
        let is_chosen = self.options.levels.len() == 1 || !self.options.pairs.is_empty();
        is_chosen || level == IsolationLevel::READ_COMMITTED || level.path == ConnectionPath::Raw
    }

    async fn stop_everywhere(
        &mut self,
        a: &TestedOperation,
        others: &[&TestedOperation],
    ) -> Result<()> {
        if matches!(self.alone(a).await?.answer, Answer::Refused(_)) {
            // It is refused before it does anything, whatever the others do.
            self.report.refused_alone += 1;
            return Ok(());
        }
        let found = self.found(a).await?;
        self.report.operations += 1;
        if found.stops.is_empty() {
            self.report.never_blocked.insert(a.name);
            return Ok(());
        }
        let is_commit = |stop: &Stop| *stop == Stop::point(COMMIT);
        let full = self.is_full();
        let last = found.stops.iter().find(|stop| is_commit(stop)).or(found.stops.first());
        let last: Vec<Stop> = last.cloned().into_iter().collect();
        let stops = if full { found.stops.clone() } else { last.clone() };
        let text = self.options.stop.clone();
        let is_wanted = |stop: &&Stop| text.as_ref().is_none_or(|it| stop.to_string().contains(it));
        let stops: Vec<Stop> = stops.iter().filter(is_wanted).cloned().collect();
        self.report.stops += stops.len();
        for b in others {
            let is_read = b.kind == Kind::Read;
            if !is_read && !found.meets(&self.found(b).await?) {
                self.report.apart += 1;
                continue;
            }
            self.report.pairs += 1;
            let stops = if is_read && text.is_none() { &last } else { &stops };
            self.pair(a, b, stops).await?;
        }
        Ok(())
    }

    async fn pair(
        &mut self,
        a: &TestedOperation,
        b: &TestedOperation,
        stops: &[Stop],
    ) -> Result<()> {
        let mut serial = Serial::of(&self.bench, a, b).await?;
        for stop in stops {
            let mut verdict = ScheduleVerdict::Serial;
            // A difference is reported if it repeats: the first may be due to the hour's change.
            for _ in 0..2 {
                let Some(played) = self.bench.play(a, b, stop).await? else {
                    verdict = ScheduleVerdict::Found(vec![format!("{} was not stopped", a.name)]);
                    break;
                };
                self.report.schedules += 1;
                self.report.waited += usize::from(played.b_waited);
                let alone = [self.alone(a).await?, self.alone(b).await?];
                let both = [&alone[0], &alone[1]];
                verdict = judge(&self.bench, [a, b], &played, &serial, both).await?;
                self.count(&[a, b], &played.outcome.a, &played.outcome.b, &both);
                if !matches!(verdict, ScheduleVerdict::Found(_)) {
                    break;
                }
                serial = Serial::of(&self.bench, a, b).await?;
            }
            match verdict {
                ScheduleVerdict::Serial => {}
                ScheduleVerdict::Refused => self.report.refused += 1,
                ScheduleVerdict::Lost => self.report.lost += 1,
                ScheduleVerdict::Skipped => self.report.skipped += 1,
                ScheduleVerdict::Found(lines) => {
                    let (stop, level) = (stop.to_string(), self.bench.level);
                    let pair = [a.name, b.name];
                    let finding = IsolationFinding { pair, stop, level, lines };
                    (self.progress)(&finding.to_string());
                    self.report.findings.push(finding);
                }
            }
        }
        Ok(())
    }

    /// Counts refusals that are due to the other operation.
    fn count(&mut self, pair: &[&TestedOperation; 2], a: &Answer, b: &Answer, alone: &[&Alone; 2]) {
        for ((operation, answer), alone) in pair.iter().zip([a, b]).zip(alone) {
            if let Answer::Refused(text) = answer
                && *answer != alone.answer
            {
                let key = format!("{}: {text}", operation.name);
                *self.report.refusals.entry(key).or_default() += 1;
            }
        }
    }

    async fn alone(&mut self, operation: &TestedOperation) -> Result<Alone> {
        if let Some(alone) = self.alone.get(operation.name) {
            return Ok(alone.clone());
        }
        let alone = self.bench.alone(operation, Side::B).await?;
        let is_refused = !matches!(alone.answer, Answer::Done(_));
        if is_refused && !self.bench.level.may_refuse() {
            let lines = vec![format!("alone it answered {:?}", alone.answer)];
            let (pair, level) = ([operation.name; 2], self.bench.level);
            self.report.findings.push(IsolationFinding {
                pair,
                stop: "nothing".to_owned(),
                level,
                lines,
            });
        }
        self.alone.insert(operation.name, alone.clone());
        Ok(alone)
    }

    async fn found(&mut self, operation: &TestedOperation) -> Result<FoundStops> {
        if let Some(found) = self.found.get(operation.name) {
            return Ok(found.clone());
        }
        let found = discover(&self.bench, operation).await?;
        self.found.insert(operation.name, found.clone());
        Ok(found)
    }
}
