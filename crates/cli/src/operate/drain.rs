//! `tenure drain`.

use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::engine::DrainMode;
use tenure_core::{Code, Problem, Store, StoreError};
use tenure_operate::drain::{ActiveDrain, DrainEvent, DrainOptions, DrainProgress, start};
use tenure_supervise::Signals;

use super::{InstanceArgs, duties, end_signal, ended_by, for_each, note_edits, some_of};
use crate::args::Global;
use crate::failure::Failure;
use crate::output::{StatusLine, shown, to_stderr, to_stdout};
use crate::progress;

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
#[command(override_usage = "\
    tenure drain [OPTIONS] <GROUP> <INSTANCE>
       tenure drain [OPTIONS] --all-groups <INSTANCE>")]
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
    pub(crate) async fn run(&self, global: &Global) -> Result<ExitCode, Failure> {
        let word = self.target.word()?;
        let mode = match (self.undo, self.force) {
            (true, _) => None,
            (false, true) => Some(DrainMode::Anyway),
            (false, false) => Some(DrainMode::HandOver),
        };
        let (store, json) = (&*global.open().await?, global.json);
        let targets = word.find(store).await?;
        let begin = async |(group, instance), dry_run| {
            start(store, DrainOptions { group, instance, mode, dry_run }).await
        };
        let show = |drains: &[ActiveDrain]| word.show(global, drains, sentence);
        let mut drains = for_each(targets, self.dry_run, begin, show).await?;
        if !json {
            note_edits(drains.iter().map(|drain| &drain.edit));
        }
        if mode.is_none() || self.dry_run {
            to_stdout(show(&drains))?;
            return Ok(ExitCode::SUCCESS);
        }
        // Waiting has a line of its own.
        progress::describe("");
        if !json {
            drains.iter().for_each(note_start);
        }
        let mut end = WaitEnd::Drained;
        for drain in &mut drains {
            match wait(store, drain, self.timeout, json).await {
                Ok(WaitEnd::Drained) => {}
                // All drains are in force: go on, so that the report tells about each.
                Ok(WaitEnd::TimeOver) => end = WaitEnd::TimeOver,
                Ok(WaitEnd::Signal(signal)) => {
                    end = WaitEnd::Signal(signal);
                    break;
                }
                Err(error) => {
                    // The drain was stored; only its progress is unknown.
                    let error = StoreError::Refused(error.problem().clone());
                    let shown = word.show(global, &drains, |_| String::new());
                    let kept = "the drain stays in force; --undo ends it";
                    return Err(Failure::partly(shown, error, kept));
                }
            }
        }
        finish(&drains, end, word.show(global, &drains, |_| String::new()), json)
    }
}

/// Prints that a drain is in force to standard error.
fn note_start(drain: &ActiveDrain) {
    let DrainOptions { group, instance, .. } = &drain.options;
    let left = duties(drain.progress.left().count());
    to_stderr(&format!(
        "{instance} is drained: it gets no more duties of {group} and hands over {left}"
    ));
}

/// Reason why waiting ended.
enum WaitEnd {
    Drained,
    TimeOver,
    Signal(Signal),
}

/// Describes an undone drain, or a dry run.
fn sentence(drain: &ActiveDrain) -> String {
    let DrainOptions { group, instance, mode, dry_run } = &drain.options;
    let left = duties(drain.progress.left().count());
    match (mode, drain.edit.changed, dry_run) {
        (None, false, _) => format!("{instance} of {group} is not drained\n"),
        (None, true, true) => format!("{instance} of {group} would get duties again\n"),
        (None, true, false) => format!("{instance} of {group} gets duties again\n"),
        (Some(_), false, _) => format!("{instance} of {group} is already drained\n"),
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

/// Waits until the instance holds nothing, the timeout expires, or a signal arrives.
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

/// Progress output on standard error; on a terminal, a single line.
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
                "no other member takes duties now: the instance keeps its remaining duties until \
                 one does"
                    .to_owned()
            }
        };
        self.line.end();
        to_stderr(&text);
    }
}

fn finish(
    drains: &[ActiveDrain],
    end: WaitEnd,
    shown: String,
    json: bool,
) -> Result<ExitCode, Failure> {
    let (text, code) = match end {
        WaitEnd::Drained if json => (shown, ExitCode::SUCCESS),
        WaitEnd::Drained => (drains.iter().map(end_sentences).collect(), ExitCode::SUCCESS),
        WaitEnd::Signal(signal) => {
            for drain in drains {
                let (progress, undo) = (last_known(&drain.progress), undo(drain));
                to_stderr(&format!("interrupted: {IN_FORCE}; {progress}; {undo}"));
            }
            (shown, ended_by(signal))
        }
        WaitEnd::TimeOver => {
            let left = drains.iter().filter(|drain| !drain.progress.is_drained());
            let Some(error) = left.map(still_held).next() else {
                return Ok(ExitCode::from(TIME_OVER));
            };
            return Err(Failure::partly(shown, error, IN_FORCE).exiting(TIME_OVER));
        }
    };
    to_stdout(text)?;
    Ok(code)
}

fn undo(drain: &ActiveDrain) -> String {
    let DrainOptions { group, instance, .. } = &drain.options;
    format!("`tenure drain {group} {instance} --undo` ends the drain")
}

/// Describes a drain that is complete.
fn end_sentences(drain: &ActiveDrain) -> String {
    let (instance, progress) = (&drain.options.instance, last_known(&drain.progress));
    match drain.progress.ended {
        true => format!("{instance} has ended; {progress}\n"),
        false => format!("{instance} holds no more duties; {progress}\n{}\n", undo(drain)),
    }
}

/// Formats the progress; during an outage, as the last known one.
fn last_known(progress: &DrainProgress) -> String {
    match &progress.away {
        None => progress.to_string(),
        Some(problem) => {
            let problem = shown(&problem.to_string());
            format!("{progress} when the store answered last ({problem})")
        }
    }
}

/// Returns the error for duties that are still held after the timeout.
fn still_held(drain: &ActiveDrain) -> StoreError {
    let ActiveDrain { options: DrainOptions { group, instance, .. }, progress, .. } = drain;
    let left: Vec<String> = progress.left().map(|id| format!("{group}/{id}")).collect();
    let left = match left.is_empty() {
        true => "nothing".to_owned(),
        false => some_of(left.into_iter()),
    };
    let (code, what) = match &progress.away {
        None => (Code::StillHeld, format!("{instance} still holds {left}; {progress}")),
        Some(Problem { code, detail, .. }) => {
            let what = format!("{detail}; when it answered last, {instance} held {left}");
            (*code, format!("{what}; {progress}"))
        }
    };
    StoreError::refused(code, what)
}
