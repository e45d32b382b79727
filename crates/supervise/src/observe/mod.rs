//! Observation of an instance: log lines, metrics and health.
//!
//! The [`Observer`] is called on the thread that renews holds. It only counts and queues log lines;
//! the log and the HTTP server have threads of their own.

mod counters;
mod health;
mod log;
mod metrics;
mod postgres;
mod server;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{
    Clock, DutyId, DutyKey, GroupName, Hold, InstanceId, LocalInstant, Record, StoreError, Ttl,
};
use tenure_duty::observe::{HeldDuty, Observer, Operation, commit_refusal};
use tenure_duty::{PutOutcome, process};
use tenure_operate::polls::PollTotals;

use crate::error::SuperviseError;
use counters::{DutyHistory, InstanceCounters, SourceLag};
pub use counters::{OccurrenceResult, PollResult, SourceEndpoint};
use log::LogQueue;
pub use log::{LogEvent, LogFormat, json_line};
use server::HealthServer;
pub use tenure_core::LogLevel;

/// Settings of log and HTTP server.
#[derive(Clone, Copy, Debug)]
pub struct ObserveSettings {
    /// Address that serves `/health`, `/ready` and `/metrics`.
    pub listen: Option<SocketAddr>,
    /// Format of log lines; by default human-readable on a terminal, else JSON.
    pub format: Option<LogFormat>,
    /// The least important level that is logged.
    pub level: LogLevel,
}

impl Default for ObserveSettings {
    fn default() -> Self {
        Self { listen: None, format: None, level: LogLevel::Info }
    }
}

/// The instance that is observed.
#[derive(Clone, Debug)]
pub struct ObservedInstance {
    /// Its id.
    pub instance: InstanceId,
    /// The group that it joins.
    pub group: GroupName,
    /// TTL of its session: decides when a silent store counts as lost.
    pub ttl: Ttl,
    /// The clock of its records.
    pub clock: Arc<dyn Clock>,
}

/// Starts the log on standard error, and the HTTP server if there is an address. Fails before
/// anything is claimed when the address is not available.
pub fn start(
    settings: &ObserveSettings,
    observed: ObservedInstance,
) -> Result<Observation, SuperviseError> {
    let log = LogQueue::to_stderr(settings.format, settings.level, observed.instance.clone())?;
    let observation = start_with(settings.listen, log, observed)?;
    postgres::follow(observation.recorder());
    Ok(observation)
}

fn start_with(
    listen: Option<SocketAddr>,
    log: LogQueue,
    observed: ObservedInstance,
) -> Result<Observation, SuperviseError> {
    let observer = Arc::new(InstanceObserver {
        started: observed.clock.now(),
        observed,
        log,
        counters: Mutex::default(),
        history: Mutex::default(),
    });
    let server = listen.map(|at| HealthServer::start(at, Arc::clone(&observer))).transpose()?;
    Ok(Observation { observer, server })
}

/// A running log and HTTP server.
#[derive(Debug)]
pub struct Observation {
    observer: Arc<InstanceObserver>,
    server: Option<HealthServer>,
}

impl Observation {
    /// The observer of a membership.
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::<InstanceObserver>::clone(&self.observer)
    }

    /// A recorder of further events.
    pub fn recorder(&self) -> Recorder {
        Recorder(Arc::clone(&self.observer))
    }

    /// Address of the server.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(|server| server.address)
    }

    /// Stops the server and writes the rest of the log, unless nobody reads it.
    pub fn finish(self) {
        drop(self.server);
        self.observer.log.finish();
    }
}

/// Records events that are not transitions of a member.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<InstanceObserver>);

impl Recorder {
    /// Logs an event. Never blocks.
    pub fn log(&self, event: LogEvent) {
        self.0.log.event(event, process::unix_ms());
    }

    /// Logs an event that is not about a duty. Never blocks.
    pub fn log_instance(&self, level: LogLevel, event: &'static str, reason: String) {
        self.log(LogEvent { level, event, duty: None, reason });
    }

    /// Counts the result of a poll.
    pub fn count_poll(&self, result: PollResult) {
        *self.0.counters().polls.entry(result).or_default() += 1;
    }

    /// Counts occurrences of a schedule.
    pub fn count_occurrences(&self, result: OccurrenceResult, count: u64) {
        *self.0.counters().occurrences.entry(result).or_default() += count;
    }

    /// Sets how far the source of a duty is ahead: the age of its oldest event that is not accepted
    /// yet, which grows from now on; `None` if there is none.
    pub fn set_lag(&self, duty: &DutyKey, endpoint: SourceEndpoint, oldest: Option<Duration>) {
        let oldest = oldest.map(|age| (self.0.observed.clock.now(), age));
        self.0.counters().lags.insert(duty.clone(), SourceLag { endpoint, oldest });
    }

    /// Removes the lag of a duty, which is not known any more.
    pub fn remove_lag(&self, duty: &DutyKey) {
        self.0.counters().lags.remove(duty);
    }

    /// Reports this instance as not ready from now on: it is asked to end.
    pub fn set_leaving(&self) {
        self.0.counters().leaving = true;
    }

    /// Sets the newest results of all targets of the group.
    pub fn set_targets(&self, totals: PollTotals) {
        let read = (totals, self.0.observed.clock.now(), process::unix_ms());
        self.0.counters().targets = Some(read);
    }

    /// Marks this instance as failing every poll until an instant; `None` clears it.
    pub fn set_failing(&self, until: Option<LocalInstant>) {
        self.0.counters().failing = until;
    }
}

/// State shared by the observer, the recorder and the server.
#[derive(Debug)]
struct InstanceObserver {
    observed: ObservedInstance,
    started: LocalInstant,
    log: LogQueue,
    counters: Mutex<InstanceCounters>,
    /// Used by metrics requests only: the thread that renews never waits for it.
    history: Mutex<DutyHistory>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counters are consistent at any time, also after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InstanceObserver {
    fn counters(&self) -> MutexGuard<'_, InstanceCounters> {
        lock(&self.counters)
    }

    fn metrics(&self) -> String {
        // Printed from a copy, so that the lock is not held meanwhile.
        let counters = self.counters().clone();
        let mut history = lock(&self.history);
        let now = self.observed.clock.now();
        history.update(&counters, now);
        metrics::text(&counters, &history, &self.observed.instance, now)
    }

    /// Returns why this instance is not ready, if it is not.
    fn not_ready(&self) -> Option<&'static str> {
        let healthy = self.health().is_healthy();
        let counters = self.counters();
        match () {
            () if counters.leaving => Some("it is asked to end"),
            () if counters.members.is_empty() => Some("it is not a member of its group"),
            () if !healthy => Some("it is unhealthy, see /health"),
            () => None,
        }
    }

    fn health(&self) -> health::HealthReport {
        let now = self.observed.clock.now();
        let counters = self.counters().clone();
        health::report(&counters, &self.observed, self.started, now, process::unix_ms())
    }
}

impl Observer for InstanceObserver {
    fn recorded(&self, group: &GroupName, record: &Record, unix_ms: u64) {
        self.counters().recorded(record);
        self.log.record(group, record, unix_ms);
    }

    fn store_called(&self, _: &GroupName, operation: Operation, took: Duration, ok: bool) {
        let now = (self.observed.clock.now(), process::unix_ms());
        self.counters().store_called(operation, took, ok, now);
    }

    fn renewed(&self, group: &GroupName, margin_left: Duration) {
        self.counters().group(group).margin = Some(margin_left);
    }

    fn holding(&self, group: &GroupName, holds: &[HeldDuty]) {
        let holds: Arc<[HeldDuty]> = holds.into();
        self.counters().group(group).holds = holds;
    }

    fn fenced(&self, _: &GroupName, _: &DutyId) {
        self.counters().fenced += 1;
    }

    fn committed(&self, hold: &Hold, result: &Result<PutOutcome, StoreError>) {
        self.counters().committed(result);
        let duty = Some((hold.duty.clone(), hold.epoch));
        let (level, event, reason) = match result {
            Ok(PutOutcome::Stored(version)) => {
                (LogLevel::Debug, "committed", format!("version {version}"))
            }
            refused => (LogLevel::Warn, "commit_refused", commit_refusal(refused)),
        };
        self.log.event(LogEvent { level, event, duty, reason }, process::unix_ms());
    }
}

#[cfg(test)]
mod tests;
