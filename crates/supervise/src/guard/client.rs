//! Client of a guard process, for its parent.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Link;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use tenure_core::{Code, StoreError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::channel::send_input;
use super::protocol::{GuardEvent, GuardReport, GuardRequest};
use crate::output::{CommandOutput, OutputPrinter};
use crate::process_tree::outside_pid;

/// Limit for a guard to read a request; after that it counts as hanging.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Limit for a guard to become isolated, generous for a busy machine.
const ISOLATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Standard input of the commands of a guard.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CommandInput {
    Inherit,
    Null,
}

#[derive(Clone, Debug)]
pub(crate) struct GuardOptions {
    pub(crate) input: CommandInput,
    /// A folder that the guard removes at its end.
    pub(crate) scratch: Option<PathBuf>,
    /// Whether it runs in a PID namespace of its own.
    pub(crate) isolate: bool,
    /// Environment variables that its commands do not get.
    pub(crate) hidden_env: Vec<String>,
    /// Printer of its commands' output; `None` if they write to the streams of this process.
    pub(crate) printer: Option<OutputPrinter>,
}

/// A guard process. When this is dropped, the guard ends its command and exits.
#[derive(Debug)]
pub(crate) struct GuardProcess {
    pid: Pid,
    /// Identifies the process even after it was reaped and its process id was reused.
    process: Option<OwnedFd>,
    requests: OwnedWriteHalf,
    reports: Lines<BufReader<OwnedReadHalf>>,
    isolated: bool,
    output: Option<CommandOutput>,
}

impl GuardProcess {
    /// Starts a guard in a process group of its own, which the terminal's signals do not reach.
    /// Call it on a thread that lives as long as this process: the kernel sends the parent-death
    /// signal when the thread ends.
    pub(crate) fn start(options: &GuardOptions) -> io::Result<Self> {
        let (ours, theirs) = Link::pair()?;
        match options.input {
            CommandInput::Inherit => send_input(&ours, io::stdin().as_fd())?,
            CommandInput::Null => send_input(&ours, File::open("/dev/null")?.as_fd())?,
        }
        // Works even after the binary's file was replaced.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tenure").arg("guard").args(options.isolate.then_some("--isolate"));
        command.args(&options.scratch).process_group(0);
        // Commands inherit the guard's environment.
        for name in &options.hidden_env {
            command.env_remove(name);
        }
        let output = match &options.printer {
            Some(printer) => {
                let (output, pipes) = CommandOutput::start(printer)?;
                command.stdout(pipes.stdout).stderr(pipes.stderr);
                Some(output)
            }
            None => None,
        };
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
        let pid = Pid::from_child(&child);
        let process = pidfd_open(pid, PidfdFlags::empty()).ok();
        ours.set_nonblocking(true)?;
        let (reports, requests) = UnixStream::from_std(ours)?.into_split();
        let reports = BufReader::new(reports).lines();
        Ok(Self { pid, process, requests, reports, isolated: options.isolate, output })
    }

    /// Waits until the guard is isolated, if it should be; fails if that is not possible.
    pub(crate) async fn ready(&mut self) -> Result<(), StoreError> {
        if !self.isolated {
            return Ok(());
        }
        let report = timeout(ISOLATION_TIMEOUT, self.report()).await;
        let detail = match report.map(|report| report.map(|report| report.event)) {
            Ok(Some(GuardEvent::Ready)) => return Ok(()),
            Ok(Some(GuardEvent::CannotIsolate(detail))) => detail,
            Ok(_) => "the guard ended before it was ready".to_owned(),
            Err(_) => "the guard was not ready in time".to_owned(),
        };
        Err(StoreError::refused(Code::CannotIsolate, detail))
    }

    /// Translates a process id that the guard reported: in a PID namespace ids differ.
    pub(crate) fn outside_pid(&self, pid: i32) -> Option<Pid> {
        let inside = Pid::from_raw(pid);
        if self.isolated { outside_pid(self.pid, inside?) } else { inside }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Output of its commands, if it is printed by this process.
    pub(crate) fn output(&self) -> Option<&CommandOutput> {
        self.output.as_ref()
    }

    /// Sends a request. An error means that the guard is gone, or hangs.
    pub(crate) async fn send(&mut self, request: &GuardRequest) -> io::Result<()> {
        let line = request.to_line();
        let sent = timeout(REQUEST_TIMEOUT, self.requests.write_all(line.as_bytes())).await;
        sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Waits for the next report; `None` when the guard is gone. Cancellation-safe.
    pub(crate) async fn report(&mut self) -> Option<GuardReport> {
        let line = self.reports.next_line().await;
        GuardReport::parse(&line.ok()??)
    }

    /// Whether an idle guard has died.
    pub(crate) fn is_gone(&self) -> bool {
        let link: &UnixStream = self.requests.as_ref();
        let peeked = recv(link, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR))
    }

    pub(crate) fn kill(&self) {
        let _ = match &self.process {
            Some(process) => pidfd_send_signal(process, Signal::KILL),
            // The kernel does not support pidfds.
            None => kill_process(self.pid, Signal::KILL),
        };
    }
}
