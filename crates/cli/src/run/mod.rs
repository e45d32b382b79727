//! `tenure run`: a duty around any program.

mod attend;
mod deadline_file;
mod rotate;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use rustix::process::{Signal, getpid, set_child_subreaper};
use tempfile::TempDir;
use tenure_core::{Code, DutyKey, InstanceId, Problem, StoreError};
use tenure_duty::{Duties, Membership, MembershipEvent, WorkOutcome};
use tenure_store::StoreUrl;

use crate::args::{self, name};
use crate::bucket::rotation::Rotation;
use crate::failure::Failure;
use crate::guard::{Guard, Input, reap_all};
use crate::member::{self, Started, Watchers};
use crate::observe::Notes;
use crate::output::{shown, to_stderr};
use crate::signals::{Signals, ends};
use crate::terminal::Terminal;

use attend::Outcome;

/// Of tenure itself, as other programs that run a program have it; seldom a command's own.
const FAILED: u8 = 125;
const HELD: u8 = 1;
const BAD_USAGE: u8 = 2;
const GIVEN_BACK: &str = "the duty was given back";

/// A command and the duty that it needs.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) store: StoreUrl,
    pub(crate) duty: DutyKey,
    pub(crate) no_wait: bool,
    pub(crate) member: member::Settings,
    /// Only a rotation can do without.
    pub(crate) command: Vec<OsString>,
    /// What chooses a bucket for each run.
    pub(crate) rotation: Option<Arc<Rotation>>,
}

impl Settings {
    pub(crate) fn new(run: &args::Run, store: StoreUrl) -> Result<Self, Failure> {
        Ok(Self {
            store,
            duty: name(&run.duty, str::parse)?,
            no_wait: run.no_wait,
            member: member::Settings::new(&run.member)?,
            command: run.command.clone(),
            rotation: None,
        })
    }
}

/// Waits for the duty, runs the command, and says how it ended.
pub(crate) async fn run(settings: Settings) -> Result<ExitCode, Failure> {
    // Without a command there is no exit code to be told from.
    let around = if settings.command.is_empty() { |failure| failure } else { around };
    if let Some(rotation) = &settings.rotation {
        rotation.check().map_err(around)?;
    }
    let watchers = settings.member.watch(&settings.duty.group).map_err(around)?;
    let ran = match Runner::new(settings, &watchers).await {
        Ok(Ok(runner)) => runner.run().await,
        Ok(Err(signal)) => Ok(ended_by(signal)),
        Err(failure) => Err(failure),
    };
    watchers.handle.finish();
    ran.map(ExitCode::from).map_err(around)
}

/// What was typed cannot be used: that is no answer to whether somebody holds the duty.
pub(crate) fn bad_usage(failure: Failure) -> Failure {
    match failure {
        Failure::Usage(_) => failure,
        _ => Failure::Around { failure: Box::new(failure), code: BAD_USAGE },
    }
}

/// A failure of tenure has an exit code that tells it from the command's.
pub(crate) fn around(failure: Failure) -> Failure {
    let code = match &failure {
        Failure::Around { .. } | Failure::Usage(_) => return failure,
        Failure::Store(error) | Failure::Hinted { error, .. } if error.code() == Code::Held => HELD,
        _ => FAILED,
    };
    Failure::Around { failure: Box::new(failure), code }
}

/// Everything that lives from the start of this process to its end.
struct Runner {
    settings: Settings,
    membership: Membership,
    guard: Guard,
    signals: Signals,
    terminal: Option<Terminal>,
    scratch: TempDir,
    notes: Notes,
    /// The deadline file could not be written, and that was said.
    deadline_unwritten: bool,
    /// Names the next run of the command.
    runs: u64,
    /// The command was sent a signal that ends most programs.
    interrupted: bool,
    /// The signal that asked this process to end.
    asked_to_end: Option<Signal>,
}

impl Runner {
    /// Joins, or learns that this process is to end before that.
    async fn new(settings: Settings, watchers: &Watchers) -> Result<Result<Self, Signal>, Failure> {
        let mut signals = Signals::listen().context("cannot listen to signals")?;
        // When the guard dies, what it had comes to this process.
        set_child_subreaper(Some(getpid())).map_err(io::Error::from).context("no subreaper")?;
        let terminal = Terminal::find();
        let scratch = tempfile::Builder::new().prefix("tenure-").tempdir();
        let scratch = scratch.context("cannot make a private folder")?;
        let guard = Guard::start(Input::Ours, Some(scratch.path()), settings.member.isolate);
        let mut guard = guard.context("cannot start the guard")?;
        guard.ready().await?;
        let Settings { store, duty, member, no_wait, .. } = &settings;
        let duties = Duties::Standby(duty.id.clone());
        let join = member.join(store, duty.group.clone(), duties, watchers, !no_wait);
        let membership = match member::start(join, &mut signals, ends).await? {
            Started::Member(membership) => membership,
            Started::Asked(signal) => return Ok(Err(signal)),
        };
        Ok(Ok(Self {
            settings,
            membership,
            guard,
            signals,
            terminal,
            scratch,
            notes: watchers.handle.notes(),
            deadline_unwritten: false,
            runs: 0,
            interrupted: false,
            asked_to_end: None,
        }))
    }

    /// The exit code.
    async fn run(mut self) -> Result<u8, Failure> {
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
                // Dropped, it is given back.
                Some(MembershipEvent::Assigned(_)) if self.asked_to_end.is_some() => {}
                Some(MembershipEvent::Assigned(hold)) => {
                    let outcome = self.serve(&hold).await;
                    hold.finished(match outcome {
                        Outcome::Ended(_) => WorkOutcome::Done,
                        Outcome::TakenAway => WorkOutcome::Asked,
                        _ => WorkOutcome::Failed,
                    });
                    drop(hold);
                    if let Some(result) = self.judge(outcome) {
                        return self.leave(result).await;
                    }
                }
                Some(MembershipEvent::Standby { holder }) => {
                    if let Some(refusal) = self.stand_by(holder.as_ref()) {
                        return self.leave(Err(refusal)).await;
                    }
                }
                Some(MembershipEvent::Ended(Err(problem))) => return Err(refused(problem)),
                Some(MembershipEvent::Ended(Ok(()))) | None => {
                    return Ok(self.asked_to_end.map_or(0, ended_by));
                }
                Some(_) => {}
            }
        }
    }

    /// A signal while no command runs.
    fn signalled(&mut self, signal: Signal) {
        if signal == Signal::CHILD {
            reap_all();
        } else if ends(signal) && self.asked_to_end.is_none() {
            self.asked_to_end = Some(signal);
            self.membership.leaver().leave();
        }
    }

    fn stand_by(&self, holder: Option<&InstanceId>) -> Option<Failure> {
        let duty = &self.settings.duty;
        let holder = holder.map_or_else(|| "somebody".to_owned(), |id| shown(id.as_str()));
        if self.settings.no_wait {
            let detail = format!("{holder} holds {duty}");
            let error = StoreError::refused(Code::Held, detail);
            return Some(Failure::Hinted { error, hint: "start without --no-wait to wait for it" });
        }
        None
    }

    /// What this process ends with; `None` when it waits for the duty again.
    fn judge(&self, outcome: Outcome) -> Option<Result<u8, Failure>> {
        match outcome {
            Outcome::Ended(end) => Some(Ok(end.exit_code())),
            Outcome::TakenAway => None,
            Outcome::Refused(failure) => Some(Err(failure)),
            Outcome::CannotStart(error) => Some(Err(cannot_start(&self.settings, &error))),
            Outcome::Failed(what) => Some(Err(failed(what, GIVEN_BACK))),
            Outcome::Remains(pid) => {
                let what = format!("process {pid} of the command cannot be ended, and still runs");
                Some(Err(failed(what, "the duty was given back; the guard goes on trying")))
            }
        }
    }

    /// Gives everything back before this process ends, so that nobody has to wait for the TTL.
    async fn leave(self, result: Result<u8, Failure>) -> Result<u8, Failure> {
        if let Err(error) = self.membership.leave().await {
            to_stderr(&shown(&error.to_string()));
        }
        result
    }
}

fn refused(problem: Problem) -> Failure {
    StoreError::Refused(problem).into()
}

fn cannot_start(settings: &Settings, error: &io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    let program = settings.command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let detail = format!("{}: {error}", shown(&program));
    let error = StoreError::refused(Code::CannotStart, detail);
    let failure = Failure::Kept { error, kept: GIVEN_BACK };
    Failure::Around { failure: Box::new(failure), code }
}

fn failed(what: String, kept: &'static str) -> Failure {
    Failure::Kept { error: StoreError::refused(Code::Machine, what), kept }
}

/// As a shell tells it.
fn ended_by(signal: Signal) -> u8 {
    128 + signal.as_raw() as u8
}
