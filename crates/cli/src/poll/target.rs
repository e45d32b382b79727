//! One target, from its assignment until it is given back.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use tenure_core::Clock;
use tenure_duty::{Guard as Hold, process};
use tenure_store::BootClock;
use tokio::time::timeout;

use super::Shared;
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
        target.poll().await;
        drop(permit);
        let missed = schedule.done(BootClock.now());
        if missed > 0 {
            target.missed(missed);
        }
    }
    // Dropped here: the duty is given back.
}

/// What became of a command.
enum Outcome {
    Ended(End, Why),
    CannotStart(io::Error),
    /// The guard is gone; nothing of the command runs any more.
    Lost(&'static str),
}

struct Polling<'a> {
    shared: &'a Shared,
    hold: &'a Hold,
}

impl Polling<'_> {
    async fn poll(&self) {
        let settings = &self.shared.settings;
        // All of it has to fit into what is left of the hold, killing included.
        if let Err(lost) = self.hold.check_for(settings.timeout + settings.member.grace) {
            self.shared.notes.polled(Polled::Skipped);
            self.say(Level::Warn, "poll_skipped", format!("too little is left: {lost}"));
            return;
        }
        let outcome = match self.shared.pool.take() {
            Ok((guard, id)) => self.run(guard, id).await,
            Err(error) => Outcome::CannotStart(error),
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
            self.shared.pool.bury(guard).await;
            return Outcome::Lost("the guard has died before it started the command");
        }
        // The guard has ended the command before that.
        let limit = settings.timeout + settings.member.grace + settings.member.ttl.margin();
        let outcome = timeout(limit, self.until_it_ends(&mut guard, id)).await;
        match outcome {
            Ok(Some(outcome)) => {
                self.shared.pool.give_back(guard);
                outcome
            }
            Ok(None) => {
                self.shared.pool.bury(guard).await;
                Outcome::Lost("the guard has died, and the command was killed")
            }
            Err(_) => {
                self.shared.pool.bury(guard).await;
                Outcome::Lost("the guard did not end the command in time, and it was killed")
            }
        }
    }

    /// `None` when the guard is gone.
    async fn until_it_ends(&self, guard: &mut Guard, id: u64) -> Option<Outcome> {
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
                    return Some(Outcome::Ended(end, why));
                }
                Report::CannotStart { id: of, errno } if of == id => {
                    let error = io::Error::from_raw_os_error(errno);
                    return Some(Outcome::CannotStart(error));
                }
                _ => {}
            }
        }
    }

    /// A poll that fails is no reason to end: the next one may go well.
    fn judge(&self, outcome: Outcome) {
        let (how, reason) = match outcome {
            Outcome::Ended(End::Code(0), Why::Itself) => {
                return self.shared.notes.polled(Polled::Done);
            }
            Outcome::Ended(_, Why::Deadline) => {
                let limit = self.shared.settings.timeout;
                (Polled::Killed, format!("it was ended: it took longer than {limit:?}"))
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
                (Polled::Failed, format!("DT006: {program} cannot be started: {error}"))
            }
            Outcome::Lost(what) => (Polled::Killed, what.to_owned()),
        };
        self.shared.notes.polled(how);
        self.say(Level::Warn, "poll_failed", reason);
    }

    fn missed(&self, beats: u64) {
        for _ in 0..beats.min(1000) {
            self.shared.notes.polled(Polled::Skipped);
        }
        let every = self.shared.settings.every;
        let reason = format!("{beats} times: it takes longer than every {every:?}");
        self.say(Level::Warn, "poll_skipped", reason);
    }

    fn say(&self, level: Level, event: &'static str, reason: String) {
        let duty = Some((self.hold.duty().clone(), self.hold.epoch()));
        self.shared.notes.say(Note { level, event, duty, reason });
    }
}
