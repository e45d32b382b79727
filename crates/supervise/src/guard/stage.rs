//! Stages before a guard or a command: short-lived runs of this binary that set process attributes
//! which only the process itself can set.
//!
//! A command is started through [`exec`], which ties it to the life of the guard. An isolated guard
//! is started through [`isolate`]: it becomes the first process of a PID namespace, and the kernel
//! ends everything in it when the guard ends for any reason.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as Link;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal as Waited};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, Signal, getegid, geteuid, getppid, kill_process, set_parent_process_death_signal,
};
use rustix::stdio::dup2_stdin;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities,
};
use tenure_core::Mutant;

use super::channel;
use super::protocol::{GuardEvent, GuardReport};
use crate::error::{SuperviseError, SystemContext as _};
use crate::process_tree::{Reaped, reap};

/// Capabilities of a guard that is the first process of a PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// The capabilities of the user who started it.
    Own,
    /// A capability that was granted for the setup and must be dropped.
    Lent,
}

/// The role of this process, from the arguments of `tenure guard`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The guard itself: `[--init=own|lent] [SCRATCH]`.
    Guard {
        /// Set when it is the first process of a PID namespace.
        init: Option<Init>,
        /// A folder to remove at its end.
        scratch: Option<PathBuf>,
    },
    /// The parent of a guard in a PID namespace of its own: `--isolate [SCRATCH]`.
    Isolate {
        /// A folder that the guard removes at its end.
        scratch: Option<PathBuf>,
    },
    /// A process that becomes the command: `--exec PID -- COMMAND`.
    Exec {
        /// The process id of its guard.
        parent: i32,
        /// The program and its arguments.
        command: Vec<OsString>,
    },
}

/// Returns the socket that is the standard input of a stage.
pub(super) fn link() -> io::Result<Link> {
    io::stdin().as_fd().try_clone_to_owned().map(Link::from)
}

/// Becomes the command. The kernel kills it when the guard dies: the thread that started this
/// process is the guard's main thread, which lives as long as the guard.
pub(super) fn exec(parent: i32, command: &[OsString]) -> Result<(), SuperviseError> {
    let mut link = link().context("cannot use standard input")?;
    let Err(error) = become_command(&link, parent, command);
    let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
    // The guard reports it to the supervisor.
    link.write_all(&errno.to_le_bytes()).context("only a guard can start this stage")
}

fn become_command(link: &Link, parent: i32, command: &[OsString]) -> io::Result<Infallible> {
    let input = channel::receive_input(link)?;
    if !Mutant::R26Orphan.is_on() {
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        // The guard died before the parent-death signal was set.
        return Err(Errno::SRCH.into());
    }
    dup2_stdin(&input)?;
    let (program, words) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    Err(Command::new(program).args(words).exec())
}

/// Starts a guard as the first process of a PID namespace, and ends when it ends. When this process
/// is killed, the guard and its namespace are killed, too.
pub(super) fn isolate(scratch: Option<&Path>) -> Result<(), SuperviseError> {
    let _ = rustix::thread::set_name(c"tenure-isolate");
    // Signals to a whole group do not end the guard, so they must not end its parent.
    let signals = SigSet::all();
    signals.thread_block().context("cannot block signals")?;
    // When the supervisor dies, a stopped guard has to continue, and end its command.
    let _ = set_parent_process_death_signal(Some(Signal::CONT));
    let mut link = link().context("cannot use standard input")?;
    let init = match separate() {
        Ok(Init::Lent) => "--init=lent",
        Ok(Init::Own) => "--init=own",
        Err((what, error)) => return refuse(&mut link, what, &error),
    };
    let mut command = Command::new("/proc/self/exe");
    command.arg0("tenure").args(["guard", init]).args(scratch).process_group(0);
    let guard = match command.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            return refuse(&mut link, "cannot start a process in the PID namespace", &error);
        }
    };
    // Closed here, so that the socket closes when the guard ends.
    drop(link);
    let nothing = fs::File::open("/dev/null").context("cannot open /dev/null")?;
    dup2_stdin(nothing).context("cannot close the socket")?;
    loop {
        match signals.wait() {
            Ok(Waited::SIGCHLD) => loop {
                match reap() {
                    Reaped::One(..) => {}
                    Reaped::AllRunning => break,
                    Reaped::NoChildren => return Ok(()),
                }
            },
            Ok(Waited::SIGCONT) => {
                let _ = kill_process(guard, Signal::CONT);
            }
            _ => {}
        }
    }
}

/// Reports to the supervisor why the guard could not start.
fn refuse(link: &mut Link, what: &str, error: &io::Error) -> Result<(), SuperviseError> {
    let event = GuardEvent::CannotIsolate(format!("{what}: {error}"));
    let _ = link.write_all(GuardReport { id: 0, event }.to_line().as_bytes());
    Ok(())
}

/// Creates a PID and a mount namespace for the next child. Without the capability, it also creates
/// a user namespace, in which every user has the capability, and lends it to the child, which
/// mounts `/proc`.
fn separate() -> Result<Init, (&'static str, io::Error)> {
    let namespaces = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let lend = match unshare(namespaces) {
        Ok(()) => false,
        Err(nix::errno::Errno::EPERM) => {
            let made = unshare(namespaces | CloneFlags::CLONE_NEWUSER);
            made.map_err(|error| ("the kernel does not allow a PID namespace", error.into()))?;
            let same = |file: &str, id: u32| fs::write(file, format!("{id} {id} 1"));
            let mapped = fs::write("/proc/self/setgroups", "deny")
                .and_then(|()| same("/proc/self/gid_map", gid))
                .and_then(|()| same("/proc/self/uid_map", uid));
            mapped.map_err(|error| ("cannot map the user into the user namespace", error))?;
            true
        }
        Err(error) => return Err(("the kernel does not allow a PID namespace", error.into())),
    };
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    let set = mount_change("/", private);
    set.map_err(|error| ("the mount namespace cannot be made private", error.into()))?;
    // Root keeps its capabilities across exec.
    if !lend || uid == 0 {
        return Ok(Init::Own);
    }
    lend_capability().map_err(|error| ("cannot pass on a capability", error.into()))?;
    Ok(Init::Lent)
}

fn lend_capability() -> rustix::io::Result<()> {
    let ours = capabilities(None)?;
    let inheritable = ours.inheritable | CapabilitySet::SYS_ADMIN;
    set_capabilities(None, CapabilitySets { inheritable, ..ours })?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)
}

/// Prepares this process as the first of its PID namespace: it dies with its parent, and `/proc`
/// shows the namespace. Returns whether that succeeded.
pub(super) fn prepare_init(link: &mut Link, init: Init) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The mask is inherited from the parent, which blocks all signals.
    SigSet::empty().thread_set_mask()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if let Err(error) = mount("proc", "/proc", "proc", flags, None) {
        let _ = refuse(link, "cannot mount /proc in the PID namespace", &error.into());
        return Ok(false);
    }
    if init == Init::Lent {
        clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        let all = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, all)?;
    }
    link.write_all(GuardReport { id: 0, event: GuardEvent::Ready }.to_line().as_bytes())?;
    Ok(true)
}
