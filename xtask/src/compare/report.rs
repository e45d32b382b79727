//! Outcome of a trial, and the page with the tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context as _, Result};

use super::MeasuredTrial;
use super::system::{LockFault, LockSystem};
use super::trial::Programs;
use crate::run::output;

const COMPARISON_PAGE: &str = "docs/comparison.md";
const BEGIN: &str = "<!-- compare -->\n";
const END: &str = "<!-- /compare -->";
/// Interval of the lines in seconds.
const LINE_INTERVAL: f64 = 0.02;
const SECOND: u64 = 1_000_000_000;

/// Observation of one trial; times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrialOutcome {
    /// Longest time without a line of either command.
    pub(crate) gap: f64,
    /// Time in which a command wrote although a newer one had started.
    pub(crate) overlap: f64,
    /// Whether the overlap lasted until the end of the trial.
    pub(crate) is_overlap_open: bool,
    /// Whether A's command runs without holding the lock, or without a wrapper.
    pub(crate) is_left: bool,
}

/// Computes the outcome from the lines between the fault and the end.
pub(crate) fn judge(
    lines: &[(u64, String)],
    began: u64,
    ended: u64,
    first: &str,
    is_alive: bool,
    has_wrapper: bool,
) -> Result<TrialOutcome> {
    let mut lines: Vec<(u64, &str)> =
        lines.iter().map(|(time, name)| (*time, name.as_str())).collect();
    lines.retain(|(time, _)| *time <= ended);
    lines.sort_unstable();
    let mut start: BTreeMap<&str, u64> = BTreeMap::new();
    for (time, name) in &lines {
        start.entry(name).or_insert(*time);
    }
    let last = lines.iter().map(|line| line.0).rfind(|time| *time < began);
    let last = last.context("no line was written before the fault")?;
    let after = lines.iter().map(|line| line.0).filter(|time| *time >= began);
    let marks: Vec<u64> = [last].into_iter().chain(after).chain([ended]).collect();
    let gap = marks.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
    let mut newest = first;
    let mut stale = Vec::new();
    for (time, name) in &lines {
        if start[name] > start[newest] {
            newest = name;
        } else if *name != newest {
            stale.push(*time);
        }
    }
    Ok(TrialOutcome {
        gap: seconds(gap),
        overlap: LINE_INTERVAL * f64::from(u32::try_from(stale.len())?),
        is_overlap_open: stale.last().is_some_and(|time| ended - time < SECOND),
        is_left: is_alive && (!has_wrapper || newest != first),
    })
}

fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// Formats the tables: one row per system, one column per fault.
pub(crate) fn tables(
    systems: &[&LockSystem],
    faults: &[LockFault],
    measured: &[MeasuredTrial],
) -> String {
    let mut text = "| |".to_owned();
    for fault in faults {
        let _ = write!(text, " {} |", fault.heading());
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(faults.len()));
    for system in systems {
        let _ = write!(text, "| {} |", system.name);
        for fault in faults {
            let of_cell = measured.iter().filter(|it| it.0 == *system && it.1 == *fault);
            let outcomes: Vec<&TrialOutcome> = of_cell.map(|it| &it.2).collect();
            let _ = write!(text, " {} |", cell(&outcomes));
        }
        text.push('\n');
    }
    text
}

/// Formats median and longest gap, and overlap and left commands if there are any.
fn cell(outcomes: &[&TrialOutcome]) -> String {
    if outcomes.is_empty() {
        return "n/a".to_owned();
    }
    let sorted = |value: fn(&TrialOutcome) -> f64| {
        let mut values: Vec<f64> = outcomes.iter().map(|outcome| value(outcome)).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let gaps = sorted(|outcome| outcome.gap);
    let mut text = format!("{:.2} ({:.2})", gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    let overlaps = sorted(|outcome| outcome.overlap);
    let longest = overlaps[overlaps.len() - 1];
    if longest > 0.0 {
        let open = if outcomes.iter().any(|outcome| outcome.is_overlap_open) { "+" } else { "" };
        let _ = write!(text, ", **overlap {longest:.2}{open}**");
    }
    if outcomes.iter().any(|outcome| outcome.is_left) {
        text.push_str(", **left**");
    }
    text
}

/// Returns the machine and the versions of everything that was measured.
pub(crate) fn machine(programs: &Programs) -> Result<String> {
    let first = |program: &Path, words: &[&str]| -> Result<String> {
        let text = output(Command::new(program).args(words))?;
        let line = text.lines().next().unwrap_or_default();
        // Without the details of a build.
        let short = [" sha=", " (Debian"]
            .iter()
            .fold(line, |line, mark| line.split_once(mark).map_or(line, |(before, _)| before));
        Ok(short.trim().to_owned())
    };
    let cores = available_parallelism()?;
    let commit = first(Path::new("git"), &["rev-parse", "--short", "HEAD"])?;
    let date = first(Path::new("date"), &["--utc", "+%F"])?;
    let mut versions = vec![format!("{} ({commit})", first(&programs.tenure, &["--version"])?)];
    for (program, word) in [
        ("flock", "--version"),
        ("etcdctl", "version"),
        ("psql", "--version"),
        ("redis-server", "--version"),
    ] {
        versions.push(first(Path::new(program), &[word])?);
    }
    versions.push(first(&programs.python, &["--version"])?);
    versions.extend(super::PACKAGES.iter().map(|package| package.replace("==", " ")));
    Ok(format!("{date}, {cores} cores, loopback. {}.\n", versions.join("; ")))
}

/// Replaces the measured part of the page.
pub(crate) fn write(root: &Path, machine: &str, tables: &str) -> Result<()> {
    let path = root.join(COMPARISON_PAGE);
    let page = fs::read_to_string(&path)?;
    let (before, rest) = page.split_once(BEGIN).context("the page has no begin mark")?;
    let (_, after) = rest.split_once(END).context("the page has no end mark")?;
    fs::write(&path, format!("{before}{BEGIN}{machine}\n{tables}{END}{after}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(names: &[(&str, u64, u64)]) -> Vec<(u64, String)> {
        let line = |name: &str, ms: u64| (ms * 1_000_000, name.to_owned());
        let all = names
            .iter()
            .flat_map(|(name, from, to)| (*from..*to).step_by(20).map(move |ms| line(name, ms)));
        all.collect()
    }

    fn judged(names: &[(&str, u64, u64)], is_alive: bool) -> TrialOutcome {
        judge(&lines(names), SECOND, 10 * SECOND, "A.1", is_alive, true).unwrap()
    }

    #[test]
    fn a_takeover_has_a_gap() {
        let outcome = judged(&[("A.1", 0, 1_000), ("B.2", 5_980, 10_000)], false);
        assert!((outcome.gap - 5.0).abs() < 1e-6, "{outcome:?}");
        assert!(outcome.overlap == 0.0 && !outcome.is_left, "{outcome:?}");
    }

    #[test]
    fn two_at_a_time_overlap() {
        let outcome = judged(&[("A.1", 0, 4_000), ("B.2", 3_010, 10_000)], false);
        assert!((outcome.overlap - 1.0).abs() < 0.05 && !outcome.is_overlap_open, "{outcome:?}");
        let outcome = judged(&[("A.1", 0, 10_000), ("B.2", 3_010, 10_000)], true);
        assert!(outcome.is_overlap_open && outcome.is_left, "{outcome:?}");
        assert!(cell(&[&outcome]).contains("+**, **left**"), "{}", cell(&[&outcome]));
    }

    #[test]
    fn a_holder_that_stays_is_not_left() {
        let outcome = judged(&[("A.1", 0, 10_000)], true);
        assert!(!outcome.is_left && outcome.gap < 0.1, "{outcome:?}");
        assert_eq!(cell(&[]), "n/a");
    }
}
