//! Stages on the way to a guard or a command: short-lived forms of this binary that ask the kernel
//! for what a process can only ask for itself.
//!
//! A command is started by way of [`exec`], which ties it to the life of the guard. With
//! `--isolate` the guard is started by way of [`isolate`]: it becomes the first process of a PID
//! namespace, and the kernel ends everything in there when the guard ends, however it does.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as Link;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::ValueEnum;
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

use super::link;
use super::tree::{Reaped, reap};
use super::words::Report;
use crate::failure::Failure;

/// What one form of this binary tells the next.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Be the parent of a guard in a PID namespace of its own
    #[arg(long)]
    isolate: bool,
    /// Be the guard in there
    #[arg(long, value_enum)]
    init: Option<Init>,
    /// Become the command, and go with its guard, the process of this id
    #[arg(long, value_name = "PID")]
    exec: Option<i32>,
    /// A folder to remove in the end
    scratch: Option<PathBuf>,
    /// The command of --exec
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// The first process of a PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Init {
    /// With the rights of whoever started it.
    Own,
    /// With a right that it has to give up.
    Lent,
}

/// What this process is on the way to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The guard itself.
    Guard { init: Option<Init>, scratch: Option<PathBuf> },
    /// The parent of a guard in a PID namespace of its own.
    Isolate { scratch: Option<PathBuf> },
    /// A command of which the process `parent` is the guard.
    Exec { parent: i32, command: Vec<OsString> },
}

impl Args {
    pub(crate) fn stage(&self) -> Stage {
        let Self { isolate, init, exec, scratch, command } = self;
        let scratch = scratch.clone();
        match exec {
            Some(parent) => Stage::Exec { parent: *parent, command: command.clone() },
            None if *isolate => Stage::Isolate { scratch },
            None => Stage::Guard { init: *init, scratch },
        }
    }
}

/// The end of the socket that is the standard input of a stage.
pub(super) fn link() -> io::Result<Link> {
    io::stdin().as_fd().try_clone_to_owned().map(Link::from)
}

/// Becomes the command. The kernel kills it when the guard dies: the thread that started this
/// process is the guard's first, which lives as long as the guard.
pub(super) fn exec(parent: i32, command: &[OsString]) -> Result<(), Failure> {
    let mut link = link().context("cannot use standard input")?;
    let Err(error) = become_command(&link, parent, command);
    let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
    // The guard tells whoever asked for the command.
    let told = link.write_all(&errno.to_le_bytes());
    Ok(told.context("a stage is started by a guard, not by hand")?)
}

fn become_command(link: &Link, parent: i32, command: &[OsString]) -> io::Result<Infallible> {
    let input = link::receive_input(link)?;
    if !Mutant::R26Orphan.is_on() {
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        // The guard died before this process could say that it wants to go with it.
        return Err(Errno::SRCH.into());
    }
    dup2_stdin(&input)?;
    let (program, words) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    Err(Command::new(program).args(words).exec())
}

/// Starts a guard as the first process of a PID namespace, and ends with it. When this process is
/// killed, so is the guard, and with the guard the namespace.
pub(super) fn isolate(scratch: Option<&Path>) -> Result<(), Failure> {
    let _ = rustix::thread::set_name(c"tenure-isolate");
    // Signals to everybody do not end the guard, so they must not end its parent.
    let signals = SigSet::all();
    signals.thread_block().map_err(io::Error::from).context("cannot block signals")?;
    // When `tenure` dies, a guard that was stopped has to go on, and end its command.
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
        Err(error) => return refuse(&mut link, "a process in it cannot be started", &error),
    };
    // When the guard ends, so does its socket.
    drop(link);
    let nothing = fs::File::open("/dev/null").context("cannot open /dev/null")?;
    dup2_stdin(nothing).map_err(io::Error::from).context("cannot close the socket")?;
    loop {
        match signals.wait() {
            Ok(Waited::SIGCHLD) => loop {
                match reap() {
                    Reaped::One(..) => {}
                    Reaped::AllRun => break,
                    Reaped::Nobody => return Ok(()),
                }
            },
            Ok(Waited::SIGCONT) => {
                let _ = kill_process(guard, Signal::CONT);
            }
            _ => {}
        }
    }
}

/// Tells `tenure` why there is no guard.
fn refuse(link: &mut Link, what: &str, error: &io::Error) -> Result<(), Failure> {
    let detail = format!("{what}: {error}");
    let _ = link.write_all(Report::CannotIsolate { detail }.line().as_bytes());
    Ok(())
}

/// Gives the next child namespaces of its own for process ids and mounts. Without the right to do
/// so, it takes a user namespace, in which everybody has it; then that right has to be lent to the
/// child, which mounts `/proc`.
fn separate() -> Result<Init, (&'static str, io::Error)> {
    let parts = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let lend = match unshare(parts) {
        Ok(()) => false,
        Err(nix::errno::Errno::EPERM) => {
            let made = unshare(parts | CloneFlags::CLONE_NEWUSER);
            made.map_err(|error| ("the kernel allows no PID namespace", error.into()))?;
            let same = |file: &str, id: u32| fs::write(file, format!("{id} {id} 1"));
            let mapped = fs::write("/proc/self/setgroups", "deny")
                .and_then(|()| same("/proc/self/gid_map", gid))
                .and_then(|()| same("/proc/self/uid_map", uid));
            mapped.map_err(|error| ("the user cannot be mapped", error))?;
            true
        }
        Err(error) => return Err(("the kernel allows no PID namespace", error.into())),
    };
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    let set = mount_change("/", private);
    set.map_err(|error| ("mounts cannot be separated", error.into()))?;
    // Root keeps its rights when it starts a program.
    if !lend || uid == 0 {
        return Ok(Init::Own);
    }
    lend_rights().map_err(|error| ("rights cannot be passed on", error.into()))?;
    Ok(Init::Lent)
}

fn lend_rights() -> rustix::io::Result<()> {
    let ours = capabilities(None)?;
    let inheritable = ours.inheritable | CapabilitySet::SYS_ADMIN;
    set_capabilities(None, CapabilitySets { inheritable, ..ours })?;
    configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)
}

/// Makes this process at home in its PID namespace: it goes with its parent, and `/proc` shows the
/// processes in here. Says whether it is ready.
pub(super) fn settle(link: &mut Link, init: Init) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Its parent has blocked them all, which is inherited.
    SigSet::empty().thread_set_mask()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mounted = mount("proc", "/proc", "proc", flags, None);
    if let Err(error) = mounted {
        let _ = refuse(link, "/proc cannot be mounted in it", &error.into());
        return Ok(false);
    }
    if init == Init::Lent {
        clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets)?;
    }
    link.write_all(Report::Ready.line().as_bytes())?;
    Ok(true)
}
