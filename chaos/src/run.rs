//! Chaos run: a store, a fleet, faults, recovery, checks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use tenure::store::Retention;
use tenure::{DutyKey, GroupName, Store};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::belief;
use crate::fleet::{Crew, Fleet};
use crate::history::{FinalState, RunHistory};
use crate::record::{CommitResult, InstanceLog, InstanceRecord, now};
use crate::report::ChaosReport;
use crate::schedule::{ChaosFault, PlannedFault, schedule};
use crate::store::{ChaosStore, StoreUnderTest};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct ChaosOptions {
    /// Program of an instance.
    pub program: PathBuf,
    /// The store.
    pub kind: ChaosStore,
    /// Seed of the faults.
    pub seed: u64,
    /// Length of the phase with faults.
    pub length: Duration,
    /// Number of instances.
    pub instances: usize,
    /// Number of duties.
    pub duties: u32,
    /// The TTL.
    pub ttl: Duration,
    /// Pause between two events of a duty.
    pub pace: Duration,
    /// Time limit for the group to recover.
    pub patience: Duration,
    /// Whether the instances ignore their guards and the fence.
    pub careless: bool,
    /// Whether to print progress.
    pub verbose: bool,
    /// Whether to keep the files of the instances.
    pub keep: bool,
}

impl ChaosOptions {
    /// Returns options for four instances and eight duties, with faults for `length`.
    pub fn new(program: PathBuf, kind: ChaosStore, seed: u64, length: Duration) -> Self {
        let (ttl, patience) = (Duration::from_secs(2), Duration::from_secs(90));
        Self {
            program,
            kind,
            seed,
            length,
            instances: 4,
            duties: 8,
            ttl,
            pace: Duration::from_millis(100),
            patience,
            careless: false,
            verbose: false,
            keep: false,
        }
    }
}

/// Interval between two reads of state that other processes change.
pub(crate) const SURVEY_INTERVAL: Duration = Duration::from_millis(200);

/// Instances and store that faults act on.
#[derive(Debug)]
pub(crate) struct ChaosRun {
    pub(crate) place: Arc<StoreUnderTest>,
    pub(crate) fleet: Mutex<Fleet>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) group: String,
    duties: u32,
    /// Lock per slot: faults of one slot do not overlap.
    turns: Vec<Mutex<()>>,
}

impl ChaosRun {
    /// Prepares a run with this store and number of slots.
    pub(crate) async fn new(
        place: Arc<StoreUnderTest>,
        options: &ChaosOptions,
        slots: usize,
    ) -> Result<Self> {
        let store = place.store().await?;
        // Keep as much history as possible for the checks.
        let slots_kept = Retention::MAX_SLOTS;
        let kept = Retention { history_slots: slots_kept, ..Retention::default() };
        store.retain(kept).await?;
        let group = "chaos".to_owned();
        let crew = Crew {
            program: options.program.clone(),
            url: place.url.clone(),
            group: group.clone(),
            duties: options.duties,
            ttl: options.ttl,
            pace: options.pace,
            careless: options.careless,
        };
        let fleet = Mutex::new(Fleet::new(crew, slots)?);
        let turns = (0..slots).map(|_| Mutex::new(())).collect();
        Ok(Self { place, fleet, store, group, duties: options.duties, turns })
    }

    fn keys(&self) -> Result<Vec<DutyKey>> {
        let key = |duty: u32| Ok(DutyKey::new(self.group.clone(), duty.to_string())?);
        (0..self.duties).map(key).collect()
    }

    /// Returns the version of each duty's checkpoint; zero if there is none.
    async fn versions(&self) -> Result<Vec<u64>> {
        let loaded = self.store.load(&self.keys()?).await?;
        let version = |found: &Option<tenure::store::Checkpoint>| {
            found.as_ref().map_or(0, |found| found.version.get())
        };
        Ok(loaded.iter().map(version).collect())
    }

    async fn all_held(&self) -> Result<bool> {
        let holders = self.store.holders(&GroupName::new(self.group.clone())?).await?;
        let held = holders.iter().filter(|holder| holder.holder.is_some()).count();
        Ok(held == self.duties as usize)
    }

    /// Waits until every duty is held and was acted on since the call.
    pub(crate) async fn working(&self) {
        // A store that was just started may refuse the first reads.
        let mut first: Option<Vec<u64>> = None;
        loop {
            if let Ok(versions) = self.versions().await {
                let began = first.get_or_insert_with(|| versions.clone());
                let moved = versions.iter().zip(began).all(|(now, then)| now > then);
                if moved && self.all_held().await.unwrap_or(false) {
                    return;
                }
            }
            sleep(SURVEY_INTERVAL).await;
        }
    }

    /// Waits until every duty is held; for instances that write no checkpoints.
    async fn held(&self) {
        while !self.all_held().await.unwrap_or(false) {
            sleep(SURVEY_INTERVAL).await;
        }
    }

    /// Asks every instance to leave, and waits until all are gone.
    pub(crate) async fn leave(&self, slots: usize) -> Result<()> {
        let ending: Vec<_> = {
            let mut fleet = self.fleet.lock().await;
            (0..slots).filter_map(|slot| fleet.end(slot, Signal::SIGTERM)).collect()
        };
        for one in ending {
            one.gone().await?;
        }
        Ok(())
    }

    /// Performs one fault to its end; returns whether it took effect.
    async fn suffer(self: Arc<Self>, planned: PlannedFault, guest: usize) -> Result<bool> {
        let PlannedFault { lasts, fault, .. } = planned;
        match fault {
            ChaosFault::Kill(slot) => return self.replace(slot, Signal::SIGKILL, lasts).await,
            ChaosFault::Leave(slot) => return self.replace(slot, Signal::SIGTERM, lasts).await,
            ChaosFault::Stop(slot) => {
                let _turn = self.turns[slot].lock().await;
                let stopped = self.fleet.lock().await.signal(slot, Signal::SIGSTOP);
                sleep(lasts).await;
                let woken = self.fleet.lock().await.signal(slot, Signal::SIGCONT);
                return Ok(stopped && woken);
            }
            ChaosFault::Guest => {
                let turn = self.turns[guest].lock().await;
                self.fleet.lock().await.start(guest, None)?;
                sleep(lasts).await;
                let leaving = self.fleet.lock().await.end(guest, Signal::SIGTERM);
                drop(turn);
                let Some(leaving) = leaving else { return Ok(false) };
                leaving.gone().await?;
            }
            ChaosFault::Drop => self.place.wire(|wire| wire.dropped += 1),
            ChaosFault::Server => self.place.restart(lasts).await?,
            ChaosFault::Lock => return self.place.lock(lasts).await,
            ChaosFault::Delay(ms) => {
                self.place.wire(|wire| wire.delay = Duration::from_millis(ms));
                sleep(lasts).await;
                self.place.wire(|wire| wire.delay = Duration::ZERO);
            }
            ChaosFault::HoleRequests | ChaosFault::HoleReplies | ChaosFault::HoleBoth => {
                self.place.wire(|wire| {
                    wire.hole_requests = fault != ChaosFault::HoleReplies;
                    wire.hole_replies = fault != ChaosFault::HoleRequests;
                });
                sleep(lasts).await;
                self.place.wire(|wire| (wire.hole_requests, wire.hole_replies) = (false, false));
            }
        }
        Ok(true)
    }

    async fn replace(&self, slot: usize, with: Signal, after: Duration) -> Result<bool> {
        let turn = self.turns[slot].lock().await;
        let ending = self.fleet.lock().await.end(slot, with);
        let gone = tokio::spawn(async move {
            match ending {
                Some(ending) => ending.gone().await.map(|()| true),
                // The instance had ended by itself.
                None => Ok(false),
            }
        });
        sleep(after).await;
        self.fleet.lock().await.start(slot, None)?;
        drop(turn);
        gone.await?
    }
}

/// Runs to the end and checks the history.
pub async fn run(options: &ChaosOptions) -> Result<ChaosReport> {
    let ChaosOptions { kind, seed, length, ttl, .. } = *options;
    let planned = schedule(seed, kind, length, ttl, options.instances);
    let guest = options.instances;
    let slots = guest + 1;
    let world = Arc::new(ChaosRun::new(StoreUnderTest::start(kind).await?, options, slots).await?);
    for slot in 0..options.instances {
        world.fleet.lock().await.start(slot, None)?;
    }
    // All instances settle before the first fault.
    let settled = timeout(options.patience, wait_for(&world, options)).await;
    let mut wrong: Vec<String> =
        settled.err().map(|_| "the group did not begin".to_owned()).into_iter().collect();
    let (began, from) = (Instant::now(), now());
    let (happened, failed) = faults(&world, &planned, guest, began, options).await;
    wrong.extend(failed);
    sleep_until(began + length).await;

    let healed = Instant::now();
    for slot in 0..options.instances {
        let mut fleet = world.fleet.lock().await;
        fleet.signal(slot, Signal::SIGCONT);
        fleet.start(slot, None)?;
    }
    let recovered = timeout(options.patience, wait_for(&world, options)).await;
    let recovered = recovered.ok().map(|()| healed.elapsed());
    if recovered.is_none() {
        wrong.push(format!("not every duty is held {:?} after the faults", options.patience));
    }
    let until = now();
    world.leave(slots).await?;
    let mut report = judge(&world, options, from, until).await?;
    report.faults = happened;
    report.recovered = recovered;
    report.wrong.splice(0..0, wrong);
    let unexpected = !report.is_sound() && !options.careless;
    if unexpected || options.keep {
        say(&format!("files: {}", world.fleet.lock().await.keep().display()));
    }
    Ok(report)
}

async fn wait_for(world: &ChaosRun, options: &ChaosOptions) {
    match options.careless {
        true => world.held().await,
        false => world.working().await,
    }
}

/// Performs all faults at their times; returns the number of each, and those that failed.
async fn faults(
    world: &Arc<ChaosRun>,
    planned: &[PlannedFault],
    guest: usize,
    began: Instant,
    options: &ChaosOptions,
) -> (BTreeMap<&'static str, usize>, Vec<String>) {
    let mut under_way = JoinSet::new();
    for one in planned {
        sleep_until(began + one.at).await;
        if options.verbose {
            say(&format!("{}  {one}", options.kind));
        }
        let (word, suffering) = (one.fault.word(), Arc::clone(world).suffer(*one, guest));
        under_way.spawn(async move { (word, suffering.await) });
    }
    let (mut happened, mut failed) = (BTreeMap::new(), Vec::new());
    while let Some(ended) = under_way.join_next().await {
        match ended {
            Ok((word, Ok(true))) => *happened.entry(word).or_default() += 1,
            Ok((_, Ok(false))) => {}
            Ok((word, Err(error))) => failed.push(format!("{word} failed: {error:#}")),
            Err(error) => failed.push(format!("a fault failed: {error}")),
        }
    }
    (happened, failed)
}

/// Reads every file and the store, and checks the history.
pub(crate) async fn judge(
    world: &ChaosRun,
    options: &ChaosOptions,
    from: u64,
    until: u64,
) -> Result<ChaosReport> {
    let (told, problems) = {
        let fleet = world.fleet.lock().await;
        (fleet.told()?, fleet.problems())
    };
    let stored = FinalState::read(&*world.store, &world.group, options.duties).await?;
    let history = RunHistory::merge(&world.group, &told, &stored);
    let mut wrong = problems;
    wrong.extend(history.judge()?);
    let gap = |(duty, nanos): (String, u64)| (duty, Duration::from_nanos(nanos));
    Ok(ChaosReport {
        kind: options.kind,
        seed: options.seed,
        lasted: options.length,
        faults: BTreeMap::new(),
        instances: told.len(),
        effects: history.effects_accepted(),
        moves: history.moves(),
        gaps: history.gaps(from, until).into_iter().map(gap).collect(),
        overlapping: history.overlapping(),
        belief: belief::measure(&told),
        refused: outcomes(&told, CommitResult::Refused),
        unknown: outcomes(&told, CommitResult::Unknown),
        recovered: None,
        wrong,
    })
}

fn outcomes(told: &[InstanceLog], wanted: CommitResult) -> usize {
    let lines = told.iter().flat_map(|one| &one.lines);
    lines
        .filter(|line| matches!(line, InstanceRecord::Commit { outcome, .. } if *outcome == wanted))
        .count()
}

/// Prints a line of progress.
#[expect(clippy::print_stderr, reason = "progress of a command that runs for minutes")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
