//! `cargo xtask fuzz`: fuzzing of all parsers of untrusted input.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Result, bail};

use crate::run::{as_typed, check, step};
use crate::tidy::workspace;

/// Tool that builds and runs the targets.
const TOOL: &str = "cargo-fuzz";
const TOOL_VERSION: &str = "0.13.2";

/// Targets, each a file in `fuzz/targets`.
pub(crate) const TARGETS: [&str; 5] = ["envelope", "batch", "query", "heartbeat", "bucket"];

/// Longest input.
const MAX_INPUT_BYTES: u32 = 8_192;

/// Targets to run, and the time for each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FuzzOptions {
    /// Names of targets; empty for all.
    names: Vec<String>,
    seconds: u32,
}

impl FuzzOptions {
    /// Options without arguments, as in `cargo xtask soak`.
    const CHECK: Self = Self { names: Vec::new(), seconds: 60 };

    /// Parses the words after `fuzz`.
    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let mut options = Self::CHECK;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seconds" => {
                    options.seconds = words.next()?.parse().ok().filter(|count| *count > 0)?;
                }
                name if TARGETS.contains(&name) => options.names.push(name.to_owned()),
                _ => return None,
            }
        }
        Some(options)
    }

    fn targets(&self) -> impl Iterator<Item = &'static str> {
        let named = |target: &&str| self.names.is_empty() || self.names.iter().any(|n| n == target);
        TARGETS.into_iter().filter(named)
    }
}

/// Runs the targets one after another, even if one fails.
pub(crate) fn run(options: &FuzzOptions) -> Result<()> {
    let root = workspace()?;
    let tool = install(&root)?;
    let mut failed = Vec::new();
    for target in options.targets() {
        let repeat = format!("cargo xtask fuzz {target} --seconds {}", options.seconds);
        let run = || fuzz(&root, &tool, target, options.seconds);
        if let Err(error) = step(target, &repeat, run) {
            eprintln!("error: {error:#}");
            failed.push(target);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}; the inputs are in fuzz/artifacts", failed.join(", "));
    }
    Ok(())
}

/// Builds the tool into the target folder, unless it exists.
fn install(root: &Path) -> Result<PathBuf> {
    let folder = root.join(format!("target/tools/{TOOL}-{TOOL_VERSION}"));
    let program = folder.join("bin").join(TOOL);
    if !program.exists() {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let words = ["install", "--locked", "--version", TOOL_VERSION, TOOL, "--root"];
        check(as_typed(&mut cargo).args(words).arg(&folder))?;
    }
    Ok(program)
}

/// Runs one target from its seeds. Its findings go to `fuzz/corpus`, which is not tracked.
fn fuzz(root: &Path, tool: &Path, target: &str, seconds: u32) -> Result<()> {
    let folder = root.join("fuzz");
    let learnt = folder.join("corpus").join(target);
    fs::create_dir_all(&learnt)?;
    // There is no unsafe code for a sanitizer to check, and without one it is faster.
    let words = ["run", "--fuzz-dir", "fuzz", "--sanitizer", "none", target];
    let mut command = Command::new(tool);
    check(
        as_typed(&mut command)
            .current_dir(root)
            // Instrumentation has no stable switch; only this build uses an unstable one.
            .env("RUSTC_BOOTSTRAP", "1")
            .args(words)
            .arg(learnt)
            .arg(folder.join("seeds").join(target))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={MAX_INPUT_BYTES}"))
            .args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<FuzzOptions> {
        FuzzOptions::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn targets_and_seconds_are_read() {
        assert_eq!(parse(""), Some(FuzzOptions::CHECK));
        let options = parse("query --seconds 5 batch").unwrap();
        assert_eq!(options.seconds, 5);
        assert_eq!(options.targets().collect::<Vec<_>>(), ["batch", "query"]);
        assert_eq!(FuzzOptions::CHECK.targets().count(), TARGETS.len());
        for line in ["nothing", "--seconds", "--seconds 0", "--seconds soon", "--minutes 1"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn every_target_has_a_file_and_seeds() {
        let fuzz = workspace().unwrap().join("fuzz");
        let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
        for target in TARGETS {
            assert!(manifest.contains(&format!("path = \"targets/{target}.rs\"")), "{target}");
            assert!(fs::read_dir(fuzz.join("seeds").join(target)).unwrap().count() > 0);
        }
        let files = fs::read_dir(fuzz.join("targets")).unwrap().count();
        assert_eq!(files, TARGETS.len(), "a target that never runs finds nothing");
    }
}
