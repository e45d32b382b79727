//! One target, from its assignment until it is given back.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use tenure_core::text::{counted, span};
use tenure_core::{Clock, Code, StoreError};
use tenure_duty::{Guard as Hold, HoldLost, process};
use tenure_store::BootClock;
use tokio::time::timeout;

use super::Shared;
use super::fitness::{Fault, Resting};
use super::schedule::Schedule;
use crate::guard::{End, Guard, Order, Report, Start, Why};
use crate::observe::{Level, Note, Polled};

/// Polls the target as long as the hold stands. One poll at a time: the next one begins after the
/// one before has ended.
pub(super) async fn attend(shared: Arc<Shared>, hold: Hold) {
    let target = Polling { shared: &shared, hold: &hold };
    let every = shared.settings.every;
    let id = hold.duty().id.as_str();
    let mut schedule = Schedule::new(id, every, BootClock.now(), process::unix_ms());
    shared.fitness.came();
    loop {
        let wait = schedule.due().since(BootClock.now());
        tokio::select! {
            biased;
            () = hold.stopping() => break,
            () = tokio::time::sleep(wait) => {}
        }
        let permit = tokio::select! {
            biased;
            () = hold.stopping() => break,
            permit = shared.permits.acquire() => permit,
        };
        // One that was told already: all polls fail here.
        if !shared.fitness.rests(BootClock.now()) {
            target.poll().await;
        }
        drop(permit);
        let missed = schedule.done(BootClock.now());
        // What is stopped is not late, nor is what rests.
        let stands = hold.check().is_ok() && !hold.draining();
        if missed > 0 && stands && !shared.fitness.rests(BootClock.now()) {
            target.missed(missed);
        }
    }
    shared.fitness.went(&hold.duty().id);
    // Dropped here: the duty is given back.
}

/// What became of a command.
enum Outcome {
    Ended(End, Why),
    CannotStart(io::Error),
    /// There is no guard to start it.
    NoGuard(StoreError),
    /// The guard is gone; nothing of the command runs any more.
    Lost(&'static str),
    /// This process is to end, and something of the command cannot be ended.
    Remains,
}

/// How far it came.
enum Reached {
    End(Outcome),
    /// This process of the command cannot be ended.
    Remains(i32),
}

struct Polling<'a> {
    shared: &'a Shared,
    hold: &'a Hold,
}

impl Polling<'_> {
    async fn poll(&self) {
        let settings = &self.shared.settings;
        // A lease that somebody has deleted or overwritten is noticed before the poll, not at the
        // next renewal.
        if settings.shared && self.hold.verify().await == Err(HoldLost::Revoked) {
            return;
        }
        // All of it has to fit into what is left of the hold, killing included.
        if let Err(lost) = self.hold.check_for(settings.timeout + settings.member.grace) {
            self.shared.notes.polled(Polled::Skipped);
            if self.shared.fitness.skipped() {
                let reason = format!("too little is left: {lost}; this is said once per outage");
                self.say(Level::Warn, "poll_skipped", reason);
            }
            return;
        }
        if let Some(skipped) = self.shared.fitness.begins() {
            let polls = counted(skipped, "poll was", "polls were");
            self.say(Level::Info, "poll_resumed", format!("{polls} skipped"));
        }
        let outcome = match self.shared.pool.take().await {
            Ok((guard, id)) => self.run(guard, id).await,
            Err(error) => Outcome::NoGuard(error),
        };
        self.judge(outcome);
    }

    fn start(&self, id: u64) -> Order {
        let (settings, hold) = (&self.shared.settings, self.hold);
        let grace = settings.member.grace;
        let target = hold.duty().id.as_str();
        let env = [
            ("TENURE_TARGET", OsString::from(target)),
            ("TENURE_DUTY", hold.duty().to_string().into()),
            ("TENURE_EPOCH", hold.epoch().to_string().into()),
            ("TENURE_INSTANCE", hold.instance().as_str().into()),
        ];
        Order::Start(Start {
            id,
            deadline: BootClock.now().plus(settings.timeout + grace).min(hold.deadline()),
            grace,
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            argv: settings.argv(target),
        })
    }

    async fn run(&self, mut guard: Guard, id: u64) -> Outcome {
        let settings = &self.shared.settings;
        if guard.order(&self.start(id)).await.is_err() {
            let what = "the guard has died before it started the command";
            return self.bury(guard, what).await;
        }
        // The guard has ended the command before that, or has said that it cannot.
        let margin = settings.member.ttl.margin();
        let limit = settings.timeout + settings.member.grace + margin;
        let mut ended = timeout(limit, self.until_it_ends(&mut guard, id)).await;
        if ended.is_err() {
            // After a pause of this process its timers come first: what the guard has said
            // meanwhile is still to be read.
            ended = timeout(margin, self.until_it_ends(&mut guard, id)).await;
        }
        let outcome = match ended {
            Ok(Some(Reached::Remains(pid))) => {
                self.not_ended(guard.process(pid).map_or(pid, Pid::as_raw_pid));
                self.until_it_is_gone(&mut guard, id).await
            }
            Ok(Some(Reached::End(outcome))) => Some(outcome),
            Ok(None) => None,
            Err(_) => {
                let what = "the guard did not end the command in time, and it was killed";
                return self.bury(guard, what).await;
            }
        };
        match outcome {
            // Dropped, it goes on trying.
            Some(Outcome::Remains) => Outcome::Remains,
            Some(outcome) => {
                self.shared.pool.give_back(guard);
                outcome
            }
            None => self.bury(guard, "the guard has died, and the command was killed").await,
        }
    }

    async fn bury(&self, guard: Guard, what: &'static str) -> Outcome {
        let remains = |pid: Pid| self.not_ended(pid.as_raw_pid());
        tokio::select! {
            biased;
            () = self.shared.pool.bury(guard, remains) => Outcome::Lost(what),
            () = self.out_of_time() => Outcome::Remains,
        }
    }

    /// The hold is gone, and this process is to end: nobody waits for what cannot be ended.
    async fn out_of_time(&self) {
        self.shared.leaving().await;
        self.hold.lost().await;
    }

    /// Until then the target is not polled again. `None` when the guard is gone.
    async fn until_it_is_gone(&self, guard: &mut Guard, id: u64) -> Option<Outcome> {
        tokio::select! {
            biased;
            reached = self.until_it_ends(guard, id) => match reached? {
                Reached::End(outcome) => Some(outcome),
                // It is told once.
                Reached::Remains(_) => Some(Outcome::Remains),
            },
            () = self.out_of_time() => Some(Outcome::Remains),
        }
    }

    fn not_ended(&self, pid: i32) {
        let reason = format!(
            "process {pid} was killed and runs all the same: another user's, or stuck in the \
             kernel; the target is not polled before it has ended"
        );
        self.say(Level::Warn, "not_ended", reason);
    }

    /// `None` when the guard is gone.
    async fn until_it_ends(&self, guard: &mut Guard, id: u64) -> Option<Reached> {
        let mut ordered = false;
        loop {
            let report = tokio::select! {
                biased;
                report = guard.report() => report?,
                () = self.hold.lost(), if !ordered => {
                    ordered = true;
                    let kill_at = BootClock.now();
                    guard.order(&Order::End { id, kill_at }).await.ok()?;
                    continue;
                }
            };
            match report {
                Report::Ended { id: of, end, why } if of == id => {
                    return Some(Reached::End(Outcome::Ended(end, why)));
                }
                Report::CannotStart { id: of, errno } if of == id => {
                    let error = io::Error::from_raw_os_error(errno);
                    return Some(Reached::End(Outcome::CannotStart(error)));
                }
                Report::Remains { id: of, pid } if of == id => {
                    return Some(Reached::Remains(pid));
                }
                _ => {}
            }
        }
    }

    /// A poll that fails is no reason to end: the next one may go well.
    fn judge(&self, outcome: Outcome) {
        let fault = match &outcome {
            Outcome::CannotStart(_) | Outcome::NoGuard(_) => Some(Fault::NotStarted),
            Outcome::Ended(_, Why::Itself) => Some(Fault::Failed),
            Outcome::Ended(_, Why::Deadline) => Some(Fault::TooLong),
            // No fault of the command.
            Outcome::Ended(_, Why::Ordered) | Outcome::Lost(_) | Outcome::Remains => None,
        };
        let (how, reason) = match outcome {
            Outcome::Ended(End::Code(0), Why::Itself) => {
                self.shared.notes.polled(Polled::Done);
                return self.went_well();
            }
            Outcome::Ended(_, Why::Deadline) => {
                let limit = self.shared.settings.timeout;
                (Polled::Killed, format!("it was ended: it took longer than {}", span(limit)))
            }
            Outcome::Ended(_, Why::Ordered) => {
                (Polled::Killed, "it was ended: the hold was lost".to_owned())
            }
            Outcome::Ended(End::Code(code), _) => (Polled::Failed, format!("exit code {code}")),
            Outcome::Ended(End::Signal(signal), _) => {
                (Polled::Failed, format!("ended by signal {signal}"))
            }
            Outcome::CannotStart(error) => {
                let program = self.shared.settings.command[0].to_string_lossy();
                let hint = Code::CannotStart.hint();
                let what = format!("DT006: {program} cannot be started: {error}; hint: {hint}");
                (Polled::Failed, what)
            }
            Outcome::NoGuard(error) => (Polled::Failed, error.problem().to_string()),
            Outcome::Lost(what) => (Polled::Killed, what.to_owned()),
            Outcome::Remains => (Polled::Killed, "something of it still runs".to_owned()),
        };
        self.shared.notes.polled(how);
        self.say(Level::Warn, "poll_failed", reason);
        if let Some(fault) = fault {
            self.went_wrong(fault);
        }
    }

    fn went_well(&self) {
        if self.shared.fitness.succeeded() {
            self.shared.membership.failing(Duration::ZERO);
            self.shared.notes.failing(None);
            self.tell(Level::Info, "fit", "polls go well again".to_owned());
        }
    }

    /// When all polls fail here, others may do better.
    fn went_wrong(&self, fault: Fault) {
        let (target, now) = (&self.hold.duty().id, BootClock.now());
        let failed = self.shared.fitness.failed(target, fault, now, process::entropy());
        let Some(Resting { rest, failures }) = failed else { return };
        self.shared.membership.failing(rest);
        self.shared.notes.failing(Some(now.plus(rest)));
        let reason = format!(
            "{}: {failures} polls in a row {}; targets go to other members, if there are any, and \
             nothing is polled here for {}",
            Code::Failing.as_str(),
            if fault == Fault::NotStarted { "could not be started" } else { "failed" },
            span(Duration::from_secs(rest.as_secs().max(1))),
        );
        self.tell(Level::Warn, "failing", reason);
    }

    /// Says something of this instance, not of the target.
    fn tell(&self, level: Level, event: &'static str, reason: String) {
        self.shared.notes.say(Note { level, event, duty: None, reason });
    }

    fn missed(&self, beats: u64) {
        for _ in 0..beats.min(1000) {
            self.shared.notes.polled(Polled::Skipped);
        }
        let (times, every) = (counted(beats, "time", "times"), span(self.shared.settings.every));
        let reason = format!("{times}: it takes longer than every {every}");
        self.say(Level::Warn, "poll_skipped", reason);
    }

    fn say(&self, level: Level, event: &'static str, reason: String) {
        let duty = Some((self.hold.duty().clone(), self.hold.epoch()));
        self.shared.notes.say(Note { level, event, duty, reason });
    }
}
