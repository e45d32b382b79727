//! `cargo xtask chaos`: real instances on real stores while everything fails.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use tenure::process;
use tenure_chaos::{Kind, Options, Settings, play, run, schedule};

/// Real instances on real stores while everything fails.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Faults by seed on one store, then recovery, then a report; exit code 1 if it is broken.
    Run(Run),
    /// One instance: what the other commands start.
    #[command(hide = true)]
    Instance(Settings),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Which store.
    #[arg(long)]
    store: Kind,
    /// For how many minutes things fail.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Decides what fails when; drawn and printed when absent.
    #[arg(long)]
    seed: Option<u64>,
    /// How many instances.
    #[arg(long, default_value_t = 4)]
    instances: usize,
    /// How many duties.
    #[arg(long, default_value_t = 8)]
    duties: u32,
    /// Prints the schedule and does nothing.
    #[arg(long)]
    plan: bool,
    /// Instances ignore their guards and the fence: the run must be found broken.
    #[arg(long)]
    careless: bool,
    /// Leaves the files of the instances where they are, and says where that is.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Instance(settings) => play(settings).await,
        Command::Run(wanted) => chaos(wanted).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn chaos(wanted: Run) -> Result<()> {
    // Half of the bits are enough to be told apart, and easier to type again.
    let seed = wanted.seed.unwrap_or_else(|| u64::from(process::entropy() as u32));
    ensure!((0.01..=10_000.0).contains(&wanted.minutes), "minutes are 0.01 to 10000");
    ensure!(wanted.instances > 0 && wanted.duties > 0, "one instance and one duty at least");
    let length = Duration::from_secs_f64(wanted.minutes * 60.0);
    let program = std::env::current_exe()?;
    let mut options = Options::new(program, wanted.store, seed, length);
    options.instances = wanted.instances;
    options.duties = wanted.duties;
    options.careless = wanted.careless;
    options.keep = wanted.keep;
    options.verbose = true;
    if wanted.plan {
        for one in schedule(seed, wanted.store, length, options.ttl, options.instances) {
            println!("{one}");
        }
        return Ok(());
    }
    println!("seed {seed}");
    let report = run(&options).await?;
    println!("{report}");
    ensure!(report.is_sound(), "seed {seed} on {} is broken", wanted.store);
    Ok(())
}
