//! A command under a hold: started by a guard, kept within the hold's deadline, and ended in time.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tenure_core::{Clock, LocalInstant};
use tenure_duty::{Guard, HoldStatus};
use tenure_store::BootClock;
use tokio::sync::watch;

use crate::api::{GrantApi, LocalApi, ShardNumber};
use crate::deadline_file::DeadlineFile;
use crate::guard::{
    BootTimer, EndCause, ExitStatus, GuardEvent, GuardProcess, GuardReport, GuardRequest,
    StartRequest,
};
use crate::member::SupervisorSettings;
use crate::state::{StateFile, StateTask};

/// Environment variables for a command.
pub type Variables = [(String, OsString)];

/// Time limits of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandTiming {
    /// Time between TERM and KILL when the hold ends.
    pub(crate) grace: Duration,
    /// Time that it may take to end when its duty moves.
    pub(crate) drain: Duration,
    /// Margin before the deadline.
    margin: Duration,
    /// Instant at which it is ended in any case.
    pub(crate) limit: Option<LocalInstant>,
    /// Whether it may use the drain time before it gets TERM, and not only after.
    pub(crate) finishes: bool,
}

impl CommandTiming {
    /// The limits of a member, for a command that runs until it ends.
    pub(crate) fn new(member: &SupervisorSettings) -> Self {
        let (grace, drain, margin) = (member.grace(), member.drain(), member.ttl.margin());
        Self { grace, drain, margin, limit: None, finishes: false }
    }
}

/// A command to start.
pub(crate) struct CommandStart<'a> {
    /// Identifies this run in requests and reports.
    pub(crate) id: u64,
    pub(crate) hold: &'a Guard,
    pub(crate) shard: ShardNumber,
    pub(crate) argv: Vec<OsString>,
    pub(crate) variables: &'a Variables,
    pub(crate) timing: CommandTiming,
    /// A private folder for its deadline file and its socket.
    pub(crate) folder: &'a Path,
    pub(crate) api: &'a LocalApi,
    pub(crate) state: Option<&'a StateFile>,
}

/// A command that runs.
pub(crate) struct HeldCommand {
    id: u64,
    timing: CommandTiming,
    file: DeadlineFile,
    api: GrantApi,
    state: Option<StateTask>,
    status: HoldStatus,
    changes: watch::Receiver<HoldStatus>,
    released: watch::Receiver<bool>,
    timer: BootTimer,
    /// Instant at which it is asked to end, if it was not yet.
    ends_at: Option<LocalInstant>,
    /// Set when the guard has missed the deadline; at this instant the guard counts as hanging.
    overdue: Option<LocalInstant>,
    /// A process that the guard cannot end.
    survivor: Option<Pid>,
}

/// Something that happened to a command, for [`HeldCommand::handle`].
pub(crate) enum CommandWake {
    Report(Option<GuardReport>),
    Status,
    Released,
    Timer,
}

/// Change of a command that its owner has to know.
#[derive(Debug)]
pub(crate) enum CommandEvent {
    /// It runs under this process id, as its guard sees it.
    Started(i32),
    /// It was stopped by this signal.
    Stopped(i32),
    /// This process of it cannot be ended. Reported once.
    Remains(Pid),
    /// The deadline file could not be written.
    Unwritten(io::Error),
    /// It has ended, and nothing of it runs any more.
    Ended(ExitStatus, EndCause),
    CannotStart(io::Error),
    /// The guard is gone, or has not ended the command in time. Both have to be killed.
    GuardFailed(String),
}

impl HeldCommand {
    /// Prepares files, socket and environment, and sends the command to the guard.
    pub(crate) async fn start(
        start: CommandStart<'_>,
        guard: &mut GuardProcess,
    ) -> Result<Self, String> {
        let CommandStart { id, hold, timing, folder, .. } = start;
        let mut changes = hold.changes();
        let status = *changes.borrow_and_update();
        let file = DeadlineFile::new(folder, hold.epoch());
        let written = file.write(&status);
        written.map_err(|error| format!("cannot write the deadline file: {error}"))?;
        let api = start.api.serve(folder, hold, start.shard, timing.grace);
        let api = api.map_err(|error| format!("cannot create the socket of the API: {error}"))?;
        let timer = BootTimer::new().map_err(|error| format!("cannot create a timer: {error}"))?;
        let state = start.state.map(|state| state.follow(hold, guard.pid())).transpose();
        let state = state.map_err(|error| format!("cannot watch the state file: {error}"))?;
        let deadline_file = ("TENURE_DEADLINE_FILE".to_owned(), file.path().into());
        let mut env = hold_env(hold, start.shard);
        env.push(deadline_file);
        env.extend(api.variables().iter().chain(start.variables).cloned());
        let deadline = timing.limit.map_or(status.deadline, |limit| limit.min(status.deadline));
        let request = StartRequest { id, deadline, grace: timing.grace, env, argv: start.argv };
        let sent = guard.send(&GuardRequest::Start(request)).await;
        sent.map_err(|error| format!("cannot send the command to the guard: {error}"))?;
        let released = api.released();
        let (ends_at, overdue, survivor) = (None, None, None);
        Ok(Self {
            id,
            timing,
            file,
            api,
            state,
            status,
            changes,
            released,
            timer,
            ends_at,
            overdue,
            survivor,
        })
    }

    /// A process that cannot be ended, if there is one.
    pub(crate) fn survivor(&self) -> Option<Pid> {
        self.survivor
    }

    fn deadline(&self) -> LocalInstant {
        self.timing.limit.map_or(self.status.deadline, |limit| limit.min(self.status.deadline))
    }

    /// Waits for the next input. Cancellation-safe.
    pub(crate) async fn wait(&mut self, guard: &mut GuardProcess) -> CommandWake {
        // By then the guard has ended the command, or has reported that it cannot. The TTL ends a
        // margin and a tenth of the TTL after the deadline, which is more than two margins.
        let limit = self.overdue.unwrap_or(self.deadline().plus(self.timing.margin));
        let limit = self.survivor.is_none().then_some(limit);
        let wake = self.ends_at.into_iter().chain(limit).min();
        tokio::select! {
            biased;
            report = guard.report() => CommandWake::Report(report),
            // It closes only with the hold, which outlives the command.
            _ = self.changes.changed() => CommandWake::Status,
            Ok(()) = self.released.changed() => CommandWake::Released,
            () = self.timer.at(wake) => CommandWake::Timer,
        }
    }

    /// Acts on an input.
    pub(crate) async fn handle(
        &mut self,
        guard: &mut GuardProcess,
        input: CommandWake,
    ) -> Option<CommandEvent> {
        let handled = match input {
            CommandWake::Report(Some(report)) => return self.reported(guard, report),
            CommandWake::Report(None) => Err("the guard died; the command was killed".to_owned()),
            CommandWake::Status => return self.status_changed(guard).await,
            CommandWake::Released => self.stop(guard).await,
            CommandWake::Timer => self.woken(guard).await,
        };
        handled.err().map(CommandEvent::GuardFailed)
    }

    fn reported(&mut self, guard: &GuardProcess, report: GuardReport) -> Option<CommandEvent> {
        match report.event {
            _ if report.id != self.id => None,
            GuardEvent::Started(pid) => {
                if let Some(state) = &self.state {
                    state.started(guard.outside_pid(pid));
                }
                Some(CommandEvent::Started(pid))
            }
            GuardEvent::Stopped(signal) => Some(CommandEvent::Stopped(signal)),
            GuardEvent::Remains(pid) => {
                self.survivor = guard.outside_pid(pid).or(Pid::from_raw(pid));
                self.survivor.map(CommandEvent::Remains)
            }
            GuardEvent::CannotStart(errno) => {
                Some(CommandEvent::CannotStart(io::Error::from_raw_os_error(errno)))
            }
            GuardEvent::Ended(status, cause) => Some(CommandEvent::Ended(status, cause)),
            GuardEvent::Ready | GuardEvent::CannotIsolate(_) => None,
        }
    }

    async fn status_changed(&mut self, guard: &mut GuardProcess) -> Option<CommandEvent> {
        let status = *self.changes.borrow_and_update();
        let before = std::mem::replace(&mut self.status, status);
        let unwritten = self.write_deadline().err().map(CommandEvent::Unwritten);
        let handled = async {
            if status.deadline != before.deadline {
                self.overdue = None;
                let at = self.deadline();
                send(guard, &GuardRequest::Deadline { id: self.id, at }).await?;
            }
            match (status.lost && !before.lost, status.draining && !before.draining) {
                (true, _) => self.end(guard, self.timing.grace).await,
                (_, true) => self.drain(guard).await,
                _ => Ok(()),
            }
        };
        handled.await.err().map(CommandEvent::GuardFailed).or(unwritten)
    }

    /// The hold, or this process, is to end: asks the command to end within the drain time.
    pub(crate) async fn drain(&mut self, guard: &mut GuardProcess) -> Result<(), String> {
        if self.timing.finishes {
            let within = self.timing.drain.saturating_sub(self.timing.grace);
            self.ends_at.get_or_insert(BootClock.now().plus(within));
            return Ok(());
        }
        self.end(guard, self.timing.drain).await
    }

    /// Like [`HeldCommand::drain`], before the hold reports it: sooner, and independent of it.
    pub(crate) async fn stop(&mut self, guard: &mut GuardProcess) -> Result<(), String> {
        self.status.draining = true;
        // A failure is not critical: the guard enforces the deadline.
        let _ = self.write_deadline();
        self.drain(guard).await
    }

    /// Sends TERM now, and KILL later.
    async fn end(&mut self, guard: &mut GuardProcess, within: Duration) -> Result<(), String> {
        self.ends_at = None;
        let kill_at = BootClock.now().plus(within);
        send(guard, &GuardRequest::End { id: self.id, kill_at }).await
    }

    async fn woken(&mut self, guard: &mut GuardProcess) -> Result<(), String> {
        let now = BootClock.now();
        if self.ends_at.is_some_and(|at| now >= at) {
            return self.end(guard, self.timing.grace).await;
        }
        match self.overdue {
            // After a suspend both processes wake up late: the guard gets another margin.
            None if now >= self.deadline().plus(self.timing.margin) => {
                self.overdue = Some(now.plus(self.timing.margin));
                Ok(())
            }
            None => Ok(()),
            Some(at) if now < at => Ok(()),
            Some(_) => {
                Err("the guard did not end the command in time; both were killed".to_owned())
            }
        }
    }

    fn write_deadline(&self) -> io::Result<()> {
        self.file.write(&self.status)
    }

    /// Sends a signal to the command.
    pub(crate) async fn signal(
        &self,
        guard: &mut GuardProcess,
        signal: Signal,
    ) -> Result<(), String> {
        send(guard, &GuardRequest::Signal { id: self.id, number: signal.as_raw() }).await
    }

    /// Ends the API, and stores the last state. Nothing of the command runs any more; `status` is
    /// `None` if it is not known how it ended. Returns whether the program has asked to give the
    /// duty back.
    pub(crate) async fn finish(self, status: Option<ExitStatus>) -> bool {
        let released = *self.released.borrow();
        drop(self.api);
        if let Some(state) = self.state {
            state.finish(status).await;
        }
        released
    }
}

async fn send(guard: &mut GuardProcess, request: &GuardRequest) -> Result<(), String> {
    guard.send(request).await.map_err(|error| format!("the guard is gone: {error}"))
}

/// Environment variables that describe a hold.
fn hold_env(hold: &Guard, shard: ShardNumber) -> Vec<(String, OsString)> {
    let mut env = vec![
        ("TENURE_DUTY".to_owned(), OsString::from(hold.duty().to_string())),
        ("TENURE_EPOCH".to_owned(), hold.epoch().to_string().into()),
        ("TENURE_INSTANCE".to_owned(), hold.instance().as_str().into()),
    ];
    if let Some((shard, shards)) = shard {
        env.push(("TENURE_SHARD".to_owned(), shard.to_string().into()));
        env.extend(shards.map(|shards| ("TENURE_SHARDS".to_owned(), shards.to_string().into())));
    }
    env
}
