//! Guard process: the loop that starts, watches and ends commands.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Link;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

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

use super::protocol::{EndCause, ExitStatus, GuardEvent, GuardReport, GuardRequest, StartRequest};
use super::stage::{Init, Stage};
use super::timer::BootTimer;
use super::{channel, stage};
use crate::error::{SuperviseError, SystemContext as _};
use crate::process_tree::{KillBackoff, Reaped, kill_all, proc_is_ours, reap, signal_all};
use crate::{scratch, signals};

/// Runs the guard, or a stage before a guard or its command. Call it on the main thread, without a
/// runtime.
pub fn main(stage: &Stage) -> Result<(), SuperviseError> {
    match stage {
        Stage::Exec { parent, command } => stage::exec(*parent, command),
        Stage::Isolate { scratch } => stage::isolate(scratch.as_deref()),
        Stage::Guard { init, scratch } => guard(*init, scratch.as_deref()),
    }
}

/// Runs the guard until its parent is gone and nothing of its command runs any more. `scratch` is a
/// folder of the parent, which may have died before it removed it.
fn guard(init: Option<Init>, scratch: Option<&Path>) -> Result<(), SuperviseError> {
    // Started through /proc, the process is named `exe`. Only people read the name.
    let _ = rustix::thread::set_name(c"tenure-guard");
    let mut link = stage::link().context("cannot use standard input")?;
    if let Some(init) = init {
        if !stage::prepare_init(&mut link, init).context("cannot isolate the guard")? {
            return Ok(());
        }
    } else {
        // Continues a stopped guard when the parent dies, so that it ends its command.
        let _ = set_parent_process_death_signal(Some(Signal::CONT));
    }
    let input = channel::receive_input(&link)
        .context("only `tenure run` and `tenure poll` can start a guard")?;
    // Orphans of the command become children of this process.
    set_child_subreaper(Some(getpid())).context("cannot become a child subreaper")?;
    if !proc_is_ours() {
        // An error is ignored: then nobody reads the warning.
        let _ = writeln!(
            io::stderr(),
            "tenure: /proc belongs to another PID namespace, so only the command's process group\n\
             can be killed; mount a matching /proc, for example with `unshare --mount-proc`"
        );
    }
    // Kept until the command has ended, also if the parent was killed.
    let _kept = scratch.map(scratch::keep);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .context("cannot start the runtime")?
        .block_on(serve(link, input))
        .context("the guard failed")?;
    if Mutant::R26Group.is_on() {
        // A test must not leave the command running.
        kill_all(None);
    }
    if let Some(scratch) = scratch {
        // It still exists only if the parent was killed.
        scratch::remove(scratch);
    }
    Ok(())
}

async fn serve(link: Link, input: OwnedFd) -> io::Result<()> {
    let _handled = handle_signals()?;
    let mut children = signal(SignalKind::child())?;
    link.set_nonblocking(true)?;
    let (requests, reports) = UnixStream::from_std(link)?.into_split();
    // Lines need no length limit: the writer is this same binary.
    let mut requests = BufReader::new(requests).lines();
    let mut timer = BootTimer::new()?;
    let mut guard = GuardServer { input, reports, command: None };
    let mut has_parent = true;
    while has_parent || guard.command.is_some() {
        let wake_at = guard.command.as_ref().map(GuardedCommand::wake_at);
        tokio::select! {
            biased;
            request = requests.next_line(), if has_parent => match request {
                Ok(Some(line)) => guard.handle(&line),
                // The parent is gone.
                Ok(None) | Err(_) => {
                    has_parent = false;
                    guard.parent_gone();
                }
            },
            () = guard.exec_result() => {}
            _ = children.recv() => {}
            () = timer.at(wake_at) => {}
        }
        guard.check();
    }
    Ok(())
}

/// Keeps signals for the parent or the whole session from ending the guard. They are handled and
/// not ignored: commands would inherit ignored signals.
fn handle_signals() -> io::Result<Vec<tokio::signal::unix::Signal>> {
    let more = [Signal::ALARM, Signal::TSTP, Signal::TTIN, Signal::TTOU];
    let all = signals::FORWARDED.into_iter().chain(more).filter(|kind| !signals::is_ignored(*kind));
    all.map(|kind| signal(SignalKind::from_raw(kind.as_raw()))).collect()
}

struct GuardServer {
    input: OwnedFd,
    reports: OwnedWriteHalf,
    command: Option<GuardedCommand>,
}

impl GuardServer {
    fn handle(&mut self, line: &str) {
        let now = BootClock.now();
        match GuardRequest::parse(line) {
            Some(GuardRequest::Start(start)) if self.command.is_none() => self.start(start),
            Some(GuardRequest::Deadline { id, at }) => {
                self.with(id, |command| command.deadline = command.deadline.max(at));
            }
            Some(GuardRequest::Signal { id, number }) => {
                self.with(id, |command| command.forward(number));
            }
            Some(GuardRequest::End { id, kill_at }) => {
                self.with(id, |command| command.end(kill_at, EndCause::Requested, now));
            }
            // Both ends are the same binary, so nothing else is sent.
            _ => {}
        }
    }

    fn with(&mut self, id: u64, change: impl FnOnce(&mut GuardedCommand)) {
        // A request may arrive late, for a command that has ended.
        if let Some(command) = self.command.as_mut().filter(|command| command.id == id) {
            change(command);
        }
    }

    fn start(&mut self, start: StartRequest) {
        let StartRequest { id, deadline, grace, env, argv } = start;
        match self.spawn(env, &argv) {
            Ok((pid, exec)) => {
                self.command = Some(GuardedCommand {
                    id,
                    pid,
                    deadline,
                    grace,
                    phase: CommandPhase::Running,
                    cause: EndCause::Exited,
                    exec: Some(exec),
                    status: None,
                    survivor: Survivor::None,
                });
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                self.report(id, GuardEvent::CannotStart(errno));
            }
        }
    }

    /// Starts the stage that becomes the command. The socket reports whether that succeeded.
    fn spawn(
        &self,
        env: Vec<(String, OsString)>,
        argv: &[OsString],
    ) -> io::Result<(Pid, UnixStream)> {
        let (ours, theirs) = Link::pair()?;
        channel::send_input(&ours, self.input.as_fd())?;
        ours.set_nonblocking(true)?;
        let exec = UnixStream::from_std(ours)?;
        let mut stage = Command::new("/proc/self/exe");
        stage.arg0("tenure").args(["guard", "--exec", &getpid().to_string(), "--"]).args(argv);
        let child = stage.envs(env).stdin(OwnedFd::from(theirs)).process_group(0).spawn()?;
        Ok((Pid::from_child(&child), exec))
    }

    /// Waits until it is known whether the command could be started.
    async fn exec_result(&self) {
        let exec = self.command.as_ref().and_then(|command| command.exec.as_ref());
        let Some(exec) = exec else { return std::future::pending().await };
        // An error also ends the wait.
        let _ = exec.readable().await;
    }

    /// Reports whether the command could be started, once that is known.
    fn report_exec(&mut self) {
        let Some(command) = &mut self.command else { return };
        let Some(exec) = &command.exec else { return };
        let (id, mut errno) = (command.id, [0; 4]);
        match recv(exec, &mut errno, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((_, 4)) => {
                self.command = None;
                self.report(id, GuardEvent::CannotStart(i32::from_le_bytes(errno)));
            }
            // exec has closed the socket.
            _ => {
                command.exec = None;
                let event = GuardEvent::Started(command.pid.as_raw_pid());
                self.report(id, event);
            }
        }
    }

    fn parent_gone(&mut self) {
        let now = BootClock.now();
        if let Some(command) = &mut self.command {
            command.end(now.plus(command.grace), EndCause::Requested, now);
        }
    }

    /// Reaps ended children, then takes the steps that are due.
    fn check(&mut self) {
        let alone = loop {
            match reap() {
                Reaped::One(pid, status) => self.reaped(pid, status),
                Reaped::AllRunning => break false,
                Reaped::NoChildren => break true,
            }
        };
        // After reaping: an ended command reported earlier whether it had started.
        self.report_exec();
        let Some(command) = &mut self.command else { return };
        let id = command.id;
        match command.status {
            Some(status) if alone || Mutant::R26Group.is_on() => {
                let event = GuardEvent::Ended(status, command.cause);
                self.command = None;
                self.report(id, event);
            }
            _ => {
                command.act(BootClock.now());
                if let Survivor::Found(pid) = command.survivor {
                    command.survivor = Survivor::Reported;
                    self.report(id, GuardEvent::Remains(pid.as_raw_pid()));
                }
            }
        }
    }

    fn reaped(&mut self, pid: Pid, status: WaitStatus) {
        let Some(command) = self.command.as_mut().filter(|command| command.pid == pid) else {
            return;
        };
        let code = status.exit_status().map(ExitStatus::Code);
        command.status = code.or_else(|| status.terminating_signal().map(ExitStatus::Signal));
        if let Some(signal) = status.stopping_signal() {
            let id = command.id;
            self.report(id, GuardEvent::Stopped(signal));
        }
    }

    /// Sends a report without waiting. A stopped parent does not read, but the socket buffers a few
    /// lines.
    fn report(&self, id: u64, event: GuardEvent) {
        let _ = self.reports.try_write(GuardReport { id, event }.to_line().as_bytes());
    }
}

/// A command that runs, or is being ended.
#[derive(Debug)]
struct GuardedCommand {
    id: u64,
    /// Also the id of its process group.
    pid: Pid,
    deadline: LocalInstant,
    grace: Duration,
    phase: CommandPhase,
    cause: EndCause,
    /// The other end belongs to the stage that becomes the command; `None` after exec.
    exec: Option<UnixStream>,
    /// Set when the command itself has ended; processes that it left behind may still run.
    status: Option<ExitStatus>,
    survivor: Survivor,
}

/// A process of a command that still runs although it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Survivor {
    None,
    Found(Pid),
    Reported,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandPhase {
    /// Not asked to end yet.
    Running,
    /// Sent TERM.
    Ending { kill_at: LocalInstant },
    /// Sent KILL, repeatedly until no process is left.
    Killing { again_at: LocalInstant, backoff: KillBackoff },
}

impl GuardedCommand {
    /// The instant of TERM, unless the deadline moves.
    fn term_at(&self) -> LocalInstant {
        if Mutant::R26Late.is_on() {
            return self.deadline.plus(Duration::from_secs(2));
        }
        let grace = u64::try_from(self.grace.as_nanos()).unwrap_or(u64::MAX);
        LocalInstant::from_nanos(self.deadline.as_nanos().saturating_sub(grace))
    }

    fn wake_at(&self) -> LocalInstant {
        match self.phase {
            CommandPhase::Running => self.term_at(),
            CommandPhase::Ending { kill_at } => kill_at.min(self.deadline),
            CommandPhase::Killing { again_at, .. } => again_at,
        }
    }

    fn act(&mut self, now: LocalInstant) {
        match self.phase {
            // The command has ended, but processes that it left behind must not outlive it.
            CommandPhase::Running if self.status.is_some() => {
                self.end(now.plus(self.grace), EndCause::Exited, now);
            }
            CommandPhase::Running if now >= self.term_at() => {
                self.end(self.deadline, EndCause::Deadline, now);
            }
            CommandPhase::Ending { kill_at } if now >= kill_at.min(self.deadline) => self.kill(now),
            // Also before `again_at`: a process may have forked before it ended.
            CommandPhase::Killing { .. } => self.kill(now),
            _ => {}
        }
    }

    /// Begins to end the command. A later deadline does not revoke it.
    fn end(&mut self, kill_at: LocalInstant, cause: EndCause, now: LocalInstant) {
        match self.phase {
            CommandPhase::Running => {
                self.phase = CommandPhase::Ending { kill_at };
                self.cause = cause;
                signal_all(self.group(), Signal::TERM);
                // A stopped process handles TERM only once it continues.
                signal_all(self.group(), Signal::CONT);
            }
            CommandPhase::Ending { kill_at: before } => {
                self.phase = CommandPhase::Ending { kill_at: kill_at.min(before) };
            }
            CommandPhase::Killing { .. } => {}
        }
        self.act(now);
    }

    fn kill(&mut self, now: LocalInstant) {
        let (mut again_at, mut backoff) = match self.phase {
            CommandPhase::Killing { again_at, backoff } => (again_at, backoff),
            _ => (now, KillBackoff::new()),
        };
        let killed = kill_all(self.group());
        let stuck = killed.one.filter(|_| backoff.is_stuck());
        if let (Survivor::None, Some(pid)) = (self.survivor, killed.denied.or(stuck)) {
            self.survivor = Survivor::Found(pid);
        }
        if now >= again_at {
            again_at = now.plus(backoff.next());
        }
        self.phase = CommandPhase::Killing { again_at, backoff };
    }

    fn forward(&self, number: i32) {
        if let (Some(signal), None) = (Signal::from_named_raw(number), self.status) {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Returns the process group while its id is valid. After the command was reaped, the rest of
    /// the group is found process by process.
    fn group(&self) -> Option<Pid> {
        self.status.is_none().then_some(self.pid)
    }
}
