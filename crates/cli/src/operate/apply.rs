//! `tenure apply`.

use std::path::PathBuf;

use tenure_operate::plan::{JOIN_NOTE, PlanFile, apply};

use super::duties;
use crate::args::{Global, path};
use crate::failure::Failure;
use crate::output::{note_dry_run, report, to_stderr};

#[derive(clap::Args)]
pub(crate) struct ApplyArgs {
    /// Plan written by `tenure plan --out`
    file: PathBuf,
    /// Run all checks and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl ApplyArgs {
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        let file = path(&self.file)?;
        let url = global.url()?;
        let plan = PlanFile::read(&file)?;
        plan.check(&url.place())?;
        let applied = apply(&*global.open().await?, &plan, self.dry_run).await?;
        if global.json {
            return Ok(report(&applied));
        }
        if applied.joins {
            to_stderr(&format!("note: {JOIN_NOTE}; until they join, duties move as without them"));
        }
        note_dry_run(self.dry_run);
        let lines = applied.changes.lines();
        let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        let (what, verb) = match (applied.changed, self.dry_run) {
            (false, _) => ("these changes are already in force", "will move"),
            (true, true) => ("these changes would be put in force", "would move"),
            (true, false) => ("these changes are now in force", "will move"),
        };
        let (group, moves) = (&applied.group, duties(applied.moves));
        Ok(format!("group {group}: {what}:\n{lines}{moves} {verb}\n"))
    }
}
