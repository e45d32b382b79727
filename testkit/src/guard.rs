//! Shell process that outlives its owner just long enough to clean up after it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::wait::wait_until;

/// A server, its folder, and the guard that removes both when this process has ended.
///
/// The pipe to the guard is closed by the kernel whenever this process ends, so cleaning up does
/// not depend on `Drop`. A parent-death signal would fire when the spawning *thread* ends, which in
/// a test harness is the end of one test.
#[derive(Debug)]
pub(crate) struct ServerGuard {
    folder: PathBuf,
    shell: Mutex<Shell>,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    /// `None` only while dropping: closing it makes the guard clean up.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Process id of the server started last, whether or not it has ended.
    server: Option<u32>,
}

impl ServerGuard {
    /// Creates a folder named after `what` and a guard for it; runs nothing yet.
    pub(crate) fn new(what: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("testkit-{what}-")).tempdir()?;
        let mut child = Command::new("sh")
            .args(["-c", include_str!("guard.sh"), "testkit-guard"])
            .arg(folder.path())
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the guard shell")?;
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("the guard has no stdout")?);
        let shell = Mutex::new(Shell { child, commands, answers, server: None });
        // From here on the guard removes the folder.
        Ok(Self { folder: folder.keep(), shell })
    }

    /// Like [`ServerGuard::new`], for programs that refuse to run as root: they own the folder.
    pub(crate) fn for_unprivileged(what: &str) -> Result<Self> {
        let guard = Self::new(what)?;
        if running_as_root() {
            let id = |flag| -> Result<u32> {
                Ok(output(Command::new("id").args([flag, "postgres"]))?.trim().parse()?)
            };
            chown(&guard.folder, Some(id("-u")?), Some(id("-g")?))?;
        }
        Ok(guard)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts `words` in the background. An earlier server must have ended.
    pub(crate) fn start(&self, words: &[String]) -> Result<()> {
        ensure!(self.ended(), "the server still runs");
        let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
        let mut shell = self.shell();
        let answer = shell.ask(&format!("start {}", quoted.join(" ")))?;
        shell.server = Some(answer.parse()?);
        Ok(())
    }

    /// Runs `words` and waits for their end; fails with the log unless they succeed.
    pub(crate) fn run(&self, words: &[String], limit: Duration) -> Result<()> {
        self.start(words)?;
        self.wait_for_end(limit)?;
        let status = {
            let mut shell = self.shell();
            shell.server = None;
            shell.ask("status")?
        };
        ensure!(status == "0", "{words:?} ended with status {status}:\n{}", self.log_tail());
        Ok(())
    }

    /// Waits until `ready` holds, or fails with the log when the server ends before it does.
    pub(crate) fn wait_until_ready(&self, mut ready: impl FnMut() -> bool) -> Result<()> {
        let mut ended = false;
        wait_until("the server to be ready", START_LIMIT, || {
            ended = self.ended();
            ended || ready()
        })
        .with_context(|| self.log_tail())?;
        if ended {
            bail!("the server ended while starting:\n{}", self.log_tail());
        }
        Ok(())
    }

    /// Signals the server alone, as in `signal("INT")`.
    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        self.shell().ask(&format!("one {signal}")).map(drop)
    }

    /// Signals the server and its children.
    pub(crate) fn signal_all(&self, signal: &str) -> Result<()> {
        self.shell().ask(&format!("all {signal}")).map(drop)
    }

    /// Kills the server with its children, as a power cut would, and waits until it has ended.
    pub(crate) fn kill(&self) -> Result<()> {
        if self.ended() {
            return Ok(());
        }
        self.signal_all("KILL")?;
        self.wait_for_end(STOP_LIMIT)
    }

    pub(crate) fn wait_for_end(&self, limit: Duration) -> Result<()> {
        wait_until("the server to end", limit, || self.ended()).with_context(|| self.log_tail())
    }

    /// The process id of the server started last.
    pub(crate) fn server(&self) -> Option<u32> {
        self.shell().server
    }

    fn ended(&self) -> bool {
        let Some(server) = self.server() else {
            return true;
        };
        // The guard reaps late, so the id cannot belong to another process by now.
        let Ok(stat) = fs::read_to_string(format!("/proc/{server}/stat")) else {
            return true;
        };
        // The state follows the program name, which is in brackets.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn shell(&self) -> MutexGuard<'_, Shell> {
        self.shell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shell {
    fn ask(&mut self, command: &str) -> Result<String> {
        let commands = self.commands.as_mut().context("the guard is being dropped")?;
        writeln!(commands, "{command}").context("the guard is gone")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(!answer.is_empty(), "the guard is gone");
        Ok(answer.trim().to_owned())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.commands.take());
        // A failure here cannot be handled, and the guard does not need its owner.
        let _ = self.child.wait();
    }
}

/// Time limit for a server to start on a busy machine.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);

/// Time limit for a server to end.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Makes `words` run as the user `postgres` when this process is root.
pub(crate) fn unprivileged(words: Vec<String>) -> Vec<String> {
    if !running_as_root() {
        return words;
    }
    let prefix = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"];
    prefix.into_iter().map(str::to_owned).chain(words).collect()
}

fn running_as_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Runs a short command and returns its output; fails with its errors.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        done.status.success(),
        "{command:?} failed: {}{}",
        String::from_utf8_lossy(&done.stderr),
        String::from_utf8_lossy(&done.stdout),
    );
    Ok(String::from_utf8_lossy(&done.stdout).trim_end().to_owned())
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_server_as_given() {
        let guard = ServerGuard::new("words").unwrap();
        let words = ["echo", "it's", "", "$HOME \\ \"x\""].map(str::to_owned);
        guard.run(&words, STOP_LIMIT).unwrap();
        assert_eq!(guard.log_tail(), "it's  $HOME \\ \"x\"");
    }

    #[test]
    fn a_failed_run_shows_its_log() {
        let guard = ServerGuard::new("failure").unwrap();
        let words = ["sh", "-c", "echo no such luck; exit 3"].map(str::to_owned);
        let error = guard.run(&words, STOP_LIMIT).unwrap_err().to_string();
        assert!(error.contains("status 3") && error.contains("no such luck"), "{error}");
    }

    #[test]
    fn the_folder_goes_with_the_guard() {
        let guard = ServerGuard::new("folder").unwrap();
        let folder = guard.folder().to_owned();
        assert!(folder.exists());
        drop(guard);
        assert!(!folder.exists());
    }
}
