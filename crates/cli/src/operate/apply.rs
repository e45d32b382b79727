//! `tenure apply`.

use std::path::{Path, PathBuf};

use tenure_duty::process;
use tenure_operate::plan::{JOIN_NOTE, PlanFile, apply};
use tenure_store::{IfAbsent, StoreUrl};

use super::{GroupOperation, duties};
use crate::args::path;
use crate::failure::Failure;
use crate::output::{DRY_RUN, report, to_stderr};

#[derive(clap::Args)]
pub(crate) struct ApplyArgs {
    /// Plan written by `tenure plan --out`
    file: PathBuf,
    /// Run all checks and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl ApplyArgs {
    pub(crate) fn operation(&self) -> Result<GroupOperation, Failure> {
        Ok(GroupOperation::Apply { file: path(&self.file)?, dry_run: self.dry_run })
    }
}

pub(super) async fn run(
    url: &StoreUrl,
    file: &Path,
    dry_run: bool,
    json: bool,
) -> Result<String, Failure> {
    let plan = PlanFile::read(file)?;
    plan.check(&url.place())?;
    let store = url.open(IfAbsent::Refuse, process::entropy()).await?;
    let applied = apply(&*store, &plan, dry_run).await?;
    if json {
        return Ok(report(&applied));
    }
    if applied.joins {
        to_stderr(&format!("note: {JOIN_NOTE}; until then duties move as they do without it"));
    }
    if dry_run {
        to_stderr(DRY_RUN);
    }
    let lines: String = applied.changes.lines().iter().map(|line| format!("  {line}\n")).collect();
    let word = match (applied.changed, dry_run) {
        (false, _) => "is in force already",
        (true, true) => "would be put in force",
        (true, false) => "is in force now",
    };
    let moves = duties(applied.moves);
    Ok(format!("in group {} this {word}:\n{lines}{moves} to move\n", applied.group))
}
