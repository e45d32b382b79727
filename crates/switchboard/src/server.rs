//! The server as a whole: from its settings to its last answer.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Clock, Code};
use tenure_store::{BootClock, StoreUrl};
use tenure_wire::ingest::Fields;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::access::{Access, Limiter};
use crate::budget::Budget;
use crate::channels::Channels;
use crate::commit::{self, Committer};
use crate::error::SwitchboardError;
use crate::follow::Follow;
use crate::health::Health;
use crate::http::heartbeat::Said;
use crate::http::{PAGES_AT_ONCE, Phase, State};
use crate::listen::{self, Door};
use crate::liveness::Policy;
use crate::mcp::{self, Mcp};
use crate::metrics::Metrics;
use crate::notice::Notice;
use crate::statistics::{self, Counting};
use crate::storage::{HistoryKeep, Keep, Storage};
use crate::tls::{Tls, TlsFiles};
use crate::upkeep;

/// How a switchboard runs.
pub struct Settings {
    /// Where it listens; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Without it, connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// Connections at a time.
    pub max_connections: usize,
    /// Connections of one address at a time; else three quarters of all, and any number where only
    /// this machine can connect. Not counted behind trusted proxies, whose connections all come
    /// from them.
    pub max_connections_per_address: Option<usize>,
    /// What the bodies of all requests may take together, in bytes.
    pub memory_budget: usize,
    /// How submissions are committed in groups.
    pub commit: commit::Limits,
    /// How long things are kept.
    pub keep: Keep,
    /// How failed attempts are limited.
    pub limiter: Limiter,
    /// Where other replicas reach this one, as host and port; else where it listens, if that is
    /// one address.
    pub advertise: Option<String>,
    /// The names that MCP clients may know it by, with or without a port; any when there are none.
    pub allowed_hosts: Vec<String>,
    /// How long clients may take.
    pub patience: Patience,
    /// How long it serves on after it was told to end and says so, for load balancers to notice.
    pub lame_duck: Duration,
    /// How long requests have to finish after that.
    pub drain: Duration,
    /// The same store for holds: statistics are counted by whoever holds the duty. Without it
    /// nobody counts.
    pub store: Option<StoreUrl>,
    /// How often statistics are counted.
    pub statistics_every: Duration,
    /// How long beats and statistics are kept.
    pub keep_history: HistoryKeep,
    /// How long a connector may be silent.
    pub liveness: Policy,
    /// Whether unknown fields of envelopes are refused or kept.
    pub fields: Fields,
    /// A route that answers what it was sent, to measure what the server itself costs.
    pub echo: bool,
    /// Told what operators must know.
    pub log: Log,
}

/// Told what operators must know; must not block.
pub type Log = Arc<dyn Fn(Notice) + Send + Sync>;

/// Days in microseconds.
const fn days(days: i64) -> i64 {
    days * 24 * 3600 * 1_000_000
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8420)),
            tls: None,
            max_connections: 1024,
            max_connections_per_address: None,
            memory_budget: 32 << 20,
            commit: commit::Limits::default(),
            keep: Keep { bodies: days(30), keys: days(45) },
            limiter: Limiter::default(),
            advertise: None,
            allowed_hosts: Vec::new(),
            patience: Patience::default(),
            lame_duck: Duration::ZERO,
            drain: Duration::from_secs(20),
            store: None,
            statistics_every: Duration::from_secs(10),
            keep_history: HistoryKeep::default(),
            liveness: Policy::default(),
            fields: Fields::default(),
            echo: false,
            log: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// How long clients may take. All but `body` and `body_stall` are exact to a tick.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a TLS handshake.
    pub handshake: Duration,
    /// For the first byte of the first request.
    pub first_byte: Duration,
    /// For the head of a request, from its first byte.
    pub head: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For a body.
    pub body: Duration,
    /// Between two parts of a body.
    pub body_stall: Duration,
    /// Without taking anything of an answer.
    pub write_stall: Duration,
    /// For a whole answer.
    pub write: Duration,
    /// How often connections are looked at.
    pub tick: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            first_byte: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            body: Duration::from_secs(30),
            body_stall: Duration::from_secs(10),
            write_stall: Duration::from_secs(10),
            write: Duration::from_secs(30),
            tick: Duration::from_millis(2500),
        }
    }
}

/// A switchboard that runs.
#[derive(Debug)]
pub struct Handle {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Handle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has ended after its shutdown: requests are answered, and what was submitted
    /// is stored.
    pub async fn finished(self) {
        // It ends by itself, or with the runtime.
        let _ = self.task.await;
    }
}

/// Starts a switchboard. It runs until `shutdown` resolves, and then drains.
pub fn serve(
    settings: Settings,
    storage: Arc<dyn Storage>,
    shutdown: BoxFuture<'static, ()>,
) -> BoxFuture<'static, Result<Handle, SwitchboardError>> {
    Box::pin(start(settings, storage, shutdown))
}

async fn start(
    settings: Settings,
    storage: Arc<dyn Storage>,
    shutdown: BoxFuture<'static, ()>,
) -> Result<Handle, SwitchboardError> {
    let log = Arc::clone(&settings.log);
    let required = storage.has_tokens().await?;
    if !required && !settings.listen.ip().is_loopback() {
        let at = settings.listen;
        let detail = format!("{at} can be reached from other machines, and there is no token");
        return Err(SwitchboardError::refused(Code::OpenToAll, detail));
    }
    let tls = settings.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
    let unusable = |error: std::io::Error| {
        let detail = format!("cannot listen on {}: {error}", settings.listen);
        SwitchboardError::refused(Code::Machine, detail)
    };
    let listener = listen::bind(settings.listen).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    let mcp = with_mcp(&settings, address, tls.clone());
    let state = Arc::new(made(&settings, storage, required, mcp));
    let announced = mcp::announce(&state).await;
    if let Err(error) = &announced {
        log(Notice::NotAnnounced(error.clone()));
    }
    log(Notice::Listening { address, tls: tls.is_some() });
    if !required {
        log(Notice::Open);
    }
    if state.mcp.advertised.is_none() {
        log(Notice::Unadvertised);
    }
    let door = Door {
        listener,
        tls: tls.clone(),
        most: settings.max_connections,
        most_of_one: most_of_one(&settings),
    };
    let beside = vec![
        tokio::spawn(upkeep::watch(Arc::clone(&state), tls, Arc::clone(&log))),
        tokio::spawn(upkeep::tidy(Arc::clone(&state), settings.keep, Arc::clone(&log))),
        tokio::spawn(follow(Arc::clone(&state))),
        tokio::spawn(mcp::announce_on(Arc::clone(&state), announced, Arc::clone(&log))),
    ];
    let accepting = tokio::spawn(listen::run(door, Arc::clone(&state)));
    let counting = settings.store.map(|store| {
        let (every, keep) = (settings.statistics_every, settings.keep_history);
        // As long as a message can be asked for, it is known who took it: told again, that is not
        // counted again.
        let keep = HistoryKeep { outcomes: keep.outcomes.max(settings.keep.bodies), ..keep };
        tokio::spawn(statistics::run(Arc::clone(&state), Counting { store, every, keep }))
    });
    let Settings { lame_duck, drain, .. } = settings;
    let end = End { state, accepting, beside, counting, lame_duck, drain };
    let task = tokio::spawn(async move {
        shutdown.await;
        end.run(&log).await;
    });
    Ok(Handle { address, task })
}

/// How many connections one address may have.
fn most_of_one(settings: &Settings) -> usize {
    match settings.max_connections_per_address {
        _ if settings.limiter.trusted_proxies > 0 => usize::MAX,
        Some(most) => most,
        None if settings.listen.ip().is_loopback() => usize::MAX,
        None => (settings.max_connections * 3).div_ceil(4),
    }
}

fn with_mcp(settings: &Settings, address: SocketAddr, tls: Option<Arc<Tls>>) -> Mcp {
    let address = (!address.ip().is_unspecified()).then(|| address.to_string());
    Mcp::new(mcp::Parts {
        most_sessions: (settings.max_connections / 2).max(1),
        allowed_hosts: settings.allowed_hosts.clone(),
        store: settings.store.clone(),
        advertised: settings.advertise.clone().or(address),
        tls,
    })
}

fn made(settings: &Settings, storage: Arc<dyn Storage>, required: bool, mcp: Mcp) -> State {
    let metrics = Arc::new(Metrics::default());
    let counted = Arc::clone(&metrics);
    let on_commit = Arc::new(move |events, took| counted.committed(events, took));
    State {
        committer: Committer::start(Arc::clone(&storage), settings.commit, on_commit),
        access: Access::new(Arc::clone(&storage), Arc::clone(&metrics), settings.limiter, required),
        budget: Budget::new(settings.memory_budget),
        channels: Channels::new(Arc::clone(&storage), settings.fields),
        metrics,
        follow: Follow::new(),
        patience: settings.patience,
        phase: watch::Sender::new(Phase::Running),
        store: Health::default(),
        pages: Semaphore::new(PAGES_AT_ONCE),
        started: BootClock.now(),
        echo: settings.echo,
        liveness: settings.liveness,
        log: Arc::clone(&settings.log),
        history_said: Said::default(),
        lively: Mutex::default(),
        counted: std::sync::Mutex::default(),
        mcp,
        storage,
    }
}

async fn follow(state: Arc<State>) {
    state.follow.run(Arc::clone(&state.storage)).await;
}

/// After the cut, connections need a moment to be dropped, and the store to be told.
const LAST: Duration = Duration::from_secs(5);

/// What is left to do when the server was told to end.
struct End {
    state: Arc<State>,
    accepting: JoinHandle<()>,
    beside: Vec<JoinHandle<()>>,
    /// Ends by itself when the server is told to.
    counting: Option<JoinHandle<()>>,
    lame_duck: Duration,
    drain: Duration,
}

impl End {
    async fn run(self, log: &Log) {
        let Self { state, mut accepting, beside, counting, lame_duck, drain } = self;
        log(Notice::Draining);
        state.phase.send_replace(Phase::LameDuck);
        if lame_duck > Duration::ZERO {
            sleep(lame_duck).await;
        }
        state.phase.send_replace(Phase::Draining);
        if timeout(drain, &mut accepting).await.is_err() {
            state.phase.send_replace(Phase::Over);
            log(Notice::CutOff);
            let _ = timeout(LAST, &mut accepting).await;
        }
        for task in beside {
            task.abort();
        }
        if let Some(counting) = counting {
            let _ = timeout(LAST, counting).await;
        }
        // Nobody can tell whether it went well; others forget it after a while anyway.
        let _ = timeout(LAST, state.storage.withdraw(state.mcp.replica)).await;
        let _ = timeout(LAST, state.committer.close()).await;
        if let Ok(Err(error)) = timeout(LAST, upkeep::flush(&state)).await {
            log(Notice::UpkeepFailed(error));
        }
        log(Notice::Stopped);
    }
}

#[cfg(test)]
mod tests;
