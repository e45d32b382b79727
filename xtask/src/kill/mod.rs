//! `cargo xtask kill-table`: switches every rule off in turn; a test or the simulator must notice.

mod judges;
mod places;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use self::judges::{JUDGES, Judge, SAMPLE, Suite, UNBROKEN};
pub(crate) use self::judges::{has_switch, rules};
use self::places::Place;
pub(crate) use self::places::Sources;
use self::table::{MutantRow, Noticed};
use crate::programs::{self, ALL, Incremental, Program};
use crate::run::output;
use crate::servers::Servers;
use crate::tidy::{tracked_files, workspace};

/// Variable with the mutant that a test turns on.
const VARIABLE: &str = "TENURE_TEST_MUTANT";
/// Concurrent simulations.
const THREADS: usize = 2;

/// Arguments of `cargo xtask kill-table`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KillOptions {
    /// Only this rule, such as `R5` or `S3`; then nothing is written.
    rule: Option<String>,
    /// Number of seeds after which an unnoticed mutant has survived.
    seeds: u64,
    /// Whether to compare with the written table, and change nothing.
    check: bool,
    /// Whether to judge only ten mutants, with the servers of the test command.
    sample: bool,
}

impl KillOptions {
    /// Options that compare the whole table.
    pub(crate) const CHECK: Self = Self { rule: None, seeds: 10_000, check: true, sample: false };

    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let mut options = Self { check: false, ..Self::CHECK };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--check" => options.check = true,
                "--sample" => options.sample = true,
                "--seeds" => {
                    options.seeds = words.next()?.parse().ok().filter(|seeds| *seeds > 0)?;
                }
                "--rule" => {
                    let rule = words.next()?;
                    options.rule = Some(rules().find(|known| known == rule)?);
                }
                _ => return None,
            }
        }
        let restricted = options.rule.is_some() || options.sample;
        (!restricted || !options.check).then_some(options)
    }
}

/// Rule that is switched off, as the simulator lists it.
#[derive(Clone, Debug)]
struct Mutant {
    name: String,
    rule: String,
    what: String,
}

/// Check that noticed a mutant, by the mutant and the place.
type Results = BTreeMap<(String, Place), Noticed>;

pub(crate) fn run(options: &KillOptions) -> Result<()> {
    let root = workspace()?;
    if options.sample {
        return sample(&root, options.seeds);
    }
    let servers = Servers::start()?;
    let wanted = |mutant: &Mutant| options.rule.as_ref().is_none_or(|rule| *rule == mutant.rule);
    let lines = judge(&root, wanted, options.seeds, &servers.variables())?;
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

/// Judges ten mutants, from every store and database, with the servers that variables name.
fn sample(root: &Path, seeds: u64) -> Result<()> {
    let wanted = |mutant: &Mutant| SAMPLE.contains(&mutant.name.as_str());
    let lines = judge(root, wanted, seeds, &[])?;
    let judged: BTreeSet<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    ensure!(judged.len() == SAMPLE.len(), "only {judged:?} of the sample are mutants");
    eprintln!("{} mutants noticed in {} places", judged.len(), lines.len());
    Ok(())
}

/// Turns on each wanted mutant, and returns what noticed it in each place where it breaks its rule.
/// Fails if nothing did.
fn judge(
    root: &Path,
    wanted: impl Fn(&Mutant) -> bool,
    seeds: u64,
    variables: &[(&'static str, String)],
) -> Result<Vec<MutantRow>> {
    let sim = build_sim()?;
    let all = list(&sim)?;
    if let Some(judge) = JUDGES.iter().find(|one| !all.iter().any(|m| m.name == one.mutant)) {
        bail!("{judge:?} judges a mutant that does not exist");
    }
    let mutants: Vec<Mutant> = all.into_iter().filter(|mutant| wanted(mutant)).collect();
    let files = tracked_files(root)?;
    let sources = Sources::new(&files);
    let mut noticed = simulate(&sim, &mutants, &sources, seeds)?;
    let judges: Vec<&Judge> =
        JUDGES.iter().filter(|one| mutants.iter().any(|m| m.name == one.mutant)).collect();
    if !judges.is_empty() {
        noticed.extend(run_judges(&judges, &sources, variables)?);
    }
    let mut rows = Vec::new();
    for mutant in &mutants {
        rows.extend(rows_of(mutant, &sources.of(&mutant.name), &noticed)?);
    }
    Ok(rows)
}

/// Returns the rows of a mutant; fails unless it was noticed in every file that breaks its rule.
fn rows_of(mutant: &Mutant, files: &[String], noticed: &Results) -> Result<Vec<MutantRow>> {
    let of_it = noticed.iter().filter(|((name, _), _)| *name == mutant.name);
    let mut missing: BTreeSet<&String> = files.iter().collect();
    let mut rows = Vec::new();
    for ((_, place), noticed) in of_it {
        ensure!(*noticed != Noticed::Nobody, "nothing notices {} in {place:?}", mutant.name);
        let of_place = place.files(files);
        missing.retain(|file| !of_place.contains(file));
        rows.push(MutantRow {
            name: mutant.name.clone(),
            rule: mutant.rule.clone(),
            what: mutant.what.clone(),
            files: of_place,
            noticed: noticed.clone(),
        });
    }
    ensure!(missing.is_empty(), "no test judges {} in {missing:?}", mutant.name);
    ensure!(!rows.is_empty(), "nothing judges {}", mutant.name);
    let name = mutant.name.as_str();
    for place in judges::backends(name) {
        let is_judged = noticed.contains_key(&(mutant.name.clone(), place));
        let is_excepted = UNBROKEN.iter().any(|it| it.mutant == name && it.places.contains(&place));
        ensure!(
            is_judged || is_excepted,
            "{name} breaks nothing in {place:?}, and UNBROKEN lacks it"
        );
        ensure!(!is_judged || !is_excepted, "{name} is judged in {place:?}, and in UNBROKEN");
    }
    Ok(rows)
}

fn build_sim() -> Result<PathBuf> {
    let words = [&["build"][..], ALL, &["--bin", "tenure-sim"]].concat();
    let built = programs::build(&words, Incremental::No)?;
    let sim = built.into_iter().find(|program| program.target == "tenure-sim");
    Ok(sim.context("no simulator was built")?.path)
}

fn list(sim: &Path) -> Result<Vec<Mutant>> {
    let read = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        Some(Mutant { name: fields.next()?, rule: fields.next()?, what: fields.next()? })
    };
    let text = output(Command::new(sim).arg("--mutants"))?;
    text.lines().map(|line| read(line).with_context(|| format!("not a mutant: {line:?}"))).collect()
}

/// Mutant and the simulator that judges it.
struct SimulatedMutant<'a> {
    mutant: &'a Mutant,
    place: Place,
}

/// Runs the simulators on each mutant that they judge, two at a time: those that break a rule in
/// code that they run, and have no test as their only judge.
fn simulate<'a>(
    sim: &Path,
    mutants: &'a [Mutant],
    sources: &Sources<'_>,
    seeds: u64,
) -> Result<Results> {
    let trial = |mutant: &'a Mutant| {
        let files = sources.of(&mutant.name);
        let is_judged = |place: &Place| {
            !place.files(&files).is_empty()
                && !judges::NOT_SIMULATED.contains(&mutant.name.as_str())
        };
        let places = [Place::Simulator, Place::SwitchboardSimulator].into_iter();
        places
            .filter(is_judged)
            .map(move |place| SimulatedMutant { mutant, place })
            .collect::<Vec<_>>()
    };
    let trials: Vec<SimulatedMutant> = mutants.iter().flat_map(trial).collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(trial) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = until_noticed(sim, trial, seeds);
            let said = result.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            eprintln!("{}: {said}", trial.mutant.name);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (trial.mutant.name.clone(), trial.place);
            results.push(result.map(|noticed| (key, noticed)));
        }
    };
    thread::scope(|scope| {
        (0..THREADS).for_each(|_| drop(scope.spawn(work)));
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

fn until_noticed(sim: &Path, trial: &SimulatedMutant<'_>, seeds: u64) -> Result<Noticed> {
    let (mutant, seeds) = (&trial.mutant.name, seeds.to_string());
    let mut command = Command::new(sim);
    command.args(["--mutant", mutant, "--seeds", &seeds]);
    if trial.place == Place::SwitchboardSimulator {
        command.args(["--world", "switchboard"]);
    }
    let done = command.output()?;
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

/// Runs the tests of the judges: each must pass by itself, and fail while its mutant is on, while
/// the controls still pass.
fn run_judges(
    judges: &[&Judge],
    sources: &Sources<'_>,
    variables: &[(&'static str, String)],
) -> Result<Results> {
    // As for the tests: the features of other packages decide how dependencies are built.
    let mut words =
        [&["test", "--no-run"][..], ALL, &["--test", "conformance", "--test", "it"]].concat();
    if judges.iter().any(|judge| judge.suite == Suite::Core) {
        words.push("--lib");
    }
    let programs = programs::build(&words, Incremental::No)?;
    let mut results = Results::new();
    for judge in judges {
        let files = sources.of(judge.mutant);
        let is_judged = |(_, place): &(String, Place)| !place.files(&files).is_empty();
        let tests: Vec<_> = judge.tests().into_iter().filter(is_judged).collect();
        let names: Vec<String> = tests.iter().map(|(name, _)| name.clone()).collect();
        let run =
            |suite, names: &[String], mutant| verdicts(&programs, suite, names, mutant, variables);
        let failed = run(judge.suite, &names, None)?.into_iter().find(|(_, passed)| !passed);
        ensure!(failed.is_none(), "{failed:?} fails without a mutant");
        if let Some((suite, controls)) = judge.controls() {
            let all = run(suite, &controls, Some(judge.mutant))?;
            let failed = controls.iter().find(|name| !all[*name]);
            ensure!(failed.is_none(), "{failed:?} fails under {}: that breaks more", judge.mutant);
        }
        let all = run(judge.suite, &names, Some(judge.mutant))?;
        for (name, place) in tests {
            let noticed = match all[&name] {
                true => Noticed::Nobody,
                false => Noticed::Test { package: judge.suite.target().0, test: name },
            };
            eprintln!("{}: {noticed}", judge.mutant);
            results.insert((judge.mutant.to_owned(), place), noticed);
        }
    }
    Ok(results)
}

/// Runs tests of a program, and returns which passed; fails if one has no verdict.
fn verdicts(
    programs: &[Program],
    suite: Suite,
    names: &[String],
    mutant: Option<&str>,
    variables: &[(&'static str, String)],
) -> Result<BTreeMap<String, bool>> {
    let (package, target) = suite.target();
    let program = programs.iter().find(|one| one.package == package && one.target == target);
    let program = program.with_context(|| format!("{package} has no tests {target}"))?;
    let mut verdicts = BTreeMap::new();
    for filter in filters(suite, names) {
        let mut command = Command::new(&program.path);
        command.current_dir(&program.folder).args(filter).env_remove(VARIABLE);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.envs(mutant.map(|name| (VARIABLE, name)));
        let said = String::from_utf8_lossy(&command.output()?.stdout).into_owned();
        verdicts.extend(said.lines().filter_map(verdict));
    }
    let missing = names.iter().find(|name| !verdicts.contains_key(*name));
    ensure!(missing.is_none(), "{missing:?} of {package} has no verdict under {mutant:?}");
    Ok(verdicts)
}

/// Returns the arguments of the runs that judge these tests. The suite of stores takes one filter,
/// which is a part of the names: a case without its backend.
fn filters(suite: Suite, names: &[String]) -> Vec<Vec<String>> {
    if suite != Suite::Conformance {
        let exact = std::iter::once("--exact").chain(names.iter().map(String::as_str));
        return vec![exact.map(str::to_owned).collect()];
    }
    let case = |name: &String| name.split_once("::").map_or("", |(_, case)| case).to_owned();
    let cases: BTreeSet<String> = names.iter().map(case).collect();
    cases.into_iter().map(|case| vec![format!("::{case}")]).collect()
}

/// Reads a line such as `test sqlite::hold::a_plain_life ... ok`.
fn verdict(line: &str) -> Option<(String, bool)> {
    let (name, said) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let passed = match said.trim() {
        "ok" => true,
        "FAILED" => false,
        _ => return None,
    };
    Some((name.trim_end().to_owned(), passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_make_options_or_none() {
        let parse = |line: &str| {
            KillOptions::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let all = KillOptions { check: false, ..KillOptions::CHECK };
        assert_eq!(parse(""), Some(all.clone()));
        assert_eq!(parse("--check"), Some(KillOptions::CHECK));
        let one = KillOptions { rule: Some("R5".to_owned()), seeds: 7, ..all.clone() };
        assert_eq!(parse("--rule R5 --seeds 7"), Some(one));
        assert!(parse("--rule S11").is_some());
        for line in [
            "--rule 5",
            "--rule R27",
            "--rule S12",
            "--rule",
            "--seeds 0",
            "--rule R5 --check",
            "--sample --check",
            "R5",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_of_a_suite_is_a_verdict() {
        let said = |line| verdict(line).map(|(name, passed)| format!("{name} {passed}"));
        assert_eq!(said("test a::b ... ok").as_deref(), Some("a::b true"));
        assert_eq!(said("test a::b      ... FAILED").as_deref(), Some("a::b false"));
        assert_eq!(said("test result: ok. 1 passed"), None);
        assert_eq!(said("running 1 test"), None);
    }

    #[test]
    fn a_mutant_is_noticed_in_every_file() {
        let text = |text: &str| text.to_owned();
        let mutant = Mutant { name: text("r2-x"), rule: text("R2"), what: text("Breaks.") };
        let test = |passes| match passes {
            true => Noticed::Nobody,
            false => Noticed::Test { package: "p", test: text("t") },
        };
        let judged = |place, passes| Results::from([((text("r2-x"), place), test(passes))]);
        let files = [text("store/src/redis/lua/a.lua")];
        assert_eq!(rows_of(&mutant, &files, &judged(Place::Redis, false)).unwrap().len(), 1);
        assert!(rows_of(&mutant, &files, &judged(Place::Redis, true)).is_err());
        assert!(rows_of(&mutant, &files, &judged(Place::Etcd, false)).is_err());
        assert!(rows_of(&mutant, &files, &Results::new()).is_err());
    }
}
