//! The `tenure` command: arguments, then settings, then one command.

mod args;
mod bucket;
mod checkpoint;
mod doctor;
mod env;
mod errors;
mod failure;
mod guard;
mod hints;
mod limits;
mod migrate;
mod observe;
mod operate;
mod output;
mod run;
mod settings;
mod shell;
mod signals;
mod signing;
mod store;
mod switchboard;
mod table;

use std::process::ExitCode;

use anyhow::Context;

use failure::Failure;
use settings::{Action, Settings};

fn main() -> ExitCode {
    #[cfg(feature = "mutants")]
    if let Some(failure) = break_a_rule() {
        return failure.report(false);
    }
    let args = match args::parse() {
        Ok(args) => args,
        Err(error) => return failure::of_usage(&error),
    };
    let json = args.global.json;
    match Settings::new(args).and_then(run) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}

fn run(settings: Settings) -> Result<ExitCode, Failure> {
    let json = settings.json;
    let text = match settings.action {
        Action::Checkpoint(action) => wait_for(checkpoint::run(action, json))?,
        Action::Doctor { store, require } => wait_for(doctor::run(&store, require, json))?,
        Action::Guard(stage) => {
            tenure_supervise::guard::main(&stage)?;
            return Ok(ExitCode::SUCCESS);
        }
        Action::Bucket(task) => return bucket::run(task, json),
        Action::Poll(settings) => {
            wait_for(async { Ok(tenure_supervise::poll::poll(*settings).await?) })?;
            return Ok(ExitCode::SUCCESS);
        }
        Action::Run(settings) => {
            return wait_for(run::run(*settings, None)).map_err(run::around);
        }
        Action::Operate { store, operation } => {
            return wait_for(operate::run(&store, operation, json));
        }
        Action::Completions(shell) => shell::completions(shell, json)?,
        Action::Man { dir } => shell::manual(dir.as_deref(), json)?,
        Action::Errors { code } => errors::text(code, json),
        Action::Migrate { store, print: true } => migrate::script(&store, json)?,
        Action::Migrate { store, print: false } => wait_for(migrate::run(&store, json))?,
        Action::Store { store, task } => wait_for(store::run(&store, task, json))?,
        Action::Switchboard { store, task } => wait_for(switchboard::run(&store, task, json))?,
        Action::Beat(settings) => return wait_for(switchboard::beat::run(settings, json)),
        Action::Serve(settings) => return switchboard::serve::main(*settings),
    };
    output::to_stdout(&text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Switches off the rule that a test names.
#[cfg(feature = "mutants")]
fn break_a_rule() -> Option<Failure> {
    let name = std::env::var(tenure_core::Mutant::VARIABLE).ok()?;
    let turned_on = tenure_core::Mutant::turn_on(&name);
    turned_on.err().map(|error| anyhow::anyhow!(error).into())
}

/// One thread is enough: a command makes one call after another, and SQLite brings its own.
fn wait_for<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(command)
}
