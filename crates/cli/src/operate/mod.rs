//! What operators change: who gets duties, where they are, and whether they are done.
//!
//! All of it but an eviction is a line in the document of the group, which every member reads.

pub(crate) mod drain;
pub(crate) mod evict;
pub(crate) mod lines;
pub(crate) mod pause;
pub(crate) mod pin;
mod progress;
pub(crate) mod share;
mod sight;

use std::process::ExitCode;

use tenure_core::{Code, DutyKey, GroupName, InstanceId, StoreError};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};

use crate::args::{group_name, name};
use crate::failure::Failure;
use crate::group::duties;

/// A command that was read and checked.
#[derive(Debug)]
pub(crate) enum Task {
    Drain(drain::Task),
    Evict(evict::Task),
    Pause(pause::Task),
    Pin(pin::Task),
    Share(share::Task),
}

/// What a command prints in the end, and how it ends.
pub(crate) struct Told {
    pub(crate) text: String,
    pub(crate) code: ExitCode,
}

impl From<String> for Told {
    fn from(text: String) -> Self {
        Self { text, code: ExitCode::SUCCESS }
    }
}

pub(crate) async fn run(url: &StoreUrl, task: Task, json: bool) -> Result<Told, Failure> {
    let store = url.open(IfAbsent::Refuse, process::entropy()).await?;
    match task {
        Task::Drain(task) => drain::run(&*store, task, json).await,
        Task::Evict(task) => evict::run(&*store, task, json).await.map(Told::from),
        Task::Pause(task) => pause::run(&*store, task, json).await.map(Told::from),
        Task::Pin(task) => pin::run(&*store, task, json).await.map(Told::from),
        Task::Share(task) => share::run(&*store, task, json).await.map(Told::from),
    }
}

/// A group, or a duty in it.
#[derive(Debug)]
pub(crate) enum Name {
    Group(GroupName),
    Duty(DutyKey),
}

impl Name {
    fn read(text: &str) -> Result<Self, Failure> {
        match text.contains('/') {
            true => name(text, str::parse).map(Self::Duty),
            false => name(text, GroupName::unescape).map(Self::Group),
        }
    }

    fn group(&self) -> &GroupName {
        match self {
            Self::Group(group) => group,
            Self::Duty(duty) => &duty.group,
        }
    }
}

/// Reads the names of a group and of an instance in it.
fn member(group: &str, instance: &str) -> Result<(GroupName, InstanceId), Failure> {
    Ok((group_name(group)?, name(instance, InstanceId::unescape)?))
}

fn not_there(what: String) -> Failure {
    Failure::Store(StoreError::refused(Code::NotThere, what))
}

fn conflict(what: String) -> Failure {
    Failure::Store(StoreError::refused(Code::Conflict, what))
}

/// How many names a sentence has before it says how many more there are.
const NAMED: usize = 10;

/// The names, and how many more there are.
fn some_of(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let mut text = names.take(NAMED).collect::<Vec<_>>().join(", ");
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
        assert!(matches!(Name::read("poll"), Ok(Name::Group(group)) if group.as_str() == "poll"));
        let Ok(Name::Duty(duty)) = Name::read("a%2Fb/c%2Fd") else { panic!("a duty") };
        assert_eq!((duty.group.as_str(), duty.id.as_str()), ("a/b", "c/d"));
        assert!(Name::read("/x").is_err() && Name::read("").is_err());
    }

    #[test]
    fn long_lists_are_cut() {
        let names = |count: u32| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(some_of(names(3).into_iter()), "0, 1, 2");
        assert!(some_of(names(13).into_iter()).ends_with("8, 9 and 3 more"));
    }
}
