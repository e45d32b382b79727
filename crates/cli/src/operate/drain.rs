//! `tenure drain`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;
use tenure_core::engine::DrainMode;
use tenure_core::{Code, Store, StoreError};
use tenure_operate::drain::{ActiveDrain, DrainEvent, DrainOptions, DrainProgress, start};
use tenure_supervise::Signals;

use super::{GroupOperation, InstanceArgs, duties, end_signal, note_edit, some_of};
use crate::failure::Failure;
use crate::output::{StatusLine, report, shown, to_stderr, to_stdout};

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    the instance holds no more duties, or has ended
  1    refused or failed; the message says what was left unchanged
  2    bad usage
  3    outcome unknown: the drain may be in force
  4    timed out; the drain stays in force
  130  interrupted (128 plus the number of the signal); the drain stays in force";

const TIME_OVER: u8 = 4;
const IN_FORCE: &str = "the drain stays in force";

#[derive(clap::Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    target: InstanceArgs,
    /// Drain even if no other member takes duties; they stay free until one joins
    #[arg(long, conflicts_with = "undo")]
    force: bool,
    /// Maximum time to wait [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, conflicts_with = "undo")]
    timeout: Option<Duration>,
    /// Undo: assign duties to the instance again
    #[arg(long)]
    undo: bool,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl DrainArgs {
    pub(crate) fn operation(&self) -> Result<GroupOperation, Failure> {
        let (group, instance) = self.target.names()?;
        let mode = match (self.undo, self.force) {
            (true, _) => None,
            (false, true) => Some(DrainMode::Anyway),
            (false, false) => Some(DrainMode::HandOver),
        };
        let options = DrainOptions { group, instance, mode, dry_run: self.dry_run };
        Ok(GroupOperation::Drain(options, self.timeout))
    }
}

/// Reason why waiting ended.
enum WaitEnd {
    Drained,
    TimeOver,
    Signal(Signal),
}

pub(super) async fn run(
    store: &dyn Store,
    options: DrainOptions,
    timeout: Option<Duration>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let mut drain = start(store, options).await?;
    if !json {
        note_edit(&drain.edit);
    }
    if drain.options.mode.is_none() || drain.options.dry_run {
        let text = if json { report(&drain.report()) } else { sentence(&drain) };
        to_stdout(&text).context("cannot write to standard output")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !json {
        let (instance, left) = (&drain.options.instance, duties(drain.progress.left().count()));
        to_stderr(&format!("{instance} is drained: it gets no more duties and hands over {left}"));
    }
    let ended = wait(store, &mut drain, timeout, json).await;
    let shown = if json { report(&drain.report()) } else { String::new() };
    match ended {
        Ok(end) => finish(&drain, end, shown, json),
        Err(error) => {
            // Only the progress is unknown.
            let error = StoreError::Refused(error.problem().clone());
            Err(Failure::Partly { shown, error, kept: "the drain stays in force; --undo ends it" })
        }
    }
}

/// Describes an undone drain, or a dry run.
fn sentence(drain: &ActiveDrain) -> String {
    let DrainOptions { group, instance, mode, dry_run } = &drain.options;
    let left = duties(drain.progress.left().count());
    match (mode, drain.edit.changed, dry_run) {
        (None, false, _) => format!("{instance} of {group} is not drained\n"),
        (None, true, true) => format!("{instance} of {group} would get duties again\n"),
        (None, true, false) => format!("{instance} of {group} gets duties again\n"),
        (Some(_), false, _) => format!("{instance} of {group} is drained already\n"),
        (Some(DrainMode::HandOver), true, _) => {
            format!("{instance} of {group} would hand over {left}\n")
        }
        (Some(DrainMode::Anyway), true, _) => {
            format!(
                "{instance} of {group} would release {left}, even if no other member takes duties\n"
            )
        }
    }
}

/// Waits until the instance holds nothing, the time is over, or a signal arrives.
async fn wait(
    store: &dyn Store,
    drain: &mut ActiveDrain,
    timeout: Option<Duration>,
    json: bool,
) -> Result<WaitEnd, StoreError> {
    let listening = Signals::listen();
    let signal = async {
        match listening {
            Ok(mut signals) => end_signal(&mut signals).await,
            // The default applies: the signal ends the process, and the drain stays in force.
            Err(_) => std::future::pending().await,
        }
    };
    let mut printer = Printer::default();
    let mut observe = |event: DrainEvent<'_>| {
        if !json {
            printer.print(&event);
        }
    };
    let ended = tokio::select! {
        drained = drain.wait(store, timeout, &mut observe) => drained.map(|drained| match drained {
            true => WaitEnd::Drained,
            false => WaitEnd::TimeOver,
        }),
        signal = signal => Ok(WaitEnd::Signal(signal)),
    };
    printer.line.end();
    ended
}

/// Prints progress to standard error: on a terminal in one line.
#[derive(Default)]
struct Printer {
    line: StatusLine,
    last: String,
}

impl Printer {
    fn print(&mut self, event: &DrainEvent<'_>) {
        let text = match event {
            DrainEvent::Progress(progress) => {
                let text = progress.to_string();
                if text == self.last || self.line.show(&text) {
                    self.last = text;
                    return;
                }
                self.last.clone_from(&text);
                text
            }
            DrainEvent::StoreAway(problem) => {
                let problem = shown(&problem.to_string());
                format!("the store does not answer, retrying: {problem}")
            }
            DrainEvent::StoreBack => "the store answers again".to_owned(),
            DrainEvent::NoSuccessor => {
                "no other member takes duties now: the instance keeps the rest until one does"
                    .to_owned()
            }
        };
        self.line.end();
        to_stderr(&text);
    }
}

fn finish(
    drain: &ActiveDrain,
    end: WaitEnd,
    shown: String,
    json: bool,
) -> Result<ExitCode, Failure> {
    let DrainOptions { group, instance, .. } = &drain.options;
    let progress = last_known(&drain.progress);
    let undo = format!("`tenure drain {group} {instance} --undo` ends the drain");
    let (text, code) = match end {
        WaitEnd::Drained if json => (shown, ExitCode::SUCCESS),
        WaitEnd::Drained if drain.progress.ended => {
            (format!("{instance} has ended; {progress}\n"), ExitCode::SUCCESS)
        }
        WaitEnd::Drained => {
            let text = format!("{instance} holds no more duties; {progress}\n{undo}\n");
            (text, ExitCode::SUCCESS)
        }
        WaitEnd::Signal(signal) => {
            to_stderr(&format!("interrupted: {IN_FORCE}; {progress}; {undo}"));
            let code = u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX);
            (shown, ExitCode::from(code))
        }
        WaitEnd::TimeOver => {
            let error = still_held(drain);
            let failure = Box::new(Failure::Partly { shown, error, kept: IN_FORCE });
            return Err(Failure::Around { failure, code: TIME_OVER });
        }
    };
    to_stdout(&text).context("cannot write to standard output")?;
    Ok(code)
}

/// Formats the progress; after an outage with the time it is from.
fn last_known(progress: &DrainProgress) -> String {
    match &progress.away {
        None => progress.to_string(),
        Some(problem) => {
            let problem = shown(&problem.to_string());
            format!("{progress} when the store answered last ({problem})")
        }
    }
}

/// Error for duties that are left when the time is over.
fn still_held(drain: &ActiveDrain) -> StoreError {
    let ActiveDrain { options: DrainOptions { group, instance, .. }, progress, .. } = drain;
    let left: Vec<String> = progress.left().map(|id| format!("{group}/{id}")).collect();
    let left = match left.is_empty() {
        true => "nothing".to_owned(),
        false => some_of(left.into_iter()),
    };
    match &progress.away {
        None => {
            let what = format!("{instance} still holds {left}; {progress}");
            StoreError::refused(Code::StillHeld, what)
        }
        Some(problem) => {
            let what = format!(
                "{}; when it answered last, {instance} held {left}; {progress}",
                problem.detail
            );
            StoreError::refused(problem.code, what)
        }
    }
}
