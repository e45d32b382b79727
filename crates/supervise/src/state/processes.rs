//! Processes of a command that may be writing its state file.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::OFlags;
use rustix::process::Pid;

use crate::process_tree::{ProcessEntry, all_below, read_process};

/// Attempts to list the processes by their parents.
const MAX_LISTINGS: u32 = 3;

/// Processes of a command at one instant. One that was reaped by its parent is not among them.
#[derive(Debug)]
pub(super) struct CommandProcesses {
    all: Vec<ProcessEntry>,
    /// Whether the guard and the first process run.
    stands: bool,
}

/// State of the processes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandState {
    /// The guard and the first process run, and none is ending.
    Alive,
    /// A process is ending, or one of these two has ended; the reason is not known.
    Ending,
    /// A signal is ending a process, or has ended it.
    Killed,
}

/// Processes that a signal has ended and whose parent has not reaped them, with their start times.
pub(super) type KilledProcesses = BTreeSet<(i32, u64)>;

impl CommandProcesses {
    /// Reads the processes below a guard; `first` is the one that it has started.
    pub(super) fn read(guard: Pid, first: Option<Pid>) -> Self {
        let runs = |pid: Pid| process(pid).is_some_and(|entry| !entry.exiting);
        let mut before = None;
        for _ in 0..MAX_LISTINGS {
            let all = by_parents(guard);
            // A list of children may lack some when one of them ends meanwhile.
            if all.is_some() && all == before {
                break;
            }
            before = all;
        }
        let all = before.unwrap_or_else(|| all_below(guard, &[]));
        Self { all, stands: runs(guard) && first.is_some_and(runs) }
    }

    /// Returns the state. Processes in `known` were killed before, and do not count.
    pub(super) fn state(&self, known: &KilledProcesses) -> CommandState {
        if self.ending().any(|entry| entry.killed) || !self.killed().is_subset(known) {
            CommandState::Killed
        } else if self.stands && !self.are_ending() {
            CommandState::Alive
        } else {
            CommandState::Ending
        }
    }

    /// Whether one of them is ending, and may still have to close its files.
    pub(super) fn are_ending(&self) -> bool {
        self.ending().next().is_some()
    }

    fn ending(&self) -> impl Iterator<Item = &ProcessEntry> {
        // A zombie has closed its files.
        self.all.iter().filter(|entry| entry.exiting && entry.alive)
    }

    /// Returns those that were killed.
    pub(super) fn killed(&self) -> KilledProcesses {
        let killed = self.all.iter().filter(|entry| entry.killed && !entry.alive);
        killed.map(|entry| (entry.pid.as_raw_pid(), entry.started)).collect()
    }

    /// Whether one of them has a file open for writing.
    pub(super) fn are_writing(&self, device: u64, inode: u64) -> bool {
        let files =
            |entry: &ProcessEntry| fs::read_dir(format!("/proc/{}/fd", entry.pid.as_raw_pid()));
        let writes = |file: fs::DirEntry| {
            let same = fs::metadata(file.path());
            if !same.is_ok_and(|found| found.dev() == device && found.ino() == inode) {
                return false;
            }
            let info = file.path().to_string_lossy().replacen("/fd/", "/fdinfo/", 1);
            let info = fs::read_to_string(info).unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
            flags.is_some_and(|flags| flags & OFlags::RWMODE.bits() != OFlags::RDONLY.bits())
        };
        let alive = self.all.iter().filter(|entry| entry.alive);
        alive.filter_map(|entry| files(entry).ok()).flatten().flatten().any(writes)
    }
}

fn process(pid: Pid) -> Option<ProcessEntry> {
    read_process(&pid.as_raw_pid().to_string())
}

/// Lists the processes below this one from parent to child: the whole table is long. `None` if the
/// kernel does not keep these lists.
fn by_parents(root: Pid) -> Option<Vec<ProcessEntry>> {
    let (mut found, mut next) = (Vec::new(), vec![root]);
    while let Some(parent) = next.pop() {
        let tasks = fs::read_dir(format!("/proc/{}/task", parent.as_raw_pid()));
        // It has ended, if there are none.
        for task in tasks.into_iter().flatten().flatten() {
            let children = match fs::read_to_string(task.path().join("children")) {
                Ok(children) => children,
                Err(_) if task.path().exists() => return None,
                Err(_) => continue,
            };
            let children = children.split_ascii_whitespace().filter_map(read_process);
            let children: Vec<ProcessEntry> = children.collect();
            next.extend(children.iter().map(|child| child.pid));
            found.extend(children);
        }
    }
    Some(found)
}
