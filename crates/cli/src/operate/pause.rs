//! `tenure pause` and `tenure resume`: whether duties are done.

use serde_json::{Value, json};
use tenure_core::engine::GroupConfig;
use tenure_core::store::CurrentHolder;
use tenure_core::{DutyKey, Store};

use super::sight::{Edited, Sight, edit};
use super::{Name, duties, some_of};
use crate::failure::Failure;
use crate::output::{document, to_stderr};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The duty as GROUP/ID, or a whole GROUP
    #[arg(value_name = "GROUP[/ID]")]
    name: String,
    /// Say what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug)]
pub(crate) struct Task {
    name: Name,
    pause: bool,
    dry_run: bool,
}

impl Task {
    pub(crate) fn new(args: &Args, pause: bool) -> Result<Self, Failure> {
        Ok(Self { name: Name::read(&args.name)?, pause, dry_run: args.dry_run })
    }
}

pub(crate) async fn run(store: &dyn Store, task: Task, json: bool) -> Result<String, Failure> {
    let change = |sight: &Sight, group: &mut GroupConfig| {
        match &task.name {
            Name::Group(_) => group.all_paused = task.pause,
            Name::Duty(duty) => {
                sight.check_duty(duty)?;
                match task.pause {
                    true => group.paused.insert(duty.id.clone()),
                    false => group.paused.remove(&duty.id),
                };
            }
        }
        Ok(())
    };
    let edited = edit(store, task.name.group(), task.dry_run, change).await?;
    if json {
        return Ok(document(&task.value(&edited)));
    }
    edited.tell(task.dry_run);
    let held = task.held(&edited.before);
    let mut foreign = edited.before.members.iter().filter(|member| member.nonce.is_none());
    if task.pause && foreign.any(|one| held.iter().any(|(_, of)| of.instance == one.instance)) {
        to_stderr("some is held by who only shares the keys: that goes on");
    }
    Ok(task.sentences(&edited))
}

impl Task {
    /// What it is about that somebody holds.
    fn held<'a>(&self, sight: &'a Sight) -> Vec<(&'a DutyKey, &'a CurrentHolder)> {
        let about = sight.holders.iter().filter(|holder| match &self.name {
            Name::Group(_) => true,
            Name::Duty(duty) => holder.duty == *duty,
        });
        about.filter_map(|holder| Some((&holder.duty, holder.holder.as_ref()?))).collect()
    }

    /// The pauses that stand after it, without that of the group.
    fn paused(&self, edited: &Edited) -> Vec<String> {
        let group = self.name.group();
        edited.group.paused.iter().map(|id| format!("{group}/{id}")).collect()
    }

    fn value(&self, edited: &Edited) -> Value {
        let held = |(duty, holder): (&DutyKey, &CurrentHolder)| {
            let holder = holder.instance.to_string();
            json!({ "duty": duty.to_string(), "holder": holder })
        };
        let mut value = edited.value(self.dry_run);
        value["duty"] = match &self.name {
            Name::Group(_) => Value::Null,
            Name::Duty(duty) => duty.to_string().into(),
        };
        value["pause_all"] = edited.group.all_paused.into();
        value["paused"] = self.paused(edited).into();
        value["held"] = self.held(&edited.before).into_iter().map(held).collect();
        value
    }

    fn sentences(&self, edited: &Edited) -> String {
        let what = match &self.name {
            Name::Group(group) => format!("group {group}"),
            Name::Duty(duty) => duty.to_string(),
        };
        let word = if self.pause { "paused" } else { "resumed" };
        let did = match (edited.changed, self.dry_run, self.pause) {
            (true, false, _) => format!("{what} is {word}\n"),
            (true, true, _) => format!("{what} would be {word}\n"),
            (false, _, true) => format!("{what} was paused before\n"),
            (false, _, false) => format!("{what} was not paused\n"),
        };
        did + &if self.pause { self.who_stops(edited) } else { self.what_stays(edited) }
    }

    fn who_stops(&self, edited: &Edited) -> String {
        let held = self.held(&edited.before);
        let would = if self.dry_run { "would stop" } else { "stops" };
        match &held[..] {
            [] => "nobody works on it now\n".to_owned(),
            [(duty, holder)] => format!("{} {would} {duty}\n", holder.instance),
            many => {
                let mut holders: Vec<_> =
                    many.iter().map(|(_, h)| h.instance.to_string()).collect();
                holders.sort();
                holders.dedup();
                let would = if self.dry_run { "would stop" } else { "stop" };
                let count = duties(many.len());
                format!("{count} {would}, on {}\n", some_of(holders.into_iter()))
            }
        }
    }

    /// A pause of the group and pauses of its duties are not the same.
    fn what_stays(&self, edited: &Edited) -> String {
        let paused = self.paused(edited);
        match &self.name {
            Name::Duty(duty) if edited.group.all_paused => {
                let group = &duty.group;
                format!("group {group} stays paused as a whole: `tenure resume {group}`\n")
            }
            Name::Group(_) if !paused.is_empty() => {
                format!("paused by themselves, these stay so: {}\n", some_of(paused.into_iter()))
            }
            _ => String::new(),
        }
    }
}
