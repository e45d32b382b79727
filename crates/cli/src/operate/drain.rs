//! `tenure drain`: takes the duties of an instance to the others, and waits for that.

use std::future::pending;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tenure_core::engine::{DrainMode, GroupConfig};
use tenure_core::store::Watch;
use tenure_core::{Code, GroupName, InstanceId, Problem, Store, StoreError};
use tokio::time::{sleep, timeout};

use super::progress::Progress;
use super::sight::{Edited, Sight, edit};
use super::{Told, duties, some_of};
use crate::failure::Failure;
use crate::output::{document, to_stderr};
use crate::signals::{Signals, ends};

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    the instance holds nothing any more, or has ended
  1    refused or failed; the message says what was kept
  2    bad usage
  3    outcome unknown; it may have happened
  4    the time was over; the drain stays in force
  130  interrupted (128 and the number of the signal); the drain stays in force";

const NOT_YET: u8 = 4;

/// How often the group is looked at, hint or not.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a look may take: who does not answer by then is away.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Members look at the group once in a second at least: by then the instance knows of the drain,
/// and what it gave back has found somebody.
const SETTLE: Duration = Duration::from_millis(1_200);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The group, as it is printed
    group: String,
    /// The instance, as it is printed
    instance: String,
    /// Also if nobody else takes duties: they stay free until somebody comes
    #[arg(long, conflicts_with = "undo")]
    force: bool,
    /// How long to wait; for ever when not given
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, conflicts_with = "undo")]
    timeout: Option<Duration>,
    /// Take it back: the instance gets duties again
    #[arg(long)]
    undo: bool,
    /// Say what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug)]
pub(crate) struct Task {
    group: GroupName,
    instance: InstanceId,
    how: Option<DrainMode>,
    timeout: Option<Duration>,
    dry_run: bool,
}

impl Task {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        let (group, instance) = super::member(&args.group, &args.instance)?;
        let how = match (args.undo, args.force) {
            (true, _) => None,
            (false, true) => Some(DrainMode::Anyway),
            (false, false) => Some(DrainMode::HandOver),
        };
        Ok(Self { group, instance, how, timeout: args.timeout, dry_run: args.dry_run })
    }

    /// Changes the document, or refuses to.
    fn change(&self, sight: &Sight, group: &mut GroupConfig) -> Result<(), Failure> {
        let Self { instance, .. } = self;
        let Some(how) = self.how else {
            if group.drained.remove(instance).is_none() {
                sight.member(instance)?;
            }
            return Ok(());
        };
        sight.reader(instance)?;
        if how == DrainMode::HandOver && !sight.has_successor(group, instance) {
            let what = format!("no other member of {} takes duties", self.group);
            return Err(StoreError::refused(Code::LastMember, what).into());
        }
        group.drained.insert(instance.clone(), how);
        Ok(())
    }

    fn value(&self, edited: &Edited, progress: &Progress) -> Value {
        let mut value = edited.value(self.dry_run);
        value["instance"] = self.instance.to_string().into();
        value["how"] = self.how.map(DrainMode::as_str).into();
        value["drained"] = (self.how.is_some() && !self.dry_run && progress.is_drained()).into();
        value["ended"] = progress.ended.into();
        value["duties"] = progress.value(&self.group);
        value["away"] = progress.away.as_ref().map(|problem| problem.code.as_str()).into();
        value
    }
}

/// Why the waiting is over.
enum Over {
    Drained,
    Time,
    Asked(Signal),
}

pub(crate) async fn run(store: &dyn Store, task: Task, json: bool) -> Result<Told, Failure> {
    let Task { group, instance, dry_run, .. } = &task;
    let edited = edit(store, group, *dry_run, |sight, group| task.change(sight, group)).await?;
    let mut progress = Progress::new(instance.clone());
    progress.look(&edited.before);
    if !json {
        edited.tell(*dry_run);
    }
    let Some(how) = task.how.filter(|_| !dry_run) else {
        return Ok(match json {
            true => document(&task.value(&edited, &progress)).into(),
            false => task.foretell(&edited, &progress).into(),
        });
    };
    let left = duties(progress.left().count());
    if !json {
        to_stderr(&format!("{instance} is drained: it gets nothing more and hands over {left}"));
    }
    let over = wait(store, &task, how, &mut progress, !json).await;
    progress.end_line();
    let shown = match json {
        true => document(&task.value(&edited, &progress)),
        false => String::new(),
    };
    match over {
        Ok(over) => task.told(over, &progress, shown, json),
        Err(error) => {
            // What is unknown is only how far it came.
            let error = StoreError::Refused(error.problem().clone());
            Err(Failure::Partly { shown, error, kept: "the drain stays in force; --undo ends it" })
        }
    }
}

impl Task {
    /// What undoing did, or what a dry run would do.
    fn foretell(&self, edited: &Edited, progress: &Progress) -> String {
        let Self { group, instance, how, dry_run, .. } = self;
        let left = duties(progress.left().count());
        match (how, edited.changed, dry_run) {
            (None, false, _) => format!("{instance} of {group} is not drained\n"),
            (None, true, true) => format!("{instance} of {group} would get duties again\n"),
            (None, true, false) => format!("{instance} of {group} gets duties again\n"),
            (Some(_), false, _) => format!("{instance} of {group} is drained already\n"),
            (Some(DrainMode::HandOver), true, _) => {
                format!("{instance} of {group} would hand over {left}\n")
            }
            (Some(DrainMode::Anyway), true, _) => {
                format!("{instance} of {group} would give up {left}, taken by others or not\n")
            }
        }
    }

    fn told(
        &self,
        over: Over,
        progress: &Progress,
        shown: String,
        json: bool,
    ) -> Result<Told, Failure> {
        let Self { group, instance, .. } = self;
        let line = progress.known();
        let undo = format!("`tenure drain {group} {instance} --undo` takes it back");
        let over = match over {
            // The time was only too short to look twice.
            Over::Time if progress.is_drained() => Over::Drained,
            over => over,
        };
        match over {
            Over::Drained if json => Ok(shown.into()),
            Over::Drained if progress.ended => Ok(format!("{instance} has ended; {line}\n").into()),
            Over::Drained => {
                Ok(format!("{instance} holds nothing any more; {line}\n{undo}\n").into())
            }
            Over::Asked(signal) => {
                to_stderr(&format!("interrupted: the drain stays in force; {line}; {undo}"));
                let code = u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX);
                Ok(Told { text: shown, code: ExitCode::from(code) })
            }
            Over::Time => {
                let kept = "the drain stays in force";
                let error = self.not_yet(progress);
                let failure = Box::new(Failure::Partly { shown, error, kept });
                Err(Failure::Around { failure, code: NOT_YET })
            }
        }
    }

    /// What was left when the time was over; of a store that is away nobody knows.
    fn not_yet(&self, progress: &Progress) -> StoreError {
        let Self { group, instance, .. } = self;
        let left = progress.left().map(|id| format!("{group}/{id}")).collect::<Vec<_>>();
        let left = match left.is_empty() {
            true => "nothing".to_owned(),
            false => some_of(left.into_iter()),
        };
        let line = progress.line();
        match &progress.away {
            None => StoreError::refused(
                Code::StillHeld,
                format!("{instance} still holds {left}; {line}"),
            ),
            Some(Problem { code, detail }) => {
                let what =
                    format!("{detail}; when it answered last, {instance} held {left}; {line}");
                StoreError::refused(*code, what)
            }
        }
    }
}

/// Whether waiting may cure it. A store that was reset has to be opened again.
fn may_pass(code: Code) -> bool {
    matches!(code, Code::Unreachable | Code::Lost | Code::Busy | Code::Full | Code::Failed)
}

/// Waits until the instance holds nothing, the time is over, or somebody asks to end.
async fn wait(
    store: &dyn Store,
    task: &Task,
    how: DrainMode,
    progress: &mut Progress,
    tell: bool,
) -> Result<Over, StoreError> {
    let listening = Signals::listen();
    let asked = async {
        match listening {
            Ok(mut signals) => loop {
                let signal = signals.next().await;
                if ends(signal) {
                    break signal;
                }
            },
            // Then the usual happens: the process ends, and the drain stays in force.
            Err(_) => pending().await,
        }
    };
    tokio::select! {
        over = follow(store, task, how, progress, tell) => over,
        signal = asked => Ok(Over::Asked(signal)),
    }
}

/// The group, or that the store is away: also one that takes the question and does not answer.
async fn look(store: &dyn Store, group: &GroupName) -> Result<Sight, StoreError> {
    let away = |what| StoreError::refused(Code::Unreachable, what);
    match timeout(ANSWER_WITHIN, Sight::read(store, group)).await {
        Err(_) => Err(away(format!("no answer within {ANSWER_WITHIN:?}"))),
        // Whether a look has happened is of no interest.
        Ok(Err(error)) if error.code() == Code::Lost => Err(away(error.problem().detail.clone())),
        Ok(read) => read,
    }
}

/// What is told when the time is over is what a whole look has shown: one that is under way ends
/// first.
async fn follow(
    store: &dyn Store,
    task: &Task,
    how: DrainMode,
    progress: &mut Progress,
    tell: bool,
) -> Result<Over, StoreError> {
    // The time begins here, not when it is first waited for.
    let limit = task.timeout.map(sleep);
    let time = async {
        match limit {
            Some(limit) => limit.await,
            None => pending().await,
        }
    };
    tokio::pin!(time);
    let patience = task.timeout.map_or(ANSWER_WITHIN, |limit| limit.min(ANSWER_WITHIN));
    let watch = timeout(patience, store.watch(&task.group)).await;
    let mut watch = watch.ok().and_then(Result::ok);
    let (mut out, mut deserted) = (false, false);
    loop {
        let pause = match look(store, &task.group).await {
            Ok(sight) => {
                progress.answered(tell);
                progress.look(&sight);
                if tell {
                    progress.tell();
                }
                let alone = how == DrainMode::HandOver
                    && !progress.is_over()
                    && !sight.has_successor(&sight.group, &task.instance);
                if tell && alone && !deserted {
                    progress.end_line();
                    to_stderr("no other member takes duties now: it keeps the rest until one does");
                }
                deserted = alone;
                // Twice in a row: a claim that was on its way may have brought something.
                if out && progress.is_over() {
                    return Ok(Over::Drained);
                }
                out = progress.is_over();
                if out { Pause::Settle } else { Pause::Hint }
            }
            Err(error) => {
                let passes = may_pass(error.code());
                progress.failed(&error, tell && passes);
                if !passes {
                    return Err(error);
                }
                out = false;
                Pause::Away
            }
        };
        tokio::select! {
            () = pause.over(&mut watch) => {}
            () = &mut time => return Ok(Over::Time),
        }
    }
}

/// What is waited for between two looks.
enum Pause {
    Settle,
    Away,
    Hint,
}

impl Pause {
    async fn over(self, watch: &mut Option<Box<dyn Watch>>) {
        match self {
            Self::Settle => sleep(SETTLE).await,
            Self::Away => sleep(LOOK_EVERY).await,
            Self::Hint => next_look(watch).await,
        }
    }
}

/// Returns after a hint, or after a while.
async fn next_look(watch: &mut Option<Box<dyn Watch>>) {
    if let Some(watching) = watch
        && let Ok(Err(_)) = timeout(LOOK_EVERY, watching.changed()).await
    {
        sleep(LOOK_EVERY).await;
    } else if watch.is_none() {
        sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_is_over(progress: &Progress) -> Result<Told, Failure> {
        let task = Task {
            group: GroupName::new("g").unwrap(),
            instance: InstanceId::new("a").unwrap(),
            how: Some(DrainMode::HandOver),
            timeout: Some(Duration::from_millis(1)),
            dry_run: false,
        };
        task.told(Over::Time, progress, String::new(), false)
    }

    #[test]
    fn who_holds_nothing_is_drained_however_short_the_time_was() {
        let mut progress = Progress::new(InstanceId::new("a").unwrap());
        let Ok(told) = time_is_over(&progress) else { panic!("it is drained") };
        assert!(told.text.starts_with("a holds nothing any more; 0 of 0 duties"), "{}", told.text);

        // Unless nobody knows.
        progress.failed(&StoreError::refused(Code::Unreachable, "no route"), false);
        let Err(Failure::Around { failure, code: NOT_YET }) = time_is_over(&progress) else {
            panic!("it is not known")
        };
        let Failure::Partly { error, .. } = *failure else { panic!("it says what is kept") };
        let said = "no route; when it answered last, a held nothing; 0 of 0 duties handed over";
        assert_eq!((error.code(), error.problem().detail.as_str()), (Code::Unreachable, said));
        progress.answered(false);
        assert!(progress.is_drained());
    }
}
