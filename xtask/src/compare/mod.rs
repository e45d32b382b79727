//! `cargo xtask compare`: the same faults for `tenure run` and for other locks around a command.
//!
//! Two contenders run the same command: A holds the lock, B waits for it. Then one fault occurs.
//! The command appends a line every 20 ms, so its file shows when no command ran and when two did.

mod report;
mod system;
mod trial;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use self::report::TrialOutcome;
use self::system::{FAULTS, LockFault, LockSystem, SYSTEMS};
use self::trial::{Programs, Trial};
use crate::python;
use crate::run::cargo;
use crate::servers;
use crate::tidy::workspace;

/// Python packages of the compared locks.
const PACKAGES: &[&str] = &["redis==8.1.0", "python-redis-lock==4.0.1", "psycopg[binary]==3.3.8"];
/// Interval between starts of trials, so that their servers do not all start at once.
const START_INTERVAL: Duration = Duration::from_millis(1_300);

/// Arguments of `cargo xtask compare`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CompareOptions {
    systems: Vec<&'static LockSystem>,
    faults: Vec<LockFault>,
    repetitions: u32,
    jobs: u32,
    /// Whether to write the tables into the page instead of standard output.
    write: bool,
}

/// One trial of the comparison and its outcome.
type MeasuredTrial = (&'static LockSystem, LockFault, TrialOutcome);

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            systems: SYSTEMS.iter().collect(),
            faults: FAULTS.to_vec(),
            repetitions: 3,
            jobs: 6,
            write: false,
        }
    }
}

impl CompareOptions {
    /// Options for one trial of each kind, which shows a broken one as well as three.
    pub(crate) fn once() -> Self {
        Self { repetitions: 1, ..Self::default() }
    }

    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--systems" => {
                    let named = |name| SYSTEMS.iter().find(|system| system.name == name);
                    options.systems = words.next()?.split(',').map(named).collect::<Option<_>>()?;
                }
                "--faults" => {
                    let named = |name| FAULTS.iter().find(|fault| fault.name() == name).copied();
                    options.faults = words.next()?.split(',').map(named).collect::<Option<_>>()?;
                }
                "--reps" => options.repetitions = words.next()?.parse().ok()?,
                "--jobs" => options.jobs = words.next()?.parse().ok()?,
                "--write" => options.write = true,
                _ => return None,
            }
        }
        Some(options)
    }

    fn trials(&self) -> VecDeque<Trial> {
        let mut trials = VecDeque::new();
        for repetition in 0..self.repetitions {
            for &fault in &self.faults {
                let able =
                    self.systems.iter().filter(|it| it.store.has_server() || fault.is_local());
                trials.extend(able.map(|&system| Trial { system, fault, repetition }));
            }
        }
        trials
    }
}

/// Runs the trials, and prints the tables or writes them into the page.
pub(crate) fn run(options: &CompareOptions) -> Result<()> {
    let root = workspace()?;
    let programs = prepare(&root)?;
    let waiting = Mutex::new(options.trials());
    let measured = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for job in 0..options.jobs {
            let work = || work(&programs, &waiting, &measured);
            scope.spawn(move || {
                thread::sleep(START_INTERVAL * job);
                work();
            });
        }
    });
    let measured = measured.into_inner().unwrap_or_else(PoisonError::into_inner);
    let tables = report::tables(&options.systems, &options.faults, &measured);
    let machine = report::machine(&programs)?;
    if options.write {
        return report::write(&root, &machine, &tables);
    }
    println!("{machine}\n{tables}");
    Ok(())
}

/// Installs the compared programs and builds `tenure`.
fn prepare(root: &Path) -> Result<Programs> {
    servers::install()?;
    let python = python::environment(PACKAGES)?.join("bin/python");
    cargo(&["build", "--release", "--package", "tenure-cli"], &[], &[])?;
    let recipes = root.join("xtask/src/compare/recipes");
    Ok(Programs { tenure: root.join("target/release/tenure"), python, recipes })
}

/// Runs waiting trials one after another; prints and leaves out a trial that cannot be judged.
fn work(
    programs: &Programs,
    waiting: &Mutex<VecDeque<Trial>>,
    measured: &Mutex<Vec<MeasuredTrial>>,
) {
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let (next, left) = {
            let mut waiting = lock();
            (waiting.pop_front(), waiting.len())
        };
        let Some(trial) = next else { return };
        let name = format!("{} {} {}", trial.system.name, trial.fault.name(), trial.repetition);
        match trial.run(programs).with_context(|| name.clone()) {
            Ok(outcome) => {
                eprintln!("{name}: {outcome:?} ({left} left)");
                let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
                measured.push((trial.system, trial.fault, outcome));
            }
            Err(error) => eprintln!("not judged: {error:#}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<CompareOptions> {
        CompareOptions::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_part_can_be_chosen() {
        let all = parse("").unwrap();
        assert_eq!((all.systems.len(), all.faults.len()), (SYSTEMS.len(), FAULTS.len()));
        let some = parse("--systems flock,tenure-redis --faults kill,cut --reps 1").unwrap();
        let names: Vec<&str> = some.systems.iter().map(|system| system.name).collect();
        assert_eq!(names, ["flock", "tenure-redis"]);
        // A lock file has no network.
        assert_eq!(some.trials().len(), 3);
        assert_eq!(parse("--systems nothing"), None);
        assert_eq!(parse("--reps"), None);
    }
}
