//! The instances: processes that are started, stopped and killed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::line::Told;

/// What each instance is started with.
#[derive(Clone, Debug)]
pub struct Crew {
    /// The program that is an instance: this crate's own binary.
    pub program: PathBuf,
    /// The store's URL, through the proxy.
    pub url: String,
    /// The group.
    pub group: String,
    /// How many duties.
    pub duties: u32,
    /// The TTL.
    pub ttl: Duration,
    /// Between two events of a duty.
    pub pace: Duration,
    /// Whether they ignore their guards and the fence.
    pub careless: bool,
}

/// Processes in slots, and the folder with what they write.
#[derive(Debug)]
pub(crate) struct Fleet {
    crew: Crew,
    folder: TempDir,
    started: usize,
    slots: Vec<Option<Running>>,
    /// What went wrong with processes: one that ended although nobody asked it to.
    pub(crate) problems: Vec<String>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Apart from the child: who waits for that would close it.
    stdin: Option<ChildStdin>,
    number: usize,
}

/// How long an instance may take to leave.
const LEAVING: Duration = Duration::from_secs(30);

impl Fleet {
    pub(crate) fn new(crew: Crew, slots: usize) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("chaos-").tempdir()?;
        let slots = (0..slots).map(|_| None).collect();
        Ok(Self { crew, folder, started: 0, slots, problems: Vec::new() })
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
            // Its end tells the instance that nobody is left; a group of its own makes the system
            // wake and end it also when it stands still then.
            .stdin(Stdio::piped())
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

    /// Notes when the instance of a slot has ended by itself.
    fn look(&mut self, slot: usize) {
        let Some(running) = &mut self.slots[slot] else { return };
        if let Ok(Some(status)) = running.child.try_wait() {
            let number = running.number;
            let errors = std::fs::read_to_string(self.errors(number)).unwrap_or_default();
            self.problems.push(format!("instance {number} ended by itself: {status} {errors}"));
            self.slots[slot] = None;
        }
    }

    /// Sends a signal to the instance of a slot, if there is one.
    pub(crate) fn signal(&mut self, slot: usize, signal: Signal) {
        self.look(slot);
        let pid = self.slots[slot].as_ref().and_then(|running| running.child.id());
        if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
            // It is our child and was not waited for, so the id is still its own.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Takes the instance out of its slot after a signal that ends it.
    pub(crate) fn end(&mut self, slot: usize, with: Signal) -> Option<Leaving> {
        // One that stands still hears nothing but a kill.
        self.signal(slot, Signal::SIGCONT);
        self.signal(slot, with);
        self.slots[slot].take().map(|running| Leaving(running.child, running.stdin))
    }

    /// The process in a slot.
    pub(crate) fn pid(&self, slot: usize) -> Option<u32> {
        self.slots[slot].as_ref().and_then(|running| running.child.id())
    }

    /// Everything that all instances wrote, in the order in which they were started.
    pub(crate) fn told(&self) -> Result<Vec<Told>> {
        let read = |number| Told::read(&self.file(number)).transpose();
        (0..self.started).filter_map(read).collect()
    }

    /// Where all of this is, and stays from now on.
    pub(crate) fn keep(&mut self) -> &Path {
        self.folder.disable_cleanup(true);
        self.folder.path()
    }
}

/// An instance on its way out. It has to hear its starter until it is gone.
#[derive(Debug)]
pub(crate) struct Leaving(Child, Option<ChildStdin>);

impl Leaving {
    /// Waits until it is gone; one that takes too long is killed.
    pub(crate) async fn gone(self) -> Result<()> {
        let Self(mut child, stdin) = self;
        if timeout(LEAVING, child.wait()).await.is_err() {
            child.kill().await?;
        }
        drop(stdin);
        Ok(())
    }
}
