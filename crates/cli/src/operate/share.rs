//! `tenure cordon` and `tenure weight`.

use tenure_operate::share::{Share, ShareChange, ShareOptions, ShareReport, set_share};

use super::{InstanceArgs, by_outcome, note_edit};
use crate::args::Global;
use crate::failure::Failure;
use crate::output::{report, to_stderr};

#[derive(clap::Args)]
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
pub(crate) struct WeightArgs {
    #[command(flatten)]
    target: InstanceArgs,
    /// Share of the duties, relative to other members; 0 takes none
    #[arg(
        required_unless_present = "remove",
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
        run(&self.target, Share::Cordon(!self.undo), self.dry_run, global).await
    }
}

impl WeightArgs {
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        run(&self.target, Share::Weight(self.weight), self.dry_run, global).await
    }
}

async fn run(
    target: &InstanceArgs,
    share: Share,
    dry_run: bool,
    global: &Global,
) -> Result<String, Failure> {
    let (group, instance) = target.names()?;
    let options = ShareOptions { group, instance, share, dry_run };
    let changed = set_share(&*global.open().await?, &options).await?;
    if global.json {
        return Ok(report(&changed));
    }
    note_edit(&changed.edit);
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
    Ok(sentence(&changed))
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
