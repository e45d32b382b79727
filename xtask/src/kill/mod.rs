//! `cargo xtask kill-table`: switches every rule off in turn; a test or the simulator must notice.

mod judges;
mod table;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use self::judges::{JUDGES, RuleTest, Suite};
use self::table::{MutantRow, Noticed};
use crate::run::{as_typed, output};
use crate::servers::Servers;
use crate::tidy::workspace;

/// Variable with the mutant that a test turns on.
const VARIABLE: &str = "TENURE_TEST_MUTANT";
/// Concurrent simulations.
const THREADS: usize = 2;

/// Arguments of `cargo xtask kill-table`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KillOptions {
    /// Only this rule, by number; then nothing is written.
    rule: Option<u32>,
    /// Number of seeds after which an unnoticed mutant has survived.
    seeds: u64,
    /// Whether to compare with the written table, and change nothing.
    check: bool,
}

impl KillOptions {
    /// Options that compare the whole table.
    pub(crate) const CHECK: Self = Self { rule: None, seeds: 10_000, check: true };

    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let mut options = Self { check: false, ..Self::CHECK };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--check" => options.check = true,
                "--seeds" => {
                    options.seeds = words.next()?.parse().ok().filter(|seeds| *seeds > 0)?;
                }
                "--rule" => {
                    let number = words.next()?.strip_prefix('R')?.parse().ok()?;
                    options.rule = Some(number).filter(|n| (1..=judges::RULES).contains(n));
                    options.rule?;
                }
                _ => return None,
            }
        }
        (options.rule.is_none() || !options.check).then_some(options)
    }
}

/// Rule that is switched off, as the simulator lists it.
#[derive(Clone, Debug)]
struct Mutant {
    name: String,
    rule: u32,
    what: String,
}

pub(crate) fn run(options: &KillOptions) -> Result<()> {
    let root = workspace()?;
    let sim = build_sim(&root)?;
    let all = list(&sim)?;
    if let Some(judge) = JUDGES.iter().find(|one| !all.iter().any(|m| m.name == one.mutant)) {
        bail!("the test {} judges the mutant {}, which does not exist", judge.test, judge.mutant);
    }
    let wanted = |mutant: &Mutant| options.rule.is_none_or(|rule| rule == mutant.rule);
    let mutants: Vec<Mutant> = all.into_iter().filter(wanted).collect();
    let judged = |mutant: &&Mutant| JUDGES.iter().any(|judge| judge.mutant == mutant.name);
    let (tested, simulated): (Vec<_>, Vec<_>) = mutants.iter().partition(judged);
    let mut noticed = simulate(&sim, &simulated, options.seeds)?;
    if !tested.is_empty() {
        noticed.extend(test(&root, &tested)?);
    }
    let lines: Vec<MutantRow> = mutants
        .iter()
        .filter_map(|mutant| {
            let Mutant { name, rule, what } = mutant.clone();
            Some(MutantRow { name, rule, what, noticed: noticed.get(&mutant.name)?.clone() })
        })
        .collect();
    let survivors: Vec<&str> = lines
        .iter()
        .filter(|line| line.noticed == Noticed::Nobody)
        .map(|line| line.name.as_str())
        .collect();
    ensure!(survivors.is_empty(), "no test or checker notices {}", survivors.join(", "));
    if options.rule.is_some() {
        return Ok(());
    }
    let document = root.join(table::DOCUMENT);
    let before = fs::read_to_string(&document)?;
    let after = table::replace(&before, &table::of(&lines, options.seeds))?;
    match (before == after, options.check) {
        (true, _) => {}
        (false, true) => bail!("the table in {} is stale; run without --check", table::DOCUMENT),
        (false, false) => fs::write(&document, after)?,
    }
    Ok(())
}

/// All features of the workspace, as for the tests, so that nothing is compiled twice.
const ALL: &[&str] = &["--workspace", "--all-features"];

/// Builds with cargo, and returns the programs by package and target.
fn build(root: &Path, words: &[&str]) -> Result<BTreeMap<(String, String), PathBuf>> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    as_typed(&mut command)
        .current_dir(root)
        .args(words)
        .arg("--message-format=json-render-diagnostics");
    let said = output(command.stderr(Stdio::inherit()))?;
    let mut programs = BTreeMap::new();
    for line in said.lines() {
        let json: Value = serde_json::from_str(line)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let package = text(&json["manifest_path"]).and_then(|path| package_of(&path));
        let names = package.zip(text(&json["target"]["name"]));
        if let (Some(names), Some(path)) = (names, text(&json["executable"])) {
            programs.insert(names, PathBuf::from(path));
        }
    }
    Ok(programs)
}

/// Returns the name of a package from its manifest.
fn package_of(manifest: &str) -> Option<String> {
    let text = fs::read_to_string(manifest).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(line.trim_matches('"').to_owned())
}

fn build_sim(root: &Path) -> Result<PathBuf> {
    let words = [&["build"][..], ALL, &["--bin", "tenure-sim"]].concat();
    let name = ("tenure-sim".to_owned(), "tenure-sim".to_owned());
    build(root, &words)?.remove(&name).context("no simulator was built")
}

fn list(sim: &Path) -> Result<Vec<Mutant>> {
    let read = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        let (name, rule, what) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Mutant { name, rule: rule.strip_prefix('R')?.parse().ok()?, what })
    };
    let text = output(Command::new(sim).arg("--mutants"))?;
    text.lines().map(|line| read(line).with_context(|| format!("not a mutant: {line:?}"))).collect()
}

type Results = BTreeMap<String, Noticed>;

/// Runs the simulator on each mutant, two at a time.
fn simulate(sim: &Path, mutants: &[&Mutant], seeds: u64) -> Result<Results> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = until_noticed(sim, &mutant.name, seeds);
            let said = result.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            eprintln!("{}: {said}", mutant.name);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.push(result.map(|noticed| (mutant.name.clone(), noticed)));
        }
    };
    thread::scope(|scope| {
        (0..THREADS).for_each(|_| drop(scope.spawn(work)));
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

fn until_noticed(sim: &Path, mutant: &str, seeds: u64) -> Result<Noticed> {
    let seeds = seeds.to_string();
    let mut command = Command::new(sim);
    let done = command.args(["--mutant", mutant, "--seeds", &seeds]).output()?;
    let text = String::from_utf8(done.stdout)?;
    let (seeds, checkers) = text.trim_end().split_once('\t').with_context(|| {
        let errors = String::from_utf8_lossy(&done.stderr);
        format!("{mutant}: {text} {errors}")
    })?;
    Ok(match done.status.success() {
        true => Noticed::Checker { seeds: seeds.parse()?, checkers: checkers.to_owned() },
        false => Noticed::Nobody,
    })
}

/// Runs the named tests: each must pass by itself, and fail while its mutant is on.
fn test(root: &Path, mutants: &[&Mutant]) -> Result<Results> {
    let words = [&["test", "--no-run"][..], ALL, &["--test", "conformance", "--test", "it"]];
    let mut programs = build(root, &words.concat())?;
    let core = ["test", "--no-run", "--package", "tenure-core", "--all-features", "--lib"];
    programs.extend(build(root, &core)?);
    let servers = Servers::start()?;
    let mut results = Results::new();
    for judge in JUDGES.iter().filter(|one| mutants.iter().any(|m| m.name == one.mutant)) {
        let run = |mutant| passes(root, &programs, judge, mutant, &servers.variables());
        ensure!(run(None)?, "{} fails without a mutant", judge.test);
        let noticed = match run(Some(judge.mutant))? {
            true => Noticed::Nobody,
            false => Noticed::Test { package: judge.suite.target().0, test: judge.test },
        };
        eprintln!("{}: {noticed}", judge.mutant);
        results.insert(judge.mutant.to_owned(), noticed);
    }
    Ok(results)
}

/// Whether a test passes; fails if there is no such test.
fn passes(
    root: &Path,
    programs: &BTreeMap<(String, String), PathBuf>,
    judge: &RuleTest,
    mutant: Option<&str>,
    variables: &[(&'static str, String)],
) -> Result<bool> {
    let (package, target) = judge.suite.target();
    let program = programs.get(&(package.to_owned(), target.to_owned()));
    let program = program.with_context(|| format!("{package} has no tests {target}"))?;
    let folder = match judge.suite {
        Suite::Core => "crates/core",
        Suite::Conformance | Suite::Store => "crates/store",
        Suite::Cli => "crates/cli",
    };
    let mut command = Command::new(program);
    command.current_dir(root.join(folder)).args(["--exact", judge.test]).env_remove(VARIABLE);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.envs(mutant.map(|name| (VARIABLE, name)));
    let done = command.output()?;
    let said = String::from_utf8_lossy(&done.stdout);
    ensure!(said.contains("running 1 test\n"), "there is no test {}: {said}", judge.test);
    let passed = done.status.success();
    ensure!(passed || said.contains("0 passed; 1 failed"), "{} has no verdict: {said}", judge.test);
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_make_options_or_none() {
        let parse = |line: &str| {
            KillOptions::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let all = KillOptions { rule: None, seeds: 10_000, check: false };
        assert_eq!(parse(""), Some(all));
        assert_eq!(parse("--check"), Some(KillOptions::CHECK));
        let one = KillOptions { rule: Some(5), seeds: 7, check: false };
        assert_eq!(parse("--rule R5 --seeds 7"), Some(one));
        for line in ["--rule 5", "--rule R27", "--rule", "--seeds 0", "--rule R5 --check", "R5"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
