//! `cargo xtask chaos`: runs real instances on real stores while faults occur.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use tenure::process;
use tenure_chaos::{
    ChaosOptions, ChaosStore, InstanceSettings, churn, failover, leader, play, rolling, run,
    schedule,
};

/// Run real instances on real stores while faults occur.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
struct Arguments {
    #[command(subcommand)]
    command: ChaosCommand,
}

#[derive(Debug, Subcommand)]
enum ChaosCommand {
    /// Inject faults by seed into one store, recover, and report; exit code 1 if a rule was broken.
    Run(RunArgs),
    /// Kill the leader of a three-member etcd repeatedly.
    Leader {
        /// Number of repetitions.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Replace every instance with a newer one, with and without surge.
    Rolling {
        /// Store to test.
        #[arg(long)]
        store: ChaosStore,
        /// Number of instances.
        #[arg(long, default_value_t = 5)]
        instances: usize,
        /// Number of duties.
        #[arg(long, default_value_t = 100)]
        duties: u32,
    },
    /// Start and end instances; memory, files and rows that remain must not grow.
    Churn {
        /// Store to test.
        #[arg(long)]
        store: ChaosStore,
        /// Duration in minutes.
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
    },
    /// Fail PostgreSQL over to a standby, with asynchronous and with synchronous replication.
    Failover {
        /// Use Patroni; otherwise the standby is promoted directly.
        #[arg(long)]
        patroni: bool,
    },
    /// Run one instance, as the other commands do.
    #[command(hide = true)]
    Instance(InstanceSettings),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Store to test.
    #[arg(long)]
    store: ChaosStore,
    /// Duration of the faults in minutes.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Seed of the faults; random and printed when absent.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of instances.
    #[arg(long, default_value_t = 4)]
    instances: usize,
    /// Number of duties.
    #[arg(long, default_value_t = 8)]
    duties: u32,
    /// Print the schedule and do nothing.
    #[arg(long)]
    plan: bool,
    /// Let instances ignore their guards and the fence: the run must be found broken.
    #[arg(long)]
    careless: bool,
    /// Keep the files of the instances, and print their folder.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() {
    let done = match Arguments::parse().command {
        ChaosCommand::Instance(settings) => play(settings).await,
        ChaosCommand::Run(wanted) => chaos(wanted).await,
        ChaosCommand::Failover { patroni } => fail_over(patroni).await,
        ChaosCommand::Leader { rounds } => lead(rounds).await,
        ChaosCommand::Rolling { store, instances, duties } => roll(store, instances, duties).await,
        ChaosCommand::Churn { store, minutes } => churn_for(store, minutes).await,
    };
    let code = match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: {error:#}");
            1
        }
    };
    // An instance still reads its standard input, which would keep the runtime from ending.
    std::process::exit(code)
}

fn minutes(minutes: f64) -> Result<Duration> {
    ensure!((0.01..=10_000.0).contains(&minutes), "minutes must be 0.01 to 10000");
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

async fn lead(rounds: usize) -> Result<()> {
    let options = ChaosOptions::new(std::env::current_exe()?, ChaosStore::Etcd, 0, Duration::ZERO);
    let report = leader(&options, rounds).await?;
    println!("{report}");
    ensure!(report.is_sound(), "killing the leader of etcd broke a rule");
    Ok(())
}

async fn roll(store: ChaosStore, instances: usize, duties: u32) -> Result<()> {
    ensure!(instances > 1, "--instances must be above 1");
    let mut options = ChaosOptions::new(std::env::current_exe()?, store, 0, Duration::ZERO);
    (options.instances, options.duties) = (instances, duties);
    // Long, so that nothing expires on a busy machine and a hundred duties can be acted on.
    (options.ttl, options.pace) = (Duration::from_secs(10), Duration::from_millis(500));
    let mut broken = 0;
    for surge in [true, false] {
        let rolled = rolling(&options, surge).await?;
        println!("{rolled}\n");
        broken += rolled.wrong().len();
    }
    ensure!(broken == 0, "a rolling restart on {store} exceeded a limit or broke a rule");
    Ok(())
}

async fn churn_for(store: ChaosStore, wanted: f64) -> Result<()> {
    let options = ChaosOptions::new(std::env::current_exe()?, store, 0, minutes(wanted)?);
    let churned = churn(&options).await?;
    println!("{churned}");
    ensure!(churned.wrong().is_empty(), "churn on {store} exceeded a limit or broke a rule");
    Ok(())
}

async fn fail_over(patroni: bool) -> Result<()> {
    let options =
        ChaosOptions::new(std::env::current_exe()?, ChaosStore::Postgres, 0, Duration::ZERO);
    let mut broken = 0;
    for synchronous in [false, true] {
        let failed_over = failover(&options, synchronous, patroni).await?;
        println!("{failed_over}\n");
        broken += failed_over.wrong().len();
    }
    ensure!(broken == 0, "a failover violated the guarantee that doctor reported");
    Ok(())
}

async fn chaos(wanted: RunArgs) -> Result<()> {
    // Half of the bits are unique enough, and easier to type.
    let seed = wanted.seed.unwrap_or_else(|| u64::from(process::entropy() as u32));
    ensure!(wanted.instances > 0 && wanted.duties > 0, "--instances and --duties must be above 0");
    let length = minutes(wanted.minutes)?;
    let program = std::env::current_exe()?;
    let mut options = ChaosOptions::new(program, wanted.store, seed, length);
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
    ensure!(report.is_sound(), "seed {seed} on {} broke a rule", wanted.store);
    Ok(())
}
