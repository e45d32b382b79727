//! `tenure bucket`: which bucket an entity is in, and which bucket comes next.

mod filter;
mod hold;
mod lines;
mod next;
mod plan;
mod rotation;

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use tenure_core::bucket::{Active, Partition, Total};
use tenure_core::{Code, StoreError};
use tenure_wire::bucket::SCHEMA;

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{document, to_stdout};

const EXAMPLES: &str = "\
Examples:
  tenure bucket my/connector facebook/react 12
  tenure bucket plan --key my/connector --total 12 repositories.txt
  tenure bucket filter --key my/connector --id 3 --total 12 < repositories.txt
  tenure bucket next --config config.json --state state.json --write

A KEY that is named like a command comes after --: tenure bucket -- next DATA 12";

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = EXAMPLES
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The connector's key, which is a name and no secret
    #[arg(required = true)]
    key: Option<String>,
    /// The name of the entity, always spelt the same
    #[arg(required = true)]
    data: Option<String>,
    /// How many buckets there are
    #[arg(required = true, value_parser = total, allow_negative_numbers = true)]
    total: Option<Total>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Choose the bucket of the next run: print its config and state, or run a command with them
    #[command(after_help = next::HELP)]
    Next(Box<next::Args>),
    /// Count how many of the entities fall in each bucket
    Plan(plan::Args),
    /// Keep only the entities of one bucket: from standard input to standard output, line by line
    Filter(filter::Args),
    /// Print the four settings of bucketing as JSON Schema
    Schema,
}

/// What to do, read and checked.
#[derive(Debug)]
pub(crate) enum Task {
    Of { partition: Partition, data: String },
    Next(next::Settings),
    Plan(plan::Settings),
    Filter { active: Active },
    Schema,
}

impl Task {
    pub(crate) fn new(args: &Args, global: &Global) -> Result<Self, Failure> {
        Ok(match &args.command {
            Some(Command::Next(args)) => Self::Next(next::Settings::new(args, global)?),
            Some(Command::Plan(args)) => plan::task(args)?,
            Some(Command::Filter(args)) => filter::task(args)?,
            Some(Command::Schema) => Self::Schema,
            None => {
                // clap lets none of them be missing.
                let key = args.key.as_deref().unwrap_or_default();
                let partition = Partition::new(key, args.total.unwrap_or(Total::ONE));
                Self::Of { partition, data: args.data.clone().unwrap_or_default() }
            }
        })
    }
}

pub(crate) fn run(task: Task, json: bool) -> Result<ExitCode, Failure> {
    let text = match task {
        Task::Next(settings) => return next::run(settings),
        Task::Filter { active } => return filter::run(&active),
        Task::Plan(settings) => plan::run(&settings, json)?,
        Task::Schema => SCHEMA.to_owned(),
        Task::Of { partition, data } => of(&partition, &data, json),
    };
    to_stdout(&text).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn of(partition: &Partition, data: &str, json: bool) -> String {
    let (hash, total) = (partition.hash(data), partition.total().get());
    let bucket = partition.bucket(data);
    match json {
        true => document(&json!({
            "bucket": bucket, "total": total, "hash": format!("{hash:08x}"),
        })),
        false => format!("{bucket}\n"),
    }
}

/// Reads a total.
fn total(text: &str) -> Result<Total, String> {
    let total = number(text).and_then(|total| Total::new(total).ok());
    total.ok_or_else(|| format!("bucket_total is a whole number from 1 to {}", Total::MAX_BUCKETS))
}

/// A number in decimal digits alone.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn refused(code: Code, detail: impl Into<String>) -> Failure {
    StoreError::refused(code, detail).into()
}
