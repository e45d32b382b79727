//! What a long-running command shows of itself: a log, metrics, and whether it is well.
//!
//! The [`Observer`] is called on the thread that renews holds. So it only counts, and hands log
//! lines to a thread of their own; the web server has another one.

mod health;
mod log;
mod metrics;
mod notices;
mod server;
mod state;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use tenure_core::{Clock, DutyId, GroupName, InstanceId, LocalInstant, Record, Ttl};
use tenure_duty::observe::{HeldDuty, Observer, Operation};
use tenure_duty::process;

use crate::env;
use crate::failure::Failure;
use log::Log;
pub(crate) use log::{Level, Note, json_line};
use server::Server;
pub(crate) use state::Polled;
use state::{Endpoint, Seen, State};

/// How a long-running command is watched.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Serve /health and /metrics here; a port alone is one of this host only
    #[arg(long, value_name = "[ADDRESS:]PORT", env = env::HEALTH_PORT, value_parser = address)]
    pub(crate) listen: Option<Listen>,
    /// The form of log lines; human on a terminal, else json
    #[arg(long, value_enum)]
    pub(crate) log: Option<Form>,
    /// What is logged: renewals that went well are debug
    #[arg(long, value_enum, default_value = "info")]
    pub(crate) log_level: Level,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people
    Human,
    /// One JSON object per line
    Json,
}

/// Whom the watchers see.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// This process.
    pub(crate) instance: InstanceId,
    /// The group that it joins.
    pub(crate) group: GroupName,
    /// How long the store keeps its session: says when a silent store counts as lost.
    pub(crate) ttl: Ttl,
    /// The clock of its records.
    pub(crate) clock: Arc<dyn Clock>,
}

/// Where to listen; nowhere when the text was empty, as a variable is that was switched off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listen(Option<SocketAddr>);

/// A port, or an address with one. Without an address nobody else can connect.
fn address(text: &str) -> Result<Listen, String> {
    if text.is_empty() {
        return Ok(Listen(None));
    }
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = text.parse().map(|port: u16| SocketAddr::new(here, port));
    let at = port.or_else(|_| text.parse()).map_err(|_| "not a PORT or ADDRESS:PORT".to_owned())?;
    Ok(Listen(Some(at)))
}

/// Starts to watch. A port that cannot be had is an error, before anything is claimed.
pub(crate) fn start(
    options: &Options,
    about: About,
) -> Result<(Arc<dyn Observer>, Handle), Failure> {
    let log = Log::to_stderr(options.log, options.log_level, about.instance.clone())?;
    let (observer, handle) = start_with(options.listen.and_then(|listen| listen.0), log, about)?;
    notices::follow(handle.notes());
    Ok((observer, handle))
}

fn start_with(
    listen: Option<SocketAddr>,
    log: Log,
    about: About,
) -> Result<(Arc<dyn Observer>, Handle), Failure> {
    let watch = Arc::new(Watch {
        started: about.clock.now(),
        about,
        log,
        state: Mutex::default(),
        seen: Mutex::default(),
    });
    let server = listen.map(|at| Server::start(at, Arc::clone(&watch))).transpose()?;
    Ok((Arc::<Watch>::clone(&watch), Handle { watch, server }))
}

/// Keeps the watchers going.
pub(crate) struct Handle {
    watch: Arc<Watch>,
    server: Option<Server>,
}

/// Takes what is to be known besides the transitions of a member.
#[derive(Clone, Debug)]
pub(crate) struct Notes(Arc<Watch>);

impl Notes {
    /// Logs it. Never waits.
    pub(crate) fn say(&self, note: Note) {
        self.0.log.note(note, process::unix_ms());
    }

    /// Counts what became of a poll.
    pub(crate) fn polled(&self, how: Polled) {
        self.0.state().polled(how);
    }

    /// Until then every poll is taken to fail here; `None`: polls go well.
    pub(crate) fn failing(&self, until: Option<LocalInstant>) {
        self.0.state().failing = until;
    }
}

impl Handle {
    /// For those who have more to tell.
    pub(crate) fn notes(&self) -> Notes {
        Notes(Arc::clone(&self.watch))
    }

    /// Where the server listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Says how far an endpoint lags behind its source: the age of its oldest event that is not
    /// accepted yet, zero when there is none. `None` when nobody knows (any more).
    #[allow(dead_code, reason = "for those who fetch events")]
    pub(crate) fn lag(&self, endpoint: Endpoint, lag: Option<Duration>) {
        self.watch.state().lag(endpoint, lag);
    }

    /// Stops the server and writes what is left of the log, unless nobody reads it.
    pub(crate) fn finish(self) {
        drop(self.server);
        self.watch.log.finish();
    }
}

/// What all of them share.
#[derive(Debug)]
struct Watch {
    about: About,
    started: LocalInstant,
    log: Log,
    state: Mutex<State>,
    /// Belongs to those who ask for metrics; the thread that renews never waits for it.
    seen: Mutex<Seen>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counters are whole at any time, whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A copy, so that the lock is not held while it is written out.
    fn snapshot(&self) -> State {
        self.state().clone()
    }

    fn metrics(&self) -> String {
        let state = self.snapshot();
        let mut seen = lock(&self.seen);
        seen.look(&state, self.about.clock.now());
        metrics::text(&state, &seen, &self.about.instance)
    }

    fn health(&self) -> health::Health {
        let now = self.about.clock.now();
        health::judge(&self.snapshot(), &self.about, self.started, now, process::unix_ms())
    }
}

impl Observer for Watch {
    fn recorded(&self, group: &GroupName, record: &Record, unix_ms: u64) {
        self.state().recorded(record);
        self.log.write(group, record, unix_ms);
    }

    fn asked(&self, _: &GroupName, operation: Operation, took: Duration, ok: bool) {
        let now = (self.about.clock.now(), process::unix_ms());
        self.state().asked(operation, took, ok, now);
    }

    fn renewed(&self, group: &GroupName, margin_left: Duration) {
        self.state().renewed(group, margin_left);
    }

    fn holding(&self, group: &GroupName, holds: &[HeldDuty]) {
        let holds: Arc<[HeldDuty]> = holds.into();
        self.state().holding(group, holds);
    }

    fn fenced(&self, _: &GroupName, _: &DutyId) {
        self.state().fenced += 1;
    }
}

#[cfg(test)]
mod tests;
