//! `tenure bucket plan`: how many of the entities fall in each bucket.

use std::path::{Path, PathBuf};

use tenure_core::bucket::Partition;

use super::{Buckets, Task};
use crate::args::path;
use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    buckets: Buckets,
    /// A file with the entities, one on each line; standard input when not given, or -
    file: Option<PathBuf>,
}

pub(super) fn task(args: &Args) -> Result<Task, Failure> {
    let file = args.file.as_deref().map(path).transpose()?;
    let file = file.filter(|file| file.as_os_str() != "-");
    Ok(Task::Plan { partition: args.buckets.partition(), file })
}

pub(super) fn run(_: &Partition, _: Option<&Path>, _: bool) -> Result<String, Failure> {
    Ok(String::new())
}
