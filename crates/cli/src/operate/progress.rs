//! How far a drain has come.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use tenure_core::{DutyId, GroupName, InstanceId, Problem, StoreError};

use super::duties;
use super::sight::Sight;
use crate::output::{shown, to_stderr};

/// What the instance had since it is drained, and who has it now.
#[derive(Debug)]
pub(super) struct Progress {
    instance: InstanceId,
    now: BTreeMap<DutyId, Option<InstanceId>>,
    /// The instance has ended.
    pub(super) ended: bool,
    /// Why the group could not be read the last time: all else is from before.
    pub(super) away: Option<Problem>,
    told: String,
    /// A line on the terminal that is not at its end.
    open: bool,
}

impl Progress {
    pub(super) fn new(instance: InstanceId) -> Self {
        let (now, told) = (BTreeMap::new(), String::new());
        Self { instance, now, ended: false, away: None, told, open: false }
    }

    /// The group was read.
    pub(super) fn look(&mut self, sight: &Sight) {
        for (duty, _) in sight.held_by(&self.instance) {
            self.now.entry(duty.id.clone()).or_default();
        }
        let holders = sight.holders.iter().map(|it| (&it.duty.id, it.holder.as_ref()));
        let holders: BTreeMap<_, _> = holders.collect();
        for (duty, holder) in &mut self.now {
            let now = holders.get(duty).copied().flatten();
            *holder = now.map(|now| now.instance.clone());
        }
        self.ended = !sight.members.iter().any(|member| member.instance == self.instance);
    }

    /// The group could not be read; people are told once, until it can be read again.
    pub(super) fn failed(&mut self, error: &StoreError, tell: bool) {
        let problem = error.problem().clone();
        let what = format!("the store is away, it is tried again: {}", shown(&problem.to_string()));
        if self.away.replace(problem).is_none() && tell {
            self.end_line();
            to_stderr(&what);
        }
    }

    /// The group can be read.
    pub(super) fn answered(&mut self, tell: bool) {
        if self.away.take().is_some() && tell {
            self.end_line();
            to_stderr("the store is back");
        }
    }

    /// What the instance still holds.
    pub(super) fn left(&self) -> impl Iterator<Item = &DutyId> {
        let left = self.now.iter().filter(|(_, holder)| holder.as_ref() == Some(&self.instance));
        left.map(|(duty, _)| duty)
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().next().is_none()
    }

    /// Nothing is left, and that is not from before an outage.
    pub(super) fn is_drained(&self) -> bool {
        self.is_over() && self.away.is_none()
    }

    /// `2 of 3 duties handed over: 1 to host-2, 1 is free`.
    pub(super) fn line(&self) -> String {
        let mut whose: BTreeMap<Option<&InstanceId>, usize> = BTreeMap::new();
        for holder in self.now.values().filter(|holder| holder.as_ref() != Some(&self.instance)) {
            *whose.entry(holder.as_ref()).or_default() += 1;
        }
        let handed: usize = whose.values().sum();
        let free = whose.remove(&None).map(|count| format!("{count} free"));
        let to = whose.iter().filter_map(|(who, count)| Some(format!("{count} to {}", (*who)?)));
        let parts: Vec<String> = to.chain(free).collect();
        let colon = if parts.is_empty() { "" } else { ": " };
        format!("{handed} of {} handed over{colon}{}", duties(self.now.len()), parts.join(", "))
    }

    /// The same, and since when it may be otherwise.
    pub(super) fn known(&self) -> String {
        match &self.away {
            None => self.line(),
            Some(problem) => {
                let problem = shown(&problem.to_string());
                format!("{} when the store answered last ({problem})", self.line())
            }
        }
    }

    /// Tells people what has changed: on a terminal in the same line.
    pub(super) fn tell(&mut self) {
        let line = self.line();
        if line == self.told {
            return;
        }
        // A line that is broken by the terminal cannot be written over.
        let fits = tcgetwinsize(io::stderr()).is_ok_and(|size| line.len() < size.ws_col.into());
        if fits {
            // Back to the begin, and clear what was there. When nobody reads, nobody is told.
            let _ = write!(io::stderr().lock(), "\r\x1b[K{line}");
            self.open = true;
        } else {
            self.end_line();
            to_stderr(&line);
        }
        self.told = line;
    }

    /// What follows begins on a line of its own.
    pub(super) fn end_line(&mut self) {
        if std::mem::take(&mut self.open) {
            to_stderr("");
        }
    }

    pub(super) fn value(&self, group: &GroupName) -> Value {
        let value = |(duty, holder): (&DutyId, &Option<InstanceId>)| {
            let holder = holder.as_ref().map(InstanceId::to_string);
            json!({ "duty": format!("{group}/{duty}"), "holder": holder })
        };
        self.now.iter().map(value).collect()
    }
}
