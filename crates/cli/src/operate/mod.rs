//! Commands that list, explain and change groups: arguments and output.

pub(crate) mod apply;
pub(crate) mod drain;
pub(crate) mod evict;
pub(crate) mod explain;
pub(crate) mod forget;
pub(crate) mod ls;
pub(crate) mod pause;
pub(crate) mod pin;
pub(crate) mod plan;
pub(crate) mod share;
pub(crate) mod top;

use std::process::ExitCode;

use rustix::process::Signal;
use tenure_core::{GroupName, InstanceId};
use tenure_operate::pause::Scope;
use tenure_operate::{EditSummary, duties};
use tenure_supervise::{Signals, is_stop};

use crate::args::{group_name, name};
use crate::failure::Failure;
use crate::output::{note_dry_run, to_stderr};

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
    note_dry_run(edit.dry_run);
}

/// Picks the value for an unchanged document, a change, or a dry run of a change.
fn by_outcome<T>(edit: &EditSummary, unchanged: T, changed: T, dry_run: T) -> T {
    match (edit.changed, edit.dry_run) {
        (false, _) => unchanged,
        (true, false) => changed,
        (true, true) => dry_run,
    }
}

/// Waits for a termination signal.
async fn end_signal(signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        if is_stop(signal) {
            return signal;
        }
    }
}

/// Returns the exit code of a process that a signal ended.
pub(crate) fn ended_by(signal: Signal) -> ExitCode {
    ExitCode::from(128 + u8::try_from(signal.as_raw()).unwrap_or(0))
}

/// Maximum number of names in a sentence.
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
