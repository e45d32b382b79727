//! `tenure bucket filter`: only the entities of one bucket.

use std::process::ExitCode;

use tenure_core::bucket::Active;

use super::{Buckets, Task};
use crate::env;
use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    buckets: Buckets,
    /// The bucket to keep
    #[arg(long, value_name = "I", env = env::BUCKET_ID)]
    id: u64,
}

pub(super) fn task(args: &Args) -> Result<Task, Failure> {
    let active = args.buckets.partition().active(args.id);
    let active = active.map_err(|invalid| Failure::Usage(invalid.told().to_string()))?;
    Ok(Task::Filter { active })
}

pub(super) fn run(_active: &Active) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
