//! The programs with tests, beside each other: most tests wait for servers and deadlines.

use std::num::NonZero;
use std::thread;

use anyhow::Result;

use crate::jobs::{self, ParallelJob, Show};
use crate::programs::{self, ALL, Incremental, Program, linted};
use crate::run::{command_as_typed, low_priority};

/// Variable with the number of concurrent tests of a program, if `--test-threads` is not given.
pub(crate) const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Programs at a time: one leaves a third of two cores idle.
const MAX_CONCURRENT_SUITES: usize = 2;

/// Suites that wait for others and for deadlines, the slowest first. The rest computes, and gives
/// way to them.
const WAITING_SUITES: &[&str] = &[
    "tenure-cli it",
    "tenure-store it",
    "tenure-isolation it",
    "tenure-store conformance",
    "tenure-switchboard it",
    "tenure-chaos it",
    "tenure it",
    "testkit it",
    "tenure-targets it",
];

/// Returns two threads per core: most tests wait for servers, deadlines and the disk.
pub(crate) fn threads() -> usize {
    2 * thread::available_parallelism().map_or(1, NonZero::get)
}

/// Builds and runs all tests, with the variables by which they find servers.
pub(crate) fn run(variables: &[(&'static str, String)]) -> Result<()> {
    let mut suites: Vec<Program> = programs::build_all()?;
    suites.retain(|program| program.is_test);
    suites.sort_by_cached_key(place);
    let mut jobs: Vec<ParallelJob> = suites.iter().map(suite).collect();
    let mut examples = low_priority(programs::cargo_path());
    examples.args(["test", "--doc"]).args(ALL).envs(linted(Incremental::No)?);
    jobs.push(ParallelJob { name: "examples in comments".to_owned(), command: examples });
    for line in ["test --only features", "kill-table --sample"] {
        jobs.push(jobs::xtask(line, low_priority)?);
    }
    for job in &mut jobs {
        job.command.envs(variables.iter().map(|(name, value)| (name, value)));
    }
    let results = jobs::run(jobs, MAX_CONCURRENT_SUITES, Show::All)?;
    let counts = results.iter().map(|done| count(&done.output));
    let (passed, failed) = counts.fold((0, 0), |(p, f), (passed, failed)| (p + passed, f + failed));
    let verdict = jobs::judge(results);
    println!("{passed} passed, {failed} failed");
    verdict
}

/// Returns the place of a program in the order: the rest comes after those that wait.
fn place(program: &Program) -> usize {
    let name = name(program);
    WAITING_SUITES.iter().position(|waiting| *waiting == name).unwrap_or(WAITING_SUITES.len())
}

fn name(program: &Program) -> String {
    format!("{} {}", program.package, program.target)
}

/// Runs as `cargo test` would run it.
fn suite(program: &Program) -> ParallelJob {
    let mut command = match place(program) < WAITING_SUITES.len() {
        true => command_as_typed(&program.path),
        false => low_priority(&program.path),
    };
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    ParallelJob { name: name(program), command }
}

/// Counts passed and failed tests by the lines `test result: ok. 3 passed; 0 failed; ...`.
fn count(output: &str) -> (u64, u64) {
    let lines = output.lines().filter(|line| line.starts_with("test result: "));
    lines.fold((0, 0), |(passed, failed), line| {
        let number = |unit| {
            let (before, _) = line.split_once(unit)?;
            before.rsplit(' ').next()?.parse::<u64>().ok()
        };
        let count = |unit| number(unit).unwrap_or(0);
        (passed + count(" passed"), failed + count(" failed"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_harnesses_are_counted() {
        let output = "test a ... ok\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 3 filtered out\n\
            x passed; the test result: 9 passed\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; finished in 0.1s\n";
        assert_eq!(count(output), (13, 2));
        assert_eq!(count("killed"), (0, 0));
    }
}
