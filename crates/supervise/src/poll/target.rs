//! Polls of one target, from its assignment until it is given back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use tenure_core::text::{counted, span};
use tenure_core::{Clock, Code, StoreError};
use tenure_duty::{Guard, HoldLost, process};
use tenure_store::BootClock;
use tokio::time::timeout;

use super::PollContext;
use super::backoff::{BackoffPeriod, PollFailure};
use super::schedule::PollSchedule;
use crate::guard::{EndCause, ExitStatus, GuardEvent, GuardProcess, GuardRequest, StartRequest};
use crate::member::hold_env;
use crate::observe::{LogEvent, LogLevel, PollResult};
use crate::process_tree::survivor;

/// Missed polls that are counted one by one in the metrics.
const MAX_COUNTED_MISSES: u64 = 1000;

/// Polls a target while the hold is valid, one poll at a time.
pub(super) async fn poll_target(context: Arc<PollContext>, hold: Guard) {
    let target = TargetPoller { context: &context, hold: &hold };
    let every = context.settings.every;
    let id = hold.duty().id.as_str();
    let mut schedule = PollSchedule::new(id, every, BootClock.now(), process::unix_ms());
    context.backoff.target_added();
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
            permit = context.permits.acquire() => permit,
        };
        if !context.backoff.is_active(BootClock.now()) {
            target.poll().await;
        }
        drop(permit);
        let missed = schedule.done(BootClock.now());
        // A target that is stopping or backing off is not late.
        let stands = hold.check().is_ok() && !hold.draining();
        if missed > 0 && stands && !context.backoff.is_active(BootClock.now()) {
            target.missed(missed);
        }
    }
    context.backoff.target_removed(&hold.duty().id);
    // Dropping the hold gives the duty back.
}

enum PollOutcome {
    Ended(ExitStatus, EndCause),
    CannotStart(io::Error),
    /// No guard could be started.
    NoGuard(StoreError),
    /// The guard is gone; nothing of the command runs any more.
    GuardLost(&'static str),
    /// This process is asked to end, and a process of the command cannot be ended.
    Remains,
}

enum LastReport {
    Final(PollOutcome),
    /// This process of the command cannot be ended.
    Remains(i32),
}

struct TargetPoller<'a> {
    context: &'a PollContext,
    hold: &'a Guard,
}

impl TargetPoller<'_> {
    async fn poll(&self) {
        let settings = &self.context.settings;
        // Detects a deleted or overwritten lease before the poll, not at the next renewal.
        if self.context.has_foreign_instances && self.hold.verify().await == Err(HoldLost::Revoked)
        {
            return;
        }
        // The whole poll, with the time to kill it, has to fit into the rest of the hold.
        if let Err(lost) = self.hold.check_for(settings.timeout + settings.member.grace()) {
            self.context.recorder.count_poll(PollResult::Skipped);
            if self.context.backoff.skipped() {
                let reason = format!("too little time is left: {lost}; logged once per outage");
                self.log(LogLevel::Warn, "poll_skipped", reason);
            }
            return;
        }
        if let Some(skipped) = self.context.backoff.poll_started() {
            let polls = counted(skipped, "poll was", "polls were");
            self.log(LogLevel::Info, "poll_resumed", format!("{polls} skipped"));
        }
        let outcome = match self.context.pool.take().await {
            Ok((guard, id)) => self.run(guard, id).await,
            Err(error) => PollOutcome::NoGuard(error),
        };
        self.finish(outcome);
    }

    fn start_request(&self, id: u64) -> GuardRequest {
        let (settings, hold) = (&self.context.settings, self.hold);
        let grace = settings.member.grace();
        let target = hold.duty().id.as_str();
        GuardRequest::Start(StartRequest {
            id,
            deadline: BootClock.now().plus(settings.timeout + grace).min(hold.deadline()),
            grace,
            env: hold_env(hold, ("TENURE_TARGET", target.into())).collect(),
            argv: settings.argv(target),
        })
    }

    async fn run(&self, mut guard: GuardProcess, id: u64) -> PollOutcome {
        let settings = &self.context.settings;
        if guard.send(&self.start_request(id)).await.is_err() {
            let what = "the guard died before it started the command";
            return self.discard(guard, what).await;
        }
        // By then the guard has ended the command, or has reported that it cannot.
        let margin = settings.member.ttl.margin();
        let limit = settings.timeout + settings.member.grace() + margin;
        let mut last = timeout(limit, self.last_report(&mut guard, id)).await;
        if last.is_err() {
            // After a pause of this process, timers fire before pending reports are read.
            last = timeout(margin, self.last_report(&mut guard, id)).await;
        }
        let outcome = match last {
            Ok(Some(LastReport::Remains(pid))) => {
                self.log_survivor(guard.outside_pid(pid).map_or(pid, Pid::as_raw_pid));
                self.wait_for_survivor(&mut guard, id).await
            }
            Ok(Some(LastReport::Final(outcome))) => Some(outcome),
            Ok(None) => None,
            Err(_) => {
                let what = "the guard did not end the command in time; both were killed";
                return self.discard(guard, what).await;
            }
        };
        match outcome {
            // The guard is dropped, and keeps trying.
            Some(PollOutcome::Remains) => PollOutcome::Remains,
            Some(outcome) => {
                self.context.pool.give_back(guard);
                outcome
            }
            None => self.discard(guard, "the guard died; the command was killed").await,
        }
    }

    async fn discard(&self, guard: GuardProcess, what: &'static str) -> PollOutcome {
        let survivor = |pid: Pid| self.log_survivor(pid.as_raw_pid());
        tokio::select! {
            biased;
            () = self.context.pool.discard(guard, survivor) => PollOutcome::GuardLost(what),
            () = self.out_of_time() => PollOutcome::Remains,
        }
    }

    /// Waits until the hold is lost and this process is asked to end. After that, nothing waits for
    /// a process that cannot be ended.
    async fn out_of_time(&self) {
        self.context.leaving().await;
        self.hold.lost().await;
    }

    /// Waits for the end of a process that survived KILL; until then the target is not polled.
    /// `None` when the guard is gone.
    async fn wait_for_survivor(&self, guard: &mut GuardProcess, id: u64) -> Option<PollOutcome> {
        tokio::select! {
            biased;
            last = self.last_report(guard, id) => match last? {
                LastReport::Final(outcome) => Some(outcome),
                // A guard reports this only once.
                LastReport::Remains(_) => Some(PollOutcome::Remains),
            },
            () = self.out_of_time() => Some(PollOutcome::Remains),
        }
    }

    fn log_survivor(&self, pid: i32) {
        let reason = survivor(pid, "the target is not polled until it has ended");
        self.log(LogLevel::Warn, "not_ended", reason);
    }

    /// Waits for the last report about a command. `None` when the guard is gone.
    async fn last_report(&self, guard: &mut GuardProcess, id: u64) -> Option<LastReport> {
        let mut requested = false;
        loop {
            let report = tokio::select! {
                biased;
                report = guard.report() => report?,
                () = self.hold.lost(), if !requested => {
                    requested = true;
                    let kill_at = BootClock.now();
                    guard.send(&GuardRequest::End { id, kill_at }).await.ok()?;
                    continue;
                }
            };
            match report.event {
                _ if report.id != id => {}
                GuardEvent::Ended(status, cause) => {
                    return Some(LastReport::Final(PollOutcome::Ended(status, cause)));
                }
                GuardEvent::CannotStart(errno) => {
                    let error = io::Error::from_raw_os_error(errno);
                    return Some(LastReport::Final(PollOutcome::CannotStart(error)));
                }
                GuardEvent::Remains(pid) => return Some(LastReport::Remains(pid)),
                _ => {}
            }
        }
    }

    /// Counts and logs an outcome. A failed poll does not end anything: the next one may succeed.
    fn finish(&self, outcome: PollOutcome) {
        let killed = |why: &str| (PollResult::Killed, why.to_owned(), None);
        let failed = |failure, reason| (PollResult::Failed, reason, Some(failure));
        let (result, reason, failure) = match outcome {
            PollOutcome::Ended(ExitStatus::Code(0), EndCause::Exited) => {
                self.context.recorder.count_poll(PollResult::Done);
                return self.succeeded();
            }
            PollOutcome::Ended(_, EndCause::Deadline) => {
                let limit = span(self.context.settings.timeout);
                let reason = format!("killed: it took longer than {limit}");
                (PollResult::Killed, reason, Some(PollFailure::TimedOut))
            }
            PollOutcome::Ended(ExitStatus::Code(code), EndCause::Exited) => {
                failed(PollFailure::Failed, format!("exit code {code}"))
            }
            PollOutcome::Ended(ExitStatus::Signal(signal), EndCause::Exited) => {
                failed(PollFailure::Failed, format!("ended by signal {signal}"))
            }
            PollOutcome::CannotStart(error) => {
                let program = self.context.settings.command[0].to_string_lossy();
                let code = Code::CannotStart;
                let what = format!("{code}: {program} cannot be started: {error}");
                failed(PollFailure::NotStarted, format!("{what}; see `tenure errors {code}`"))
            }
            PollOutcome::NoGuard(error) => {
                failed(PollFailure::NotStarted, error.problem().to_string())
            }
            // The remaining outcomes are not failures of the command.
            PollOutcome::Ended(_, EndCause::Requested) => killed("killed: the hold was lost"),
            PollOutcome::GuardLost(what) => killed(what),
            PollOutcome::Remains => killed("a process of the command is still running"),
        };
        self.context.recorder.count_poll(result);
        self.log(LogLevel::Warn, "poll_failed", reason);
        if let Some(failure) = failure {
            self.failed(failure);
        }
    }

    fn succeeded(&self) {
        if self.context.backoff.succeeded() {
            self.context.membership.failing(Duration::ZERO);
            self.context.recorder.set_failing(None);
            let reason = "polls succeed again".to_owned();
            self.context.recorder.log_instance(LogLevel::Info, "fit", reason);
        }
    }

    /// Backs off when all polls fail here, so that other members can take over.
    fn failed(&self, failure: PollFailure) {
        let (target, now) = (&self.hold.duty().id, BootClock.now());
        let begun = self.context.backoff.failed(target, failure, now, process::entropy());
        let Some(BackoffPeriod { duration, failures }) = begun else { return };
        self.context.membership.failing(duration);
        self.context.recorder.set_failing(Some(now.plus(duration)));
        let not_started = failure == PollFailure::NotStarted;
        let reason = format!(
            "{}: {failures} polls in a row {}; targets go to other members, if there are any, and \
             nothing is polled here for {}",
            Code::Failing.as_str(),
            if not_started { "could not be started" } else { "failed" },
            span(Duration::from_secs(duration.as_secs().max(1))),
        );
        self.context.recorder.log_instance(LogLevel::Warn, "failing", reason);
    }

    fn missed(&self, polls: u64) {
        for _ in 0..polls.min(MAX_COUNTED_MISSES) {
            self.context.recorder.count_poll(PollResult::Skipped);
        }
        let (times, every) = (counted(polls, "time", "times"), span(self.context.settings.every));
        let reason = format!("{times}: a poll takes longer than the interval of {every}");
        self.log(LogLevel::Warn, "poll_skipped", reason);
    }

    fn log(&self, level: LogLevel, event: &'static str, reason: String) {
        let duty = Some((self.hold.duty().clone(), self.hold.epoch()));
        self.context.recorder.log(LogEvent { level, event, duty, reason });
    }
}
