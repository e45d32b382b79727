//! Rolling restart: moves and longest gaps when every instance is replaced by a newer one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tenure::GroupName;
use tokio::time::{Instant, sleep, timeout};

use crate::history::FinalState;
use crate::record::{InstanceLog, InstanceRecord, now};
use crate::report::ChaosReport;
use crate::run::{ChaosOptions, ChaosRun, SURVEY_INTERVAL, judge};
use crate::store::StoreUnderTest;

/// Report of a rolling restart.
#[derive(Debug)]
pub struct RollingReport {
    /// Whether a newer instance joined before the older one left.
    pub surge: bool,
    /// Grants since the first instances had settled.
    pub moves: usize,
    /// Largest number of grants of one duty.
    pub most: usize,
    /// Grants that a busy machine may have added.
    pub detours: usize,
    /// Allowed detours; with more of them the other limits are meaningless.
    pub max_detours: usize,
    /// Allowed grants without detours.
    pub allowed: usize,
    /// Longest allowed gap.
    pub bar: Duration,
    /// Everything else.
    pub report: ChaosReport,
}

impl RollingReport {
    /// Returns a finding for each bound of a restart that was exceeded.
    pub fn wrong(&self) -> Vec<String> {
        let Self { moves, most, detours, max_detours, allowed, bar, .. } = self;
        let mut wrong = self.report.wrong.clone();
        if detours > max_detours {
            wrong.push(format!("{detours} detours, {max_detours} are allowed"));
        }
        if *moves > allowed + detours {
            wrong.push(format!("{moves} moves, {allowed} are allowed, and {detours} detours"));
        }
        if self.surge && *most > 1 + detours {
            wrong.push(format!("one duty moved {most} times"));
        }
        let gap = self.report.longest_gap();
        if gap > *bar {
            wrong.push(format!("a duty was without effects for {gap:?}, the limit is {bar:?}"));
        }
        wrong
    }
}

impl fmt::Display for RollingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let surge = if self.surge { "with surge" } else { "without surge" };
        let mut gaps: Vec<_> = self.report.gaps.iter().map(|(_, gap)| gap.as_millis()).collect();
        gaps.sort_unstable();
        let middle = gaps.get(gaps.len() / 2).unwrap_or(&0);
        let longest = gaps.last().unwrap_or(&0);
        let Self { moves, most, detours, max_detours, allowed, bar, .. } = self;
        writeln!(f, "rolling restart      {}, {surge}", self.report.kind)?;
        writeln!(f, "moves                {moves} of {allowed} allowed")?;
        writeln!(f, "  detours            {detours} of {max_detours} allowed")?;
        writeln!(f, "  of one duty        {most} at most")?;
        writeln!(f, "effects accepted     {}", self.report.effects)?;
        writeln!(f, "overlapping effects  {}", self.report.overlapping)?;
        let bar = bar.as_millis();
        write!(f, "longest gap          {longest} ms, {middle} ms in the middle, bar {bar} ms")?;
        for wrong in self.wrong() {
            write!(f, "\nBROKEN: {wrong}")?;
        }
        Ok(())
    }
}

/// Time limit for a planned handover of many duties, in addition to the pause between two events:
/// the bar of the slowest store, in `docs/benchmarks.md`.
const HANDOVER: Duration = Duration::from_secs(1);
/// Time limit for shares to become even; after that a detour counts as the reason.
const EVEN: Duration = Duration::from_secs(20);

/// Replaces every instance, one after another.
pub async fn rolling(options: &ChaosOptions, surge: bool) -> Result<RollingReport> {
    let count = options.instances;
    let world =
        ChaosRun::new(StoreUnderTest::start(options.kind).await?, options, count + 1).await?;
    let share = options.duties as usize / count;
    for slot in 0..count {
        world.fleet.lock().await.start(slot, Some("v1"))?;
    }
    settled(&world, options, count, share).await?;
    let first = FinalState::read(&*world.store, &world.group, 0).await?.grants.len();
    let (began, from) = (Instant::now(), now());
    for slot in 0..count {
        // With surge the newer one takes the slot that its predecessor left.
        let newer = if surge { (slot + count) % (count + 1) } else { slot };
        if surge {
            world.fleet.lock().await.start(newer, Some("v2"))?;
            joined(&world, count + 1).await?;
        }
        let leaving = world.fleet.lock().await.end(slot, Signal::SIGTERM);
        leaving.context("no instance runs in this slot")?.gone().await?;
        if !surge {
            settled(&world, options, count - 1, options.duties as usize / (count - 1)).await?;
            world.fleet.lock().await.start(newer, Some("v1"))?;
        }
        settled(&world, options, count, share).await?;
    }
    let until = now();
    world.leave(count + 1).await?;
    let mut report = judge(&world, options, from, until).await?;
    report.lasted = began.elapsed();
    let grants = FinalState::read(&*world.store, &world.group, 0).await?.grants;
    let mut of_duty: BTreeMap<&str, usize> = BTreeMap::new();
    for (duty, _, _) in &grants[first..] {
        *of_duty.entry(duty).or_default() += 1;
    }
    let detours = detours(&world.fleet.lock().await.told()?, from);
    let duties = options.duties as usize;
    Ok(RollingReport {
        surge,
        moves: grants.len() - first,
        most: of_duty.values().copied().max().unwrap_or(0),
        detours,
        max_detours: duties / 5,
        allowed: if surge { duties } else { 2 * duties },
        bar: options.pace + HANDOVER,
        report,
    })
}

/// Waits until there are this many members.
async fn joined(world: &ChaosRun, count: usize) -> Result<()> {
    let group = GroupName::new(world.group.clone())?;
    let waiting = async {
        while world.store.members(&group).await.map_or(0, |members| members.len()) != count {
            sleep(SURVEY_INTERVAL).await;
        }
    };
    timeout(EVEN, waiting).await.context("the newer instance does not join")
}

/// Waits until this many members hold everything, each its share or one more.
async fn settled(
    world: &ChaosRun,
    options: &ChaosOptions,
    count: usize,
    share: usize,
) -> Result<()> {
    let group = GroupName::new(world.group.clone())?;
    let began = Instant::now();
    let waiting = async {
        loop {
            let mut held: BTreeMap<String, usize> = BTreeMap::new();
            for holder in world.store.holders(&group).await.unwrap_or_default() {
                if let Some(now) = holder.holder {
                    *held.entry(now.instance.to_string()).or_default() += 1;
                }
            }
            let all = held.values().sum::<usize>() == options.duties as usize;
            let even =
                held.len() == count && held.values().all(|own| (share..=share + 1).contains(own));
            if all && (even || began.elapsed() > EVEN) {
                return;
            }
            sleep(SURVEY_INTERVAL).await;
        }
    };
    timeout(options.patience, waiting).await.context("not every duty is held")
}

/// Returns the grants that detours may have added: a duty that was not claimed in time, was lost by
/// a slow member, or whose work failed, is granted once more, and perhaps moves back.
fn detours(told: &[InstanceLog], from: u64) -> usize {
    let lost = ["taken_over", "expired", "revoked"];
    let is_detour = |line: &&InstanceRecord| match line {
        InstanceRecord::Record { at, change, reason, .. } => {
            let detour = reason == "unclaimed" || reason == "failed";
            *at >= from && (detour || lost.contains(&change.as_str()))
        }
        _ => false,
    };
    2 * told.iter().flat_map(|one| &one.lines).filter(is_detour).count()
}
