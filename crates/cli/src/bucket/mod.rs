//! `tenure bucket`.

mod filter;
mod hold;
mod next;
mod plan;

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use tenure_core::bucket::{Active, Partition, Total};
use tenure_wire::bucket::SCHEMA;

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{document, to_stdout};

const KEY_NOTE: &str = "\
A KEY that equals a subcommand comes after --: tenure bucket -- next DATA 12";

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = KEY_NOTE
)]
pub(crate) struct BucketArgs {
    #[command(subcommand)]
    command: Option<BucketCommand>,
    /// Key of the connector: a name, not a secret
    #[arg(required = true)]
    key: Option<String>,
    /// Name of the entity, always spelled the same way
    #[arg(required = true)]
    data: Option<String>,
    /// Number of buckets
    #[arg(required = true, value_parser = total, allow_negative_numbers = true)]
    total: Option<Total>,
}

#[derive(Subcommand)]
pub(crate) enum BucketCommand {
    /// Choose the next bucket: print its config and state, or run a command with them
    #[command(after_help = next::HELP)]
    Next(Box<next::BucketNextArgs>),
    /// Count the entities in each bucket
    Plan(plan::BucketPlanArgs),
    /// Copy the entities of one bucket from standard input to standard output
    Filter(filter::BucketFilterArgs),
    /// Print the bucketing settings as JSON Schema
    Schema,
}

/// A command with checked arguments.
#[derive(Debug)]
pub(crate) enum BucketTask {
    Of { partition: Partition, data: String },
    Next(next::NextTask),
    Plan(plan::CountTask),
    Filter { active: Active },
    Schema,
}

impl BucketTask {
    pub(crate) fn new(args: &BucketArgs, global: &Global) -> Result<Self, Failure> {
        Ok(match &args.command {
            Some(BucketCommand::Next(args)) => Self::Next(next::NextTask::new(args, global)?),
            Some(BucketCommand::Plan(args)) => plan::task(args)?,
            Some(BucketCommand::Filter(args)) => filter::task(args)?,
            Some(BucketCommand::Schema) => Self::Schema,
            None => {
                // clap lets none of them be missing.
                let key = args.key.as_deref().unwrap_or_default();
                let partition = Partition::new(key, args.total.unwrap_or(Total::ONE));
                Self::Of { partition, data: args.data.clone().unwrap_or_default() }
            }
        })
    }
}

pub(crate) fn run(task: BucketTask, json: bool) -> Result<ExitCode, Failure> {
    let text = match task {
        BucketTask::Next(task) => return next::run(task),
        BucketTask::Filter { active } => return filter::run(&active),
        BucketTask::Plan(task) => plan::run(&task, json)?,
        BucketTask::Schema => SCHEMA.to_owned(),
        BucketTask::Of { partition, data } => of(&partition, &data, json),
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

/// Reads a number of buckets.
fn total(text: &str) -> Result<Total, String> {
    let total = number(text).and_then(|total| Total::new(total).ok());
    total.ok_or_else(|| format!("bucket_total is a whole number from 1 to {}", Total::MAX_BUCKETS))
}

/// Reads a number of decimal digits only.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
