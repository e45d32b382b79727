//! `tenure bucket`.

mod filter;
mod hold;
mod next;
mod plan;

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use tenure_core::bucket::{Partition, Total};
use tenure_wire::bucket::SCHEMA;

use crate::args::Global;
use crate::failure::Failure;
use crate::output::to_stdout;

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
    /// Name of the entity; the spelling must not vary
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

pub(crate) fn run(args: &BucketArgs, global: &Global) -> Result<ExitCode, Failure> {
    let text = match &args.command {
        Some(BucketCommand::Next(args)) => return next::run(args, global),
        Some(BucketCommand::Filter(args)) => return filter::run(args),
        Some(BucketCommand::Plan(args)) => plan::run(args, global)?,
        Some(BucketCommand::Schema) => SCHEMA.to_owned(),
        None => {
            // clap requires all three.
            let (key, data) = (args.key.as_deref(), args.data.as_deref().unwrap_or_default());
            let total = args.total.unwrap_or(Total::ONE);
            let partition = Partition::new(key.unwrap_or_default(), total);
            let (bucket, hash) = (partition.bucket(data), partition.hash(data));
            let hash = format!("{hash:08x}");
            let value = json!({ "bucket": bucket, "total": total.get(), "hash": hash });
            global.show(&value, || format!("{bucket}\n"))
        }
    };
    to_stdout(text)?;
    Ok(ExitCode::SUCCESS)
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
