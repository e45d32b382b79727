//! Commands that list, explain and change groups: arguments and output.

pub(crate) mod apply;
pub(crate) mod audit;
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
use serde::Serialize;
use serde_json::json;
use tenure_core::{GroupName, InstanceId, Store};
use tenure_operate::explain::PastTime;
use tenure_operate::pause::Scope;
use tenure_operate::{EditSummary, OperateError, duties, find};
use tenure_supervise::{Signals, is_stop};

use crate::args::{Global, duration, group_name, name};
use crate::failure::Failure;
use crate::output::{note_dry_run, to_stderr};

/// An instance of a group, or of every group.
// clap fills the first of two words, so with `--all-groups` the instance is in `group`.
#[derive(clap::Args)]
pub(crate) struct InstanceArgs {
    /// Group, as printed by `tenure ls`; leave it out with --all-groups
    group: String,
    /// Instance: its id, name or host as printed by `tenure ls`, or the beginning of its id
    #[arg(required_unless_present = "all_groups")]
    instance: Option<String>,
    /// Act in every group in which the instance is a member
    #[arg(long)]
    all_groups: bool,
}

/// A word for an instance, as it was given.
enum InstanceWord {
    InGroup(GroupName, InstanceId),
    InAllGroups(InstanceId),
}

/// An instance of a group.
type GroupInstance = (GroupName, InstanceId);

impl InstanceArgs {
    fn word(&self) -> Result<InstanceWord, Failure> {
        let instance = |text: &str| name(text, InstanceId::unescape);
        match (&self.instance, self.all_groups) {
            (Some(word), false) => {
                Ok(InstanceWord::InGroup(group_name(&self.group)?, instance(word)?))
            }
            (None, _) => Ok(InstanceWord::InAllGroups(instance(&self.group)?)),
            (Some(_), true) => Err(Failure::Usage(
                "give a GROUP or --all-groups, not both; a group has no place beside it".to_owned(),
            )),
        }
    }
}

impl InstanceWord {
    /// Finds the instance in its group, or in every group.
    async fn find(&self, store: &dyn Store) -> Result<Vec<GroupInstance>, Failure> {
        match self {
            Self::InGroup(group, word) => {
                Ok(vec![(group.clone(), find::instance(store, group, word).await?)])
            }
            Self::InAllGroups(word) => Ok(find::in_all_groups(store, word).await?),
        }
    }

    /// Formats the reports of an operation: that of one group, or those of all.
    fn show<R: Serialize>(
        &self,
        global: &Global,
        reports: &[R],
        text: impl Fn(&R) -> String,
    ) -> String {
        let text = || reports.iter().map(text).collect::<Vec<_>>().concat();
        match (self, reports) {
            (Self::InGroup(..), [report]) => global.show(report, text),
            _ => global.show(&json!({ "groups": reports }), text),
        }
    }
}

/// Runs an operation on each target; of several, first as a dry run, so that a refusal changes
/// nothing.
async fn for_each<R>(
    targets: Vec<GroupInstance>,
    dry_run: bool,
    operation: impl AsyncFn(GroupInstance, bool) -> Result<R, OperateError>,
    show: impl Fn(&[R]) -> String,
) -> Result<Vec<R>, Failure> {
    if targets.len() > 1 && !dry_run {
        for target in &targets {
            operation(target.clone(), true).await?;
        }
    }
    let mut done = Vec::new();
    for target in targets {
        match operation(target, dry_run).await {
            Ok(report) => done.push(report),
            Err(error) if done.is_empty() => return Err(error.into()),
            Err(error) => {
                let failure = Failure::from(error).showing(show(&done));
                return Err(failure.keeping("the groups above were changed, and no others"));
            }
        }
    }
    Ok(done)
}

/// Reads the name of a group, or of a duty as GROUP/ID.
pub(crate) fn scope(text: &str) -> Result<Scope, Failure> {
    match text.contains('/') {
        true => name(text, str::parse).map(Scope::Duty),
        false => name(text, GroupName::unescape).map(Scope::Group),
    }
}

/// Parses a time of the past: an RFC 3339 time, or how long ago it was.
pub(crate) fn read_time(option: &str, text: &str) -> Result<PastTime, Failure> {
    if let Ok(ago) = duration(text) {
        return Ok(PastTime::Ago(ago));
    }
    let time = text.parse::<jiff::Timestamp>().map_err(|_| {
        Failure::Usage(format!(
            "{option} is a time as in 2026-02-15T10:00:00Z, or how long ago as in 10m"
        ))
    })?;
    Ok(PastTime::At(time.as_millisecond()))
}

/// Prints notes on a change to standard error.
fn note_edit(edit: &EditSummary) {
    note_edits(std::iter::once(edit));
}

/// Prints notes on changes of several groups to standard error.
fn note_edits<'a>(mut edits: impl Iterator<Item = &'a EditSummary> + Clone) {
    let pruned: usize = edits.clone().map(|edit| edit.pruned.len()).sum();
    if pruned > 0 {
        to_stderr(&format!("dropped directives of instances that ended: {pruned}"));
    }
    note_dry_run(edits.any(|edit| edit.dry_run));
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
pub(crate) async fn end_signal(signals: &mut Signals) -> Signal {
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
    use std::time::Duration;

    #[test]
    fn names_are_of_groups_or_duties() {
        assert!(matches!(scope("poll"), Ok(Scope::Group(group)) if group.as_str() == "poll"));
        let Ok(Scope::Duty(duty)) = scope("a%2Fb/c%2Fd") else { panic!("a duty") };
        assert_eq!((duty.group.as_str(), duty.id.as_str()), ("a/b", "c/d"));
        assert!(scope("/x").is_err() && scope("").is_err());
    }

    #[test]
    fn a_time_is_one_of_the_clock_or_how_long_ago() {
        let read = |text| read_time("--at", text).unwrap();
        assert_eq!(read("10m"), PastTime::Ago(Duration::from_secs(600)));
        assert_eq!(read("2026-02-15T10:00:00.123Z"), PastTime::At(1_771_149_600_123));
        assert_eq!(read("2026-02-15T12:00:00.123+02:00"), PastTime::At(1_771_149_600_123));
        assert!(matches!(read("1960-01-01T00:00:00Z"), PastTime::At(..0)));
        for bad in ["", "yesterday", "2026-02-15", "-10m", "now"] {
            assert!(matches!(read_time("--at", bad), Err(Failure::Usage(_))), "{bad}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let names = |count: u32| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(some_of(names(3).into_iter()), "0, 1, 2");
        assert!(some_of(names(13).into_iter()).ends_with("8, 9 and 3 more"));
    }
}
