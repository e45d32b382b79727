//! The time from a grant to the end of the command.

use std::ffi::OsString;
use std::io;

use rustix::process::{Pid, Signal};
use tenure_core::{Clock, LocalInstant};
use tenure_duty::{Guard as Hold, HoldStatus};
use tenure_store::BootClock;

use super::Runner;
use super::deadline_file::DeadlineFile;
use crate::failure::Failure;
use crate::guard::{
    BootTimer, End, Guard, Input, Order, Pauses, Report, Start, Why, kill_strays, reap_all,
};
use crate::observe::{Level, Note};
use crate::terminal::Terminal;

/// What a command finds in its environment, beside what every one does.
pub(super) type Variables = [(String, OsString)];

/// What became of the command.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It ended by itself, or because this process was asked to end.
    Ended(End),
    /// It was ended: the duty is to be somewhere else.
    TakenAway,
    /// Nothing was run, or what it did could not be noted.
    Refused(Failure),
    /// There is no such command.
    CannotStart(io::Error),
    /// Something of tenure failed; nothing of the command runs any more.
    Failed(String),
    /// This process is to end, and this one of the command cannot be ended.
    Remains(Pid),
}

/// One run of the command.
struct Run {
    id: u64,
    file: DeadlineFile,
    standing: HoldStatus,
    /// The command's group.
    group: Option<Pid>,
    /// The guard should have ended the command; when this comes, it is done without.
    overdue: Option<LocalInstant>,
    /// One that the guard cannot end; nor could anybody else.
    remains: Option<Pid>,
}

impl Runner {
    /// Runs the command under a hold, until nothing of it runs any more.
    pub(super) async fn attend(&mut self, hold: &Hold, given: &Variables) -> Outcome {
        self.runs += 1;
        self.interrupted = false;
        let outcome = match self.begin(hold, given).await {
            Ok(run) => self.until_it_ends(hold, run).await,
            Err(what) => self.give_up(what).await,
        };
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(!matches!(outcome, Outcome::Ended(End::Code(_))));
        }
        outcome
    }

    async fn begin(&mut self, hold: &Hold, given: &Variables) -> Result<Run, String> {
        let standing = *hold.changes().borrow();
        let file = DeadlineFile::new(self.scratch.path(), hold.epoch());
        let written = file.write(&standing);
        written.map_err(|error| format!("cannot write the deadline file: {error}"))?;
        let start = Order::Start(self.start(hold, &standing, &file, given));
        // It had nothing to do while this process waited, so nobody missed it.
        if self.guard.is_gone() || self.guard.order(&start).await.is_err() {
            self.another_guard().await?;
            let told = self.guard.order(&start).await;
            told.map_err(|error| format!("cannot hand the command to the guard: {error}"))?;
        }
        let (group, overdue, remains) = (None, None, None);
        Ok(Run { id: self.runs, file, standing, group, overdue, remains })
    }

    /// A guard in the place of one that has died.
    async fn another_guard(&mut self) -> Result<(), String> {
        // Killed first: told to go, it would take the folder along.
        if let Some(pid) = self.guard_failed().await {
            return Err(format!("process {pid} below this one cannot be ended"));
        }
        let isolate = self.settings.member.isolate;
        let guard = Guard::start(Input::Ours, Some(self.scratch.path()), isolate);
        self.guard = guard.map_err(|error| format!("cannot start the guard: {error}"))?;
        self.guard.ready().await.map_err(|error| error.problem().to_string())?;
        self.say("guard_replaced", "the guard had died while it had nothing to do".to_owned());
        Ok(())
    }

    fn start(
        &self,
        hold: &Hold,
        standing: &HoldStatus,
        file: &DeadlineFile,
        given: &Variables,
    ) -> Start {
        let env = [
            ("TENURE_DUTY", OsString::from(hold.duty().to_string())),
            ("TENURE_EPOCH", hold.epoch().to_string().into()),
            ("TENURE_INSTANCE", hold.instance().as_str().into()),
            ("TENURE_DEADLINE_FILE", file.path().into()),
        ];
        Start {
            id: self.runs,
            deadline: standing.deadline,
            grace: self.settings.member.grace,
            env: env
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .chain(given.iter().cloned())
                .collect(),
            argv: self.settings.command.clone(),
        }
    }

    async fn until_it_ends(&mut self, hold: &Hold, mut run: Run) -> Outcome {
        let mut changes = hold.changes();
        let mut timer = match BootTimer::new() {
            Ok(timer) => timer,
            Err(error) => return self.give_up(format!("no timer: {error}")).await,
        };
        loop {
            if let (Some(pid), true) = (run.remains, self.asked_to_end.is_some()) {
                return Outcome::Remains(pid);
            }
            // The guard has ended the command before that, or has said that it cannot. The TTL
            // ends a margin and a tenth of it after the deadline, which is more than two margins.
            let margin = self.settings.member.ttl.margin();
            let limit = run.overdue.unwrap_or(run.standing.deadline.plus(margin));
            let limit = run.remains.is_none().then_some(limit);
            let done = tokio::select! {
                biased;
                report = self.guard.report() => match report {
                    Some(report) => self.reported(&mut run, report).await,
                    None => {
                        let what = "the guard has died, and the command was killed";
                        return self.give_up(what.to_owned()).await;
                    }
                },
                // It only closes with the hold, which is here.
                _ = changes.changed() => {
                    let standing = *changes.borrow_and_update();
                    self.stands(&mut run, standing).await.map(|()| None)
                }
                signal = self.signals.next() => self.pass(&mut run, signal).await.map(|()| None),
                () = timer.at(limit) => match run.overdue {
                    // After a suspend both wake up late: the guard gets its chance.
                    None => {
                        run.overdue = Some(BootClock.now().plus(margin));
                        Ok(None)
                    }
                    Some(_) => {
                        let what = "the guard did not end the command in time, and it was killed";
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

    async fn reported(&mut self, run: &mut Run, report: Report) -> io::Result<Option<Outcome>> {
        match report {
            Report::Started { id, pid } if id == run.id => {
                if self.terminal.is_some() {
                    run.group = self.guard.process(pid);
                }
                self.lend_terminal(run).await?;
            }
            Report::Stopped { id, signal } if id == run.id => self.stopped(run, signal).await?,
            Report::Remains { id, pid } if id == run.id => {
                let known = self.guard.process(pid).or(Pid::from_raw(pid));
                run.remains = known;
                self.say("not_ended", not_ended(known.map_or(pid, Pid::as_raw_pid)));
            }
            Report::CannotStart { id, errno } if id == run.id => {
                return Ok(Some(Outcome::CannotStart(io::Error::from_raw_os_error(errno))));
            }
            Report::Ended { id, end, why } if id == run.id => {
                let by_us = why != Why::Itself && self.asked_to_end.is_none();
                return Ok(Some(if by_us { Outcome::TakenAway } else { Outcome::Ended(end) }));
            }
            _ => {}
        }
        Ok(None)
    }

    /// How the hold stands has changed.
    async fn stands(&mut self, run: &mut Run, standing: HoldStatus) -> io::Result<()> {
        let before = std::mem::replace(&mut run.standing, standing);
        let now = BootClock.now();
        let id = run.id;
        self.write_deadline(run);
        if standing.deadline != before.deadline {
            run.overdue = None;
            self.guard.order(&Order::Deadline { id, at: standing.deadline }).await?;
        }
        let kill_at = match (standing.lost && !before.lost, standing.draining && !before.draining) {
            (true, _) => now.plus(self.settings.member.grace),
            (_, true) => now.plus(self.settings.member.drain),
            _ => return Ok(()),
        };
        self.guard.order(&Order::End { id, kill_at }).await
    }

    /// TERM asks for a drain; everything else is between the sender and the command.
    async fn pass(&mut self, run: &mut Run, signal: Signal) -> io::Result<()> {
        let id = run.id;
        match signal {
            Signal::CHILD => reap_all(),
            Signal::CONT => self.lend_terminal(run).await?,
            Signal::TERM => {
                self.asked_to_end = Some(signal);
                self.membership.leaver().leave();
                // The hold will say the same; this is sooner, and does not depend on it.
                run.standing.draining = true;
                self.write_deadline(run);
                let kill_at = BootClock.now().plus(self.settings.member.drain);
                self.guard.order(&Order::End { id, kill_at }).await?;
            }
            _ => {
                self.interrupted |= [Signal::HUP, Signal::INT, Signal::QUIT].contains(&signal);
                self.guard.order(&Order::Signal { id, number: signal.as_raw() }).await?;
            }
        }
        Ok(())
    }

    /// A command that cannot read its deadline still has one.
    fn write_deadline(&mut self, run: &Run) {
        let Err(error) = run.file.write(&run.standing) else { return };
        if !std::mem::replace(&mut self.deadline_unwritten, true) {
            self.say("deadline_unwritten", format!("{error}; this is said once"));
        }
    }

    /// Gives the command the terminal, and lets it go on in case it was stopped before it had it.
    async fn lend_terminal(&mut self, run: &Run) -> io::Result<()> {
        let (Some(terminal), Some(group)) = (&mut self.terminal, run.group) else { return Ok(()) };
        terminal.lend(group);
        self.guard.order(&Order::Signal { id: run.id, number: Signal::CONT.as_raw() }).await
    }

    /// The command was stopped: from the terminal, if there is one, this process stops with it.
    /// Stopped for long, it loses the duty, and the guard ends the command.
    async fn stopped(&mut self, run: &Run, signal: i32) -> io::Result<()> {
        let (Some(terminal), Some(group)) = (&mut self.terminal, run.group) else { return Ok(()) };
        // It used the terminal a moment before it had it.
        let too_soon = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal)
            && terminal.is_lent_to(group);
        if !too_soon {
            terminal.take_back(true);
            Terminal::stop_here();
        }
        self.lend_terminal(run).await
    }

    async fn give_up(&mut self, what: String) -> Outcome {
        match self.guard_failed().await {
            Some(pid) => Outcome::Remains(pid),
            None => Outcome::Failed(what),
        }
    }

    /// Without a guard nobody but this process can end the command. Whatever the guard had comes
    /// here when it is dead. Returns when nothing is left, or with something that cannot be ended
    /// when this process is asked to end.
    async fn guard_failed(&mut self) -> Option<Pid> {
        self.guard.kill();
        let (mut pauses, mut said) = (Pauses::new(), false);
        while let Some(pid) = kill_strays(&[]) {
            reap_all();
            if pauses.are_long() {
                if !std::mem::replace(&mut said, true) {
                    self.say("not_ended", not_ended(pid.as_raw_pid()));
                }
                if self.asked_to_end.is_some() {
                    return Some(pid);
                }
            }
            tokio::select! {
                signal = self.signals.next() => self.signalled(signal),
                () = tokio::time::sleep(pauses.next()) => {}
            }
        }
        reap_all();
        None
    }

    fn say(&self, event: &'static str, reason: String) {
        self.notes.say(Note { level: Level::Warn, event, duty: None, reason });
    }
}

fn not_ended(pid: i32) -> String {
    format!(
        "process {pid} was killed and runs all the same: another user's, or stuck in the kernel; \
         the command is not started again before it has ended"
    )
}
