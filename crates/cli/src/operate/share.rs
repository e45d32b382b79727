//! `tenure cordon` and `tenure weight`: how much an instance gets.

use serde_json::Value;
use tenure_core::engine::GroupConfig;
use tenure_core::{GroupName, InstanceId, Store};

use super::sight::{Edited, Sight, edit};
use crate::failure::Failure;
use crate::group::check_takers;
use crate::output::{document, to_stderr};

#[derive(clap::Args)]
pub(crate) struct CordonArgs {
    /// The group, as it is printed
    group: String,
    /// The instance, as it is printed
    instance: String,
    /// Take it back: the instance gets duties again
    #[arg(long)]
    undo: bool,
    /// Say what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(clap::Args)]
pub(crate) struct WeightArgs {
    /// The group, as it is printed
    group: String,
    /// The instance, as it is printed
    instance: String,
    /// Its share beside the others; 0 takes nothing
    #[arg(
        required_unless_present = "remove",
        conflicts_with = "remove",
        allow_negative_numbers = true,
        value_parser = read_weight
    )]
    weight: Option<u32>,
    /// Take it back: the instance has the weight again that it was started with
    #[arg(long)]
    remove: bool,
    /// Say what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

fn read_weight(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a weight is a whole number of at most {}", u32::MAX))
}

#[derive(Debug)]
pub(crate) struct Task {
    group: GroupName,
    instance: InstanceId,
    change: Change,
    dry_run: bool,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Cordon(bool),
    /// `None` takes it back.
    Weight(Option<u32>),
}

impl Task {
    pub(crate) fn cordon(args: &CordonArgs) -> Result<Self, Failure> {
        let (group, instance) = super::member(&args.group, &args.instance)?;
        Ok(Self { group, instance, change: Change::Cordon(!args.undo), dry_run: args.dry_run })
    }

    pub(crate) fn weight(args: &WeightArgs) -> Result<Self, Failure> {
        let (group, instance) = super::member(&args.group, &args.instance)?;
        Ok(Self { group, instance, change: Change::Weight(args.weight), dry_run: args.dry_run })
    }

    fn change(&self, sight: &Sight, group: &mut GroupConfig) -> Result<(), Failure> {
        let Self { instance, .. } = self;
        let changed = match self.change {
            Change::Cordon(false) => group.cordoned.remove(instance),
            Change::Weight(None) => group.weights.remove(instance).is_some(),
            Change::Cordon(true) => {
                sight.stayer(instance)?;
                group.cordoned.insert(instance.clone())
            }
            Change::Weight(Some(weight)) => {
                sight.stayer(instance)?;
                group.weights.insert(instance.clone(), weight) != Some(weight)
            }
        };
        // What is about somebody who has ended can still be taken back.
        if !changed {
            sight.member(instance)?;
        }
        if let Change::Weight(_) = self.change {
            let before = (&sight.members[..], &sight.group);
            check_takers(&self.group, before, (&sight.members, group))?;
        }
        Ok(())
    }

    fn value(&self, edited: &Edited) -> Value {
        let mut value = edited.value(self.dry_run);
        value["instance"] = self.instance.to_string().into();
        match self.change {
            Change::Cordon(cordoned) => {
                value["cordoned"] = cordoned.into();
                value["nobody_else"] = self.is_last(edited).into();
            }
            Change::Weight(weight) => {
                value["weight"] = weight.into();
                value["before"] = edited.before.group.weights.get(&self.instance).copied().into();
            }
        }
        value
    }

    /// Whether it is cordoned, and nobody else takes what comes free.
    fn is_last(&self, edited: &Edited) -> bool {
        matches!(self.change, Change::Cordon(true))
            && !edited.before.has_successor(&edited.group, &self.instance)
    }

    fn sentence(&self, edited: &Edited) -> String {
        let Self { group, instance, change, dry_run } = self;
        let before = edited.before.group.weights.get(instance);
        let before = before.map_or("its own".to_owned(), u32::to_string);
        let would = if *dry_run { "would have" } else { "has" };
        let what = match (change, edited.changed, dry_run) {
            (Change::Cordon(true), false, _) => "was cordoned before".to_owned(),
            (Change::Cordon(true), true, false) => {
                "is cordoned: it keeps what it has and gets nothing more".to_owned()
            }
            (Change::Cordon(true), true, true) => {
                "would be cordoned: it would keep what it has and get nothing more".to_owned()
            }
            (Change::Cordon(false), false, _) => "is not cordoned".to_owned(),
            (Change::Cordon(false), true, false) => "is not cordoned any more".to_owned(),
            (Change::Cordon(false), true, true) => "would not be cordoned any more".to_owned(),
            (Change::Weight(Some(weight)), false, _) => format!("had weight {weight} before"),
            (Change::Weight(None), false, _) => "was not given a weight".to_owned(),
            (Change::Weight(Some(weight)), true, _) => {
                format!("{would} weight {weight}; before it had {before}")
            }
            (Change::Weight(None), true, _) => {
                format!("{would} its own weight again; before it had {before}")
            }
        };
        format!("{instance} of {group} {what}\n")
    }
}

pub(crate) async fn run(store: &dyn Store, task: Task, json: bool) -> Result<String, Failure> {
    let Task { group, instance, dry_run, .. } = &task;
    let edited = edit(store, group, *dry_run, |sight, group| task.change(sight, group)).await?;
    if json {
        return Ok(document(&task.value(&edited)));
    }
    edited.tell(*dry_run);
    if edited.group.drained.contains_key(instance) {
        to_stderr(&format!("{instance} is drained: it gets nothing until that is taken back"));
    }
    let of_weight = matches!(task.change, Change::Weight(_));
    if of_weight && edited.group.cordoned.contains(instance) {
        to_stderr(&format!(
            "{instance} is cordoned: it gets nothing more until that is taken back"
        ));
    }
    if task.is_last(&edited) {
        to_stderr("no other member takes duties: what comes free stays so until one does");
    }
    Ok(task.sentence(&edited))
}
