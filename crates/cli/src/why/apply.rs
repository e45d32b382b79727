//! `tenure apply`: does what was planned, if all is as it was.

use std::path::PathBuf;

use serde_json::json;
use tenure_core::store::Replaced;
use tenure_core::{Code, Document, Store, StoreError, Version};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};

use super::changes::Changes;
use super::file::{Basis, PlanFile};
use super::plan::{JOIN_NOTE, Planned};
use super::state::State;
use super::{duties, refused};
use crate::args::path;
use crate::failure::Failure;
use crate::output::{DRY_RUN, document, to_stderr};
use crate::written::{self, Time};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file that `tenure plan --out` wrote
    file: PathBuf,
    /// Check everything and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug)]
pub(crate) struct Task {
    file: PathBuf,
    dry_run: bool,
}

impl Task {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        Ok(Self { file: path(&args.file)?, dry_run: args.dry_run })
    }
}

pub(crate) async fn run(url: &StoreUrl, task: Task, json: bool) -> Result<String, Failure> {
    let plan = PlanFile::read(&task.file)?;
    plan.check_store(&url.place())?;
    if plan.changes.without_joins() == Changes::default() {
        let what = if plan.changes.joins.is_empty() { "it changes nothing" } else { JOIN_NOTE };
        return Err(refused(Code::BadPlan, what));
    }
    let store = url.open(IfAbsent::Refuse, process::entropy()).await?;
    let state = State::read(&*store, &plan.group).await?;
    check_basis(&plan, &state)?;
    plan.changes.check(&state)?;
    let planned = Planned::new(&state, &plan.changes)?;
    if planned.moves_value() != plan.moves {
        let what = "it was made by a version of tenure that plans otherwise";
        return Err(refused(Code::BadPlan, what));
    }
    // Newcomers are not there: without them it must do, too.
    let changes = plan.changes.without_joins();
    changes.check_takers(&state)?;
    let moves = Planned::new(&state, &changes)?.moves.len();

    let mut group = state.group.clone();
    changes.write_to(&mut group);
    let changed = group != state.group;
    if changed {
        let now = Time::ask(&*store).await.map(|time| time.now());
        written::record(&mut group, &state.group, now)?;
        // What is too large is refused by a dry run, too.
        let document = group.document()?;
        if !task.dry_run {
            replace(&*store, &state, &document).await?;
        }
    }
    if json {
        return Ok(document(&json!({
            "dry_run": task.dry_run,
            "group": plan.group.to_string(),
            "changed": changed,
            "changes": changes.value(),
            "moves": moves,
        })));
    }
    if changes != plan.changes {
        to_stderr(&format!("note: {JOIN_NOTE}; until then duties move as they do without it"));
    }
    if task.dry_run {
        to_stderr(DRY_RUN);
    }
    let lines: String = changes.lines().iter().map(|line| format!("  {line}\n")).collect();
    let word = match (changed, task.dry_run) {
        (false, _) => "is in force already",
        (true, true) => "would be put in force",
        (true, false) => "is in force now",
    };
    Ok(format!("in group {} this {word}:\n{lines}{} to move\n", plan.group, duties(moves)))
}

/// Refuses a plan of a group that is not as it was, and says what is not.
fn check_basis(plan: &PlanFile, state: &State) -> Result<(), Failure> {
    let differences = plan.basis.differences(&Basis::of(state));
    if differences.is_empty() {
        return Ok(());
    }
    let what = format!("in {}, not as they were: {}", plan.group, differences.join(", "));
    Err(refused(Code::StalePlan, what))
}

/// One compare-and-set. When its answer is lost, what is there now says whether it happened.
async fn replace(store: &dyn Store, state: &State, new: &Document) -> Result<(), Failure> {
    let (name, expected) = (&state.name, state.version);
    let error = match store.replace_group_document(name, expected, new).await {
        Ok(Replaced::Saved(_)) => return Ok(()),
        Ok(Replaced::Conflict { .. }) => {
            let what = format!("in {name}, not as it was: what operators have put in force");
            return Err(refused(Code::StalePlan, what));
        }
        Err(error) => error,
    };
    match happened(store, state, expected, new, &error).await {
        true => Ok(()),
        false => Err(error.into()),
    }
}

async fn happened(
    store: &dyn Store,
    state: &State,
    expected: Version,
    new: &Document,
    error: &StoreError,
) -> bool {
    if !error.is_unknown() {
        return false;
    }
    let now = store.group_document(&state.name).await;
    now.is_ok_and(|now| now.version > expected && now.document == *new)
}
