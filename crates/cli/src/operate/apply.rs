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
            to_stderr(&format!("note: {JOIN_NOTE}; until then duties move as they do without it"));
        }
        note_dry_run(self.dry_run);
        let lines = applied.changes.lines();
        let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        let word = match (applied.changed, self.dry_run) {
            (false, _) => "is in force already",
            (true, true) => "would be put in force",
            (true, false) => "is in force now",
        };
        let moves = duties(applied.moves);
        Ok(format!("in group {} this {word}:\n{lines}{moves} to move\n", applied.group))
    }
}
