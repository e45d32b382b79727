//! Programs that run beside each other, with the output of each in one piece.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::tidy::workspace;

/// Folder of the outputs, where a job that hangs can be watched.
const FOLDER: &str = "target/tmp/jobs";

/// Program to run beside others.
pub(crate) struct ParallelJob {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// Returns a job that runs a command of `cargo xtask`; `start` makes it from the program's path.
pub(crate) fn xtask(line: &str, start: fn(PathBuf) -> Command) -> Result<ParallelJob> {
    let mut command = start(env::current_exe()?);
    command.args(line.split(' ')).env("CARGO_MANIFEST_DIR", workspace()?.join("xtask"));
    Ok(ParallelJob { name: line.to_owned(), command })
}

/// Job that has ended.
pub(crate) struct JobResult {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) succeeded: bool,
    /// Standard output and standard error.
    pub(crate) output: String,
}

/// Output to print when a job ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    All,
    /// Output of those that failed.
    Failed,
}

/// Runs all jobs in their order, at most `at_once` at a time.
pub(crate) fn run(jobs: Vec<ParallelJob>, at_once: usize, show: Show) -> Result<Vec<JobResult>> {
    let total = jobs.len();
    let folder = workspace()?.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let (waiting, folder) = (&Mutex::new(jobs.into_iter()), folder.as_path());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(job) = next() {
                    // Nobody receives after an error, which is reported.
                    let _ = sender.send(finish(job, folder));
                }
            });
        }
        drop(sender);
        let mut results = Vec::with_capacity(total);
        for done in ended {
            let done = done?;
            if show == Show::All || !done.succeeded {
                print!("{}", done.output);
            }
            let (count, JobResult { name, seconds, .. }) = (results.len() + 1, &done);
            eprintln!("-- {name}: {} in {seconds:.1} s ({count} of {total})", done.verdict());
            results.push(done);
        }
        Ok(results)
    })
}

/// Prints a line for each job, slowest first; fails if one has failed.
pub(crate) fn judge(mut results: Vec<JobResult>) -> Result<()> {
    results.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for done in &results {
        println!("{:<6} {:>7.1} s  {}", done.verdict(), done.seconds, done.name);
    }
    let failed: Vec<&str> =
        results.iter().filter(|done| !done.succeeded).map(|done| done.name.as_str()).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn finish(ParallelJob { name, mut command }: ParallelJob, folder: &Path) -> Result<JobResult> {
    let path = folder.join(format!("{}.log", name.replace(['/', ' '], "-")));
    eprintln!("-- {name}: started, output in {}", path.display());
    let start = Instant::now();
    let file = File::create(&path)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    let output = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    let seconds = start.elapsed().as_secs_f64();
    Ok(JobResult { name, seconds, succeeded: status.success(), output })
}

impl JobResult {
    fn verdict(&self) -> &'static str {
        if self.succeeded { "ok" } else { "FAILED" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::check;

    fn shell(name: &str, script: &str) -> ParallelJob {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ParallelJob { name: format!("test {name}"), command }
    }

    #[test]
    fn one_that_fails_stops_no_other() {
        let jobs = vec![shell("a", "echo no >&2; exit 1"), shell("b", "echo yes")];
        let results = run(jobs, 1, Show::Failed).unwrap();
        let outputs: Vec<&str> = results.iter().map(|done| done.output.as_str()).collect();
        assert_eq!(outputs, ["no\n", "yes\n"]);
        assert_eq!(judge(results).unwrap_err().to_string(), "failed: test a");
    }

    #[test]
    fn all_run_beside_each_other() {
        let folder = tempfile::TempDir::new().unwrap();
        let pipes = ["x", "y"].map(|name| folder.path().join(name).display().to_string());
        check(Command::new("mkfifo").args(&pipes)).unwrap();
        let [x, y] = pipes;
        // Each waits for what only the other writes.
        let meet = |mine: &str, other: &str| format!("cat {mine} & echo > {other}; wait");
        let jobs = vec![shell("c", &meet(&x, &y)), shell("d", &meet(&y, &x))];
        assert!(run(jobs, 2, Show::Failed).unwrap().iter().all(|done| done.succeeded));
    }
}
