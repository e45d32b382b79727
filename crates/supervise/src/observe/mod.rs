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

use tenure_core::{Clock, DutyId, GroupName, InstanceId, LocalInstant, Record, Ttl};
use tenure_duty::observe::{HeldDuty, Observer, Operation};
use tenure_duty::process;

use crate::error::SuperviseError;
use counters::{DutyHistory, InstanceCounters};
pub use counters::{PollResult, SourceEndpoint};
use log::LogQueue;
pub use log::{LogEvent, LogFormat, json_line};
use server::HealthServer;
pub use tenure_core::LogLevel;

/// Settings of log and HTTP server.
#[derive(Clone, Copy, Debug)]
pub struct ObserveSettings {
    /// Address that serves `/health` and `/metrics`.
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

    /// Sets how far an endpoint lags behind its source: the age of its oldest event that is not
    /// accepted yet, zero when there is none. `None` removes it.
    pub fn set_lag(&self, endpoint: SourceEndpoint, lag: Option<Duration>) {
        let lags = &mut self.observer.counters().lags;
        match lag {
            Some(lag) => lags.insert(endpoint, lag),
            None => lags.remove(&endpoint),
        };
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
        history.update(&counters, self.observed.clock.now());
        metrics::text(&counters, &history, &self.observed.instance)
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
}

#[cfg(test)]
mod tests;
