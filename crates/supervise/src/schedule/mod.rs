//! Scheduled runs of a command: once per period, or at the times of a cron expression.
//!
//! The holder of the duty decides by the record in the store what to run. It stores the record
//! under its hold before and after each attempt; clocks only say when.
//!
//! Why: docs/decisions/0050-cron-expressions-and-daylight-saving-time.md

mod clock;
mod store;

use std::ffi::OsString;
use std::time::Duration;

use tenure_core::text::{counted, escaped, span};
use tenure_core::{BoxFuture, Clock as _, LocalInstant, LogLevel};
use tenure_schedule::{
    MAX_CATCH_UP, RunSchedule, SchedulePolicy, ScheduleStep, anchor, decide, utc,
};
use tenure_store::BootClock;
use tenure_wire::schedule::{OccurrenceRecord, OccurrenceState, ScheduleRecord};

use crate::guard::{BootTimer, ExitStatus};
use crate::observe::OccurrenceResult;
use crate::run::{AssignedWork, Assignment, RunOutcome};
use clock::ScheduleClock;

/// Longest wait before the clock is read again.
const CLOCK_INTERVAL: Duration = Duration::from_secs(15);
/// Pause before a request to the store is repeated.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// Lead of the recorded occurrence over the clock that is logged.
const MAX_LEAD_MS: u64 = 60 * 60 * 1000;

/// Runs the command of an assignment at the times of a schedule. A period is run once, and ends the
/// process with the exit code of the command; a cron expression goes on.
#[derive(Clone, Debug)]
pub struct ScheduledWork {
    /// The schedule.
    pub schedule: RunSchedule,
    /// Its policies.
    pub policy: SchedulePolicy,
}

impl AssignedWork for ScheduledWork {
    fn work<'a>(&'a self, assignment: &'a mut Assignment<'_>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let timer = match BootTimer::new() {
                Ok(timer) => timer,
                Err(error) => return RunOutcome::Failed(format!("cannot create a timer: {error}")),
            };
            let clock = ScheduleClock::default();
            let mut holder = ScheduleHolder { work: self, assignment, timer, clock };
            holder.attend().await.unwrap_or_else(|end| end)
        })
    }
}

/// The holder of a schedule's duty.
struct ScheduleHolder<'w, 'a, 'r> {
    work: &'w ScheduledWork,
    assignment: &'a mut Assignment<'r>,
    timer: BootTimer,
    clock: ScheduleClock,
}

/// The end of the work in place of a result.
type OrEnd<T> = Result<T, RunOutcome>;

impl ScheduleHolder<'_, '_, '_> {
    async fn attend(&mut self) -> OrEnd<RunOutcome> {
        let work = self.work;
        let (mut stored, mut ran, mut warned) = (self.load().await?, None, false);
        loop {
            let now = self.now().await?;
            let (mut record, changed) = anchor(stored.take(), &work.schedule, now);
            if changed && !work.schedule.is_period() {
                record.next_unix_ms = work.schedule.next(now);
                self.store(&record).await?;
            }
            if !std::mem::replace(&mut warned, true) {
                self.warn_if_ahead(&record, now);
            }
            let step = decide(&work.schedule, &record, &work.policy, now);
            if let Some(outcome) = ran.take_if(|(occurrence, _)| ends(work, step, *occurrence)) {
                return Ok(outcome.1);
            }
            match step {
                ScheduleStep::Nothing => return Ok(RunOutcome::Ended(ExitStatus::Code(0))),
                ScheduleStep::Wait { until } => {
                    let latest = BootClock.now().plus(CLOCK_INTERVAL);
                    self.idle_until(self.clock.instant_of(until).min(latest)).await?;
                }
                ScheduleStep::Settle { occurrence, state, count } => {
                    self.settle(&mut record, occurrence, state, count).await?;
                }
                ScheduleStep::Run { occurrence, attempt } => {
                    let outcome = self.run(&mut record, occurrence, attempt).await?;
                    ran = Some((occurrence, outcome));
                }
            }
            stored = Some(record);
        }
    }

    /// Records that occurrences are not run.
    async fn settle(
        &mut self,
        record: &mut ScheduleRecord,
        occurrence: u64,
        state: OccurrenceState,
        count: usize,
    ) -> OrEnd<()> {
        let before = record.occurrence.take();
        let before = before.filter(|before| before.scheduled_unix_ms == occurrence);
        let before = before.unwrap_or_else(|| self.occurrence(occurrence));
        record.occurrence = Some(OccurrenceRecord { state, ..before });
        record.next_unix_ms = self.work.schedule.next(occurrence);
        self.store(record).await?;
        let at = utc(occurrence);
        let (event, result, reason) = match state {
            OccurrenceState::Missed => {
                let times = counted(count, "occurrence", "occurrences");
                let least = if count >= MAX_CATCH_UP { "at least " } else { "" };
                let reason = format!("{least}{times} until {at} were not started in time");
                ("occurrence_missed", OccurrenceResult::Missed, reason)
            }
            _ => {
                let reason = format!("{at} was interrupted, and is not run again");
                ("occurrence_skipped", OccurrenceResult::Skipped, reason)
            }
        };
        self.assignment.count_occurrences(result, count as u64);
        self.assignment.log(LogLevel::Warn, event, reason);
        Ok(())
    }

    /// Runs an attempt, with the record before and after it. An attempt that was interrupted stays
    /// recorded as started.
    async fn run(
        &mut self,
        record: &mut ScheduleRecord,
        occurrence: u64,
        attempt: u32,
    ) -> OrEnd<RunOutcome> {
        let (at, before) = (utc(occurrence), record.clone());
        let started_unix_ms = Some(self.clock.estimate());
        let started = OccurrenceRecord { attempt, started_unix_ms, ..self.occurrence(occurrence) };
        record.occurrence = Some(started.clone());
        record.next_unix_ms = self.work.schedule.next(occurrence);
        self.store(record).await?;
        self.log(LogLevel::Info, "occurrence_started", format!("{at}, attempt {attempt}"));
        let variables = [
            ("TENURE_SCHEDULED_AT".to_owned(), OsString::from(&at)),
            ("TENURE_ATTEMPT".to_owned(), attempt.to_string().into()),
        ];
        let outcome = self.assignment.run(&variables).await;
        let (status, problem) = match &outcome {
            // A command that was told to stop may exit before its work is done.
            RunOutcome::Ended(status) if !self.assignment.is_stopping() => {
                (Some(*status), status.to_string())
            }
            RunOutcome::CannotStart(error) => (None, format!("it cannot be started: {error}")),
            // Nothing was started, so it is not interrupted.
            RunOutcome::Refused(_) => {
                self.store(&before).await?;
                return Err(outcome);
            }
            _ => {
                self.assignment.count_occurrences(OccurrenceResult::Interrupted, 1);
                let reason = format!("{at}, attempt {attempt}");
                self.log(LogLevel::Warn, "occurrence_interrupted", reason);
                return Err(outcome);
            }
        };
        let is_done = status == Some(ExitStatus::Code(0));
        let state = if is_done { OccurrenceState::Done } else { OccurrenceState::Failed };
        let (finished_unix_ms, exit_code) =
            (Some(self.clock.estimate()), status.map(ExitStatus::exit_code));
        record.occurrence =
            Some(OccurrenceRecord { state, finished_unix_ms, exit_code, ..started });
        if is_done {
            record.last_success_unix_ms = Some(occurrence);
        }
        if let Err(end) = self.store(record).await {
            let reason = format!("{at}, attempt {attempt}: {problem}; it counts as interrupted");
            self.log(LogLevel::Warn, "occurrence_unrecorded", reason);
            return Err(end);
        }
        self.report(&at, attempt, (!is_done).then_some(problem));
        Ok(outcome)
    }

    /// Counts and logs an attempt that ended by itself.
    fn report(&self, at: &str, attempt: u32, problem: Option<String>) {
        let policy = &self.work.policy;
        let (level, event, result, text) = match problem {
            None => (LogLevel::Info, "occurrence_done", OccurrenceResult::Done, String::new()),
            Some(problem) if attempt <= policy.retries => {
                let pause = span(policy.retry_delay(attempt));
                let text = format!(": {}; again in {pause}", escaped(&problem));
                (LogLevel::Warn, "occurrence_failed", OccurrenceResult::Failed, text)
            }
            Some(problem) => {
                let text = format!(": {}", escaped(&problem));
                (LogLevel::Warn, "occurrence_failed", OccurrenceResult::Failed, text)
            }
        };
        self.assignment.count_occurrences(result, 1);
        self.log(level, event, format!("{at}, attempt {attempt}{text}"));
    }

    /// Returns the record of an occurrence before anything is known of it.
    fn occurrence(&self, scheduled_unix_ms: u64) -> OccurrenceRecord {
        OccurrenceRecord {
            scheduled_unix_ms,
            state: OccurrenceState::Started,
            attempt: 0,
            instance: self.assignment.hold().instance().as_str().to_owned(),
            started_unix_ms: None,
            finished_unix_ms: None,
            exit_code: None,
        }
    }

    fn warn_if_ahead(&self, record: &ScheduleRecord, now: u64) {
        let last = record.occurrence.as_ref().map_or(0, |last| last.scheduled_unix_ms);
        if last > now.saturating_add(MAX_LEAD_MS) {
            let (last, now) = (utc(last), utc(now));
            let reason = format!("the newest occurrence, {last}, is after the clock, {now}");
            self.log(LogLevel::Warn, "schedule_ahead", reason);
        }
    }

    fn log(&self, level: LogLevel, event: &'static str, reason: String) {
        self.assignment.log(level, event, reason);
    }

    /// Waits until an instant; ends the work if it should end before.
    async fn idle_until(&mut self, until: LocalInstant) -> OrEnd<()> {
        match self.assignment.idle(&mut self.timer, until).await {
            true => Ok(()),
            false => Err(RunOutcome::TakenAway),
        }
    }

    async fn idle(&mut self, time: Duration) -> OrEnd<()> {
        self.idle_until(BootClock.now().plus(time)).await
    }
}

/// Whether the process ends with the outcome of the last attempt: of a period, unless it is tried
/// again.
fn ends(work: &ScheduledWork, step: ScheduleStep, ran: u64) -> bool {
    let again = match step {
        ScheduleStep::Run { occurrence, .. } => occurrence == ran,
        ScheduleStep::Wait { .. } => true,
        ScheduleStep::Settle { .. } | ScheduleStep::Nothing => false,
    };
    work.schedule.is_period() && !again
}
