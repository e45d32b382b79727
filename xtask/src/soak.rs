//! `cargo xtask soak`: checks that take too long for every change.

use anyhow::{Result, bail};

use crate::command;
use crate::compare::{self, CompareOptions};
use crate::fresh;
use crate::fuzz;
use crate::kill;
use crate::openapi;
use crate::run::{cargo, step};
use crate::servers::Servers;
use crate::test;

/// Long check with a name.
struct Soak {
    name: &'static str,
    run: fn() -> Result<()>,
}

/// All checks, in the order in which they run.
const ALL: &[Soak] = &[
    Soak { name: "features", run: test::features },
    Soak { name: "tests", run: tests },
    Soak { name: "stories", run: stories },
    Soak { name: "fuzz", run: || fuzz::run(&fuzz::FuzzOptions::CHECK) },
    Soak { name: "openapi", run: openapi::run },
    Soak { name: "kill-table", run: || kill::run(&kill::KillOptions::CHECK) },
    Soak { name: "sim", run: || release("tenure-sim", &["--seeds", "10000"]) },
    Soak { name: "model", run: model },
    Soak { name: "chaos", run: || on_each_store("run --minutes 5") },
    Soak { name: "rolling", run: || on_each_store("rolling") },
    Soak { name: "churn", run: || on_each_store("churn --minutes 10") },
    Soak { name: "leader", run: || chaos("leader --rounds 5") },
    Soak { name: "failover", run: || chaos("failover") },
    Soak { name: "patroni", run: || chaos("failover --patroni") },
    Soak { name: "compare", run: compare },
    Soak { name: "fresh", run: || fresh::run(None) },
];

/// Runs all checks, or the named ones, even if one fails.
pub(crate) fn run(names: &[String]) -> Result<()> {
    let known = || ALL.iter().map(|soak| soak.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|soak| soak.name == **name)) {
        bail!("there is no check named {unknown}; the checks are {}", known());
    }
    let mut failed = Vec::new();
    for soak in ALL.iter().filter(|soak| names.is_empty() || names.iter().any(|n| n == soak.name)) {
        let repeat = format!("cargo xtask soak {}", soak.name);
        if let Err(error) = step(soak.name, &repeat, soak.run) {
            eprintln!("error: {error:#}");
            failed.push(soak.name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Runs the tests with many more rounds.
fn tests() -> Result<()> {
    let servers = Servers::start()?;
    let soak = ("TENURE_SOAK", "1".to_owned());
    let variables: Vec<_> = servers.variables().into_iter().chain([soak]).collect();
    cargo(&["test", "--workspace", "--all-features"], &[], &variables)
}

/// Runs the scenarios of the poll lease design at original speed, concurrently.
fn stories() -> Result<()> {
    let servers = Servers::start()?;
    let scale = ("TENURE_STORY_SCALE", "1".to_owned());
    let variables: Vec<_> = servers.variables().into_iter().chain([scale]).collect();
    let words = ["test", "-p", "tenure-cli", "--all-features", "stories::"];
    cargo(&[&words[..], &["--", "--test-threads", "18"]].concat(), &[], &variables)
}

/// Checks the model with more lost replies than in the tests, and late messages two actions deeper.
fn model() -> Result<()> {
    let lines = [
        "model --lost 1 --joined 1 --epochs 2 --paused 2",
        "model --lost 2 --joined 1 --epochs 2 --duties 1",
        "model --lost 1 --joined 1 --instances 3 --duties 1",
        "model --late 1 --joined 1 --depth 17",
    ];
    let run = |line: &str| release("tenure-sim", &line.split(' ').collect::<Vec<_>>());
    lines.into_iter().try_for_each(run)
}

/// Prints the comparison with other locks.
fn compare() -> Result<()> {
    compare::run(&CompareOptions::default())
}

fn chaos(line: &str) -> Result<()> {
    command::chaos(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
}

fn on_each_store(line: &str) -> Result<()> {
    let stores = ["sqlite", "postgres", "redis", "etcd"];
    stores.iter().try_for_each(|store| chaos(&format!("{line} --store {store}")))
}

/// Runs one of our programs, optimised.
fn release(package: &str, words: &[&str]) -> Result<()> {
    let fixed = ["run", "--release", "--package", package, "--"];
    cargo(&[&fixed[..], words].concat(), &[], &[])
}
