//! Runs all pairs at all levels with several workers, and sums up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use crate::bench::{Alone, Bench, Standstill};
use crate::contract;
use crate::discover::{FoundStops, discover};
use crate::judge::{ScheduleVerdict, Serial, judge};
use crate::level::{ConnectionPath, IsolationLevel};
use crate::operations::{Answer, Kind, TestedOperation};
use crate::server::{PreparedServer, Side};
use crate::stop::{COMMIT, Stop};

/// A schedule is run again if A was not stopped, a lock timed out, or its result differs once.
const MAX_TRIES: usize = 3;

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
    /// Schedules in which the second operation waited for what stopped the first.
    pub stopped_too: usize,
    /// Schedules that were run again, by reason.
    pub repeated: BTreeMap<String, usize>,
    /// Schedules in which an operation was refused and changed nothing.
    pub refused: usize,
    /// Schedules in which an operation answered that it lost against the other one, by pair.
    pub lost: BTreeMap<String, usize>,
    /// Schedules in which an operation skipped a locked row, by pair.
    pub skipped: BTreeMap<String, usize>,
    /// Refusals, where the operation alone is not refused, by operation and text.
    pub refusals: BTreeMap<String, usize>,
    /// Schedules that no serial order explains.
    pub findings: Vec<IsolationFinding>,
}

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
        self.stopped_too += other.stopped_too;
        self.refused += other.refused;
        for (counts, others) in [
            (&mut self.repeated, other.repeated),
            (&mut self.lost, other.lost),
            (&mut self.skipped, other.skipped),
            (&mut self.refusals, other.refusals),
        ] {
            others.into_iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
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
            "{schedules} schedules: in {waited} the second operation waited for the first, in {} \
             for what stopped it",
            self.stopped_too
        )?;
        writeln!(f, "{} schedules were refused without effect", self.refused)?;
        for (title, counts) in [
            ("refused", &self.refusals),
            ("lost", &self.lost),
            ("skipped a locked row", &self.skipped),
            ("run again", &self.repeated),
        ] {
            writeln!(f, "{title}: {}", counts.values().sum::<usize>())?;
            for (name, count) in counts {
                writeln!(f, "  {count} x {name}")?;
            }
        }
        let never: Vec<&str> = self.never_blocked.iter().copied().collect();
        writeln!(f, "never blocked by a lock: {}", never.join(", "))?;
        writeln!(f, "not covered: see docs/explanation/isolation.md")?;
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
    let part = |name: &String| {
        let operation = operations.iter().find(|it| it.name == *name);
        operation.map(|it| it.part).with_context(|| format!("there is no operation {name:?}"))
    };
    for (a, b) in &options.pairs {
        ensure!(part(a)? == part(b)?, "{a} and {b} share no table");
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
    /// By operation and hour.
    alone: BTreeMap<(&'static str, i64), Alone>,
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
        let is_main = self.is_full(a, b) || a.name == b.name || contract::is_final(b, a);
        is_main && a.part == b.part
    }

    /// Whether a pair is run with all stops: elsewhere the same statements run at the same level.
    fn is_full(&self, a: &TestedOperation, b: &TestedOperation) -> bool {
        let level = self.bench.level;
        let is_chosen = self.options.levels.len() == 1 || !self.options.pairs.is_empty();
        let is_effect = [a, b].iter().any(|it| it.kind == Kind::Effect);
        let is_raw = level.path == ConnectionPath::Raw;
        is_chosen || is_effect || is_raw || level == IsolationLevel::READ_COMMITTED
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
        let last = found.stops.iter().find(|stop| is_commit(stop)).or(found.stops.first());
        let last: Vec<Stop> = last.cloned().into_iter().collect();
        let text = self.options.stop.clone();
        let is_wanted = |stop: &&Stop| text.as_ref().is_none_or(|it| stop.to_string().contains(it));
        let chosen: Vec<Stop> = found.stops.iter().filter(is_wanted).cloned().collect();
        self.report.stops += chosen.len();
        for b in others {
            let is_read = b.kind == Kind::Read;
            if !is_read && !found.meets(&self.found(b).await?) {
                self.report.apart += 1;
                continue;
            }
            self.report.pairs += 1;
            // Before its commit, one transaction shows nothing to a read.
            let is_last = !self.is_full(a, b) || (is_read && a.kind != Kind::Steps);
            let stops = if is_last && text.is_none() { &last } else { &chosen };
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
        let names = format!("{} beside {}", a.name, b.name);
        for stop in stops {
            // What differed in the last try that was no serial order.
            let mut different = None;
            for attempt in 1..=MAX_TRIES {
                if serial.hour != self.bench.hour() {
                    serial = Serial::of(&self.bench, a, b).await?;
                }
                let reason = match self.schedule(a, b, stop, &serial).await? {
                    ScheduleVerdict::Serial => break,
                    ScheduleVerdict::Refused => {
                        self.report.refused += 1;
                        break;
                    }
                    ScheduleVerdict::Lost => {
                        *self.report.lost.entry(names.clone()).or_default() += 1;
                        break;
                    }
                    ScheduleVerdict::Skipped => {
                        *self.report.skipped.entry(names.clone()).or_default() += 1;
                        break;
                    }
                    ScheduleVerdict::Never(line) => {
                        self.find([a.name, b.name], stop.to_string(), vec![line]);
                        break;
                    }
                    ScheduleVerdict::Found(lines) if different.is_some() => {
                        self.find([a.name, b.name], stop.to_string(), lines);
                        break;
                    }
                    ScheduleVerdict::Found(lines) => {
                        different = Some(lines);
                        "difference"
                    }
                    ScheduleVerdict::Unusable(reason) => reason,
                };
                if attempt == MAX_TRIES {
                    let lines = different.take().unwrap_or_else(|| vec![reason.to_owned()]);
                    self.find([a.name, b.name], stop.to_string(), lines);
                    break;
                }
                *self.report.repeated.entry(format!("{reason}: {names}")).or_default() += 1;
            }
        }
        Ok(())
    }

    async fn schedule(
        &mut self,
        a: &TestedOperation,
        b: &TestedOperation,
        stop: &Stop,
        serial: &Serial,
    ) -> Result<ScheduleVerdict> {
        let Some(played) = self.bench.play(a, b, stop).await? else {
            return Ok(ScheduleVerdict::Unusable("not stopped"));
        };
        self.report.schedules += 1;
        self.report.waited += usize::from(played.b == Standstill::WaitsForOther);
        self.report.stopped_too += usize::from(played.b == Standstill::Waits);
        let alone = [self.alone(a).await?, self.alone(b).await?];
        let both = [&alone[0], &alone[1]];
        self.count(&[a, b], &played.outcome.a, &played.outcome.b, &both);
        judge(&self.bench, [a, b], &played, serial, both).await
    }

    fn find(&mut self, pair: [&'static str; 2], stop: String, lines: Vec<String>) {
        let finding = IsolationFinding { pair, stop, level: self.bench.level, lines };
        (self.progress)(&finding.to_string());
        self.report.findings.push(finding);
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
        let key = (operation.name, self.bench.hour());
        if let Some(alone) = self.alone.get(&key) {
            return Ok(alone.clone());
        }
        let alone = self.bench.alone(operation, Side::B, false).await?;
        let said = format!("alone it answered {:?}", alone.answer);
        let before = self.bench.prepared(operation.part)?;
        let is_refused = !matches!(alone.answer, Answer::Done(_));
        if is_refused && !self.bench.level.may_refuse() {
            self.find([operation.name; 2], "nothing".to_owned(), vec![said]);
        } else if is_refused && alone.state != before {
            let lines = [vec![said], before.differences(&alone.state)].concat();
            self.find([operation.name; 2], "nothing".to_owned(), lines);
        }
        self.alone.insert(key, alone.clone());
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
