//! `cargo xtask isolation`: pairs of PostgreSQL operations, one stopped at each lock.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use tenure_core::Mutant;
use tenure_isolation::{IsolationLevel, IsolationOptions, PreparedServer, operations, run};

/// Run pairs of PostgreSQL operations, one stopped at each lock; exit code 1 if a schedule is found
/// that no serial order explains.
#[derive(Debug, Parser)]
#[command(name = "isolation")]
struct IsolationArgs {
    /// Only this pair, as in `commit-copy,prune`: the first is stopped. Can be repeated.
    #[arg(long, value_name = "A,B")]
    pairs: Vec<String>,
    /// Only at this level, such as `direct-read-committed`. Can be repeated.
    #[arg(long)]
    level: Vec<String>,
    /// Only stops with this text.
    #[arg(long)]
    stop: Option<String>,
    /// Number of workers.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// List the operations and the levels, and run nothing.
    #[arg(long)]
    list: bool,
}

#[tokio::main]
async fn main() {
    let done = isolate(IsolationArgs::parse()).await;
    if let Err(error) = &done {
        eprintln!("error: {error:#}");
    }
    std::process::exit(i32::from(done.is_err()));
}

async fn isolate(given: IsolationArgs) -> Result<()> {
    if let Ok(name) = std::env::var(Mutant::VARIABLE) {
        Mutant::turn_on(&name).map_err(anyhow::Error::msg)?;
    }
    let operations = operations::all();
    if given.list {
        IsolationLevel::ALL.iter().for_each(|level| println!("level {level}"));
        operations.iter().for_each(|it| println!("{}", it.name));
        return Ok(());
    }
    let pair = |text: &String| {
        let (a, b) = text.split_once(',').context("a pair is two names and a comma")?;
        Ok((a.to_owned(), b.to_owned()))
    };
    let options = IsolationOptions {
        pairs: given.pairs.iter().map(pair).collect::<Result<_>>()?,
        levels: given
            .level
            .iter()
            .map(|name| IsolationLevel::parse(name))
            .collect::<Result<_>>()?,
        stop: given.stop,
        jobs: if given.pairs.len() == 1 { 1 } else { given.jobs },
    };
    let server = Arc::new(PreparedServer::start().await?);
    let report = run(server, &operations, &options, |line| eprintln!("{line}")).await?;
    println!("{report}");
    match report.findings.len() {
        0 => Ok(()),
        found => bail!("{found} schedules are not as in any serial order"),
    }
}
