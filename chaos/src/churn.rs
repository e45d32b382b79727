//! Instances that join and leave for minutes, while the resources of what stays must not grow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tenure::store::Retention;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::record::now;
use crate::report::ChaosReport;
use crate::run::{ChaosOptions, ChaosRun, judge, say};
use crate::store::StoreUnderTest;

/// Resources at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Memory of the surviving instance, in KiB.
    memory: u64,
    /// Its open files.
    handles: u64,
    /// Memory of the server, in KiB; zero if there is none.
    server: u64,
    /// Rows or keys of the store.
    rows: u64,
}

/// Report of a churn run.
#[derive(Debug)]
pub struct Churned {
    samples: Vec<Sample>,
    /// Total number of instances that were started.
    pub came: usize,
    /// Everything else.
    pub report: ChaosReport,
}

/// Samples per run, for any length.
const SAMPLES: u32 = 60;
/// Pause between two joins or leaves.
const CHANGE_INTERVAL: Duration = Duration::from_millis(1_500);
/// Entries of the audit trail: few, so that it is full within the first third.
const AUDIT: usize = 1_000;
/// Rows that an instance may leave behind for a week: its session, so that it never returns.
const MAX_LEFT_ROWS: u64 = 4;

impl Churned {
    /// Mean of a value over the first or the last third.
    fn third(&self, last: bool, value: fn(&Sample) -> u64) -> u64 {
        let size = (self.samples.len() / 3).max(1);
        let part = match last {
            true => &self.samples[self.samples.len().saturating_sub(size)..],
            false => &self.samples[..size.min(self.samples.len())],
        };
        part.iter().map(value).sum::<u64>() / (part.len() as u64).max(1)
    }

    /// Returns name, value in the first third, value in the last third, and limit of each measure.
    fn rows(&self) -> [(&'static str, u64, u64, u64); 4] {
        let row = |name, value: fn(&Sample) -> u64, limit: fn(u64) -> u64, more: u64| {
            let first = self.third(false, value);
            (name, first, self.third(true, value), limit(first) + more)
        };
        let left_behind = self.came as u64 * MAX_LEFT_ROWS + AUDIT as u64 / 2;
        [
            row("memory, KiB", |one| one.memory, |first| first + first / 5, 4_096),
            row("handles", |one| one.handles, |first| first, 4),
            row("server memory, KiB", |one| one.server, |first| first + first / 2, 32_768),
            row("rows", |one| one.rows, |first| first + first / 10, left_behind),
        ]
    }

    /// Returns a finding for each measure that has grown.
    pub fn wrong(&self) -> Vec<String> {
        let grown = self.rows().into_iter().filter(|(_, _, last, limit)| last > limit);
        let grown = grown.map(|(name, first, last, limit)| {
            format!("{name} grew from {first} to {last}, the limit is {limit}")
        });
        self.report.wrong.iter().cloned().chain(grown).collect()
    }
}

impl fmt::Display for Churned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.report)?;
        writeln!(f, "{} instances were started", self.came)?;
        writeln!(f, "moves cover only about the last {AUDIT} audit records")?;
        writeln!(f, "{:<20} {:>11} {:>11} {:>11}", "", "first third", "last third", "limit")?;
        for (name, first, last, limit) in self.rows() {
            writeln!(f, "{name:<20} {first:>11} {last:>11} {limit:>11}")?;
        }
        for wrong in self.wrong() {
            writeln!(f, "BROKEN: {wrong}")?;
        }
        Ok(())
    }
}

/// Lets instances join and leave while the first one stays.
pub async fn churn(options: &ChaosOptions) -> Result<Churned> {
    let world = Arc::new(
        ChaosRun::new(StoreUnderTest::start(options.kind).await?, options, options.instances)
            .await?,
    );
    world.store.retain(Retention { history_slots: 16, audit_kept: AUDIT }).await?;
    world.fleet.lock().await.start(0, None)?;
    timeout(options.patience, world.working()).await.context("the group did not begin")?;
    let (began, from) = (Instant::now(), now());
    let (mut samples, mut turn) = (Vec::new(), 0);
    let mut leaving = JoinSet::new();
    while began.elapsed() < options.length {
        let look = options.length * (samples.len() as u32 + 1) / SAMPLES;
        if began.elapsed() >= look {
            let sample = sample(&world).await?;
            say(&format!("{:6.1} s  {sample:?}", began.elapsed().as_secs_f64()));
            samples.push(sample);
        }
        if let Some(left) = change(&world, turn, options.instances).await? {
            leaving.spawn(left.gone());
        }
        turn += 1;
        sleep(CHANGE_INTERVAL).await;
    }
    while let Some(left) = leaving.join_next().await {
        left??;
    }
    let until = now();
    world.leave(options.instances).await?;
    let mut report = judge(&world, options, from, until).await?;
    report.faults = BTreeMap::from([("join or leave", turn)]);
    let came = report.instances;
    Ok(Churned { samples, came, report })
}

/// Fills or empties the next slot in turn: by a graceful stop, or by `kill -9`.
async fn change(
    world: &ChaosRun,
    turn: usize,
    slots: usize,
) -> Result<Option<crate::fleet::Leaving>> {
    // The first instance stays.
    let slot = 1 + turn % (slots - 1);
    let mut fleet = world.fleet.lock().await;
    if fleet.pid(slot).is_none() {
        fleet.start(slot, None)?;
        return Ok(None);
    }
    let killed = turn.is_multiple_of(5);
    Ok(fleet.end(slot, if killed { Signal::SIGKILL } else { Signal::SIGTERM }))
}

async fn sample(world: &Arc<ChaosRun>) -> Result<Sample> {
    let survivor = world.fleet.lock().await.pid(0).context("the first instance has ended")?;
    let place = Arc::clone(&world.place);
    let looking = move || -> Result<Sample> {
        Ok(Sample {
            memory: memory(survivor)?,
            handles: std::fs::read_dir(format!("/proc/{survivor}/fd"))?.count() as u64,
            server: place.pid().map(memory).transpose()?.unwrap_or(0),
            rows: place.rows()?,
        })
    };
    tokio::task::spawn_blocking(looking).await?
}

/// Returns the resident memory of a process in KiB.
fn memory(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.context("no VmRSS in /proc")?.parse().context("VmRSS is not a number")
}
