//! Server: settings, startup and shutdown.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Clock, Code};
use tenure_store::{BootClock, StoreUrl};
use tenure_wire::ingest::Fields;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::access::{AccessControl, Limiter};
use crate::budget::Budget;
use crate::channels::Channels;
use crate::commit::{CommitLimits, Committer, TriedCommit};
use crate::error::SwitchboardError;
use crate::health::StoreHealth;
use crate::http::heartbeat::NoticeThrottle;
use crate::http::{MAX_CONCURRENT_PAGES, ServerPhase, ServerState};
use crate::inbox_watch::InboxWatch;
use crate::listener::HttpListener;
use crate::liveness::Policy;
use crate::mcp::{self, Mcp};
use crate::metrics::Metrics;
use crate::notice::{NoticeSink, ServerNotice, tracing_sink};
use crate::statistics::{self, StatisticsSettings};
use crate::storage::{HistoryRetention, InboxRetention, Storage};
use crate::tls::{CertificateFiles, ServerCertificate};
use crate::upkeep;

/// Settings of a switchboard.
pub struct ServerSettings {
    /// Address to listen on; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// TLS certificate and key; `None` serves plain HTTP.
    pub tls: Option<CertificateFiles>,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum number of connections per address. Default: three quarters of all, and no limit if
    /// only this machine can connect. Ignored behind trusted proxies, where all connections come
    /// from the proxies.
    pub max_connections_per_address: Option<usize>,
    /// Memory for the bodies of all requests, in bytes.
    pub memory_budget: usize,
    /// Limits on group commits.
    pub commit: CommitLimits,
    /// Retention of messages and dedupe keys.
    pub keep: InboxRetention,
    /// Limits on failed attempts.
    pub limiter: Limiter,
    /// Host and port at which other replicas reach this one. Default: the listening address, if it
    /// is a specific one.
    pub advertise: Option<String>,
    /// Host names that MCP clients may use, with or without a port; empty allows all.
    pub allowed_hosts: Vec<String>,
    /// Timeouts for clients.
    pub timeouts: ClientTimeouts,
    /// Time for which the server keeps serving after shutdown began, so that load balancers notice.
    pub lame_duck: Duration,
    /// Time for requests to finish after that.
    pub drain: Duration,
    /// Store with the statistics duty: the replica that holds it counts. Without a store,
    /// statistics are not counted.
    pub store: Option<StoreUrl>,
    /// Interval at which statistics are counted.
    pub statistics_every: Duration,
    /// Retention of heartbeats and statistics.
    pub keep_history: HistoryRetention,
    /// Liveness thresholds.
    pub liveness: Policy,
    /// Whether unknown fields of envelopes are rejected or kept.
    pub fields: Fields,
    /// Enables a route that returns the request body, for benchmarks.
    pub echo: bool,
    /// Sink for notices. Default: `tracing` events.
    pub log: NoticeSink,
}

const fn days(days: i64) -> i64 {
    days * 24 * 3600 * 1_000_000
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8420)),
            tls: None,
            max_connections: 1024,
            max_connections_per_address: None,
            memory_budget: 32 << 20,
            commit: CommitLimits::default(),
            keep: InboxRetention { bodies: days(30), keys: days(45) },
            limiter: Limiter::default(),
            advertise: None,
            allowed_hosts: Vec::new(),
            timeouts: ClientTimeouts::default(),
            lame_duck: Duration::ZERO,
            drain: Duration::from_secs(20),
            store: None,
            statistics_every: Duration::from_secs(10),
            keep_history: HistoryRetention::default(),
            liveness: Policy::default(),
            fields: Fields::default(),
            echo: false,
            log: tracing_sink(),
        }
    }
}

impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSettings").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// Timeouts for clients. All but `body` and `body_stall` are exact to a tick.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
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
    /// Without progress in sending a response.
    pub write_stall: Duration,
    /// For a whole response.
    pub write: Duration,
    /// Interval at which connections are checked.
    pub tick: Duration,
}

impl Default for ClientTimeouts {
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

/// A running switchboard.
#[derive(Debug)]
pub struct ServerHandle {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl ServerHandle {
    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server has shut down: all requests are answered, and all submissions
    /// are stored.
    pub async fn finished(self) {
        // The task ends by itself, or with the runtime.
        let _ = self.task.await;
    }
}

/// Starts a switchboard. It runs until `shutdown` resolves, and then drains.
pub fn serve(
    settings: ServerSettings,
    storage: Arc<dyn Storage>,
    shutdown: BoxFuture<'static, ()>,
) -> BoxFuture<'static, Result<ServerHandle, SwitchboardError>> {
    Box::pin(start(settings, storage, shutdown))
}

async fn start(
    settings: ServerSettings,
    storage: Arc<dyn Storage>,
    shutdown: BoxFuture<'static, ()>,
) -> Result<ServerHandle, SwitchboardError> {
    let log = Arc::clone(&settings.log);
    let required = storage.has_tokens().await?;
    if !required && !settings.listen.ip().is_loopback() {
        let at = settings.listen;
        let detail = format!("{at} can be reached from other machines, and no token exists");
        return Err(SwitchboardError::refused(Code::OpenToAll, detail));
    }
    let tls = settings.tls.clone().map(ServerCertificate::load).transpose()?.map(Arc::new);
    let unusable = |error: std::io::Error| {
        let detail = format!("cannot listen on {}: {error}", settings.listen);
        SwitchboardError::refused(Code::Machine, detail)
    };
    let listener = TcpListener::bind(settings.listen).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    let mcp = Mcp::new(&settings, address, tls.clone());
    let state = Arc::new(build_state(&settings, storage, required, mcp));
    let announced = mcp::announce(&state).await;
    if let Err(error) = &announced {
        log(ServerNotice::NotAnnounced(error.clone()));
    }
    log(ServerNotice::Listening { address, tls: tls.is_some() });
    if !required {
        log(ServerNotice::Open);
    }
    if state.mcp.advertised.is_none() {
        log(ServerNotice::Unadvertised);
    }
    let listener = HttpListener {
        socket: listener,
        tls: tls.clone(),
        max_connections: settings.max_connections,
        max_per_address: max_per_address(&settings),
    };
    let background = vec![
        tokio::spawn(upkeep::watch(Arc::clone(&state), tls, Arc::clone(&log))),
        tokio::spawn(upkeep::tidy(Arc::clone(&state), settings.keep, Arc::clone(&log))),
        tokio::spawn(InboxWatch::run(Arc::clone(&state))),
        tokio::spawn(mcp::keep_announced(Arc::clone(&state), announced, Arc::clone(&log))),
    ];
    let accepting = tokio::spawn(listener.run(Arc::clone(&state)));
    let counting = settings.store.map(|store| {
        let (every, keep) = (settings.statistics_every, settings.keep_history);
        // Outcomes are kept as long as their messages: an outcome that is reported again must not
        // be counted again.
        let keep = HistoryRetention { outcomes: keep.outcomes.max(settings.keep.bodies), ..keep };
        tokio::spawn(statistics::run(Arc::clone(&state), StatisticsSettings { store, every, keep }))
    });
    let ServerSettings { lame_duck, drain, .. } = settings;
    let end = Shutdown { state, accepting, background, counting, lame_duck, drain };
    let task = tokio::spawn(async move {
        shutdown.await;
        end.run(&log).await;
    });
    Ok(ServerHandle { address, task })
}

fn max_per_address(settings: &ServerSettings) -> usize {
    match settings.max_connections_per_address {
        _ if settings.limiter.trusted_proxies > 0 => usize::MAX,
        Some(most) => most,
        None if settings.listen.ip().is_loopback() => usize::MAX,
        None => (settings.max_connections * 3).div_ceil(4),
    }
}

fn build_state(
    settings: &ServerSettings,
    storage: Arc<dyn Storage>,
    required: bool,
    mcp: Mcp,
) -> ServerState {
    let metrics = Arc::new(Metrics::default());
    let counted = Arc::clone(&metrics);
    let on_commit = Arc::new(move |tried: TriedCommit| counted.committed(tried));
    ServerState {
        committer: Committer::start(Arc::clone(&storage), settings.commit, on_commit),
        access: AccessControl::new(
            Arc::clone(&storage),
            Arc::clone(&metrics),
            settings.limiter,
            required,
        ),
        budget: Budget::new(settings.memory_budget),
        channels: Channels::new(Arc::clone(&storage), settings.fields),
        metrics,
        follow: InboxWatch::default(),
        timeouts: settings.timeouts,
        phase: watch::Sender::new(ServerPhase::Running),
        store: StoreHealth::default(),
        pages: Semaphore::new(MAX_CONCURRENT_PAGES),
        started: BootClock.now(),
        echo: settings.echo,
        liveness: settings.liveness,
        log: Arc::clone(&settings.log),
        history_notice: NoticeThrottle::default(),
        liveness_counts: Mutex::default(),
        counted: std::sync::Mutex::default(),
        mcp,
        storage,
    }
}

/// Timeout of each step after the drain.
const FINAL_TIMEOUT: Duration = Duration::from_secs(5);

struct Shutdown {
    state: Arc<ServerState>,
    accepting: JoinHandle<()>,
    background: Vec<JoinHandle<()>>,
    /// Ends by itself on shutdown.
    counting: Option<JoinHandle<()>>,
    lame_duck: Duration,
    drain: Duration,
}

impl Shutdown {
    async fn run(self, log: &NoticeSink) {
        let Self { state, mut accepting, background, counting, lame_duck, drain } = self;
        log(ServerNotice::Draining);
        state.phase.send_replace(ServerPhase::LameDuck);
        if lame_duck > Duration::ZERO {
            sleep(lame_duck).await;
        }
        state.phase.send_replace(ServerPhase::Draining);
        if timeout(drain, &mut accepting).await.is_err() {
            state.phase.send_replace(ServerPhase::Over);
            log(ServerNotice::CutOff);
            let _ = timeout(FINAL_TIMEOUT, &mut accepting).await;
        }
        for task in background {
            task.abort();
        }
        if let Some(counting) = counting {
            let _ = timeout(FINAL_TIMEOUT, counting).await;
        }
        // Best effort: other replicas forget this one after a while anyway.
        let _ = timeout(FINAL_TIMEOUT, state.storage.withdraw(state.mcp.replica)).await;
        let _ = timeout(FINAL_TIMEOUT, state.committer.close()).await;
        if let Ok(Err(error)) = timeout(FINAL_TIMEOUT, upkeep::flush(&state)).await {
            log(ServerNotice::UpkeepFailed(error));
        }
        log(ServerNotice::Stopped);
    }
}

#[cfg(test)]
mod tests;
