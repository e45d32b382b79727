//! Commands that list, explain and change groups: arguments, and what is printed.

pub(crate) mod apply;
pub(crate) mod drain;
pub(crate) mod evict;
pub(crate) mod explain;
mod forget;
mod ls;
pub(crate) mod pause;
pub(crate) mod pin;
pub(crate) mod plan;
pub(crate) mod share;
pub(crate) mod top;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;
use tenure_core::{DutyKey, GroupName, InstanceId};
use tenure_duty::process;
use tenure_operate::drain::DrainOptions;
use tenure_operate::evict::EvictOptions;
use tenure_operate::explain::PastTime;
use tenure_operate::pause::{PauseOptions, Scope};
use tenure_operate::pin::PinOptions;
use tenure_operate::plan::PlanChanges;
use tenure_operate::share::ShareOptions;
use tenure_operate::{EditSummary, duties};
use tenure_store::{IfAbsent, StoreUrl};
use tenure_supervise::{Signals, is_stop};

use crate::args::{group_name, name};
use crate::failure::Failure;
use crate::output::{DRY_RUN, to_stderr, to_stdout};

/// A command with checked arguments.
#[derive(Debug)]
pub(crate) enum GroupOperation {
    Apply { file: PathBuf, dry_run: bool },
    Drain(DrainOptions, Option<Duration>),
    Evict(EvictOptions),
    Explain { duty: DutyKey, at: Option<PastTime> },
    Forget { duties: Vec<DutyKey>, dry_run: bool },
    List(Option<GroupName>),
    ListPins(GroupName),
    Pause(PauseOptions),
    Pin(PinOptions),
    Plan { group: GroupName, changes: PlanChanges, out: Option<PathBuf> },
    Share(ShareOptions),
    Top(top::TopOptions),
}

pub(crate) async fn run(
    url: &StoreUrl,
    operation: GroupOperation,
    json: bool,
) -> Result<ExitCode, Failure> {
    let store = async || url.open(IfAbsent::Refuse, process::entropy()).await;
    let text = match operation {
        GroupOperation::Drain(options, timeout) => {
            return drain::run(&*store().await?, options, timeout, json).await;
        }
        GroupOperation::Apply { file, dry_run } => apply::run(url, &file, dry_run, json).await?,
        GroupOperation::Forget { duties, dry_run } => {
            forget::run(url, duties, dry_run, json).await?
        }
        GroupOperation::Top(options) => top::run(url, options, json).await?,
        GroupOperation::Evict(options) => evict::run(&*store().await?, options, json).await?,
        GroupOperation::Explain { duty, at } => {
            explain::run(&*store().await?, duty, at, json).await?
        }
        GroupOperation::List(only) => ls::run(&*store().await?, url, only, json).await?,
        GroupOperation::ListPins(group) => pin::list(&*store().await?, &group, json).await?,
        GroupOperation::Pause(options) => pause::run(&*store().await?, &options, json).await?,
        GroupOperation::Pin(options) => pin::run(&*store().await?, options, json).await?,
        GroupOperation::Plan { group, changes, out } => {
            plan::run(&*store().await?, url, (&group, changes), out, json).await?
        }
        GroupOperation::Share(options) => share::run(&*store().await?, &options, json).await?,
    };
    to_stdout(&text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// An instance of a group.
#[derive(clap::Args)]
pub(crate) struct InstanceArgs {
    /// Group, as printed by `tenure ls`
    group: String,
    /// Instance id, as printed by `tenure ls`
    instance: String,
}

impl InstanceArgs {
    fn names(&self) -> Result<(GroupName, InstanceId), Failure> {
        Ok((group_name(&self.group)?, name(&self.instance, InstanceId::unescape)?))
    }
}

/// Reads the name of a group, or of a duty as GROUP/ID.
pub(crate) fn scope(text: &str) -> Result<Scope, Failure> {
    match text.contains('/') {
        true => name(text, str::parse).map(Scope::Duty),
        false => name(text, GroupName::unescape).map(Scope::Group),
    }
}

/// Prints notes on a change to standard error.
fn note_edit(edit: &EditSummary) {
    if !edit.pruned.is_empty() {
        to_stderr(&format!("dropped directives of instances that ended: {}", edit.pruned.len()));
    }
    if edit.dry_run {
        to_stderr(DRY_RUN);
    }
}

/// Picks the text for a document that was as wanted, for a change, or for a dry run of it.
fn by_outcome<T>(edit: &EditSummary, unchanged: T, changed: T, dry_run: T) -> T {
    match (edit.changed, edit.dry_run) {
        (false, _) => unchanged,
        (true, false) => changed,
        (true, true) => dry_run,
    }
}

/// Waits for a signal that asks this process to end.
async fn end_signal(signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        if is_stop(signal) {
            return signal;
        }
    }
}

/// Names in a sentence before the rest is only counted.
const MAX_NAMES: usize = 10;

/// Lists names; the rest is counted.
fn some_of(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    let mut text = names.take(MAX_NAMES).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_groups_or_duties() {
        assert!(matches!(scope("poll"), Ok(Scope::Group(group)) if group.as_str() == "poll"));
        let Ok(Scope::Duty(duty)) = scope("a%2Fb/c%2Fd") else { panic!("a duty") };
        assert_eq!((duty.group.as_str(), duty.id.as_str()), ("a/b", "c/d"));
        assert!(scope("/x").is_err() && scope("").is_err());
    }

    #[test]
    fn long_lists_are_cut() {
        let names = |count: u32| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(some_of(names(3).into_iter()), "0, 1, 2");
        assert!(some_of(names(13).into_iter()).ends_with("8, 9 and 3 more"));
    }
}
