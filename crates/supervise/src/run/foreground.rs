//! One run of a command in the foreground, from the grant of the duty to the end of the command.

use std::io;
use std::pin::pin;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tenure_core::Code;
use tenure_duty::Guard;

use super::{RunOutcome, Runner};
use crate::command::{CommandEvent, CommandStart, CommandTiming, HeldCommand, Variables};
use crate::error::SuperviseError;
use crate::guard::{EndCause, ExitStatus, GuardProcess};
use crate::observe::LogLevel;
use crate::process_tree::{KillBackoff, kill_strays, reap_all, survivor};
use crate::terminal::Terminal;

/// Pause between two attempts to read the state from the store.
const RESTORE_PAUSE: Duration = Duration::from_secs(1);

impl Runner {
    /// Runs the command under a hold, until nothing of it runs any more.
    pub(super) async fn run_command(&mut self, hold: &Guard, variables: &Variables) -> RunOutcome {
        self.runs += 1;
        self.interrupted = false;
        if let Err(outcome) = self.restore_state(hold).await {
            return outcome;
        }
        let outcome = match self.begin(hold, variables).await {
            Ok(command) => self.attend(command).await,
            Err(what) => self.give_up(what).await,
        };
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(!matches!(outcome, RunOutcome::Ended(ExitStatus::Code(_))));
        }
        outcome
    }

    /// Restores the state file, if there is one. While the store is away it tries again, until the
    /// hold ends or this process is asked to end.
    async fn restore_state(&mut self, hold: &Guard) -> Result<(), RunOutcome> {
        let Some(state) = self.state.clone() else { return Ok(()) };
        loop {
            let error = match state.restore(hold).await {
                Ok(()) => return Ok(()),
                Err(error) if error.may_pass() => error,
                Err(error) if error.code() == Code::Fenced => return Err(RunOutcome::TakenAway),
                Err(error) => {
                    let kept = "the duty was released; the state file was not changed";
                    return Err(RunOutcome::Refused(SuperviseError::Kept { error, kept }));
                }
            };
            self.warn("state_file", format!("{}: tried again", error.problem()));
            tokio::select! {
                biased;
                () = hold.stopping() => {}
                signal = self.signals.next() => self.signalled(signal),
                () = tokio::time::sleep(RESTORE_PAUSE) => {}
            }
            if self.stop.is_some() || hold.draining() || hold.is_over() {
                return Err(RunOutcome::TakenAway);
            }
        }
    }

    async fn begin(&mut self, hold: &Guard, variables: &Variables) -> Result<HeldCommand, String> {
        // The guard may have died while it was idle.
        if self.guard.is_gone() {
            self.replace_guard().await?;
        }
        let start = CommandStart {
            id: self.runs,
            hold,
            shard: None,
            argv: self.settings.command.clone(),
            variables,
            timing: CommandTiming::new(&self.settings.member),
            folder: &self.folder,
            api: &self.api,
            state: self.state.as_ref(),
        };
        HeldCommand::start(start, &mut self.guard).await
    }

    async fn replace_guard(&mut self) -> Result<(), String> {
        // Killed first: a guard that exits normally removes the folder.
        if let Some(pid) = self.kill_guard().await {
            return Err(format!("descendant process {pid} cannot be killed"));
        }
        let guard = GuardProcess::start(&self.guard_options);
        self.guard = guard.map_err(|error| format!("cannot start the guard: {error}"))?;
        self.guard.ready().await.map_err(|error| error.problem().to_string())?;
        self.warn("guard_replaced", "the guard had died while it was idle".to_owned());
        Ok(())
    }

    async fn attend(&mut self, mut command: HeldCommand) -> RunOutcome {
        let (outcome, status) = self.watch_run(&mut command).await;
        let mut finish = pin!(command.finish(status));
        let released = loop {
            tokio::select! {
                biased;
                released = &mut finish => break released,
                signal = self.signals.next() => self.signalled(signal),
            }
        };
        match outcome {
            // It was asked to end.
            RunOutcome::Ended(_) if released && self.stop.is_none() => RunOutcome::TakenAway,
            outcome => outcome,
        }
    }

    /// Returns also how the command ended, if it is known.
    async fn watch_run(&mut self, command: &mut HeldCommand) -> (RunOutcome, Option<ExitStatus>) {
        // Process group of the command, if there is a terminal to lend.
        let mut group = None;
        loop {
            if let (Some(pid), true) = (command.survivor(), self.stop.is_some()) {
                return (RunOutcome::Remains(pid.as_raw_pid()), None);
            }
            let wake = tokio::select! {
                biased;
                wake = command.wait(&mut self.guard) => Ok(wake),
                signal = self.signals.next() => Err(signal),
            };
            let handled = match wake {
                Ok(wake) => match command.handle(&mut self.guard, wake).await {
                    Some(CommandEvent::Ended(status, cause)) => {
                        let taken = cause != EndCause::Exited && self.stop.is_none();
                        let ended = RunOutcome::Ended(status);
                        return (if taken { RunOutcome::TakenAway } else { ended }, Some(status));
                    }
                    Some(event) => self.happened(command, &mut group, event).await,
                    None => Ok(None),
                },
                Err(signal) => self.forward(command, group, signal).await.map(|()| None),
            };
            match handled {
                Ok(Some(outcome)) => return (outcome, None),
                Ok(None) => {}
                Err(what) => return (self.give_up(what).await, None),
            }
        }
    }

    async fn happened(
        &mut self,
        command: &mut HeldCommand,
        group: &mut Option<Pid>,
        event: CommandEvent,
    ) -> Result<Option<RunOutcome>, String> {
        match event {
            CommandEvent::Started(pid) => {
                if self.terminal.is_some() {
                    *group = self.guard.outside_pid(pid);
                }
                self.lend_terminal(command, *group).await?;
            }
            CommandEvent::Stopped(signal) => self.stopped(command, *group, signal).await?,
            CommandEvent::Remains(pid) => self.warn_survivor(pid.as_raw_pid()),
            CommandEvent::Unwritten(error) => self.deadline_unwritten(&error),
            CommandEvent::CannotStart(error) => return Ok(Some(RunOutcome::CannotStart(error))),
            CommandEvent::Ended(status, _) => return Ok(Some(RunOutcome::Ended(status))),
            CommandEvent::GuardFailed(what) => return Err(what),
        }
        Ok(None)
    }

    /// Drains on TERM; forwards other signals to the command.
    async fn forward(
        &mut self,
        command: &mut HeldCommand,
        group: Option<Pid>,
        signal: Signal,
    ) -> Result<(), String> {
        match signal {
            Signal::CHILD => reap_all(),
            Signal::CONT => self.lend_terminal(command, group).await?,
            Signal::TERM => {
                self.stop = Some(signal);
                self.recorder.set_leaving();
                self.membership.leaver().leave();
                command.stop(&mut self.guard).await?;
            }
            _ => {
                self.interrupted |= [Signal::HUP, Signal::INT, Signal::QUIT].contains(&signal);
                command.signal(&mut self.guard, signal).await?;
            }
        }
        Ok(())
    }

    /// Logs once that the deadline file cannot be written. That is not critical: the guard enforces
    /// the deadline.
    fn deadline_unwritten(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.deadline_unwritten, true) {
            self.warn("deadline_unwritten", format!("{error}; logged once"));
        }
    }

    /// Moves the command to the foreground of the terminal, and continues it in case it was stopped
    /// before that.
    async fn lend_terminal(
        &mut self,
        command: &HeldCommand,
        group: Option<Pid>,
    ) -> Result<(), String> {
        let (Some(terminal), Some(group)) = (&mut self.terminal, group) else { return Ok(()) };
        terminal.lend(group);
        command.signal(&mut self.guard, Signal::CONT).await
    }

    /// Handles a stopped command: with a terminal, this process stops with it. If it is stopped for
    /// long, it loses the duty, and the guard ends the command.
    async fn stopped(
        &mut self,
        command: &HeldCommand,
        group: Option<Pid>,
        signal: i32,
    ) -> Result<(), String> {
        let (Some(terminal), Some(in_front)) = (&mut self.terminal, group) else { return Ok(()) };
        // The command used the terminal just before it was moved to the foreground.
        let too_soon = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal)
            && terminal.is_lent_to(in_front);
        if !too_soon {
            terminal.take_back(true);
            Terminal::stop_here();
        }
        self.lend_terminal(command, group).await
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
