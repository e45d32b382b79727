//! Running other programs, one named step at a time.

use std::env;
use std::ffi::OsStr;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// Runs one step under a heading and prints its duration; a failure includes how to repeat it.
pub(crate) fn step(name: &str, repeat: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    work().with_context(|| format!("{name} failed; repeat only this step with `{repeat}`"))?;
    eprintln!("== {name}: ok in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Restores signals that nohup(1) and shells without job control leave ignored: programs inherit
/// that, and tests of signals need the defaults.
const USUAL_SIGNALS: &str = "--default-signal=HUP,INT,QUIT,TERM,USR1,USR2";

/// Runs cargo with `fixed` and then `words`, under extra environment variables.
pub(crate) fn cargo(fixed: &[&str], words: &[String], variables: &[(&str, String)]) -> Result<()> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let variables = variables.iter().map(|(name, value)| (name, value));
    check(command_as_typed(program).args(fixed).args(words).envs(variables))
}

/// Returns a command that starts `program` as from a terminal.
pub(crate) fn command_as_typed(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    as_typed(&mut command).arg(USUAL_SIGNALS).arg(program);
    command
}

/// Returns the same for a program that computes: it gives way to those that wait for deadlines.
pub(crate) fn low_priority(program: impl AsRef<OsStr>) -> Command {
    let mut command = command_as_typed("nice");
    command.arg(program);
    command
}

/// Removes the variables that cargo sets for this program: they would make build scripts run again.
pub(crate) fn as_typed(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        let of_this = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if of_this {
            command.env_remove(name);
        }
    }
    command
}

/// Runs `command` to its end; fails unless it succeeds.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", line_of(command)))?;
    ensure!(status.success(), "{} ended with {status}", line_of(command));
    Ok(())
}

/// Returns program and words; `Debug` would also list each variable that is removed.
fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Runs `command` and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("cannot run {}", line_of(command)))?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{} ended with {}: {errors}", line_of(command), done.status);
    Ok(String::from_utf8(done.stdout)?)
}
