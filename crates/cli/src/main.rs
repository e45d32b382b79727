//! The `tenure` command: parses arguments and runs one command.

mod args;
mod bucket;
mod checkpoint;
mod doctor;
mod env;
mod errors;
mod failure;
mod guard;
mod help;
mod hints;
mod limits;
mod migrate;
mod observe;
mod operate;
mod output;
mod run;
mod shell;
mod signing;
mod store;
mod switchboard;
mod table;

use std::process::ExitCode;

use anyhow::Context;
use tenure_core::Code;
use tenure_core::guarantee::Level;
use tenure_store::StoreUrl;

use args::{Args, Global, NOT_SHOWN, TenureCommand, group_name, may_be_secret, name, path};
use failure::Failure;
use operate::GroupOperation;
use switchboard::SwitchboardCommand;

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
    match run(args) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}

/// Runs one command. The store's URL is parsed only for commands that need a store.
fn run(args: Args) -> Result<ExitCode, Failure> {
    let Args { global, command } = args;
    let json = global.json;
    let store = || StoreUrl::parse(&global.store);
    let operate = |operation| wait_for(operate::run(&store()?, operation, json));
    let switchboard = |command| wait_for(switchboard::run(&store()?, command, json));
    let text = match command {
        TenureCommand::Ls { group } => {
            let group = group.as_deref().map(group_name).transpose()?;
            return operate(GroupOperation::List(group));
        }
        TenureCommand::Top(args) => return operate(args.operation()?),
        TenureCommand::Explain(args) => return operate(args.operation()?),
        TenureCommand::Plan(args) => return operate(args.operation()?),
        TenureCommand::Apply(args) => return operate(args.operation()?),
        TenureCommand::Forget { duties, dry_run } => {
            let duties = duties.iter().map(|duty| name(duty, str::parse));
            let duties = duties.collect::<Result<_, _>>()?;
            return operate(GroupOperation::Forget { duties, dry_run });
        }
        TenureCommand::Drain(args) => return operate(args.operation()?),
        TenureCommand::Evict(args) => return operate(args.operation()?),
        TenureCommand::Pause(args) => return operate(args.operation(true)?),
        TenureCommand::Resume(args) => return operate(args.operation(false)?),
        TenureCommand::Pin(args) => return operate(args.operation()?),
        TenureCommand::Cordon(args) => return operate(args.operation()?),
        TenureCommand::Weight(args) => return operate(args.operation()?),
        TenureCommand::Run(args) => return run::run_command(&args, store()),
        TenureCommand::Poll(args) => return run::poll_targets(&args, store()),
        TenureCommand::Guard(args) => {
            tenure_supervise::guard::main(&args.stage())?;
            return Ok(ExitCode::SUCCESS);
        }
        TenureCommand::Bucket(args) => {
            return bucket::run(bucket::BucketTask::new(&args, &global)?, json);
        }
        TenureCommand::Serve(args) => {
            return switchboard::serve::main(switchboard::serve::ServeSettings::new(
                &args,
                store()?,
            )?);
        }
        TenureCommand::Beat(args) => {
            let task = switchboard::beat::BeatTask::new(&args)?;
            return wait_for(switchboard::beat::run(task, json));
        }
        TenureCommand::Token(command) => switchboard(SwitchboardCommand::Token(command))?,
        TenureCommand::Fence(command) => switchboard(SwitchboardCommand::Fence(command))?,
        TenureCommand::Channel(command) => switchboard(SwitchboardCommand::Channel(command))?,
        TenureCommand::Connectors(command) => switchboard(SwitchboardCommand::Connectors(command))?,
        other => print_text(other, &global)?,
    };
    output::to_stdout(&text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a command on a store as a whole, or one about Tenure itself. Returns its output.
fn print_text(command: TenureCommand, global: &Global) -> Result<String, Failure> {
    let json = global.json;
    let store = || StoreUrl::parse(&global.store);
    match command {
        TenureCommand::Store(command) => wait_for(store::run(&store()?, command, json)),
        TenureCommand::Migrate { print: true } => migrate::script(&store()?, json),
        TenureCommand::Migrate { print: false } => wait_for(migrate::run(&store()?, json)),
        TenureCommand::Checkpoint { signing, command } => {
            let signing = signing::SigningSettings::new(&signing)?;
            let task = checkpoint::CheckpointTask::new(&command, signing, &global.store)?;
            wait_for(checkpoint::run(task, json))
        }
        TenureCommand::Doctor { require } => {
            let require = require.as_deref().and_then(Level::parse);
            wait_for(doctor::run(&store()?, require, json))
        }
        TenureCommand::Completions { shell } => shell::completions(shell, json),
        TenureCommand::Man { dir } => {
            let dir = dir.as_deref().map(path).transpose()?;
            shell::manual(dir.as_deref(), json)
        }
        TenureCommand::Errors { code } => {
            Ok(errors::text(code.as_deref().map(error_code).transpose()?, json))
        }
        // `run` handles every other command.
        _ => Ok(String::new()),
    }
}

fn error_code(text: &str) -> Result<Code, Failure> {
    let code = Code::ALL.iter().copied().find(|code| code.as_str().eq_ignore_ascii_case(text));
    code.ok_or_else(|| {
        let text = if may_be_secret(text) { NOT_SHOWN.to_owned() } else { format!("{text:?}") };
        Failure::Usage(format!("there is no error code {text}; `tenure errors` lists all"))
    })
}

/// Switches off the rule that a test names.
#[cfg(feature = "mutants")]
fn break_a_rule() -> Option<Failure> {
    let name = std::env::var(tenure_core::Mutant::VARIABLE).ok()?;
    let turned_on = tenure_core::Mutant::turn_on(&name);
    turned_on.err().map(|error| anyhow::anyhow!(error).into())
}

/// Runs a command on one thread: it makes one call after another, and SQLite has its own threads.
fn wait_for<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(command)
}
