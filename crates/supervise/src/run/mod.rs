//! Runs a command while this process holds a duty.

mod each;
mod foreground;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tenure_core::text::escaped;
use tenure_core::{BoxFuture, Code, DutyKey, LocalInstant, StoreError};
use tenure_duty::{Duties, DutyError, Guard, Membership, MembershipEvent, WorkOutcome};

use crate::api::LocalApi;
use crate::command::Variables;
use crate::error::{SuperviseError, SystemContext as _};
use crate::guard::{BootTimer, CommandInput, ExitStatus, GuardOptions, GuardProcess};
use crate::member::{self, SupervisorSettings};
use crate::observe::{LogEvent, LogLevel, Observation, OccurrenceResult, Recorder};
use crate::process_tree::reap_all;
use crate::scratch::Scratch;
use crate::signals::{Signals, is_stop};
use crate::state::{StateFile, StateFiles};
use crate::terminal::Terminal;

pub(crate) use each::leaves;
pub use each::{EachDuties, RunEachSettings, run_each};

const DUTY_RELEASED: &str = "the duty was released";

/// A command and the duty that it needs.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// The duty.
    pub duty: DutyKey,
    /// Membership in the group of the duty.
    pub member: SupervisorSettings,
    /// The program and its arguments. May be empty if [`AssignedWork`] runs nothing.
    pub command: Vec<OsString>,
    /// Whether to fail if the store is unreachable or another instance holds the duty.
    pub no_wait: bool,
}

impl RunSettings {
    /// Settings that wait for the duty.
    pub fn new(duty: DutyKey, member: SupervisorSettings, command: Vec<OsString>) -> Self {
        Self { duty, member, command, no_wait: false }
    }
}

/// Work done each time the duty is assigned, in place of only running the command.
pub trait AssignedWork: Send + Sync {
    /// Works under the hold of an assignment. Usually calls [`Assignment::run`].
    fn work<'a>(&'a self, assignment: &'a mut Assignment<'_>) -> BoxFuture<'a, RunOutcome>;
}

/// Outcome of one assignment.
#[derive(Debug)]
pub enum RunOutcome {
    /// The command ended on its own, or because this process was asked to end.
    Ended(ExitStatus),
    /// The command was ended because the duty moved or was lost.
    TakenAway,
    /// The work failed before or after the command ran.
    Refused(SuperviseError),
    /// The command could not be started.
    CannotStart(io::Error),
    /// The supervisor or its guard failed. Nothing of the command runs any more.
    Failed(String),
    /// This process was asked to end, and this process of the command cannot be ended.
    Remains(i32),
}

/// A duty that was assigned to this process.
pub struct Assignment<'a> {
    runner: &'a mut Runner,
    hold: &'a Guard,
}

impl Assignment<'_> {
    /// The hold.
    pub fn hold(&self) -> &Guard {
        self.hold
    }

    /// A private folder that is removed when this process ends.
    pub fn scratch(&self) -> &Path {
        &self.runner.folder
    }

    /// Whether this process was asked to end, or the command got a signal that ends most programs.
    pub fn is_stopping(&self) -> bool {
        self.runner.stop.is_some() || self.runner.interrupted
    }

    /// Logs an event about the duty.
    pub fn log(&self, level: LogLevel, event: &'static str, reason: String) {
        let duty = Some((self.hold.duty().clone(), self.hold.epoch()));
        self.runner.recorder.log(LogEvent { level, event, duty, reason });
    }

    /// Counts occurrences of a schedule.
    pub(crate) fn count_occurrences(&self, result: OccurrenceResult, count: u64) {
        self.runner.recorder.count_occurrences(result, count);
    }

    /// Waits until an instant. Returns `false` if the work has to end before: this process was
    /// asked to, or the hold ends.
    pub(crate) async fn idle(&mut self, timer: &mut BootTimer, until: LocalInstant) -> bool {
        while self.runner.stop.is_none() {
            tokio::select! {
                biased;
                signal = self.runner.signals.next() => self.runner.signalled(signal),
                () = self.hold.stopping() => return false,
                () = timer.at(Some(until)) => return true,
            }
        }
        false
    }

    /// Runs the command with additional environment variables, until nothing of it runs any more.
    /// The state file, if there is one, is restored before and stored while it runs.
    pub async fn run(&mut self, variables: &Variables) -> RunOutcome {
        self.runner.run_command(self.hold, variables).await
    }
}

/// Waits for the duty, runs the command (or `work` around it), and returns the exit code: the
/// command's own, or 128 and the number of the signal that ended this process or the command.
pub fn run(
    settings: RunSettings,
    work: Option<Box<dyn AssignedWork>>,
) -> BoxFuture<'static, Result<u8, SuperviseError>> {
    Box::pin(async move {
        let observation = settings.member.observe(&settings.duty.group)?;
        let ran = match Runner::new(settings, &observation).await {
            Ok(Ok(runner)) => runner.run(work.as_deref()).await,
            Ok(Err(signal)) => Ok(signal_exit_code(signal)),
            Err(error) => Err(error),
        };
        observation.finish();
        ran
    })
}

/// State of the supervisor from its start to its end.
struct Runner {
    settings: RunSettings,
    membership: Membership,
    guard: GuardProcess,
    guard_options: GuardOptions,
    signals: Signals,
    terminal: Option<Terminal>,
    api: LocalApi,
    state: Option<StateFile>,
    /// A private folder for the command.
    folder: PathBuf,
    _scratch: Scratch,
    recorder: Recorder,
    /// Whether a failure to write the deadline file was logged.
    deadline_unwritten: bool,
    /// Number of runs so far; identifies the next one.
    runs: u64,
    /// Whether the command got a signal that ends most programs.
    interrupted: bool,
    /// The signal that asked this process to end.
    stop: Option<Signal>,
}

impl Runner {
    /// Joins the group. Returns the signal if this process is asked to end before that.
    async fn new(
        settings: RunSettings,
        observation: &Observation,
    ) -> Result<Result<Self, Signal>, SuperviseError> {
        let mut signals = member::listen()?;
        let terminal = Terminal::find();
        let scratch = Scratch::create().context("cannot create a private folder")?;
        let folder = scratch.part().context("cannot create a private folder")?;
        let recorder = observation.recorder();
        let RunSettings { duty, member, no_wait, .. } = &settings;
        let api = LocalApi::start(member.api_port, &folder, recorder.clone())?;
        let states = StateFiles::new(member.state.as_ref(), &recorder);
        let state = states.context("cannot watch files")?.map(|states| states.of(&duty.id));
        let guard_options = member.guard(CommandInput::Inherit, Some(folder.clone()));
        let mut guard = GuardProcess::start(&guard_options).context("cannot start the guard")?;
        guard.ready().await?;
        let duties = Duties::Standby(duty.id.clone());
        let join = member.join(duty.group.clone(), duties, observation, !no_wait);
        let membership = match member::start(join, &mut signals, is_stop).await? {
            Ok(membership) => membership,
            Err(signal) => return Ok(Err(signal)),
        };
        Ok(Ok(Self {
            settings,
            membership,
            guard,
            guard_options,
            signals,
            terminal,
            api,
            state,
            folder,
            _scratch: scratch,
            recorder,
            deadline_unwritten: false,
            runs: 0,
            interrupted: false,
            stop: None,
        }))
    }

    async fn run(mut self, work: Option<&dyn AssignedWork>) -> Result<u8, SuperviseError> {
        loop {
            let event = tokio::select! {
                biased;
                signal = self.signals.next() => {
                    self.signalled(signal);
                    continue;
                }
                event = self.membership.next() => event,
            };
            match event {
                // Dropping it gives the duty back.
                Some(MembershipEvent::Assigned(_)) if self.stop.is_some() => {}
                Some(MembershipEvent::Assigned(hold)) => {
                    let mut assignment = Assignment { runner: &mut self, hold: &hold };
                    let outcome = match work {
                        Some(work) => work.work(&mut assignment).await,
                        None => assignment.run(&[]).await,
                    };
                    hold.finished(match outcome {
                        RunOutcome::Ended(_) => WorkOutcome::Done,
                        RunOutcome::TakenAway => WorkOutcome::Asked,
                        _ => WorkOutcome::Failed,
                    });
                    drop(hold);
                    if let Some(result) = self.result(outcome) {
                        return self.leave(result).await;
                    }
                }
                Some(MembershipEvent::Standby { holder }) if self.settings.no_wait => {
                    let holder = holder.map(|id| escaped(id.as_str()));
                    let holder = holder.unwrap_or_else(|| "an unknown instance".to_owned());
                    let detail = format!("{holder} holds {}", self.settings.duty);
                    let error = StoreError::refused(Code::Held, detail);
                    return self.leave(Err(SuperviseError::Held(error))).await;
                }
                Some(MembershipEvent::ClaimFailed(error)) if self.settings.no_wait => {
                    return self.leave(Err(error.into())).await;
                }
                Some(MembershipEvent::Ended(Err(problem))) => {
                    return Err(DutyError::Refused(problem).into());
                }
                Some(MembershipEvent::Ended(Ok(()))) | None => {
                    return Ok(self.stop.map_or(0, signal_exit_code));
                }
                Some(_) => {}
            }
        }
    }

    /// Handles a signal while no command runs.
    fn signalled(&mut self, signal: Signal) {
        if signal == Signal::CHILD {
            reap_all();
        } else if is_stop(signal) && self.stop.is_none() {
            self.stop = Some(signal);
            self.recorder.set_leaving();
            self.membership.leaver().leave();
        }
    }

    /// Returns the result of this process; `None` if it waits for the duty again.
    fn result(&self, outcome: RunOutcome) -> Option<Result<u8, SuperviseError>> {
        let failed = |what: String, kept| {
            let error = StoreError::refused(Code::Machine, what);
            Some(Err(SuperviseError::Kept { error, kept }))
        };
        match outcome {
            RunOutcome::Ended(status) => Some(Ok(status.exit_code())),
            RunOutcome::TakenAway => None,
            RunOutcome::Refused(error) => Some(Err(error)),
            RunOutcome::CannotStart(error) => Some(Err(self.cannot_start(&error))),
            RunOutcome::Failed(what) => failed(what, DUTY_RELEASED),
            RunOutcome::Remains(pid) => failed(
                format!("process {pid} of the command cannot be killed and is still running"),
                "the duty was released; the guard keeps trying",
            ),
        }
    }

    fn cannot_start(&self, error: &io::Error) -> SuperviseError {
        let program = self.settings.command.first().map(|word| word.to_string_lossy());
        let detail = format!("{}: {error}", escaped(&program.unwrap_or_default()));
        let not_found = error.kind() == io::ErrorKind::NotFound;
        let error = StoreError::refused(Code::CannotStart, detail);
        SuperviseError::CannotStart { error, not_found }
    }

    /// Gives everything back before this process ends, so that other members need not wait for the
    /// TTL.
    async fn leave(self, result: Result<u8, SuperviseError>) -> Result<u8, SuperviseError> {
        if let Err(error) = self.membership.leave().await {
            let reason = escaped(&error.to_string());
            self.recorder.log_instance(LogLevel::Warn, "leave_failed", reason);
        }
        result
    }
}

/// Returns the exit code of a process that a signal ended, as shells report it.
fn signal_exit_code(signal: Signal) -> u8 {
    ExitStatus::Signal(signal.as_raw()).exit_code()
}
