//! `tenure fence`: the newest epoch of each duty that the switchboard has seen.

use clap::Subcommand;
use serde_json::{Value, json};
use tenure_core::{DutyKey, StoreError};
use tenure_switchboard::storage::{Standing, Storage};

use super::{at, not_there, operator, words};
use crate::args::name;
use crate::failure::Failure;
use crate::output::{document, shown, to_stderr};
use crate::table::{Align, Column, lay_out};

/// How many are read at a time.
const PAGE: usize = 1000;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the newest epoch of each duty that submitted
    List,
    /// Forget the newest epoch of a duty: the next submission sets it, whatever it is
    Reset {
        /// The duty, as it is printed: GROUP/ID
        duty: String,
        /// Why, for the audit trail
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Say what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// A command that was read and checked.
#[derive(Debug)]
pub(crate) enum Task {
    List,
    Reset { duty: DutyKey, reason: String, dry_run: bool },
}

impl Task {
    pub(crate) fn new(command: &Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::List => Self::List,
            Command::Reset { duty, reason, dry_run } => Self::Reset {
                duty: name(duty, str::parse)?,
                reason: words("--reason", reason)?,
                dry_run: *dry_run,
            },
        })
    }
}

pub(super) async fn run(storage: &dyn Storage, task: Task, json: bool) -> Result<String, Failure> {
    match task {
        Task::List => list(storage, json).await,
        Task::Reset { duty, reason, dry_run } => {
            let duty = duty.to_string();
            let was = match dry_run {
                true => all(storage).await?.into_iter().find(|standing| standing.duty == duty),
                false => storage.reset_fence(&duty, &operator(), &reason).await?,
            };
            let was = was.ok_or_else(|| not_there(&duty))?;
            Ok(reset(&was, dry_run, json))
        }
    }
}

async fn all(storage: &dyn Storage) -> Result<Vec<Standing>, StoreError> {
    let mut standings: Vec<Standing> = Vec::new();
    loop {
        let after = standings.last().map(|last| last.duty.clone()).unwrap_or_default();
        let page = storage.fences(&after, PAGE).await?;
        let is_last = page.len() < PAGE;
        standings.extend(page);
        if is_last {
            return Ok(standings);
        }
    }
}

const COLUMNS: [Column; 4] = [
    Column("DUTY", Align::Left),
    Column("EPOCH", Align::Right),
    Column("INSTANCE", Align::Left),
    Column("SINCE", Align::Left),
];

async fn list(storage: &dyn Storage, json: bool) -> Result<String, Failure> {
    let standings = all(storage).await?;
    if json {
        let value = |standing: &Standing| {
            json!({
                "duty": standing.duty,
                "epoch": standing.epoch.get(),
                "instance": standing.instance,
                "since": at(standing.updated_at),
            })
        };
        let fences: Vec<Value> = standings.iter().map(value).collect();
        return Ok(document(&json!({ "fences": fences })));
    }
    if standings.is_empty() {
        to_stderr("nothing was submitted under a hold yet");
    }
    let row = |standing: &Standing| {
        let Standing { duty, epoch, instance, updated_at } = standing;
        [shown(duty), epoch.to_string(), shown(instance), at(*updated_at)]
    };
    Ok(lay_out(&COLUMNS, &standings.iter().map(row).collect::<Vec<_>>()))
}

fn reset(was: &Standing, dry_run: bool, json: bool) -> String {
    let Standing { duty, epoch, instance, .. } = was;
    if json {
        return document(&json!({
            "dry_run": dry_run,
            "duty": duty,
            "was": { "epoch": epoch.get(), "instance": instance },
        }));
    }
    if dry_run {
        to_stderr("a dry run: nothing was changed");
    }
    let did = if dry_run { "would be forgotten" } else { "is forgotten" };
    format!(
        "the fence of {} {did}: it was epoch {epoch} of {}\n\
         the next submission under this duty sets it anew, also one of an older holder\n",
        shown(duty),
        shown(instance)
    )
}
