//! What the guard process does.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Link;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{
    Pid, Signal, WaitStatus, getpid, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal,
};
use tenure_core::{Clock, LocalInstant, Mutant};
use tenure_store::BootClock;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::signal::unix::{SignalKind, signal};

use super::stage::{Init, Stage};
use super::told::BootTimer;
use super::tree::{Pauses, Reaped, kill_all, reap, signal_all};
use super::words::{End, Order, Report, Start, Why};
use super::{link, stage, tree};
use crate::failure::Failure;
use crate::output::to_stderr;
use crate::signals;

/// Runs the guard, or a stage on the way to one or to its command.
pub(crate) fn main(stage: &Stage) -> Result<(), Failure> {
    match stage {
        Stage::Exec { parent, command } => stage::exec(*parent, command),
        Stage::Isolate { scratch } => stage::isolate(scratch.as_deref()),
        Stage::Guard { init, scratch } => guard(*init, scratch.as_deref()),
    }
}

/// Runs the guard until its parent is gone and nothing of its command runs any more.
/// `scratch` is a folder of the parent, which it may not have come to remove.
fn guard(init: Option<Init>, scratch: Option<&Path>) -> Result<(), Failure> {
    // Started by way of /proc, it would be called `exe`; a name is for people, so it may fail.
    let _ = rustix::thread::set_name(c"tenure-guard");
    let mut link = stage::link().context("cannot use standard input")?;
    if let Some(init) = init {
        if !stage::settle(&mut link, init).context("cannot isolate the guard")? {
            return Ok(());
        }
    } else {
        // When the parent dies, a guard that was stopped goes on, and ends its command.
        let _ = set_parent_process_death_signal(Some(Signal::CONT));
    }
    let input = link::receive_input(&link)
        .context("a guard is started by `tenure run` and `tenure poll`, not by hand")?;
    // Whatever a command leaves behind comes to this process.
    set_child_subreaper(Some(getpid())).map_err(io::Error::from).context("no child subreaper")?;
    if !tree::proc_is_ours() {
        to_stderr("tenure: /proc is not that of this PID namespace: only the command's own group");
        to_stderr("can be ended with it; mount it with `unshare --mount-proc` or the like");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(watch(link, input))?;
    if Mutant::R26Group.is_on() {
        // What it let go on is not left to the machine.
        kill_all(None);
    }
    if let Some(scratch) = scratch {
        // It is gone already, unless the parent was killed.
        let _ = std::fs::remove_dir_all(scratch);
    }
    Ok(())
}

async fn watch(link: Link, input: OwnedFd) -> anyhow::Result<()> {
    let _swallowed = swallow()?;
    let mut children = signal(SignalKind::child())?;
    link.set_nonblocking(true)?;
    let (orders, reports) = UnixStream::from_std(link)?.into_split();
    // Its writer is this same binary: lines are as long as it needs them to be.
    let mut orders = BufReader::new(orders).lines();
    let mut timer = BootTimer::new()?;
    let mut watch = Watch { input, reports, charge: None };
    let mut has_parent = true;
    while has_parent || watch.charge.is_some() {
        let wake_at = watch.charge.as_ref().map(Charge::wake_at);
        tokio::select! {
            biased;
            order = orders.next_line(), if has_parent => match order {
                Ok(Some(line)) => watch.obey(&line),
                // The parent is gone.
                Ok(None) | Err(_) => {
                    has_parent = false;
                    watch.be_orphaned();
                }
            },
            () = watch.exec_known() => {}
            _ = children.recv() => {}
            () = timer.at(wake_at) => {}
        }
        watch.look();
    }
    Ok(())
}

/// Signals that are meant for the parent, or for everybody, do not end the guard. They are not
/// ignored but handled: what is ignored the commands would inherit.
fn swallow() -> io::Result<Vec<tokio::signal::unix::Signal>> {
    let more = [Signal::ALARM, Signal::TSTP, Signal::TTIN, Signal::TTOU];
    let all = signals::PASSED.into_iter().chain(more).filter(|kind| !signals::is_ignored(*kind));
    all.map(|kind| signal(SignalKind::from_raw(kind.as_raw()))).collect()
}

/// The guard, and the command that it runs.
struct Watch {
    input: OwnedFd,
    reports: OwnedWriteHalf,
    charge: Option<Charge>,
}

impl Watch {
    fn obey(&mut self, line: &str) {
        let now = BootClock.now();
        match Order::read(line) {
            Some(Order::Start(start)) if self.charge.is_none() => self.start(start),
            Some(Order::Deadline { id, at }) => {
                self.with(id, |charge| charge.deadline = charge.deadline.max(at));
            }
            Some(Order::Signal { id, number }) => self.with(id, |charge| charge.pass(number)),
            Some(Order::End { id, kill_at }) => {
                self.with(id, |charge| charge.end(kill_at, Why::Ordered, now));
            }
            // Two of the same version do not misunderstand each other.
            _ => {}
        }
    }

    fn with(&mut self, id: u64, change: impl FnOnce(&mut Charge)) {
        // An order may come late, for a command that has ended.
        if let Some(charge) = self.charge.as_mut().filter(|charge| charge.id == id) {
            change(charge);
        }
    }

    fn start(&mut self, start: Start) {
        let Start { id, deadline, grace, env, argv } = start;
        match self.spawn(env, &argv) {
            Ok((pid, exec)) => {
                let (phase, why, exec) = (Phase::Running, Why::Itself, Some(exec));
                let (ended, remains) = (None, Remains::Unseen);
                let charge = Charge { id, pid, deadline, grace, phase, why, exec, ended, remains };
                self.charge = Some(charge);
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                self.tell(&Report::CannotStart { id, errno });
            }
        }
    }

    /// Starts the stage that becomes the command. What comes on the socket says what became of it.
    fn spawn(
        &self,
        env: Vec<(String, OsString)>,
        argv: &[OsString],
    ) -> io::Result<(Pid, UnixStream)> {
        let (ours, theirs) = Link::pair()?;
        link::send_file(&ours, self.input.as_fd())?;
        ours.set_nonblocking(true)?;
        let exec = UnixStream::from_std(ours)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tenure").args(["guard", "--exec", &getpid().to_string(), "--"]).args(argv);
        let child = command.envs(env).stdin(OwnedFd::from(theirs)).process_group(0).spawn()?;
        Ok((Pid::from_child(&child), exec))
    }

    /// Waits until it is known whether the command could be started.
    async fn exec_known(&self) {
        let exec = self.charge.as_ref().and_then(|charge| charge.exec.as_ref());
        let Some(exec) = exec else { return std::future::pending().await };
        // An error is known, too.
        let _ = exec.readable().await;
    }

    /// Tells whether the command could be started, once that is known.
    fn tell_exec(&mut self) {
        let Some(charge) = &mut self.charge else { return };
        let Some(exec) = &charge.exec else { return };
        let mut errno = [0; 4];
        match recv(exec, &mut errno, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((_, 4)) => {
                let report =
                    Report::CannotStart { id: charge.id, errno: i32::from_le_bytes(errno) };
                self.charge = None;
                self.tell(&report);
            }
            // It is closed when the command takes the place of the stage.
            _ => {
                charge.exec = None;
                let report = Report::Started { id: charge.id, pid: charge.pid.as_raw_pid() };
                self.tell(&report);
            }
        }
    }

    fn be_orphaned(&mut self) {
        let now = BootClock.now();
        if let Some(charge) = &mut self.charge {
            charge.end(now.plus(charge.grace), Why::Ordered, now);
        }
    }

    /// Reaps whatever has ended, and does what is due.
    fn look(&mut self) {
        let alone = loop {
            match reap() {
                Reaped::One(pid, status) => self.reaped(pid, status),
                Reaped::AllRun => break false,
                Reaped::Nobody => break true,
            }
        };
        // After a look at who has ended: one that has ended has said before whether it started.
        self.tell_exec();
        let Some(charge) = &mut self.charge else { return };
        match charge.ended {
            Some(end) if alone || Mutant::R26Group.is_on() => {
                let report = Report::Ended { id: charge.id, end, why: charge.why };
                self.charge = None;
                self.tell(&report);
            }
            _ => {
                charge.act(BootClock.now());
                if let Remains::Seen(pid) = charge.remains {
                    charge.remains = Remains::Told;
                    let report = Report::Remains { id: charge.id, pid: pid.as_raw_pid() };
                    self.tell(&report);
                }
            }
        }
    }

    fn reaped(&mut self, pid: Pid, status: WaitStatus) {
        let Some(charge) = self.charge.as_mut().filter(|charge| charge.pid == pid) else { return };
        let code = status.exit_status().map(End::Code);
        charge.ended = code.or_else(|| status.terminating_signal().map(End::Signal));
        if let Some(signal) = status.stopping_signal() {
            let report = Report::Stopped { id: charge.id, signal };
            self.tell(&report);
        }
    }

    /// A parent that is stopped does not read; a few lines always find room.
    fn tell(&self, report: &Report) {
        let _ = self.reports.try_write(report.line().as_bytes());
    }
}

/// A command that runs, or is being ended.
#[derive(Debug)]
struct Charge {
    id: u64,
    /// Also the id of its group.
    pid: Pid,
    deadline: LocalInstant,
    grace: Duration,
    phase: Phase,
    why: Why,
    /// The other end is with the stage that becomes the command; `None` when it has.
    exec: Option<UnixStream>,
    /// The command itself has ended; what it left behind may run.
    ended: Option<End>,
    remains: Remains,
}

/// Whether something of a command was killed and runs all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remains {
    Unseen,
    Seen(Pid),
    Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Until it is asked to end.
    Running,
    /// Asked to end.
    Ending { kill_at: LocalInstant },
    /// Killed until nothing is left.
    Killing { again_at: LocalInstant, pauses: Pauses },
}

impl Charge {
    /// When it is asked to end, unless the deadline moves.
    fn ask_at(&self) -> LocalInstant {
        if Mutant::R26Late.is_on() {
            return self.deadline.plus(Duration::from_secs(2));
        }
        let grace = u64::try_from(self.grace.as_nanos()).unwrap_or(u64::MAX);
        LocalInstant::from_nanos(self.deadline.as_nanos().saturating_sub(grace))
    }

    fn wake_at(&self) -> LocalInstant {
        match self.phase {
            Phase::Running => self.ask_at(),
            Phase::Ending { kill_at } => kill_at.min(self.deadline),
            Phase::Killing { again_at, .. } => again_at,
        }
    }

    fn act(&mut self, now: LocalInstant) {
        match self.phase {
            // It has ended and left something behind: that has no right to run any more.
            Phase::Running if self.ended.is_some() => {
                self.end(now.plus(self.grace), Why::Itself, now);
            }
            Phase::Running if now >= self.ask_at() => self.end(self.deadline, Why::Deadline, now),
            Phase::Ending { kill_at } if now >= kill_at.min(self.deadline) => self.kill(now),
            // Also before its time: something has ended, and may have forked before.
            Phase::Killing { .. } => self.kill(now),
            _ => {}
        }
    }

    /// Asks for the end. Once asked, a later deadline does not call it back.
    fn end(&mut self, kill_at: LocalInstant, why: Why, now: LocalInstant) {
        match self.phase {
            Phase::Running => {
                self.phase = Phase::Ending { kill_at };
                self.why = why;
                signal_all(self.group(), Signal::TERM);
                // What is stopped has to run to come to its end.
                signal_all(self.group(), Signal::CONT);
            }
            Phase::Ending { kill_at: before } => {
                self.phase = Phase::Ending { kill_at: kill_at.min(before) };
            }
            Phase::Killing { .. } => {}
        }
        self.act(now);
    }

    fn kill(&mut self, now: LocalInstant) {
        let (mut again_at, mut pauses) = match self.phase {
            Phase::Killing { again_at, pauses } => (again_at, pauses),
            _ => (now, Pauses::new()),
        };
        let killed = kill_all(self.group());
        let stuck = killed.one.filter(|_| pauses.are_long());
        if let (Remains::Unseen, Some(pid)) = (self.remains, killed.denied.or(stuck)) {
            self.remains = Remains::Seen(pid);
        }
        if now >= again_at {
            again_at = now.plus(pauses.next());
        }
        self.phase = Phase::Killing { again_at, pauses };
    }

    fn pass(&self, number: i32) {
        if let (Some(signal), None) = (Signal::from_named_raw(number), self.ended) {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Until the command is reaped, nobody else can have its group's id. Afterwards those that are
    /// left of the group are found one by one.
    fn group(&self) -> Option<Pid> {
        self.ended.is_none().then_some(self.pid)
    }
}
