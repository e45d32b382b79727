//! `tenure cordon` and `tenure weight`.

use tenure_core::InstanceId;
use tenure_operate::share::{Share, ShareChange, ShareOptions, ShareReport, set_share};

use super::{InstanceArgs, InstanceWord, by_outcome, for_each, note_edits};
use crate::args::{Global, name};
use crate::failure::Failure;
use crate::output::to_stderr;

#[derive(clap::Args)]
#[command(override_usage = "\
    tenure cordon [OPTIONS] <GROUP> <INSTANCE>
       tenure cordon [OPTIONS] --all-groups <INSTANCE>")]
pub(crate) struct CordonArgs {
    #[command(flatten)]
    target: InstanceArgs,
    /// Undo: assign duties to the instance again
    #[arg(long)]
    undo: bool,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(clap::Args)]
#[command(override_usage = "\
    tenure weight [OPTIONS] <GROUP> <INSTANCE> [WEIGHT]
       tenure weight [OPTIONS] --all-groups <INSTANCE> [WEIGHT]")]
pub(crate) struct WeightArgs {
    #[command(flatten)]
    target: InstanceArgs,
    /// Share of the duties, relative to other members; 0 takes none
    #[arg(
        required_unless_present_any = ["remove", "all_groups"],
        conflicts_with = "remove",
        allow_negative_numbers = true,
        value_parser = read_weight
    )]
    weight: Option<u32>,
    /// Restore the weight that the instance was started with
    #[arg(long)]
    remove: bool,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

fn read_weight(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a weight is a whole number of at most {}", u32::MAX))
}

impl CordonArgs {
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        run(&self.target.word()?, Share::Cordon(!self.undo), self.dry_run, global).await
    }
}

impl WeightArgs {
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        let (word, weight) = match (&self.target, self.weight) {
            // The weight is the second word.
            (InstanceArgs { group, instance: Some(weight), all_groups: true }, None) => {
                let weight = read_weight(weight).map_err(Failure::Usage)?;
                (InstanceWord::InAllGroups(name(group, InstanceId::unescape)?), Some(weight))
            }
            (target, weight) => (target.word()?, weight),
        };
        if weight.is_some() == self.remove {
            return Err(Failure::Usage("give a WEIGHT or --remove".to_owned()));
        }
        run(&word, Share::Weight(weight), self.dry_run, global).await
    }
}

async fn run(
    word: &InstanceWord,
    share: Share,
    dry_run: bool,
    global: &Global,
) -> Result<String, Failure> {
    let store = &*global.open().await?;
    let targets = word.find(store).await?;
    let set = async |(group, instance), dry_run| {
        set_share(store, &ShareOptions { group, instance, share, dry_run }).await
    };
    let show = |changed: &[ShareReport]| word.show(global, changed, sentence);
    let changed = for_each(targets, dry_run, set, show).await?;
    if !global.json {
        note_edits(changed.iter().map(|report| &report.edit));
        changed.iter().for_each(note);
    }
    Ok(show(&changed))
}

/// Prints notes on a change to standard error.
fn note(changed: &ShareReport) {
    let instance = &changed.instance;
    if changed.drained {
        to_stderr(&format!("{instance} is drained: it gets no duties until the drain is undone"));
    }
    match changed.change {
        ShareChange::Weight { .. } if changed.is_cordoned => to_stderr(&format!(
            "{instance} is cordoned: it gets no duties until the cordon is undone"
        )),
        ShareChange::Cordon { nobody_else: true, .. } => {
            to_stderr("no other member takes duties: free duties wait until one does");
        }
        _ => {}
    }
}

fn sentence(report: &ShareReport) -> String {
    let ShareReport { edit, instance, change, .. } = report;
    let pick = |unchanged: &str, changed: &str, dry_run: &str| {
        by_outcome(edit, unchanged, changed, dry_run).to_owned()
    };
    let what = match change {
        ShareChange::Cordon { cordoned: true, .. } => pick(
            "was already cordoned",
            "is cordoned: it keeps its duties and gets no new ones",
            "would be cordoned: it would keep its duties and get no new ones",
        ),
        ShareChange::Cordon { .. } => {
            pick("is not cordoned", "is no longer cordoned", "would no longer be cordoned")
        }
        ShareChange::Weight { weight, before } => {
            let would = if edit.dry_run { "would have" } else { "has" };
            let before = before.map_or("its own".to_owned(), |before| before.to_string());
            match weight {
                Some(weight) if !edit.changed => format!("already had weight {weight}"),
                None if !edit.changed => "has no weight set".to_owned(),
                Some(weight) => format!("{would} weight {weight}; before it had {before}"),
                None => format!("{would} its own weight again; before it had {before}"),
            }
        }
    };
    format!("{instance} of {} {what}\n", edit.group)
}
