//! Polls of one target, from its assignment until it is given back.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::text::{counted, span};
use tenure_core::{Clock, Code, LocalInstant, StoreError};
use tenure_duty::{Guard, HoldLost, WorkOutcome, process};
use tenure_store::BootClock;

use super::backoff::{BackoffPeriod, PollFailure};
use super::schedule::PollSchedule;
use super::{PollContext, PollSettings};
use crate::command::CommandTiming;
use crate::guard::{EndCause, ExitStatus};
use crate::observe::{LogEvent, LogLevel, PollResult};
use crate::output::with_output;
use crate::pool::{CommandEnd, PooledRun, PooledStart};
use crate::state::StateFile;

/// Missed polls that are counted one by one in the metrics.
const MAX_COUNTED_MISSES: u64 = 1000;

/// Polls a target while the hold is valid, one poll at a time.
pub(super) async fn poll_target(context: Arc<PollContext>, hold: Guard) {
    let state = context.settings.member.state.as_ref();
    let state = state.map(|state| state.file(&hold.duty().id, context.recorder.clone()));
    let mut target =
        TargetPoller { context: &context, hold: &hold, state, restored: false, failures: 0 };
    let mut schedule = target.schedule(target.every());
    let mut retry = None;
    context.backoff.target_added();
    loop {
        let wait = retry.unwrap_or(schedule.due()).since(BootClock.now());
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
        let every = target.every();
        if schedule.every() != every {
            // The list has another interval now.
            schedule = target.schedule(every);
        }
        let now = BootClock.now();
        // A poll before its time was a retry.
        let missed = if now < schedule.due() { 0 } else { schedule.done(now) };
        // A target that is stopping or backing off is not late.
        let stands = hold.check().is_ok() && !hold.draining();
        let stands = stands && !context.backoff.is_active(now);
        if missed > 0 && stands {
            target.missed(missed);
        }
        retry = target.retry_at().filter(|at| stands && *at < schedule.due());
    }
    context.backoff.target_removed(&hold.duty().id);
    // Whether or not a connection of the API still has the hold.
    hold.finished(WorkOutcome::Asked);
}

struct TargetPoller<'a> {
    context: &'a PollContext,
    hold: &'a Guard,
    state: Option<StateFile>,
    /// Whether the state file has what the store has.
    restored: bool,
    /// Failed polls in a row.
    failures: u32,
}

impl TargetPoller<'_> {
    fn every(&self) -> Duration {
        let own = self.context.targets.of(&self.hold.duty().id).every;
        own.unwrap_or(self.context.settings.every)
    }

    fn timeout(&self) -> Duration {
        let own = self.context.targets.of(&self.hold.duty().id).timeout;
        own.unwrap_or(self.context.settings.timeout)
    }

    fn schedule(&self, every: Duration) -> PollSchedule {
        let id = self.hold.duty().id.as_str();
        PollSchedule::new(id, every, BootClock.now(), process::unix_ms())
    }

    /// Returns when a failed poll is tried again, if it is: sooner than at the next interval, with
    /// a pause that doubles, and is shorter by up to a quarter so that targets are tried apart.
    fn retry_at(&self) -> Option<LocalInstant> {
        let PollSettings { retries, retry_delay, .. } = &self.context.settings;
        let attempt = self.failures.checked_sub(1)?;
        if attempt >= *retries {
            return None;
        }
        let pause = retry_delay.saturating_mul(1 << attempt.min(16));
        let part = (process::entropy() & 0xff) as u32;
        Some(BootClock.now().plus(pause - pause / 1024 * part))
    }

    async fn poll(&mut self) {
        let settings = &self.context.settings;
        // Detects a deleted or overwritten lease before the poll, not at the next renewal.
        if self.context.has_foreign_instances && self.hold.verify().await == Err(HoldLost::Revoked)
        {
            return;
        }
        // A short poll has to fit into the rest of the hold, a long one relies on renewals.
        let (grace, ttl, timeout) = (settings.member.grace(), settings.member.ttl, self.timeout());
        let needed = (timeout + grace).min(ttl.get() / 2 - ttl.margin());
        if let Err(lost) = self.hold.check_for(needed) {
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
        if let Some(state) = self.state.as_ref().filter(|_| !self.restored) {
            if let Err(error) = state.restore(self.hold).await {
                return self.not_restored(&error);
            }
            self.restored = true;
        }
        let target = self.hold.duty().id.as_str();
        let mut timing = CommandTiming::new(&settings.member);
        let limit = BootClock.now().plus(timeout);
        timing.limit = Some(limit.plus(grace));
        timing.finishes = true;
        let start = PooledStart {
            hold: self.hold,
            shard: None,
            argv: settings.argv(target),
            variables: &[("TENURE_TARGET".to_owned(), target.into())],
            timing,
            api: &self.context.api,
            state: self.state.as_ref(),
            log: &|event, reason| self.log(LogLevel::Warn, event, reason),
        };
        let ran = self.context.pool.run(start).await;
        if ran.released {
            self.hold.finished(WorkOutcome::Asked);
        }
        self.finish(ran, limit);
    }

    fn not_restored(&mut self, error: &StoreError) {
        if error.code() == Code::Fenced {
            return;
        }
        self.context.recorder.count_poll(PollResult::Failed);
        self.log(LogLevel::Warn, "poll_failed", error.problem().to_string());
        self.failed(PollFailure::Failed);
    }

    /// Counts and logs an outcome. A failed poll does not end anything: the next one may succeed.
    fn finish(&mut self, ran: PooledRun, limit: LocalInstant) {
        let killed = |why: String| (PollResult::Killed, why, None);
        let failed = |failure, reason| (PollResult::Failed, reason, Some(failure));
        let (result, reason, failure) = match ran.end {
            CommandEnd::Ended(ExitStatus::Code(0), EndCause::Exited) => {
                self.context.recorder.count_poll(PollResult::Done);
                self.log(LogLevel::Debug, "polled", "exit code 0".to_owned());
                return self.succeeded();
            }
            CommandEnd::Ended(_, EndCause::Deadline) if BootClock.now() >= limit => {
                let reason = format!("killed: it took longer than {}", span(self.timeout()));
                (PollResult::Killed, reason, Some(PollFailure::TimedOut))
            }
            CommandEnd::Ended(_, EndCause::Deadline) => {
                killed("killed: the hold was not renewed in time".to_owned())
            }
            CommandEnd::Ended(status, EndCause::Exited) => {
                failed(PollFailure::Failed, with_output(&status.to_string(), &ran.output))
            }
            CommandEnd::CannotStart(error) => {
                let program = self.context.settings.command[0].to_string_lossy();
                let code = Code::CannotStart;
                let what = format!("{code}: {program} cannot be started: {error}");
                failed(PollFailure::NotStarted, format!("{what}; see `tenure errors {code}`"))
            }
            CommandEnd::NoGuard(error) => {
                failed(PollFailure::NotStarted, error.problem().to_string())
            }
            // The remaining outcomes are not failures of the command.
            CommandEnd::Ended(_, EndCause::Requested) => {
                killed("killed: the hold was lost or moved".to_owned())
            }
            CommandEnd::GuardLost(what) => killed(what),
            CommandEnd::Remains => killed("a process of the command is still running".to_owned()),
        };
        self.context.recorder.count_poll(result);
        self.log(LogLevel::Warn, "poll_failed", reason);
        if let Some(failure) = failure {
            self.failed(failure);
        }
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        if self.context.backoff.succeeded() {
            self.context.membership.failing(Duration::ZERO);
            self.context.recorder.set_failing(None);
            let reason = "polls succeed again".to_owned();
            self.context.recorder.log_instance(LogLevel::Info, "fit", reason);
        }
    }

    /// Backs off when all polls fail here, so that other members can take over.
    fn failed(&mut self, failure: PollFailure) {
        self.failures = self.failures.saturating_add(1);
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
        let (times, every) = (counted(polls, "time", "times"), span(self.every()));
        let reason = format!("{times}: a poll takes longer than the interval of {every}");
        self.log(LogLevel::Warn, "poll_skipped", reason);
    }

    fn log(&self, level: LogLevel, event: &'static str, reason: String) {
        let duty = Some((self.hold.duty().clone(), self.hold.epoch()));
        self.context.recorder.log(LogEvent { level, event, duty, reason });
    }
}
