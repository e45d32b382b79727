//! Command `cargo xtask sim`: runs many seeds, one seed with its trace, or the model checker.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tenure_core::Mutant;
use tenure_sim::model::{self, ModelBounds, Without};
use tenure_sim::{CheckFinding, Coverage, SeedReport, differs, run, switchboard};

const USAGE: &str = "\
usage: cargo xtask sim --seeds COUNT [--from SEED] [--threads COUNT] [--failures COUNT]
                       [--world engine|switchboard]
       cargo xtask sim --seed SEED [--world engine|switchboard]
       cargo xtask model [--instances COUNT] [--duties COUNT] [--epochs MOST] [--depth MOST]
                         [--paused MOST] [--drained MOST] [--ttl STEPS] [--joined 1]
                         [--lost MOST] [--troubled MOST] [--losses MOST]
                         [--late MOST] [--delay STEPS] [--stale 1] [--early 1] [--lingers 1]

with a rule switched off, in a build with the feature `mutants`:
       tenure-sim --mutants
       tenure-sim --mutant NAME --seeds COUNT [--world engine|switchboard]
       tenure-sim --mutant NAME --seed SEED [--world engine|switchboard]";

/// Part of Tenure that the seeds simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimWorldKind {
    Engine,
    Switchboard,
}

impl SimWorldKind {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "engine" => Some(Self::Engine),
            "switchboard" => Some(Self::Switchboard),
            _ => None,
        }
    }

    fn run(self, seed: u64, traced: bool) -> SeedReport {
        match self {
            Self::Engine => run(seed, traced),
            Self::Switchboard => switchboard::run(seed, traced),
        }
    }

    fn differs(self, seed: u64) -> Option<CheckFinding> {
        match self {
            Self::Engine => differs(seed),
            Self::Switchboard => switchboard::differs(seed),
        }
    }

    fn missing(self, coverage: &Coverage) -> Vec<String> {
        match self {
            Self::Engine => coverage.missing(),
            Self::Switchboard => switchboard::missing(coverage),
        }
    }

    /// Returns the arguments that choose it.
    fn words(self) -> &'static str {
        match self {
            Self::Engine => "",
            Self::Switchboard => " --world switchboard",
        }
    }
}

/// Parsed command line.
#[derive(Debug, PartialEq, Eq)]
enum SimCommand {
    /// One seed, with its trace.
    One(SimWorldKind, u64),
    /// Seeds one after another.
    Many(Many),
    /// The model checker.
    Model(ModelBounds),
}

/// Range of seeds and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Many {
    world: SimWorldKind,
    from: u64,
    count: u64,
    threads: u64,
    /// Number of failures after which the run stops.
    enough: u64,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mutant, words) = match &words[..] {
        [flag] if flag == "--mutants" => return list(),
        [flag, name, rest @ ..] if flag == "--mutant" => (Some(name), rest),
        rest => (None, rest),
    };
    if let Some(Err(error)) = mutant.map(|name| Mutant::turn_on(name)) {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    let passed = match parse(words) {
        Some(SimCommand::Many(seeds)) if mutant.is_some() => until_caught(seeds),
        Some(SimCommand::One(world, seed)) => replay(world, seed),
        Some(SimCommand::Many(seeds)) => many(seeds),
        Some(SimCommand::Model(bounds)) => explore(bounds),
        None => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(words: &[String]) -> Option<SimCommand> {
    if let Some((_, rest)) = words.split_first().filter(|(first, _)| *first == "model") {
        return parse_model(rest).map(SimCommand::Model);
    }
    let (mut world, mut seed, mut count) = (SimWorldKind::Engine, None, None);
    let (mut from, mut threads, mut enough) = (0, 2, 10);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next()?;
        if word == "--world" {
            world = SimWorldKind::parse(value)?;
            continue;
        }
        let value = value.parse().ok()?;
        match word.as_str() {
            "--seed" => seed = Some(value),
            "--seeds" => count = Some(value),
            "--from" => from = value,
            "--threads" => threads = value,
            "--failures" => enough = value,
            _ => return None,
        }
    }
    match (seed, count) {
        (Some(seed), None) => Some(SimCommand::One(world, seed)),
        (None, Some(count)) if threads > 0 => {
            Some(SimCommand::Many(Many { world, from, count, threads, enough }))
        }
        _ => None,
    }
}

fn parse_model(words: &[String]) -> Option<ModelBounds> {
    let mut bounds = ModelBounds::new(2, 2);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value: usize = words.next()?.parse().ok()?;
        match word.as_str() {
            "--instances" if value > 0 => bounds.instances = value,
            "--duties" if value > 0 => bounds.duties = value,
            "--epochs" => bounds.epochs = value as u64,
            "--depth" => bounds.depth = value,
            "--late" => bounds.late = value,
            "--lost" => bounds.lost = value,
            "--troubled" => bounds.troubled = value,
            "--losses" => bounds.losses = value,
            "--delay" => bounds.delay = u8::try_from(value).ok()?,
            "--paused" => bounds.paused = value,
            "--drained" => bounds.drained = value,
            // A smaller value is not a valid TTL.
            "--ttl" if value >= 4 => bounds.ttl = u8::try_from(value).ok()?,
            "--early" => bounds.early = value > 0,
            "--stale" => bounds.stale = value > 0,
            "--lingers" => bounds.lingers = value > 0,
            "--joined" => bounds.joined = value > 0,
            _ => return None,
        }
    }
    Some(bounds)
}

/// Runs the model checker within the bounds.
fn explore(bounds: ModelBounds) -> bool {
    println!("{bounds:?}");
    let outcome = model::check(bounds, Without::Nothing);
    println!("{outcome}");
    outcome.is_sound()
}

/// Prints all mutants: name, rule and description.
fn list() -> ExitCode {
    for mutant in Mutant::ALL {
        println!("{}\t{}\t{}", mutant.as_str(), mutant.rule(), mutant.sentence());
    }
    ExitCode::SUCCESS
}

/// Runs seeds in order until a checker finds something; prints how many it took, and the checkers.
fn until_caught(Many { world, from, count, .. }: Many) -> bool {
    for seed in from..from + count {
        let mut found: Vec<&str> =
            world.run(seed, false).findings.iter().map(|one| one.checker).collect();
        if !found.is_empty() {
            found.sort_unstable();
            found.dedup();
            println!("{}\t{}", seed - from + 1, found.join(", "));
            return true;
        }
    }
    println!("{count}\t-");
    false
}

/// Runs one seed and prints its whole trace.
fn replay(world: SimWorldKind, seed: u64) -> bool {
    let outcome = world.run(seed, true);
    for line in &outcome.trace {
        println!("{line}");
    }
    for finding in &outcome.findings {
        println!("{finding}");
    }
    println!("seed {seed}: {}", if outcome.findings.is_empty() { "passed" } else { "FAILED" });
    outcome.findings.is_empty()
}

/// State that the threads share.
#[derive(Default)]
struct RunState {
    next: AtomicU64,
    failed: AtomicU64,
    stop: AtomicBool,
    coverage: Mutex<Coverage>,
}

/// Number of seeds that are run twice, to compare the traces.
const REPLAYED: u64 = 50;
/// From this number of seeds on, everything must be covered.
const REACHES_ALL: u64 = 1000;

fn many(seeds: Many) -> bool {
    let Many { world, from, count, threads, .. } = seeds;
    let shared = RunState::default();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| some(&shared, seeds));
        }
    });
    let coverage = shared.coverage.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{coverage}");
    let (done, failed) = (shared.next.into_inner().min(count), shared.failed.into_inner());
    let missing = if done < REACHES_ALL { Vec::new() } else { world.missing(&coverage) };
    for missing in &missing {
        println!("never reached: {missing}");
    }
    println!("{done} seeds from {from}, {failed} failed");
    failed == 0 && missing.is_empty()
}

fn some(shared: &RunState, Many { world, from, count, enough, .. }: Many) {
    let mut coverage = Coverage::default();
    while !shared.stop.load(Ordering::Relaxed) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            break;
        }
        let seed = from + number;
        let outcome = world.run(seed, false);
        coverage.add(&outcome.coverage);
        let replayed = number.is_multiple_of(REPLAYED).then(|| world.differs(seed)).flatten();
        let findings: Vec<CheckFinding> = outcome.findings.into_iter().chain(replayed).collect();
        if !findings.is_empty() {
            report(world, seed, &findings);
            if shared.failed.fetch_add(1, Ordering::Relaxed) + 1 >= enough {
                shared.stop.store(true, Ordering::Relaxed);
            }
        }
        if (number + 1).is_multiple_of((count / 20).max(1)) {
            eprintln!("{} of {count} seeds", number + 1);
        }
    }
    shared.coverage.lock().unwrap_or_else(PoisonError::into_inner).add(&coverage);
}

fn report(world: SimWorldKind, seed: u64, findings: &[CheckFinding]) {
    // Runs keep no trace; the seed is run again to get it.
    let trace = world.run(seed, true).trace;
    let last = &trace[trace.len().saturating_sub(40)..];
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    println!(
        "{}\nseed {seed} FAILED\n{}\nreplay it with: cargo xtask sim --seed {seed}{}\n",
        last.join("\n"),
        findings.join("\n"),
        world.words()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_make_a_command_or_none() {
        let parse =
            |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("--seed 7"), Some(SimCommand::One(SimWorldKind::Engine, 7)));
        let world = SimWorldKind::Switchboard;
        let many = SimCommand::Many(Many { world, from: 5, count: 9, threads: 2, enough: 10 });
        assert_eq!(parse("--seeds 9 --from 5 --world switchboard"), Some(many));
        let bounds = ModelBounds { late: 1, early: true, ..ModelBounds::new(3, 1) };
        let line = "model --instances 3 --duties 1 --late 1 --early 1";
        assert_eq!(parse(line), Some(SimCommand::Model(bounds)));
        for line in [
            "",
            "model 7",
            "model --duties 0",
            "model --ttl 3",
            "--seed",
            "--seed x",
            "--seeds 1 --threads 0",
            "--seeds 1 --world other",
            "--seed 1 --seeds 2",
            "7",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
