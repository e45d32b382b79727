//! Membership of a long-running command in a group.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, set_child_subreaper};
use tenure_core::guarantee::Level;
use tenure_core::text::span;
use tenure_core::{Code, GroupName, Label, Store, StoreError, Ttl};
use tenure_duty::{Duties, DutyError, Join, Membership, Opener, opener, process};
use tenure_operate::doctor;
use tenure_store::signing::Protection;
use tenure_store::{BootClock, IfAbsent, StoreUrl};
use tokio::time::timeout;

use crate::error::{SuperviseError, SystemContext as _};
use crate::guard::{CommandInput, GuardOptions};
use crate::observe::{self, LogLevel, Observation, ObserveSettings, ObservedInstance, Recorder};
use crate::process_tree::reap_all;
use crate::signals::Signals;
use crate::state::StateSettings;

/// Default limit on the time between TERM and KILL.
const MAX_DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// Time that a join may still take when this process is asked to end.
const JOIN_CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The shortest TTL. With a shorter one a command could not be ended with certainty when its guard
/// fails.
pub const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_DRAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Provides the keys of checkpoints each time the store is opened.
pub type ProtectionSource = Arc<dyn Fn() -> Result<Protection, StoreError> + Send + Sync>;

/// The store of a member.
#[derive(Clone)]
pub struct StoreSettings {
    /// Its URL. The store is created if it does not exist.
    pub url: StoreUrl,
    /// Keys that sign and encrypt checkpoints.
    pub protection: ProtectionSource,
    /// The guarantee that the store has to give.
    pub require: Option<Level>,
}

impl StoreSettings {
    /// Settings without signing, encryption, and a required guarantee.
    pub fn new(url: StoreUrl) -> Self {
        Self { url, protection: Arc::new(|| Ok(Protection::default())), require: None }
    }
}

/// The keys are not printed.
impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("StoreSettings");
        fields.field("url", &self.url).field("require", &self.require).finish_non_exhaustive()
    }
}

/// Settings of a member that runs commands.
#[derive(Clone, Debug)]
pub struct SupervisorSettings {
    /// Its store.
    pub store: StoreSettings,
    /// TTL of its session.
    pub ttl: Ttl,
    /// Time between TERM and KILL when a hold ends: at most a quarter of the TTL; by default a
    /// sixth of it, up to 5 seconds.
    pub grace: Option<Duration>,
    /// Time that a command may take to end when its duty moves; by default half of the TTL.
    pub drain: Option<Duration>,
    /// Whether commands run in a PID namespace, so that nothing of them outlives the guard.
    pub isolate: bool,
    /// Environment variables that commands do not get.
    pub hidden_env: Vec<String>,
    /// Zone of this instance.
    pub zone: Option<Label>,
    /// Name that survives restarts of this process, for pins.
    pub name: Option<Label>,
    /// Deployed revision.
    pub revision: Option<Label>,
    /// Share of the duties, relative to other members.
    pub weight: u32,
    /// Log and HTTP server.
    pub observe: ObserveSettings,
    /// Loopback port of the local API; by default each grant has a Unix socket.
    pub api_port: Option<u16>,
    /// State file of commands.
    pub state: Option<StateSettings>,
}

impl SupervisorSettings {
    /// Default settings.
    pub fn new(store: StoreSettings, ttl: Ttl) -> Self {
        Self {
            store,
            ttl,
            grace: None,
            drain: None,
            isolate: false,
            hidden_env: Vec::new(),
            zone: None,
            name: None,
            revision: None,
            weight: 1,
            observe: ObserveSettings::default(),
            api_port: None,
            state: None,
        }
    }

    /// Refuses settings outside their limits.
    pub fn check(&self) -> Result<(), SuperviseError> {
        let ttl = self.ttl.get();
        let (setting, value, problem) = match (self.grace, self.drain) {
            _ if ttl < MIN_TTL => {
                let least = span(MIN_TTL);
                let what = "is too short to end a command in time";
                ("ttl", ttl, format!("{what}: the minimum is {least}"))
            }
            // With a longer grace period, TERM would be sent while renewals are still due, and
            // would end commands without need.
            (Some(grace), _) if grace > ttl / 4 => {
                let what = "is more than a quarter of the TTL";
                ("grace", grace, format!("{what}, {}: use a longer TTL", span(ttl)))
            }
            (_, Some(drain)) if drain > MAX_DRAIN => {
                ("drain", drain, format!("is too long: the maximum is {}", span(MAX_DRAIN)))
            }
            _ => return Ok(()),
        };
        let problem = format!("{} {problem}", span(value));
        Err(SuperviseError::Setting { setting, problem })
    }

    /// Time between TERM and KILL.
    pub fn grace(&self) -> Duration {
        self.grace.unwrap_or_else(|| MAX_DEFAULT_GRACE.min(self.ttl.get() / 6))
    }

    pub(crate) fn drain(&self) -> Duration {
        self.drain.unwrap_or(self.ttl.get() / 2)
    }

    pub(crate) fn guard(&self, input: CommandInput, scratch: Option<PathBuf>) -> GuardOptions {
        // Those of a hold that this process itself runs under are for this process.
        let own = ["TENURE_API", "TENURE_API_TOKEN", "TENURE_SHARD", "TENURE_SHARDS"];
        let mut hidden_env = self.hidden_env.clone();
        hidden_env.extend(own.map(str::to_owned));
        let isolate = self.isolate;
        GuardOptions { input, scratch, isolate, hidden_env, printer: None }
    }

    /// Starts the log and the HTTP server.
    pub(crate) fn observe(&self, group: &GroupName) -> Result<Observation, SuperviseError> {
        self.check()?;
        let observed = ObservedInstance {
            instance: process::instance().id().clone(),
            group: group.clone(),
            ttl: self.ttl,
            clock: Arc::new(BootClock),
        };
        let observation = observe::start(&self.observe, observed)?;
        if let Some(address) = observation.address() {
            let reason = format!("/health, /ready and /metrics on {address}");
            observation.recorder().log_instance(LogLevel::Info, "listening", reason);
        }
        Ok(observation)
    }

    /// Prepares to join a group; the store is created if it does not exist.
    pub(crate) fn join(
        &self,
        group: GroupName,
        duties: Duties,
        observation: &Observation,
        waits: bool,
    ) -> Join {
        let recorder = observation.recorder();
        recorder.log_instance(LogLevel::Info, "store", describe_store(&self.store.url));
        let open = store_opener(self.store.clone(), recorder, waits);
        let join = Join::new(open, Arc::new(BootClock), group, self.ttl, duties)
            .observer(observation.observer())
            .weight(self.weight)
            .zone(self.zone.clone())
            .name(self.name.clone())
            .revision(self.revision.clone())
            .record_renewals(self.observe.level == LogLevel::Debug)
            .drain(self.drain());
        if waits { join } else { join.no_wait() }
    }
}

/// Describes a store, and whether other hosts can use it.
pub fn describe_store(store: &StoreUrl) -> String {
    let local = ": this host only; for several hosts use a store that they share (--store)";
    format!("{store}{}", if store.is_local() { local } else { "" })
}

/// Prepares this process to supervise: it listens to signals, and processes of a guard that dies
/// become its children.
pub(crate) fn listen() -> Result<Signals, SuperviseError> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    set_child_subreaper(Some(getpid())).context("cannot become a child subreaper")?;
    Ok(signals)
}

/// Joins, or returns the first signal for which `stops` is true: joining takes long while the store
/// does not respond.
pub(crate) async fn start(
    join: Join,
    signals: &mut Signals,
    stops: impl Fn(Signal) -> bool,
) -> Result<Result<Membership, Signal>, DutyError> {
    let mut start = std::pin::pin!(join.start());
    let signal = loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::CHILD => reap_all(),
                signal if stops(signal) => break signal,
                _ => {}
            },
            started = &mut start => return started.map(Ok),
        }
    };
    // Close a session that has just begun, so that it does not last until its TTL.
    if let Ok(Ok(membership)) = timeout(JOIN_CANCEL_TIMEOUT, start).await {
        let _ = membership.leave().await;
    }
    Ok(Err(signal))
}

/// Opens the store, and refuses one whose guarantee is too low. The caller retries an unreachable
/// store; this is logged once.
fn store_opener(store: StoreSettings, recorder: Recorder, waits: bool) -> Opener {
    let logged = Arc::new(AtomicBool::new(false));
    opener(move || {
        let (store, recorder, logged) = (store.clone(), recorder.clone(), Arc::clone(&logged));
        async move {
            let opened = open(&store, &recorder).await;
            if let Err(error) = &opened
                && error.code() == Code::Unreachable
                // Without waiting, the command fails with the same text.
                && waits
                && !logged.swap(true, Ordering::Relaxed)
            {
                let (problem, code) = (error.problem(), error.code());
                let reason = format!("{problem}; retrying; see `tenure errors {code}`");
                recorder.log_instance(LogLevel::Warn, "store_away", reason);
            }
            opened
        }
    })
}

async fn open(store: &StoreSettings, recorder: &Recorder) -> Result<Arc<dyn Store>, StoreError> {
    let mut protection = (store.protection)()?;
    if let Some(trusted) = &mut protection.trusted {
        let recorder = recorder.clone();
        trusted.set_on_untrusted(Arc::new(move |group, instance, why| {
            let reason = format!("{instance} in {group}: {why}");
            recorder.log_instance(LogLevel::Warn, "untrusted_member", reason);
        }));
    }
    let opened = store.url.open_signed(IfAbsent::Create, process::entropy(), protection).await?;
    let level = doctor::level(&*opened).await?;
    let reason = format!("{level} (see `tenure doctor`)");
    recorder.log_instance(LogLevel::Info, "guarantee", reason);
    doctor::check(level, store.require)?;
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_leaves_room_for_renewals() {
        let seconds = Duration::from_secs;
        let member = |ttl, grace| {
            let store = StoreSettings::new(StoreUrl::parse("sqlite:x").unwrap());
            SupervisorSettings {
                grace,
                ..SupervisorSettings::new(store, Ttl::new(seconds(ttl)).unwrap())
            }
        };
        assert_eq!(member(30, None).grace(), seconds(5));
        assert_eq!(member(6, None).grace(), seconds(1));
        assert_eq!(member(60, Some(Duration::ZERO)).grace(), Duration::ZERO);
        assert!(member(30, Some(seconds(7))).check().is_ok());
        let error = member(30, Some(seconds(8))).check().unwrap_err();
        assert!(error.to_string().starts_with("grace 8s is more than"), "{error}");
    }
}
