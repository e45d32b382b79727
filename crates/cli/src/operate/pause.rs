//! `tenure pause` and `tenure resume`.

use tenure_operate::pause::{PauseOptions, PauseReport, Scope, pause};

use super::{by_outcome, duties, note_edit, scope, some_of};
use crate::args::Global;
use crate::failure::Failure;
use crate::output::{report, to_stderr};
use crate::table::or_dash;

#[derive(clap::Args)]
pub(crate) struct PauseArgs {
    /// Duty as GROUP/ID, or a whole GROUP
    #[arg(value_name = "GROUP[/ID]")]
    name: String,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl PauseArgs {
    /// Pauses, or resumes if `is_pause` is not set.
    pub(crate) async fn run(&self, is_pause: bool, global: &Global) -> Result<String, Failure> {
        let scope = scope(&self.name)?;
        let options = PauseOptions { scope, pause: is_pause, dry_run: self.dry_run };
        let paused = pause(&*global.open().await?, &options).await?;
        if global.json {
            return Ok(report(&paused));
        }
        note_edit(&paused.edit);
        if is_pause && paused.foreign_holder {
            to_stderr("duties held by foreign members are not stopped");
        }
        let what = match &options.scope {
            Scope::Group(group) => format!("group {group}"),
            Scope::Duty(duty) => duty.to_string(),
        };
        let [before, is, would] = match is_pause {
            true => ["was already paused", "is paused", "would be paused"],
            false => ["was not paused", "is resumed", "would be resumed"],
        };
        let did = format!("{what} {}\n", by_outcome(&paused.edit, before, is, would));
        Ok(did + &if is_pause { stopped(&paused) } else { still_paused(&paused) })
    }
}

/// Describes the work that stops.
fn stopped(paused: &PauseReport) -> String {
    let would = if paused.edit.dry_run { "would stop" } else { "stops" };
    match &paused.held[..] {
        [] => "no member works on it now\n".to_owned(),
        [one] => format!("{} {would} {}\n", or_dash(one.holder.as_ref()), one.duty),
        many => {
            let mut holders: Vec<_> = many.iter().map(|one| or_dash(one.holder.as_ref())).collect();
            holders.sort();
            holders.dedup();
            let would = if paused.edit.dry_run { "would stop" } else { "stop" };
            let count = duties(many.len());
            format!("{count} {would}, on {}\n", some_of(holders.into_iter()))
        }
    }
}

/// Describes pauses that a resume leaves: a group and its duties are paused separately.
fn still_paused(resumed: &PauseReport) -> String {
    let paused = resumed.paused.iter().map(ToString::to_string);
    match &resumed.duty {
        Some(duty) if resumed.pause_all => {
            let group = &duty.group;
            format!("group {group} is still paused as a whole: run `tenure resume {group}`\n")
        }
        None if paused.len() > 0 => {
            format!("still paused individually: {}\n", some_of(paused))
        }
        _ => String::new(),
    }
}
