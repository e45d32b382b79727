//! Calling process: identifies the script or program that started this process.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, getpid};
use sha2::{Digest, Sha256};
use tenure_core::Clock;
use tenure_store::BootClock;
use uuid::Uuid;

use crate::process_tree::{proc_is_ours, read_process};

/// Clock ticks per second in `/proc`: 100 on every architecture of Linux today.
const TICKS_PER_SECOND: u64 = 100;

/// Programs that only run another program.
const WRAPPERS: [&str; 9] =
    ["timeout", "sudo", "doas", "runuser", "flock", "setsid", "xargs", "time", "strace"];
/// Shells: they fork to run a part of their script.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"];

/// The longest chain of wrappers that is followed.
const MAX_WRAPPERS: usize = 32;

/// A process, identified by its id and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pid: Pid,
    /// In ticks since boot.
    started: u64,
}

impl Caller {
    /// Finds the process that started this one. Wrappers between a script and its commands
    /// (`timeout`, a subshell) are new for each command, so they are skipped.
    pub fn find() -> Option<Self> {
        if !proc_is_ours() {
            return None;
        }
        let mut caller = parent_of(getpid())?;
        for _ in 0..MAX_WRAPPERS {
            let Some(above) = parent_of(caller.pid) else { break };
            if !is_wrapper(&command_line(caller.pid), &command_line(above.pid)) {
                break;
            }
            caller = above;
        }
        Some(caller)
    }

    /// Returns this process itself.
    pub fn this() -> Option<Self> {
        at(getpid())
    }

    /// Whether the process still runs.
    pub fn is_alive(self) -> bool {
        at(self.pid) == Some(self)
    }

    /// Time since the process started.
    pub fn uptime(self) -> Duration {
        let started = Duration::from_millis(self.started.saturating_mul(1000 / TICKS_PER_SECOND));
        Duration::from_nanos(BootClock.now().as_nanos()).saturating_sub(started)
    }

    /// Returns an id that is the same for each call by this process and for no other process. It
    /// includes the PID namespace: containers of one host use the same numbers.
    pub fn instance(self) -> Option<Uuid> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        let parts = [
            boot.trim().to_owned(),
            namespace.to_string_lossy().into_owned(),
            self.pid.as_raw_pid().to_string(),
            self.started.to_string(),
        ];
        let hash = Sha256::digest(parts.join("\n"));
        let bytes = hash.first_chunk()?;
        Some(uuid::Builder::from_custom_bytes(*bytes).into_uuid())
    }
}

fn at(pid: Pid) -> Option<Caller> {
    let entry = read_process(&pid.as_raw_pid().to_string()).filter(|entry| entry.alive)?;
    Some(Caller { pid, started: entry.started })
}

fn parent_of(pid: Pid) -> Option<Caller> {
    let entry = read_process(&pid.as_raw_pid().to_string())?;
    // A parent outside of the container is not visible.
    at(Pid::from_raw(entry.parent)?)
}

fn command_line(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default()
}

/// Whether a process only wraps a command of its parent.
fn is_wrapper(words: &[u8], above: &[u8]) -> bool {
    let program = words.split(|byte| *byte == 0).next().unwrap_or_default();
    let program = String::from_utf8_lossy(program);
    let name = program.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    // A subshell is a copy of the shell, with the same command line.
    WRAPPERS.contains(&name) || SHELLS.contains(&name) && words == above
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_others() {
        let (me, parent) = (Caller::this().unwrap(), Caller::find().unwrap());
        assert_ne!(me, parent);
        assert_eq!(Caller::find(), Some(parent));
        assert_eq!(parent.instance(), parent.instance());
        assert_ne!(parent.instance(), me.instance());
        assert!(me.is_alive() && parent.is_alive());
        let later = Caller { started: me.started + 1, ..me };
        assert!(!later.is_alive());
        assert_ne!(later.instance(), me.instance());
        assert_eq!(me.instance().unwrap().get_version_num(), 8);
        // The start lies between boot and now.
        let boot = Duration::from_nanos(BootClock.now().as_nanos());
        assert!(me.uptime() < boot, "{me:?}");
        assert!(parent.uptime() >= me.uptime());
    }

    #[test]
    fn wrappers_and_subshells_stand_between() {
        let between = |words: &str, above: &str| {
            is_wrapper(words.replace(' ', "\0").as_bytes(), above.replace(' ', "\0").as_bytes())
        };
        assert!(between("timeout 10 tenure beat", "sh a.sh"));
        assert!(between("/usr/bin/sudo tenure beat", "sh a.sh"));
        assert!(between("sh a.sh", "sh a.sh"));
        assert!(between("-bash", "-bash"));
        assert!(!between("sh a.sh", "sh b.sh"));
        assert!(!between("sh -c tenure", "sh a.sh"));
        // Workers that a server has forked are not parts of one script.
        assert!(!between("python3 worker.py", "python3 worker.py"));
        assert!(!between("", ""));
    }
}
