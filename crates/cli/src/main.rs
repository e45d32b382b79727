//! The `tenure` command: parses arguments and runs one command.

mod args;
mod bucket;
mod checkpoint;
mod complete;
mod config;
mod cron;
mod doctor;
mod env;
mod errors;
mod failure;
mod guard;
mod help;
mod hints;
mod hold;
mod identity;
mod limits;
mod migrate;
mod observe;
mod operate;
mod output;
mod paint;
mod progress;
mod run;
mod shell;
mod signing;
mod store;
mod switchboard;
mod table;

use std::process::ExitCode;

use anyhow::Context;

use args::{Args, TenureCommand};
use failure::Failure;
use operate::{forget, ls};
use switchboard::{channel, connectors, dead, fence, serve, token};

fn main() -> ExitCode {
    #[cfg(feature = "mutants")]
    if let Some(failure) = break_a_rule() {
        return failure.report(false);
    }
    if let Some(code) = complete::answer() {
        return code;
    }
    let args = match args::parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let json = args.global.json;
    match run(args) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}

/// Runs one command. The store's URL is parsed only by commands that need a store.
fn run(Args { global, command }: Args) -> Result<ExitCode, Failure> {
    let global = &global;
    progress::begin(if global.json { "" } else { activity(&command) });
    let text = match command {
        TenureCommand::Run(args) => return run::run_command(&args, global),
        TenureCommand::Poll(args) => return run::poll_targets(&args, global),
        TenureCommand::Cron(args) => return cron::run(&args, global),
        TenureCommand::Bucket(args) => return bucket::run(&args, global),
        TenureCommand::Drain(args) => return wait_for(args.run(global)),
        TenureCommand::Hold(command) => return wait_for(hold::run(&command, global)),
        TenureCommand::Serve(args) => return serve::main(&args, &global.url()?),
        TenureCommand::Guard(args) => {
            tenure_supervise::guard::main(&args.stage())?;
            return Ok(ExitCode::SUCCESS);
        }
        TenureCommand::Ls { group, trust } => wait_for(ls::run(group.as_deref(), &trust, global)),
        TenureCommand::Top(args) => wait_for(args.run(global)),
        TenureCommand::Explain(args) => wait_for(args.run(global)),
        TenureCommand::Audit(args) => wait_for(args.run(global)),
        TenureCommand::Plan(args) => wait_for(args.run(global)),
        TenureCommand::Apply(args) => wait_for(args.run(global)),
        TenureCommand::Evict(args) => wait_for(args.run(global)),
        TenureCommand::Pause(args) => wait_for(args.run(true, global)),
        TenureCommand::Resume(args) => wait_for(args.run(false, global)),
        TenureCommand::Pin(args) => wait_for(args.run(global)),
        TenureCommand::Cordon(args) => wait_for(args.run(global)),
        TenureCommand::Weight(args) => wait_for(args.run(global)),
        TenureCommand::Forget { duties, dry_run } => {
            wait_for(forget::run(&duties, dry_run, global))
        }
        TenureCommand::Beat(args) => wait_for(args.run(global)),
        TenureCommand::Token(command) => wait_for(token::run(command, global)),
        TenureCommand::Fence(command) => wait_for(fence::run(command, global)),
        TenureCommand::Channel(command) => wait_for(channel::run(command, global)),
        TenureCommand::Dead(command) => return wait_for(dead::run(command, global)),
        TenureCommand::Connectors(command) => wait_for(connectors::run(command, global)),
        TenureCommand::Store(command) => wait_for(store::run(command, global)),
        TenureCommand::Migrate { print: true } => migrate::script(global),
        TenureCommand::Migrate { print: false } => wait_for(migrate::run(global)),
        TenureCommand::Checkpoint { signing, command } => {
            wait_for(checkpoint::run(&command, &signing, global))
        }
        TenureCommand::Doctor { require, trust } => wait_for(doctor::run(require, &trust, global)),
        TenureCommand::Identity(command) => identity::run(&command, global),
        TenureCommand::Errors { code } => errors::run(code.as_deref(), global),
        TenureCommand::Config(args) => config::run(&args, global),
        TenureCommand::Completions { shell } => shell::completions(shell, global),
        TenureCommand::Man { dir } => shell::manual(dir.as_deref(), global),
    }?;
    output::to_stdout(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Activity of a command that may take long; empty if it shows progress of its own, or none.
fn activity(command: &TenureCommand) -> &'static str {
    match command {
        TenureCommand::Ls { .. } | TenureCommand::Explain(_) => "reading the groups",
        TenureCommand::Audit(_) => "reading the audit trail",
        TenureCommand::Plan(_) => "making a plan",
        TenureCommand::Apply(_)
        | TenureCommand::Drain(_)
        | TenureCommand::Pause(_)
        | TenureCommand::Resume(_)
        | TenureCommand::Pin(_)
        | TenureCommand::Cordon(_)
        | TenureCommand::Weight(_) => "changing the group",
        TenureCommand::Cron(args) if args.subcommand.is_some() => "reading the schedules",
        TenureCommand::Evict(_) => "evicting the instance",
        TenureCommand::Forget { .. } => "deleting duties",
        TenureCommand::Token(_)
        | TenureCommand::Fence(_)
        | TenureCommand::Channel(_)
        | TenureCommand::Dead(_)
        | TenureCommand::Connectors(_) => "waiting for the store of the switchboard",
        TenureCommand::Store(_) | TenureCommand::Doctor { .. } => "examining the store",
        TenureCommand::Migrate { .. } => "updating the schema",
        TenureCommand::Checkpoint { .. } => "working on checkpoints",
        _ => "",
    }
}

/// Disables the rule that a test names in the environment.
#[cfg(feature = "mutants")]
fn break_a_rule() -> Option<Failure> {
    let name = std::env::var(tenure_core::Mutant::VARIABLE).ok()?;
    let turned_on = tenure_core::Mutant::turn_on(&name);
    turned_on.err().map(|error| anyhow::anyhow!(error).into())
}

/// Runs a command on one thread: it makes one call after another, and SQLite has its own threads.
fn wait_for<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let work = progress::on_terminal(command);
    runtime.context("cannot start the runtime")?.block_on(work)
}
