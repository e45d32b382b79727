//! `tenure bucket next`: the bucket of the next run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use tenure_core::StoreError;
use tenure_store::StoreUrl;

use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The connector's config, a JSON object
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The connector's state, a JSON object; where there is no such file, the first bucket is next
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    /// When a bucket counts as executed
    #[arg(long, value_enum, default_value = "at-start")]
    commit: Commit,
    /// Replace the state file, whole or not at all
    #[arg(long)]
    write: bool,
    /// What to print
    #[arg(long, value_enum, default_value = "all")]
    print: Print,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Commit {
    /// When its run starts: a run that fails skips its bucket until the next cycle
    AtStart,
    /// When its run has succeeded: until then the state stays as it was
    OnSuccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Print {
    /// One JSON object with config and state
    All,
    /// The config of the run
    Config,
    /// The state to keep now
    State,
    /// The number of the bucket
    Id,
}

#[derive(Debug)]
pub(crate) struct Settings {}

impl Settings {
    pub(super) fn new(
        _args: &Args,
        _store: impl FnOnce() -> Result<StoreUrl, StoreError>,
        _store_given: bool,
    ) -> Result<Self, Failure> {
        Ok(Self {})
    }
}

pub(super) fn run(_settings: Settings, _json: bool) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
