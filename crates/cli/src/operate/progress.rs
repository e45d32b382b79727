//! How far a drain has come.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use tenure_core::{DutyId, GroupName, InstanceId};

use super::duties;
use super::sight::Sight;
use crate::output::to_stderr;

/// What the instance had since it is drained, and who has it now.
#[derive(Debug)]
pub(super) struct Progress {
    instance: InstanceId,
    now: BTreeMap<DutyId, Option<InstanceId>>,
    /// The instance has ended.
    pub(super) ended: bool,
    told: String,
    /// A line on the terminal that is not at its end.
    open: bool,
}

impl Progress {
    pub(super) fn new(instance: InstanceId) -> Self {
        Self { instance, now: BTreeMap::new(), ended: false, told: String::new(), open: false }
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

    /// What the instance still holds.
    pub(super) fn left(&self) -> impl Iterator<Item = &DutyId> {
        let left = self.now.iter().filter(|(_, holder)| holder.as_ref() == Some(&self.instance));
        left.map(|(duty, _)| duty)
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().next().is_none()
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
