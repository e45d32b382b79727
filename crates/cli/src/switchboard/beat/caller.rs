//! The process that calls this command: the connector, where a shell script is one.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, getpid};
use sha2::{Digest, Sha256};
use tenure_core::Clock;
use tenure_store::BootClock;
use uuid::Uuid;

use crate::guard::{look, proc_is_ours};

/// Clock ticks per second as `/proc` counts them: the same on every machine that Linux runs on
/// today.
const TICKS: u64 = 100;

/// Programs that only run another one.
const WRAPPERS: [&str; 9] =
    ["timeout", "sudo", "doas", "runuser", "flock", "setsid", "xargs", "time", "strace"];
/// Programs that fork to run a part of their script.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"];

/// No chain of wrappers is longer.
const DEEPEST: usize = 32;

/// A process, told from every other one by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pid: Pid,
    /// In ticks since boot.
    started: u64,
}

impl Caller {
    /// The process that has started this one. What stands between a script and its commands
    /// (`timeout`, a subshell) is new for each of them, so it is not the caller.
    pub(super) fn find() -> Option<Self> {
        if !proc_is_ours() {
            return None;
        }
        let mut caller = parent_of(getpid())?;
        for _ in 0..DEEPEST {
            let Some(above) = parent_of(caller.pid) else { break };
            if !is_between(&words(caller.pid), &words(above.pid)) {
                break;
            }
            caller = above;
        }
        Some(caller)
    }

    /// This process itself.
    pub(super) fn this() -> Option<Self> {
        at(getpid())
    }

    /// Whether it still runs.
    pub(super) fn is_there(self) -> bool {
        at(self.pid) == Some(self)
    }

    /// How long it runs.
    pub(super) fn uptime(self) -> Duration {
        let started = Duration::from_millis(self.started.saturating_mul(1000 / TICKS));
        Duration::from_nanos(BootClock.now().as_nanos()).saturating_sub(started)
    }

    /// A name that is the same for each call of this process and for no other process. Containers
    /// number their processes alike and share the boot, so their namespace is a part of it.
    pub(super) fn instance(self) -> Option<Uuid> {
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
    let entry = look(&pid.as_raw_pid().to_string()).filter(|entry| entry.alive)?;
    Some(Caller { pid, started: entry.started })
}

fn parent_of(pid: Pid) -> Option<Caller> {
    let entry = look(&pid.as_raw_pid().to_string())?;
    // There is none outside of a container.
    at(Pid::from_raw(entry.parent)?)
}

/// How a process was called.
fn words(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default()
}

/// Whether a process only stands between the one above it and what it runs.
fn is_between(words: &[u8], above: &[u8]) -> bool {
    let program = words.split(|byte| *byte == 0).next().unwrap_or_default();
    let program = String::from_utf8_lossy(program);
    let name = program.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    // A subshell is a copy of the shell, called as that was.
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
        assert!(me.is_there() && parent.is_there());
        let later = Caller { started: me.started + 1, ..me };
        assert!(!later.is_there());
        assert_ne!(later.instance(), me.instance());
        assert_eq!(me.instance().unwrap().get_version_num(), 8);
        // It started after the machine did, and not in the future.
        let boot = Duration::from_nanos(BootClock.now().as_nanos());
        assert!(me.uptime() < boot, "{me:?}");
        assert!(parent.uptime() >= me.uptime());
    }

    #[test]
    fn wrappers_and_subshells_stand_between() {
        let between = |words: &str, above: &str| {
            is_between(words.replace(' ', "\0").as_bytes(), above.replace(' ', "\0").as_bytes())
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
