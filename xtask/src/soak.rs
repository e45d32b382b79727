//! `cargo xtask soak`: checks that take too long for every change.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::command;
use crate::compare::{self, CompareOptions};
use crate::fresh;
use crate::fuzz;
use crate::jobs::{self, Show};
use crate::kill;
use crate::openapi;
use crate::programs::{ALL as WORKSPACE, Incremental, linted};
use crate::run::{cargo, command_as_typed, step};
use crate::servers::{self, Servers};
use crate::suites;
use crate::test;

/// Long check with a name.
struct Soak {
    name: &'static str,
    /// Duration on 2 cores, as it was measured.
    seconds: u64,
    /// Whether it mostly waits, so that others can run beside it.
    waits: bool,
    run: fn() -> Result<()>,
}

const fn waits(name: &'static str, seconds: u64, run: fn() -> Result<()>) -> Soak {
    Soak { name, seconds, waits: true, run }
}

const fn computes(name: &'static str, seconds: u64, run: fn() -> Result<()>) -> Soak {
    Soak { name, seconds, waits: false, run }
}

/// All checks, in the order in which they run.
const ALL: &[Soak] = &[
    // The longest first.
    waits("isolation", 1080, || command::isolation(&[])),
    waits("churn", 640, || on_each_store("churn --minutes 10", 4)),
    waits("chaos", 345, || on_each_store("run --minutes 5", 4)),
    waits("leader", 80, || chaos("leader --rounds 5")),
    waits("failover", 25, || chaos("failover")),
    waits("patroni", 60, || chaos("failover --patroni")),
    waits("stories", 230, stories),
    // It measures handovers, which others would delay.
    computes("rolling", 200, || on_each_store("rolling", 1)),
    computes("features", 65, test::features),
    computes("tests", 730, tests),
    computes("fuzz", 275, || beside(&fuzz::TARGETS.map(|name| format!("fuzz {name}")), 2)),
    computes("openapi", 460, openapi::run),
    computes("kill-table", 205, || kill::run(&kill::KillOptions::CHECK)),
    computes("sim", 170, || release("tenure-sim", &["--seeds", "10000"])),
    computes("switchboard", 230, || {
        release("tenure-sim", &["--world", "switchboard", "--seeds", "10000"])
    }),
    computes("model", 145, model),
    computes("compare", 400, compare),
    computes("fresh", 790, || fresh::run(None)),
];

/// Checks that mostly wait, at a time.
const MAX_CONCURRENT_CHECKS: usize = 3;

/// Runs all checks, or the named ones, even if one fails.
pub(crate) fn run(names: &[String]) -> Result<()> {
    let known = || ALL.iter().map(|soak| soak.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|soak| soak.name == **name)) {
        bail!("there is no check named {unknown}; the checks are {}", known());
    }
    let chosen = ALL.iter().filter(|soak| names.is_empty() || names.iter().any(|n| n == soak.name));
    let (waiting, computing): (Vec<_>, Vec<_>) = chosen.partition(|soak| soak.waits);
    if let [only] = [&waiting[..], &computing[..]].concat()[..] {
        return step(only.name, &format!("cargo xtask soak {}", only.name), only.run);
    }
    let expected = [duration(&waiting, MAX_CONCURRENT_CHECKS), duration(&computing, 1)];
    println!("{:<12} {:>9}", "check", "minutes");
    for soak in waiting.iter().chain(&computing) {
        println!("{:<12} {:>9.1}", soak.name, minutes(soak.seconds));
    }
    println!(
        "about {:.0} minutes on 2 cores: first those that wait, {MAX_CONCURRENT_CHECKS} at a time",
        minutes(expected.iter().sum())
    );
    let start = Instant::now();
    let mut results = Vec::new();
    for (checks, at_once) in [(waiting, MAX_CONCURRENT_CHECKS), (computing, 1)] {
        let job = |soak: &Soak| jobs::xtask(&format!("soak {}", soak.name), command_as_typed);
        let jobs = checks.into_iter().map(job).collect::<Result<_>>()?;
        results.extend(jobs::run(jobs, at_once, Show::Failed)?);
    }
    println!("{:.1} minutes", start.elapsed().as_secs_f64() / 60.0);
    jobs::judge(results)
}

fn minutes(seconds: u64) -> f64 {
    seconds as f64 / 60.0
}

/// Returns how long the checks take if each begins as soon as one of `at_once` places is free.
fn duration(checks: &[&Soak], at_once: usize) -> u64 {
    let mut places = vec![0; at_once];
    for soak in checks {
        if let Some(free) = places.iter_mut().min() {
            *free += soak.seconds;
        }
    }
    places.into_iter().max().unwrap_or(0)
}

/// Runs the tests with many more rounds, and the examples in every language.
fn tests() -> Result<()> {
    servers::install_examples()?;
    let servers = Servers::start()?;
    let soak = ("TENURE_SOAK", "1".to_owned());
    let variables: Vec<_> = servers.variables().into_iter().chain([soak]).collect();
    suites::run(&variables)
}

/// Runs the scenarios of the poll lease design at original speed, concurrently.
fn stories() -> Result<()> {
    let servers = Servers::start()?;
    let scale = ("TENURE_STORY_SCALE", "1".to_owned());
    let variables: Vec<_> =
        servers.variables().into_iter().chain(linted(Incremental::No)?).chain([scale]).collect();
    let words =
        [&["test"][..], WORKSPACE, &["--test", "it", "stories::", "--", "--test-threads", "18"]];
    cargo(&words.concat(), &[], &variables)
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

/// Prints the comparison with other locks, of one trial each.
fn compare() -> Result<()> {
    compare::run(&CompareOptions::once())
}

fn chaos(line: &str) -> Result<()> {
    command::chaos(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
}

/// Runs a command of the chaos program on all stores, `at_once` at a time.
fn on_each_store(line: &str, at_once: usize) -> Result<()> {
    let stores = ["sqlite", "postgres", "redis", "etcd"];
    beside(&stores.map(|store| format!("chaos {line} --store {store}")), at_once)
}

/// Runs commands of `cargo xtask`, `at_once` at a time.
fn beside(lines: &[String], at_once: usize) -> Result<()> {
    let jobs =
        lines.iter().map(|line| jobs::xtask(line, command_as_typed)).collect::<Result<_>>()?;
    jobs::judge(jobs::run(jobs, at_once, Show::All)?)
}

/// Runs one of our programs, optimised.
fn release(package: &str, words: &[&str]) -> Result<()> {
    let fixed = ["run", "--release", "--package", package, "--"];
    cargo(&[&fixed[..], words].concat(), &[], &[])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_duration_is_that_of_the_fullest_place() {
        let [a, b, c] = [5, 3, 3].map(|seconds| waits("", seconds, || Ok(())));
        assert_eq!(duration(&[&a, &b, &c], 2), 6);
        assert_eq!(duration(&[&a, &b, &c], 1), 11);
        assert_eq!(duration(&[], 1), 0);
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = ALL.iter().map(|soak| soak.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
