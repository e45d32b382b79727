//! One run of a command, from the grant of the duty to the end of the command.

use std::io;

use rustix::process::{Pid, Signal};
use tenure_core::{Clock, LocalInstant};
use tenure_duty::{Guard, HoldStatus};
use tenure_store::BootClock;

use super::deadline_file::DeadlineFile;
use super::{RunOutcome, Runner, Variables};
use crate::guard::{
    BootTimer, EndCause, ExitStatus, GuardEvent, GuardProcess, GuardReport, GuardRequest,
    StartRequest,
};
use crate::member::hold_env;
use crate::observe::LogLevel;
use crate::process_tree::{KillBackoff, kill_strays, reap_all, survivor};
use crate::terminal::Terminal;

struct ActiveRun {
    id: u64,
    file: DeadlineFile,
    status: HoldStatus,
    group: Option<Pid>,
    /// Set when the guard has missed the deadline; at this instant the guard is killed, too.
    overdue: Option<LocalInstant>,
    /// A process that neither the guard nor this process can end.
    remains: Option<Pid>,
}

impl Runner {
    /// Runs the command under a hold, until nothing of it runs any more.
    pub(super) async fn run_command(&mut self, hold: &Guard, variables: &Variables) -> RunOutcome {
        self.runs += 1;
        self.interrupted = false;
        let outcome = match self.begin(hold, variables).await {
            Ok(run) => self.watch_run(hold, run).await,
            Err(what) => self.give_up(what).await,
        };
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(!matches!(outcome, RunOutcome::Ended(ExitStatus::Code(_))));
        }
        outcome
    }

    async fn begin(&mut self, hold: &Guard, variables: &Variables) -> Result<ActiveRun, String> {
        let status = *hold.changes().borrow();
        let file = DeadlineFile::new(self.scratch.path(), hold.epoch());
        let written = file.write(&status);
        written.map_err(|error| format!("cannot write the deadline file: {error}"))?;
        let start = GuardRequest::Start(self.start_request(hold, &status, &file, variables));
        // The guard may have died while it was idle.
        if self.guard.is_gone() || self.guard.send(&start).await.is_err() {
            self.replace_guard().await?;
            let sent = self.guard.send(&start).await;
            sent.map_err(|error| format!("cannot send the command to the guard: {error}"))?;
        }
        Ok(ActiveRun { id: self.runs, file, status, group: None, overdue: None, remains: None })
    }

    async fn replace_guard(&mut self) -> Result<(), String> {
        // Killed first: a guard that exits normally removes the scratch folder.
        if let Some(pid) = self.kill_guard().await {
            return Err(format!("descendant process {pid} cannot be killed"));
        }
        let guard = GuardProcess::start(&self.guard_options);
        self.guard = guard.map_err(|error| format!("cannot start the guard: {error}"))?;
        self.guard.ready().await.map_err(|error| error.problem().to_string())?;
        self.warn("guard_replaced", "the guard had died while it was idle".to_owned());
        Ok(())
    }

    fn start_request(
        &self,
        hold: &Guard,
        status: &HoldStatus,
        file: &DeadlineFile,
        variables: &Variables,
    ) -> StartRequest {
        let deadline_file = ("TENURE_DEADLINE_FILE", file.path().into());
        StartRequest {
            id: self.runs,
            deadline: status.deadline,
            grace: self.settings.member.grace(),
            env: hold_env(hold, deadline_file).chain(variables.iter().cloned()).collect(),
            argv: self.settings.command.clone(),
        }
    }

    async fn watch_run(&mut self, hold: &Guard, mut run: ActiveRun) -> RunOutcome {
        let mut changes = hold.changes();
        let mut timer = match BootTimer::new() {
            Ok(timer) => timer,
            Err(error) => return self.give_up(format!("cannot create a timer: {error}")).await,
        };
        loop {
            if let (Some(pid), true) = (run.remains, self.stop.is_some()) {
                return RunOutcome::Remains(pid.as_raw_pid());
            }
            // By then the guard has ended the command, or has reported that it cannot. The TTL ends
            // a margin and a tenth of the TTL after the deadline, which is more than two margins.
            let margin = self.settings.member.ttl.margin();
            let limit = run.overdue.unwrap_or(run.status.deadline.plus(margin));
            let limit = run.remains.is_none().then_some(limit);
            let done = tokio::select! {
                biased;
                report = self.guard.report() => match report {
                    Some(report) => self.reported(&mut run, report).await,
                    None => {
                        let what = "the guard died; the command was killed";
                        return self.give_up(what.to_owned()).await;
                    }
                },
                // It closes only with the hold, which outlives this call.
                _ = changes.changed() => {
                    let status = *changes.borrow_and_update();
                    self.status_changed(&mut run, status).await.map(|()| None)
                }
                signal = self.signals.next() => self.forward(&mut run, signal).await.map(|()| None),
                () = timer.at(limit) => match run.overdue {
                    // After a suspend both processes wake up late: the guard gets another margin.
                    None => {
                        run.overdue = Some(BootClock.now().plus(margin));
                        Ok(None)
                    }
                    Some(_) => {
                        let what = "the guard did not end the command in time; both were killed";
                        return self.give_up(what.to_owned()).await;
                    }
                },
            };
            match done {
                Ok(Some(outcome)) => return outcome,
                Ok(None) => {}
                Err(error) => return self.give_up(format!("the guard is gone: {error}")).await,
            }
        }
    }

    async fn reported(
        &mut self,
        run: &mut ActiveRun,
        report: GuardReport,
    ) -> io::Result<Option<RunOutcome>> {
        if report.id != run.id {
            return Ok(None);
        }
        match report.event {
            GuardEvent::Started(pid) => {
                if self.terminal.is_some() {
                    run.group = self.guard.outside_pid(pid);
                }
                self.lend_terminal(run).await?;
            }
            GuardEvent::Stopped(signal) => self.stopped(run, signal).await?,
            GuardEvent::Remains(pid) => {
                run.remains = self.guard.outside_pid(pid).or(Pid::from_raw(pid));
                self.warn_survivor(run.remains.map_or(pid, Pid::as_raw_pid));
            }
            GuardEvent::CannotStart(errno) => {
                return Ok(Some(RunOutcome::CannotStart(io::Error::from_raw_os_error(errno))));
            }
            GuardEvent::Ended(_, cause) if cause != EndCause::Exited && self.stop.is_none() => {
                return Ok(Some(RunOutcome::TakenAway));
            }
            GuardEvent::Ended(status, _) => return Ok(Some(RunOutcome::Ended(status))),
            GuardEvent::Ready | GuardEvent::CannotIsolate(_) => {}
        }
        Ok(None)
    }

    async fn status_changed(&mut self, run: &mut ActiveRun, status: HoldStatus) -> io::Result<()> {
        let before = std::mem::replace(&mut run.status, status);
        let now = BootClock.now();
        let id = run.id;
        self.write_deadline(run);
        if status.deadline != before.deadline {
            run.overdue = None;
            self.guard.send(&GuardRequest::Deadline { id, at: status.deadline }).await?;
        }
        let kill_at = match (status.lost && !before.lost, status.draining && !before.draining) {
            (true, _) => now.plus(self.settings.member.grace()),
            (_, true) => now.plus(self.settings.member.drain()),
            _ => return Ok(()),
        };
        self.guard.send(&GuardRequest::End { id, kill_at }).await
    }

    /// Drains on TERM; forwards other signals to the command.
    async fn forward(&mut self, run: &mut ActiveRun, signal: Signal) -> io::Result<()> {
        let id = run.id;
        match signal {
            Signal::CHILD => reap_all(),
            Signal::CONT => self.lend_terminal(run).await?,
            Signal::TERM => {
                self.stop = Some(signal);
                self.membership.leaver().leave();
                // The hold will report this, too; this is sooner and does not depend on the hold.
                run.status.draining = true;
                self.write_deadline(run);
                let kill_at = BootClock.now().plus(self.settings.member.drain());
                self.guard.send(&GuardRequest::End { id, kill_at }).await?;
            }
            _ => {
                self.interrupted |= [Signal::HUP, Signal::INT, Signal::QUIT].contains(&signal);
                self.guard.send(&GuardRequest::Signal { id, number: signal.as_raw() }).await?;
            }
        }
        Ok(())
    }

    /// Writes the deadline file. A failure is not critical: the guard enforces the deadline.
    fn write_deadline(&mut self, run: &ActiveRun) {
        let Err(error) = run.file.write(&run.status) else { return };
        if !std::mem::replace(&mut self.deadline_unwritten, true) {
            self.warn("deadline_unwritten", format!("{error}; logged once"));
        }
    }

    /// Moves the command to the foreground of the terminal, and continues it in case it was stopped
    /// before that.
    async fn lend_terminal(&mut self, run: &ActiveRun) -> io::Result<()> {
        let (Some(terminal), Some(group)) = (&mut self.terminal, run.group) else { return Ok(()) };
        terminal.lend(group);
        self.guard.send(&GuardRequest::Signal { id: run.id, number: Signal::CONT.as_raw() }).await
    }

    /// Handles a stopped command: with a terminal, this process stops with it. If it is stopped for
    /// long, it loses the duty, and the guard ends the command.
    async fn stopped(&mut self, run: &ActiveRun, signal: i32) -> io::Result<()> {
        let (Some(terminal), Some(group)) = (&mut self.terminal, run.group) else { return Ok(()) };
        // The command used the terminal just before it was moved to the foreground.
        let too_soon = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal)
            && terminal.is_lent_to(group);
        if !too_soon {
            terminal.take_back(true);
            Terminal::stop_here();
        }
        self.lend_terminal(run).await
    }

    async fn give_up(&mut self, what: String) -> RunOutcome {
        match self.kill_guard().await {
            Some(pid) => RunOutcome::Remains(pid.as_raw_pid()),
            None => RunOutcome::Failed(what),
        }
    }

    /// Kills the guard and the command: without a guard only this process can end it, because
    /// orphans of the guard become its children. Returns when nothing is left, or, when this
    /// process is asked to end, with a process that cannot be ended.
    async fn kill_guard(&mut self) -> Option<Pid> {
        self.guard.kill();
        let (mut backoff, mut warned) = (KillBackoff::new(), false);
        while let Some(pid) = kill_strays(&[]) {
            reap_all();
            if backoff.is_stuck() {
                if !std::mem::replace(&mut warned, true) {
                    self.warn_survivor(pid.as_raw_pid());
                }
                if self.stop.is_some() {
                    return Some(pid);
                }
            }
            tokio::select! {
                signal = self.signals.next() => self.signalled(signal),
                () = tokio::time::sleep(backoff.next()) => {}
            }
        }
        reap_all();
        None
    }

    fn warn(&self, event: &'static str, reason: String) {
        self.recorder.log_instance(LogLevel::Warn, event, reason);
    }

    fn warn_survivor(&self, pid: i32) {
        let meanwhile = "the command is not restarted until it has ended";
        self.warn("not_ended", survivor(pid, meanwhile));
    }
}
