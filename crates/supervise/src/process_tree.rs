//! Process tree below this process: found in `/proc`, and ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    pidfd_open, pidfd_send_signal, wait,
};

/// A process as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    pub(crate) pid: Pid,
    pub(crate) parent: i32,
    group: i32,
    /// False for a zombie, which runs nothing.
    pub(crate) alive: bool,
    /// Start time in ticks since boot. With the process id it identifies a process for ever.
    pub(crate) started: u64,
    /// Whether it is ending or has ended.
    pub(crate) exiting: bool,
    /// Whether that is because of a signal.
    pub(crate) killed: bool,
}

/// Flag of a process that is ending: its files are closed after it is set.
const PF_EXITING: u64 = 4;

/// Parses `/proc/PID/stat`. The program name may contain anything, so parsing starts behind its
/// last parenthesis.
fn parse_stat(stat: &str) -> Option<ProcessEntry> {
    let (pid, rest) = stat.split_once(' ')?;
    let fields: Vec<&str> = rest.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    Some(ProcessEntry {
        pid: Pid::from_raw(pid.parse().ok()?)?,
        parent: number(1)?,
        group: number(2)?,
        alive: !matches!(*fields.first()?, "Z" | "X"),
        started: fields.get(19)?.parse().ok()?,
        exiting: fields.get(6)?.parse::<u64>().ok()? & PF_EXITING != 0,
        // A wait status, known before the files are closed; its low bits are the signal.
        killed: fields.get(49).and_then(|code| code.parse::<i32>().ok()).unwrap_or(0) & 0x7f != 0,
    })
}

/// Reads one process; `None` when it has ended.
pub(crate) fn read_process(pid: &str) -> Option<ProcessEntry> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether `/proc` belongs to the PID namespace of this process. After `unshare` it may still be
/// that of the previous one, in which the ids name other processes.
pub(crate) fn proc_is_ours() -> bool {
    let me = fs::read_link("/proc/self").ok();
    me.and_then(|me| me.to_str()?.parse().ok()) == Some(getpid().as_raw_pid())
}

/// Lists every process alive below this one, except those in `spared` and their descendants.
fn descendants(spared: &[Pid]) -> Vec<ProcessEntry> {
    let mut found = all_below(getpid(), spared);
    found.retain(|entry| entry.alive);
    found
}

/// Lists every process below `root`, with zombies, except those in `spared` and their descendants.
pub(crate) fn all_below(root: Pid, spared: &[Pid]) -> Vec<ProcessEntry> {
    if !proc_is_ours() {
        return Vec::new();
    }
    let Ok(names) = fs::read_dir("/proc") else { return Vec::new() };
    let mut children: BTreeMap<i32, Vec<ProcessEntry>> = BTreeMap::new();
    for name in names.flatten().filter_map(|name| name.file_name().into_string().ok()) {
        if name.bytes().all(|byte| byte.is_ascii_digit())
            && let Some(entry) = read_process(&name)
        {
            children.entry(entry.parent).or_default().push(entry);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![root.as_raw_pid()]);
    // The table may contain a cycle, because it was read while processes started and ended.
    let mut seen = BTreeSet::new();
    while let Some(parent) = next.pop() {
        if !seen.insert(parent) {
            continue;
        }
        for child in children.get(&parent).into_iter().flatten() {
            if !spared.contains(&child.pid) {
                found.push(*child);
                next.push(child.pid.as_raw_pid());
            }
        }
    }
    found
}

/// Returns the id that a process in the PID namespace of `guard` has here. `inside` is its id in
/// that namespace.
pub(crate) fn outside_pid(guard: Pid, inside: Pid) -> Option<Pid> {
    let names = fs::read_dir("/proc").ok()?.flatten();
    let pids = names.filter_map(|name| name.file_name().to_str()?.parse::<i32>().ok());
    let mut same = pids.filter(|pid| innermost(*pid) == Some(inside.as_raw_pid()));
    let found = same.find(|pid| {
        // Other namespaces use the same numbers.
        let mut above =
            std::iter::successors(Some(*pid), |pid| Some(read_process(&pid.to_string())?.parent));
        above.any(|pid| pid == guard.as_raw_pid())
    });
    Pid::from_raw(found?)
}

/// Returns the id of a process in the innermost PID namespace that it is in.
fn innermost(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Sends a signal to a process group, if it still exists, and to every descendant.
pub(crate) fn signal_all(group: Option<Pid>, signal: Signal) {
    let found = descendants(&[]);
    let in_group =
        |entry: &ProcessEntry| group.is_some_and(|group| entry.group == group.as_raw_pid());
    if let Some(group) = group {
        // An error means that the group has already ended.
        let _ = kill_process_group(group, signal);
    }
    for entry in found.iter().filter(|entry| !in_group(entry)) {
        let _ = send(entry, signal);
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Killed {
    /// A process that still ran.
    pub(crate) one: Option<Pid>,
    /// A process of another user, which this one may not kill.
    pub(crate) denied: Option<Pid>,
}

/// Kills a process group, if it still exists, and every descendant.
pub(crate) fn kill_all(group: Option<Pid>) -> Killed {
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let mut killed = Killed { one: None, denied: None };
    for entry in descendants(&[]) {
        killed.one = Some(entry.pid);
        if send(&entry, Signal::KILL) == Err(Errno::PERM) {
            killed.denied = Some(entry.pid);
        }
    }
    killed
}

/// Kills all descendants that belong to a dead guard: all except `guards` and their descendants.
/// Returns one of them.
pub(crate) fn kill_strays(guards: &[Pid]) -> Option<Pid> {
    let found = descendants(guards);
    for entry in &found {
        let _ = send(entry, Signal::KILL);
    }
    found.first().map(|entry| entry.pid)
}

/// Describes a process that cannot be ended.
pub(crate) fn survivor(pid: i32, meanwhile: &str) -> String {
    format!(
        "process {pid} is still running although it was killed (it belongs to another user or is \
         stuck in the kernel); {meanwhile}"
    )
}

/// Backoff between attempts to kill: a process may fork before it dies. It is short at first,
/// because most processes end at once, and grows, because one may never end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KillBackoff(Duration);

impl KillBackoff {
    const INITIAL_DELAY: Duration = Duration::from_millis(5);
    const MAX_DELAY: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> Self {
        Self(Self::INITIAL_DELAY)
    }

    /// Returns the delay before the next attempt.
    pub(crate) fn next(&mut self) -> Duration {
        let delay = self.0;
        self.0 = (delay * 2).min(Self::MAX_DELAY);
        delay
    }

    /// Whether the attempts have taken more than a second, which is worth a warning.
    pub(crate) fn is_stuck(&self) -> bool {
        self.0 == Self::MAX_DELAY
    }
}

/// State of the children of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reaped {
    /// One has ended or was stopped.
    One(Pid, WaitStatus),
    AllRunning,
    /// There are none. For a child subreaper: nothing runs below it.
    NoChildren,
}

pub(crate) fn reap() -> Reaped {
    match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
        Ok(Some((pid, status))) => Reaped::One(pid, status),
        Ok(None) => Reaped::AllRunning,
        Err(_) => Reaped::NoChildren,
    }
}

/// Reaps every child that has ended: orphans become children of a subreaper or PID 1.
pub(crate) fn reap_all() {
    while let Reaped::One(..) = reap() {}
}

/// Sends a signal by pidfd: a process id may be reused as soon as its owner is reaped.
fn send(entry: &ProcessEntry, signal: Signal) -> rustix::io::Result<()> {
    let process = pidfd_open(entry.pid, PidfdFlags::empty());
    let now = read_process(&entry.pid.as_raw_pid().to_string());
    match process {
        // The process has already ended.
        _ if now.is_none_or(|now| now.started != entry.started) => Ok(()),
        Ok(process) => pidfd_send_signal(process, signal),
        Err(_) => kill_process(entry.pid, signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_pretend_to_be_more() {
        let rest = "S 1 41 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 99 1 1 1";
        let entry = parse_stat(&format!("42 (a) R 7 (b) {rest}")).unwrap();
        assert_eq!((entry.pid.as_raw_pid(), entry.parent, entry.group), (42, 1, 41));
        assert_eq!((entry.alive, entry.started), (true, 99));
        assert!(!entry.exiting && !entry.killed);
        assert_eq!(parse_stat("42 (a) Z 1"), None);
    }

    #[test]
    fn what_cannot_be_killed_is_looked_for_less_and_less() {
        let mut backoff = KillBackoff::new();
        assert_eq!(backoff.next(), Duration::from_millis(5));
        let mut waited = Duration::from_millis(5);
        while !backoff.is_stuck() {
            waited += backoff.next();
        }
        assert!(waited > Duration::from_secs(1) && waited < Duration::from_secs(2), "{waited:?}");
        assert_eq!([backoff.next(), backoff.next()], [Duration::from_secs(1); 2]);
    }

    #[test]
    fn this_process_can_read_its_own_table() {
        assert!(proc_is_ours());
        assert_eq!(read_process("self").unwrap().pid, getpid());
    }
}
