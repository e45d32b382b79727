//! The processes below this one: found in `/proc`, and ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    pidfd_open, pidfd_send_signal, wait,
};

/// A process as `/proc` tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pid: Pid,
    pub(crate) parent: i32,
    group: i32,
    /// A zombie runs nothing.
    pub(crate) alive: bool,
    /// With the process id, it is the name of one process for ever. In ticks since boot.
    pub(crate) started: u64,
}

/// Reads one line of `/proc/PID/stat`. The name in it may hold anything, so it is skipped from
/// behind.
fn entry(stat: &str) -> Option<Entry> {
    let (pid, rest) = stat.split_once(' ')?;
    let fields: Vec<&str> = rest.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    Some(Entry {
        pid: Pid::from_raw(pid.parse().ok()?)?,
        parent: number(1)?,
        group: number(2)?,
        alive: !matches!(*fields.first()?, "Z" | "X"),
        started: fields.get(19)?.parse().ok()?,
    })
}

/// Looks at one process.
pub(crate) fn look(pid: &str) -> Option<Entry> {
    // What has ended between two looks is not there.
    entry(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether `/proc` numbers processes as this process does: after a change of the PID namespace it
/// may still be the one of before, and its numbers would name others.
pub(crate) fn proc_is_ours() -> bool {
    let me = fs::read_link("/proc/self").ok();
    me.and_then(|me| me.to_str()?.parse().ok()) == Some(getpid().as_raw_pid())
}

/// Everything alive below this process, except `spared` ones and what is below those.
fn below(spared: &[Pid]) -> Vec<Entry> {
    if !proc_is_ours() {
        return Vec::new();
    }
    let Ok(names) = fs::read_dir("/proc") else { return Vec::new() };
    let mut children: BTreeMap<i32, Vec<Entry>> = BTreeMap::new();
    for name in names.flatten().filter_map(|name| name.file_name().into_string().ok()) {
        if name.bytes().all(|byte| byte.is_ascii_digit())
            && let Some(entry) = look(&name)
        {
            children.entry(entry.parent).or_default().push(entry);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![getpid().as_raw_pid()]);
    // Seen while it changes, the table may have a loop.
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
    found.retain(|entry| entry.alive);
    found
}

/// The id that a process in the PID namespace of `guard` has here. `inside` is its id in there.
pub(super) fn outside(guard: Pid, inside: Pid) -> Option<Pid> {
    let names = fs::read_dir("/proc").ok()?.flatten();
    let pids = names.filter_map(|name| name.file_name().to_str()?.parse::<i32>().ok());
    let mut same = pids.filter(|pid| innermost(*pid) == Some(inside.as_raw_pid()));
    let found = same.find(|pid| {
        // Other namespaces have the same numbers.
        let mut above =
            std::iter::successors(Some(*pid), |pid| Some(look(&pid.to_string())?.parent));
        above.any(|pid| pid == guard.as_raw_pid())
    });
    Pid::from_raw(found?)
}

/// The id of a process in the innermost PID namespace that it is in.
fn innermost(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Sends a signal to a group, if it is still there, and to everything below this process.
pub(super) fn signal_all(group: Option<Pid>, signal: Signal) {
    let found = below(&[]);
    let in_group = |entry: &Entry| group.is_some_and(|group| entry.group == group.as_raw_pid());
    if let Some(group) = group {
        // It has ended: that is what is wanted.
        let _ = kill_process_group(group, signal);
    }
    for entry in found.iter().filter(|entry| !in_group(entry)) {
        let _ = send(entry, signal);
    }
}

/// What was killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Killed {
    /// One that ran until then.
    pub(super) one: Option<Pid>,
    /// One that may not be killed: a process of another user.
    pub(super) denied: Option<Pid>,
}

/// Kills a group, if it is still there, and everything below this process.
pub(super) fn kill_all(group: Option<Pid>) -> Killed {
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let mut killed = Killed { one: None, denied: None };
    for entry in below(&[]) {
        killed.one = Some(entry.pid);
        if send(&entry, Signal::KILL) == Err(Errno::PERM) {
            killed.denied = Some(entry.pid);
        }
    }
    killed
}

/// Kills everything below this process but the guards that still stand and what is theirs: it
/// belonged to a guard that died. Names one, if there was anything.
pub(crate) fn kill_strays(guards: &[Pid]) -> Option<Pid> {
    let found = below(guards);
    for entry in &found {
        let _ = send(entry, Signal::KILL);
    }
    found.first().map(|entry| entry.pid)
}

/// The pauses between two looks whether what was killed is gone: it may have forked before it
/// died. Short, because it mostly is; longer and longer, because it may never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pauses(Duration);

impl Pauses {
    const FIRST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> Self {
        Self(Self::FIRST)
    }

    /// How long to wait this time.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Self::LONGEST);
        pause
    }

    /// Whether it has taken so long, more than a second, that somebody should know.
    pub(crate) fn are_long(&self) -> bool {
        self.0 == Self::LONGEST
    }
}

/// What became of the children of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reaped {
    /// One has ended, or was stopped.
    One(Pid, WaitStatus),
    /// All that there are run.
    AllRun,
    /// There are none. To a child subreaper this says that nothing at all runs below it.
    Nobody,
}

/// Reaps one child; a child subreaper, or PID 1, has to.
pub(crate) fn reap() -> Reaped {
    match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
        Ok(Some((pid, status))) => Reaped::One(pid, status),
        Ok(None) => Reaped::AllRun,
        Err(_) => Reaped::Nobody,
    }
}

/// Reaps every child that has ended: a child subreaper, or PID 1, is the parent of whoever lost
/// theirs.
pub(crate) fn reap_all() {
    while let Reaped::One(..) = reap() {}
}

/// A process id may be given to another process as soon as its owner is reaped; a pidfd may not.
fn send(entry: &Entry, signal: Signal) -> rustix::io::Result<()> {
    let process = pidfd_open(entry.pid, PidfdFlags::empty());
    match (same(entry), process) {
        (true, Ok(process)) => pidfd_send_signal(process, signal),
        (true, Err(_)) => kill_process(entry.pid, signal),
        // It has ended: that is what is wanted.
        (false, _) => Ok(()),
    }
}

fn same(entry: &Entry) -> bool {
    let now = look(&entry.pid.as_raw_pid().to_string());
    now.is_some_and(|now| now.started == entry.started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_pretend_to_be_more() {
        let rest = "S 1 41 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 99 1 1 1";
        let entry = entry(&format!("42 (a) R 7 (b) {rest}")).unwrap();
        assert_eq!((entry.pid.as_raw_pid(), entry.parent, entry.group), (42, 1, 41));
        assert_eq!((entry.alive, entry.started), (true, 99));
        assert_eq!(super::entry("42 (a) Z 1"), None);
    }

    #[test]
    fn what_cannot_be_killed_is_looked_for_less_and_less() {
        let mut pauses = Pauses::new();
        assert_eq!(pauses.next(), Duration::from_millis(5));
        let mut waited = Duration::from_millis(5);
        while !pauses.are_long() {
            waited += pauses.next();
        }
        assert!(waited > Duration::from_secs(1) && waited < Duration::from_secs(2), "{waited:?}");
        assert_eq!([pauses.next(), pauses.next()], [Duration::from_secs(1); 2]);
    }

    #[test]
    fn this_process_can_read_its_own_table() {
        assert!(proc_is_ours());
        assert_eq!(look("self").unwrap().pid, getpid());
    }
}
