//! Polls of one target, from its assignment until it is given back.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::text::{counted, span};
use tenure_core::{Clock, Code, LocalInstant, StoreError};
use tenure_duty::{Guard, HoldLost, WorkOutcome, process};
use tenure_operate::millis;
use tenure_store::BootClock;
use tenure_wire::poll_report::PollReport;
use tokio::time::timeout;

use super::backoff::{BackoffPeriod, PollFailure};
use super::schedule::PollSchedule;
use super::{MissedPolls, PollContext, PollSettings};
use crate::command::CommandTiming;
use crate::guard::{EndCause, ExitStatus};
use crate::observe::{LogEvent, LogLevel, PollResult};
use crate::output::with_output;
use crate::pool::{CommandEnd, PooledRun, PooledStart};
use crate::state::StateFile;

/// Missed polls that are counted one by one in the metrics.
const MAX_COUNTED_MISSES: u64 = 1000;
/// Limit on reading the last result of a target.
const RESUME_TIMEOUT: Duration = Duration::from_secs(5);

/// Polls a target while the hold is valid, one poll at a time.
pub(super) async fn poll_target(context: Arc<PollContext>, hold: Guard) {
    let state = context.states.as_ref().map(|states| states.of(&hold.duty().id));
    let mut target = TargetPoller::new(&context, &hold, state);
    let mut schedule = target.schedule(target.every());
    context.backoff.target_added();
    let mut retry = tokio::select! {
        biased;
        () = hold.stopping() => None,
        first = target.resume(schedule.due()) => first,
    };
    let mut is_retry = false;
    while !target.released {
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
        let due = retry.unwrap_or(schedule.due());
        target.attempt = if is_retry { target.attempt.saturating_add(1) } else { 0 };
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
        is_retry = retry.is_some();
        target.record(due, retry.unwrap_or(schedule.due()));
    }
    context.results.finish(&hold).await;
    context.backoff.target_removed(&hold.duty().id);
    // Whether or not a connection of the API still has the hold.
    hold.finished(WorkOutcome::Asked);
}

struct TargetPoller<'a> {
    context: &'a PollContext,
    hold: &'a Guard,
    state: Option<StateFile>,
    /// Number of the last poll in its interval: retries follow the first one, which is 0.
    attempt: u32,
    /// Whether the program has asked to give the duty back.
    released: bool,
    /// The newest result, of whatever holder.
    report: PollReport,
    /// Outcome of the last poll, until it is in the report.
    outcome: Option<PollOutcome>,
    /// Whether a result of this hold was noted.
    noted: bool,
}

/// Outcome of a poll that the target is answerable for.
struct PollOutcome {
    took: Duration,
    /// Reason of a failure.
    failure: Option<String>,
}

/// Returns the wall clock at an instant, as far as both clocks keep pace.
fn unix_ms_at(at: LocalInstant) -> u64 {
    let (now, unix_ms) = (BootClock.now(), process::unix_ms());
    unix_ms.saturating_add(millis(at.since(now))).saturating_sub(millis(now.since(at)))
}

impl<'a> TargetPoller<'a> {
    fn new(context: &'a PollContext, hold: &'a Guard, state: Option<StateFile>) -> Self {
        let (report, outcome) = (PollReport::default(), None);
        let (attempt, released, noted) = (0, false, false);
        Self { context, hold, state, attempt, released, report, outcome, noted }
    }

    /// Goes on from the newest result of any holder. Returns when to poll first, if not at the next
    /// slot: at once if the target is overdue, or when a failed poll was to be tried again.
    async fn resume(&mut self, slot: LocalInstant) -> Option<LocalInstant> {
        let found = match timeout(RESUME_TIMEOUT, self.hold.reported()).await {
            Ok(Ok(found)) => found?,
            Ok(Err(error)) => return self.not_resumed(&error.to_string()),
            Err(_) => return self.not_resumed("the store did not answer in time"),
        };
        self.report = PollReport::read(found.document.as_bytes())?;
        let (next, now) = (self.report.next_unix_ms?, process::unix_ms());
        if next > now {
            let wait = Duration::from_millis(next - now);
            return Some(BootClock.now().plus(wait)).filter(|at| *at < slot);
        }
        let late = Duration::from_millis(now - next);
        let missed = u64::try_from(late.as_nanos() / self.every().as_nanos().max(1));
        let missed = missed.unwrap_or(u64::MAX);
        let (skipped, first) = match self.context.settings.missed {
            MissedPolls::Run => (missed, Some(BootClock.now())),
            MissedPolls::Skip => (missed.saturating_add(1), None),
        };
        self.count_skipped(skipped);
        let late = span(Duration::from_secs(late.as_secs()));
        let polls = counted(skipped, "poll was", "polls were");
        let what = if first.is_some() { "polled now" } else { "polled at its next time" };
        let reason = format!("due {late} ago and {what}; {polls} skipped");
        self.log(LogLevel::Debug, "poll_overdue", reason);
        first
    }

    /// A target whose result cannot be read begins at its next slot.
    fn not_resumed(&self, why: &str) -> Option<LocalInstant> {
        let reason = format!("the last result cannot be read: {why}");
        self.log(LogLevel::Warn, "result_unread", reason);
        None
    }

    /// Notes the result of the last poll, if there was one, with the time of the next poll.
    fn record(&mut self, due: LocalInstant, next: LocalInstant) {
        let Some(PollOutcome { took, failure }) = self.outcome.take() else { return };
        let before = self.report.last_failure.clone().filter(|_| self.report.is_failing());
        let now = process::unix_ms();
        self.report.due_unix_ms = unix_ms_at(due);
        self.report.polled_unix_ms = now;
        self.report.duration_ms = millis(took);
        self.report.next_unix_ms = Some(unix_ms_at(next));
        match failure {
            Some(reason) => self.report.failed(now, &reason),
            None => self.report.succeeded(now),
        }
        let after = self.report.last_failure.clone().filter(|_| self.report.is_failing());
        let is_due = !std::mem::replace(&mut self.noted, true) || before != after;
        self.context.results.note(self.hold, self.report.clone(), is_due);
    }

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
        self.outcome.as_ref()?.failure.as_ref()?;
        if self.attempt >= *retries {
            return None;
        }
        let pause = retry_delay.saturating_mul(1 << self.attempt.min(16));
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
        // What a killed poll has left does not become the state of the next one.
        if let Some(state) = self.state.as_ref().filter(|state| !state.is_current())
            && let Err(error) = state.restore(self.hold).await
        {
            return self.not_restored(&error);
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
        let began = BootClock.now();
        let ran = self.context.pool.run(start).await;
        self.released = ran.released;
        self.finish(ran, limit, began);
    }

    fn not_restored(&mut self, error: &StoreError) {
        if error.code() == Code::Fenced {
            return;
        }
        let reason = error.problem().to_string();
        self.context.recorder.count_poll(PollResult::Failed);
        self.log(LogLevel::Warn, "poll_failed", reason.clone());
        self.outcome = Some(PollOutcome { took: Duration::ZERO, failure: Some(reason) });
        self.failed(PollFailure::Failed);
    }

    /// Counts and logs an outcome. A failed poll does not end anything: the next one may succeed.
    fn finish(&mut self, ran: PooledRun, limit: LocalInstant, began: LocalInstant) {
        let took = BootClock.now().since(began);
        let killed = |why: String| (PollResult::Killed, why, None);
        let failed = |failure, reason| (PollResult::Failed, reason, Some(failure));
        let (result, reason, failure) = match ran.end {
            CommandEnd::Ended(ExitStatus::Code(0), EndCause::Exited) => {
                self.context.recorder.count_poll(PollResult::Done);
                self.log(LogLevel::Debug, "polled", "exit code 0".to_owned());
                self.outcome = Some(PollOutcome { took, failure: None });
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
        self.log(LogLevel::Warn, "poll_failed", reason.clone());
        if let Some(failure) = failure {
            self.outcome = Some(PollOutcome { took, failure: Some(reason) });
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

    fn count_skipped(&self, polls: u64) {
        for _ in 0..polls.min(MAX_COUNTED_MISSES) {
            self.context.recorder.count_poll(PollResult::Skipped);
        }
    }

    fn missed(&self, polls: u64) {
        self.count_skipped(polls);
        let (times, every) = (counted(polls, "time", "times"), self.every());
        let why = match &self.outcome {
            Some(outcome) if outcome.took < every => {
                let jobs = self.context.settings.jobs;
                format!("it has waited for other polls: {jobs} run at a time (--jobs)")
            }
            _ => format!("a poll takes longer than the interval of {}", span(every)),
        };
        self.log(LogLevel::Warn, "poll_skipped", format!("{times}: {why}"));
    }

    fn log(&self, level: LogLevel, event: &'static str, reason: String) {
        let duty = Some((self.hold.duty().clone(), self.hold.epoch()));
        self.context.recorder.log(LogEvent { level, event, duty, reason });
    }
}
