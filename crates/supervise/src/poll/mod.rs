//! Runs a command once per target and interval, each target on one instance.

mod backoff;
mod results;
mod schedule;
mod settings;
mod target;

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::{BoxFuture, GroupName, StoreError, Targets};
use tenure_duty::{Duties, DutyError, LeaveHandle, MembershipEvent};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::api::LocalApi;
use crate::error::{SuperviseError, SystemContext as _};
use crate::member::{self, SupervisorSettings};
use crate::observe::{LogLevel, Observation, Recorder};
use crate::output::OutputForm;
use crate::pool::GuardPool;
use crate::process_tree::reap_all;
use crate::run::leaves;
use crate::scratch::Scratch;
use crate::state::{StateFiles, fill_in};

use backoff::PollBackoff;
use results::PollResults;
use settings::RememberedTargets;

/// Shortest interval between reads of the results of all targets, for health and metrics.
const TOTALS_INTERVAL: Duration = Duration::from_secs(10);
/// Results that an instance reads per second, at most: every instance reads those of all targets.
const TOTALS_PER_SECOND: u64 = 100;
/// The same before the list of targets was read.
const FIRST_TOTALS_INTERVAL: Duration = Duration::from_millis(500);

/// Treatment of polls that were missed while nobody held their target, or its holder was gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedPolls {
    /// One poll is made at once, whatever number was missed.
    #[default]
    Run,
    /// The next poll is made at its time.
    Skip,
}

/// Targets and the command that polls them.
#[derive(Clone)]
pub struct PollSettings {
    /// List of targets.
    pub targets: Arc<dyn Targets>,
    /// Group of the instances that share the targets.
    pub group: GroupName,
    /// Membership in the group.
    pub member: SupervisorSettings,
    /// Interval between polls of one target.
    pub every: Duration,
    /// Time that a poll may take.
    pub timeout: Duration,
    /// Attempts after a failed poll, before the next interval.
    pub retries: u32,
    /// Pause before the first of them; it doubles with each.
    pub retry_delay: Duration,
    /// Treatment of polls that nobody made in time.
    pub missed: MissedPolls,
    /// Interval between reads of the list of targets.
    pub list_every: Duration,
    /// Polls at a time.
    pub jobs: usize,
    /// The program and its arguments; `{}` in them becomes the target.
    pub command: Vec<OsString>,
    /// Form of the commands' output.
    pub output: OutputForm,
}

impl fmt::Debug for PollSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("PollSettings");
        fields.field("group", &self.group).field("member", &self.member).finish_non_exhaustive()
    }
}

impl PollSettings {
    /// Returns the command for one target: `{}` becomes its id. No shell is involved.
    fn argv(&self, target: &str) -> Vec<OsString> {
        self.command.iter().map(|word| fill_in(word, target)).collect()
    }
}

/// State shared by all targets.
#[derive(Debug)]
struct PollContext {
    settings: PollSettings,
    targets: Arc<RememberedTargets>,
    /// Whether foreign instances may change the leases of the group.
    has_foreign_instances: bool,
    pool: GuardPool,
    api: LocalApi,
    states: Option<StateFiles>,
    permits: Semaphore,
    recorder: Recorder,
    backoff: PollBackoff,
    results: PollResults,
    membership: LeaveHandle,
}

impl PollContext {
    /// Writes results to the store; reads those of all targets if they are shown here. Runs until
    /// it is dropped.
    async fn keep_results(&self, is_shown: bool) {
        let log = |error: &StoreError| {
            let reason = format!("results of polls are written later: {error}");
            self.recorder.log_instance(LogLevel::Warn, "results_unwritten", reason);
        };
        let writing = self.results.write_all(log);
        if is_shown {
            tokio::join!(writing, self.show_totals());
        } else {
            writing.await;
        }
    }

    /// Reads the results of all targets now and then, for health and metrics.
    async fn show_totals(&self) {
        loop {
            let targets = self.targets.polled();
            if !targets.is_empty() {
                // Until the store answers again, the last totals are shown.
                if let Ok(totals) = self.results.totals(&targets).await {
                    self.recorder.set_targets(totals);
                }
            }
            let pause = Duration::from_secs(targets.len() as u64 / TOTALS_PER_SECOND);
            let pause = pause.max(TOTALS_INTERVAL);
            sleep(if targets.is_empty() { FIRST_TOTALS_INTERVAL } else { pause }).await;
        }
    }
}

/// Polls until a signal asks this process to end.
pub fn poll(settings: PollSettings) -> BoxFuture<'static, Result<(), SuperviseError>> {
    Box::pin(async move {
        let observation = settings.member.observe(&settings.group)?;
        let polled = poll_observed(settings, &observation).await;
        observation.finish();
        polled
    })
}

async fn poll_observed(
    settings: PollSettings,
    observation: &Observation,
) -> Result<(), SuperviseError> {
    let mut signals = member::listen()?;
    let PollSettings { targets, group, list_every, member, .. } = &settings;
    let scratch = Scratch::create().context("cannot create a private folder")?;
    let api = LocalApi::start(member.api_port, scratch.path(), observation.recorder())?;
    let states = StateFiles::new(member.state.as_ref(), &observation.recorder());
    let states = states.context("cannot watch files")?;
    let pool = GuardPool::start(member, settings.output, scratch).await?;
    let targets = Arc::new(RememberedTargets::new(Arc::clone(targets)));
    let source = Arc::<RememberedTargets>::clone(&targets);
    let duties = Duties::Targets { source, every: *list_every };
    let join = member.join(group.clone(), duties, observation, true);
    let Ok(mut membership) = member::start(join, &mut signals, leaves).await? else {
        return Ok(());
    };
    let context = Arc::new(PollContext {
        targets,
        pool,
        api,
        states,
        permits: Semaphore::new(settings.jobs),
        recorder: observation.recorder(),
        backoff: PollBackoff::new(settings.every),
        results: PollResults::new(membership.reports()),
        membership: membership.leaver(),
        has_foreign_instances: member.store.url.is_shared(group),
        settings,
    });
    let mut keeper = JoinSet::new();
    let (kept, is_shown) = (Arc::clone(&context), observation.address().is_some());
    keeper.spawn(async move { kept.keep_results(is_shown).await });
    let mut tasks = JoinSet::new();
    let end = loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::CHILD => reap_all(),
                signal if leaves(signal) => {
                    context.pool.leave();
                    context.recorder.set_leaving();
                    membership.leaver().leave();
                }
                _ => {}
            },
            event = membership.next() => match event {
                Some(MembershipEvent::Assigned(hold)) => {
                    tasks.spawn(target::poll_target(Arc::clone(&context), hold));
                }
                Some(MembershipEvent::Ended(end)) => break end,
                None => break Ok(()),
                Some(_) => {}
            },
            Some(_) = tasks.join_next() => {}
        }
    };
    // Every hold has ended by now, so every poll ends.
    while tasks.join_next().await.is_some() {}
    keeper.shutdown().await;
    end.map_err(|problem| DutyError::Refused(problem).into())
}
