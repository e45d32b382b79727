//! Fleet of instances: processes that are started, stopped and killed.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::folder::Folder;
use crate::record::InstanceLog;

/// Settings of every instance.
#[derive(Clone, Debug)]
pub struct Crew {
    /// Program of an instance: this crate's own binary.
    pub program: PathBuf,
    /// The store's URL, through the proxy.
    pub url: String,
    /// The group.
    pub group: String,
    /// Number of duties.
    pub duties: u32,
    /// The TTL.
    pub ttl: Duration,
    /// Pause between two events of a duty.
    pub pace: Duration,
    /// Whether instances ignore their guards and the fence.
    pub careless: bool,
}

/// Processes in slots, and the folder for their files.
#[derive(Debug)]
pub(crate) struct Fleet {
    crew: Crew,
    started: usize,
    slots: Vec<Option<Running>>,
    problems: Problems,
    /// Dropped last: the processes write to it.
    folder: Folder,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Separate from the child: waiting for the child would close it.
    stdin: Option<ChildStdin>,
    number: usize,
}

/// Process failures: unexpected exits, and exits with an error.
#[derive(Clone, Debug, Default)]
struct Problems(Arc<Mutex<Vec<String>>>);

impl Problems {
    fn add(&self, problem: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
    }
}

/// Time limit for leaving, even while the store is unreachable for a TTL or two.
const LEAVING: Duration = Duration::from_secs(30);
/// Lines of an instance's standard error that are shown.
const LINES: usize = 10;

/// Returns the last lines of an instance's standard error.
fn tail(errors: &Path) -> String {
    let text = std::fs::read(errors).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

impl Fleet {
    pub(crate) fn new(crew: Crew, slots: usize) -> Result<Self> {
        let slots = (0..slots).map(|_| None).collect();
        let (folder, problems) = (Folder::new()?, Problems::default());
        Ok(Self { crew, folder, started: 0, slots, problems })
    }

    /// Starts an instance in a slot, unless one runs there.
    pub(crate) fn start(&mut self, slot: usize, revision: Option<&str>) -> Result<()> {
        self.look(slot);
        if self.slots[slot].is_some() {
            return Ok(());
        }
        let number = self.started;
        self.started += 1;
        let mut command = Command::new(&self.crew.program);
        command
            .arg("instance")
            .args(["--url", &self.crew.url, "--group", &self.crew.group])
            .args(["--duties", &self.crew.duties.to_string()])
            .args(["--ttl-ms", &self.crew.ttl.as_millis().to_string()])
            .args(["--pace-ms", &self.crew.pace.as_millis().to_string()])
            .arg("--file")
            .arg(self.file(number));
        if let Some(revision) = revision {
            command.args(["--revision", revision]);
        }
        if self.crew.careless {
            command.arg("--careless");
        }
        let errors = File::create(self.errors(number))?;
        let mut child = command
            // Its end tells the instance that the starter is gone. In a process group of its own,
            // the system also wakes and ends an instance that is stopped then.
            .stdin(Stdio::piped())
            // The last lines should contain the reason, not a backtrace.
            .env("RUST_BACKTRACE", "0")
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.crew.program.display()))?;
        let stdin = child.stdin.take();
        self.slots[slot] = Some(Running { child, stdin, number });
        Ok(())
    }

    fn file(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.txt"))
    }

    fn errors(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.err"))
    }

    /// Records a problem if the instance of a slot has ended by itself.
    fn look(&mut self, slot: usize) {
        let Some(running) = &mut self.slots[slot] else { return };
        if let Ok(Some(status)) = running.child.try_wait() {
            let number = running.number;
            let errors = tail(&self.errors(number));
            self.problems.add(format!("instance {number} ended by itself: {status} {errors}"));
            self.slots[slot] = None;
        }
    }

    /// Sends a signal to the instance of a slot; returns whether there is one.
    pub(crate) fn signal(&mut self, slot: usize, signal: Signal) -> bool {
        self.look(slot);
        let pid = self.pid(slot).and_then(|pid| i32::try_from(pid).ok());
        // It is our child and was not waited for, so its id was not reused.
        pid.is_some_and(|pid| kill(Pid::from_raw(pid), signal).is_ok())
    }

    /// Removes the instance from its slot after a signal that ends it.
    pub(crate) fn end(&mut self, slot: usize, with: Signal) -> Option<Leaving> {
        // A stopped instance would receive only KILL.
        self.signal(slot, Signal::SIGCONT);
        self.signal(slot, with);
        let Running { child, stdin, number } = self.slots[slot].take()?;
        let (file, errors) = (self.file(number), self.errors(number));
        let (asked, problems) = (with == Signal::SIGTERM, self.problems.clone());
        Some(Leaving { child, stdin, number, asked, file, errors, problems })
    }

    /// Returns the process id of a slot.
    pub(crate) fn pid(&self, slot: usize) -> Option<u32> {
        self.slots[slot].as_ref().and_then(|running| running.child.id())
    }

    /// Returns the records of all instances, in the order in which they were started.
    pub(crate) fn told(&self) -> Result<Vec<InstanceLog>> {
        let read = |number| InstanceLog::read(&self.file(number)).transpose();
        (0..self.started).filter_map(read).collect()
    }

    /// Returns process failures. An instance may exit with status 0 although its work has panicked.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for number in 0..self.started {
            let errors = tail(&self.errors(number));
            if errors.contains("panicked at") {
                problems.push(format!("instance {number} panicked: {errors}"));
            }
        }
        problems
    }

    /// Keeps the folder after the run, and returns its path.
    pub(crate) fn keep(&mut self) -> &Path {
        self.folder.keep()
    }
}

/// An instance that is ending. Its standard input stays open until it has ended.
#[derive(Debug)]
pub(crate) struct Leaving {
    child: Child,
    stdin: Option<ChildStdin>,
    number: usize,
    /// Whether it was asked to leave, so it has to exit without an error.
    asked: bool,
    file: PathBuf,
    errors: PathBuf,
    problems: Problems,
}

impl Leaving {
    /// Waits until it has ended; kills it after a time limit. It is a problem if it was asked to
    /// leave and did not exit without an error.
    pub(crate) async fn gone(mut self) -> Result<()> {
        let how = match timeout(LEAVING, self.child.wait()).await {
            Ok(status) => self.disorder(status?)?,
            Err(_) => {
                self.child.kill().await?;
                Some(format!("did not leave within {LEAVING:?}"))
            }
        };
        drop(self.stdin);
        if let Some(how) = how {
            let (number, errors) = (self.number, tail(&self.errors));
            self.problems.add(format!("instance {number} {how}: {errors}"));
        }
        Ok(())
    }

    /// Returns the fault in an instance's exit.
    fn disorder(&self, status: ExitStatus) -> Result<Option<String>> {
        if !self.asked || status.success() {
            return Ok(None);
        }
        // An instance that has not begun yet does not handle TERM.
        let early = status.signal() == Some(Signal::SIGTERM as i32);
        if early && InstanceLog::read(&self.file)?.is_none() {
            return Ok(None);
        }
        Ok(Some(format!("did not leave in order, {status}")))
    }
}
