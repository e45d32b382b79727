//! `cargo xtask test`: everything that must hold before a change is merged.

use std::env;
use std::thread;

use anyhow::Result;

use crate::programs::{self, Incremental};
use crate::run::{cargo, step};
use crate::servers::{self, Servers};
use crate::suites::{self, TEST_THREADS, threads};
use crate::{python, tidy};

/// Feature sets of `tenure-store` that users may choose.
const STORE_FEATURES: &[&str] = &["memory", "file", "sqlite", "postgres,redis", "etcd", "full"];
/// Feature sets of `tenure-targets`.
const TARGETS_FEATURES: &[&str] = &["", "redis", "postgres", "sqlite", "http", "tls"];

/// Part of the test run that can be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestStep {
    Fmt,
    Tidy,
    /// Lints and builds in one pass.
    Clippy,
    /// Runs what is built, and lints the smallest feature sets meanwhile.
    Tests,
    /// Only the smallest feature sets.
    Features,
}

impl TestStep {
    /// All steps, in the order in which they run: the quick ones first.
    const ALL: [Self; 5] = [Self::Fmt, Self::Tidy, Self::Clippy, Self::Tests, Self::Features];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Tidy => "tidy",
            Self::Clippy => "clippy",
            Self::Tests => "tests",
            Self::Features => "features",
        }
    }

    fn run(self, words: &[String]) -> Result<()> {
        match self {
            Self::Fmt => cargo(&["fmt", "--all", "--", "--check"], &[], &[]),
            Self::Tidy => tidy::run(),
            Self::Clippy => clippy(),
            Self::Tests => tests(words),
            Self::Features => smallest_features(),
        }
    }
}

/// Runs every step, or `only` one, and stops at the first that fails.
pub(crate) fn run(only: Option<TestStep>, words: &[String]) -> Result<()> {
    step("install", "cargo xtask test", servers::install)?;
    thread::scope(|scope| {
        if only.is_none() {
            // Downloads while the compiler works. The tests wait for it, and report its error.
            scope.spawn(python::interpreters);
        }
        // The tests lint the smallest feature sets beside them.
        let all = TestStep::ALL.into_iter().filter(|step| *step != TestStep::Features);
        let chosen: Vec<TestStep> = only.map_or_else(|| all.collect(), |only| vec![only]);
        for chosen in chosen {
            let repeat = format!("cargo xtask test --only {}", chosen.name());
            step(chosen.name(), &repeat, || chosen.run(words))?;
        }
        Ok(())
    })
}

fn clippy() -> Result<()> {
    programs::build_all().map(drop)
}

/// The combinations that break most easily.
fn smallest_features() -> Result<()> {
    // No optional features.
    alone("tenure-store", "memory")?;
    alone("tenure-targets", "")?;
    // As for users: other packages of the workspace turn on features for tests.
    alone("tenure", "default")?;
    programs("xtask")
}

/// Checks every feature set that must compile without warnings on its own.
pub(crate) fn features() -> Result<()> {
    STORE_FEATURES.iter().try_for_each(|features| alone("tenure-store", features))?;
    TARGETS_FEATURES.iter().try_for_each(|features| alone("tenure-targets", features))?;
    programs("tenure-bench")
}

/// Lints the programs of a package without a `tests` folder, which are else built only as tests.
fn programs(package: &str) -> Result<()> {
    cargo(&["clippy", "--bins", "--all-features", "--package", package], &denied(), &[])
}

fn alone(package: &str, features: &str) -> Result<()> {
    let fixed = ["clippy", "--no-default-features", "--package", package, "--features", features];
    cargo(&fixed, &denied(), &[])
}

fn denied() -> [String; 3] {
    ["--", "-D", "warnings"].map(str::to_owned)
}

fn tests(words: &[String]) -> Result<()> {
    let servers = Servers::start()?;
    let mut variables = servers.variables();
    // A value set by the caller takes precedence.
    if env::var_os(TEST_THREADS).is_none() {
        variables.push((TEST_THREADS, threads().to_string()));
    }
    if words.is_empty() {
        return suites::run(&variables);
    }
    variables.extend(programs::linted(Incremental::No)?);
    cargo(&test_command(words), words, &variables)
}

/// Omits `--workspace` for a chosen package, which it would override.
fn test_command(words: &[String]) -> Vec<&'static str> {
    let for_cargo = words.iter().take_while(|word| *word != "--");
    let is_package = |word: &String| word.starts_with("-p") || word.starts_with("--package");
    if for_cargo.into_iter().any(is_package) {
        vec!["test", "--all-features"]
    } else {
        vec!["test", "--all-features", "--workspace"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_package_replaces_the_workspace() {
        let has_workspace = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            test_command(&words).contains(&"--workspace")
        };
        assert!(has_workspace("epoch"));
        assert!(has_workspace("epoch -- -p"));
        assert!(!has_workspace("-p tenure-store epoch"));
        assert!(!has_workspace("--package=tenure-store"));
    }
}
