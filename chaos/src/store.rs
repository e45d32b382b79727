//! Store under test: its server, the link to it, and faults of both.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure::store::{IfAbsent, StoreUrl};
use tenure::{Store, process};
use testkit::{
    EtcdOptions, EtcdServer, Patroni, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
    wait_until,
};
use tokio::sync::Mutex;

use crate::folder::Folder;
use crate::proxy::{DelayProxy, LinkState};

/// Kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ChaosStore {
    /// File on this machine: no server, no link.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// Redis with an append-only file that is synced at each write.
    Redis,
    /// etcd, one member.
    Etcd,
}

impl ChaosStore {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Sqlite, Self::Postgres, Self::Redis, Self::Etcd];
}

impl fmt::Display for ChaosStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Etcd => "etcd",
        })
    }
}

#[derive(Debug)]
enum StoreServer {
    Sqlite(Folder),
    Postgres(PostgresServer),
    Redis(RedisServer),
    Etcd(EtcdServer),
    /// A primary, and a standby that is promoted on request.
    Pair(Box<[PostgresServer; 2]>),
    /// The same under Patroni, which promotes. Its first server is the primary at first.
    Patroni(Box<Patroni>),
}

/// A store that a run may break.
#[derive(Debug)]
pub struct StoreUnderTest {
    server: StoreServer,
    proxy: Option<DelayProxy>,
    /// URL for the instances: through the proxy.
    pub url: String,
    /// URL for the checks: past the proxy.
    direct: String,
    /// Locked while the server restarts: the next restart may be due before a start has ended.
    restarting: Mutex<()>,
}

impl StoreUnderTest {
    /// Starts the server and the proxy before it.
    pub async fn start(kind: ChaosStore) -> Result<Arc<Self>> {
        let server = tokio::task::spawn_blocking(move || StoreServer::start(kind)).await??;
        let direct = server.url();
        let (proxy, url) = match server.port() {
            Some(port) => {
                let proxy = DelayProxy::start(port).await?;
                let (own, other) = (format!("127.0.0.1:{port}"), proxy.port());
                let url = direct.replace(&own, &format!("127.0.0.1:{other}"));
                (Some(proxy), url)
            }
            None => (None, direct.clone()),
        };
        let restarting = Mutex::default();
        Ok(Arc::new(Self { server, proxy, url, direct, restarting }))
    }

    /// Starts three members of etcd, without a proxy.
    pub(crate) async fn cluster() -> Result<Arc<Self>> {
        let options = EtcdOptions { members: 3, ..EtcdOptions::default() };
        let etcd = tokio::task::spawn_blocking(move || EtcdServer::start(options)).await??;
        let url = etcd.url();
        let (server, restarting) = (StoreServer::Etcd(etcd), Mutex::default());
        Ok(Arc::new(Self { server, proxy: None, direct: url.clone(), url, restarting }))
    }

    /// Starts a PostgreSQL with a standby that receives everything, before (synchronous) or after
    /// it is acknowledged. All connections go through the proxy, which leads to the primary.
    pub(crate) async fn pair(synchronous: bool, patroni: bool) -> Result<Arc<Self>> {
        let start = move || match patroni {
            true => Ok(StoreServer::Patroni(Box::new(Patroni::start(synchronous)?))),
            false => pair(synchronous),
        };
        let server = tokio::task::spawn_blocking(start).await??;
        let port = server.port().context("the server has no port")?;
        let proxy = DelayProxy::start(port).await?;
        let (own, other) = (format!("127.0.0.1:{port}"), proxy.port());
        let url = server.url().replace(&own, &format!("127.0.0.1:{other}"));
        let (proxy, restarting) = (Some(proxy), Mutex::default());
        Ok(Arc::new(Self { server, proxy, direct: url.clone(), url, restarting }))
    }

    /// Keeps later writes of the primary from the standby.
    pub(crate) async fn cut_replication(self: &Arc<Self>) -> Result<()> {
        let place = Arc::clone(self);
        let cutting = move || -> Result<()> {
            // Under Patroni there may be other senders, which copy missing data at first.
            let senders = "SELECT pid FROM pg_stat_replication WHERE state = 'streaming'";
            let sender = match &place.server {
                StoreServer::Pair(pair) => pair[0].sql(senders)?,
                StoreServer::Patroni(pair) => pair.sql(0, senders)?,
                _ => bail!("the store has no standby"),
            };
            Ok(kill(Pid::from_raw(sender.trim().parse()?), Signal::SIGSTOP)?)
        };
        tokio::task::spawn_blocking(cutting).await?
    }

    /// Kills the primary and lets the standby take its place.
    pub(crate) async fn fail_over(self: &Arc<Self>) -> Result<()> {
        let place = Arc::clone(self);
        let promoting = move || -> Result<()> {
            let lead_to = |port| {
                place.wire(|wire| (wire.target, wire.dropped) = (port, wire.dropped + 1));
            };
            match &place.server {
                StoreServer::Pair(pair) => {
                    pair[0].kill()?;
                    pair[1].promote()?;
                    lead_to(pair[1].port());
                }
                StoreServer::Patroni(pair) => {
                    pair.kill(0)?;
                    pair.wait_for_takeover(0, TAKEOVER)?;
                    lead_to(pair.port(1));
                    // A synchronous primary acknowledges nothing without its standby.
                    pair.start_again(0)?;
                }
                _ => bail!("the store has no standby"),
            }
            Ok(())
        };
        tokio::task::spawn_blocking(promoting).await?
    }

    /// Runs a blocking operation on etcd; fails if the store is another one.
    pub(crate) async fn with_etcd<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&EtcdServer) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let place = Arc::clone(self);
        let acting = move || match &place.server {
            StoreServer::Etcd(etcd) => act(etcd),
            _ => bail!("the store is not etcd"),
        };
        tokio::task::spawn_blocking(acting).await?
    }

    /// Opens the store past the proxy, and creates it if it does not exist.
    pub async fn store(&self) -> Result<Arc<dyn Store>> {
        Ok(StoreUrl::parse(&self.direct)?.open(IfAbsent::Create, process::entropy()).await?)
    }

    /// Changes the link, if there is one.
    pub(crate) fn wire(&self, change: impl FnOnce(&mut LinkState)) {
        if let Some(proxy) = &self.proxy {
            proxy.change(change);
        }
    }

    /// Kills the server, and starts it again after a while. Waits for an earlier restart to end.
    pub(crate) async fn restart(self: &Arc<Self>, away: Duration) -> Result<()> {
        let _one_at_a_time = self.restarting.lock().await;
        let place = Arc::clone(self);
        tokio::task::spawn_blocking(move || place.server.kill()).await??;
        tokio::time::sleep(away).await;
        let place = Arc::clone(self);
        tokio::task::spawn_blocking(move || place.server.start_again()).await?
    }

    /// Keeps the file locked for a while, as a program with a forgotten transaction does; returns
    /// whether it got the lock.
    pub(crate) async fn lock(self: &Arc<Self>, lasts: Duration) -> Result<bool> {
        let StoreServer::Sqlite(folder) = &self.server else { return Ok(false) };
        let file = folder.path().join(FILE);
        let begin = move || -> Result<Option<rusqlite::Connection>> {
            let connection = rusqlite::Connection::open(file)?;
            let got = wait_until("the lock", LOCKING, || {
                connection.execute_batch("BEGIN IMMEDIATE").is_ok()
            });
            Ok(got.is_ok().then_some(connection))
        };
        let got = tokio::task::spawn_blocking(begin).await??;
        let Some(connection) = got else { return Ok(false) };
        tokio::time::sleep(lasts).await;
        connection.execute_batch("ROLLBACK")?;
        Ok(true)
    }
}

const FILE: &str = "tenure.db";
/// Time limit for the lock, which all other writers and a stopped instance may hold.
const LOCKING: Duration = Duration::from_secs(30);

impl StoreUnderTest {
    /// Returns the process id of the server, if there is one.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.server {
            StoreServer::Sqlite(_) => None,
            StoreServer::Postgres(server) => server.pid(),
            StoreServer::Pair(pair) => pair[0].pid(),
            StoreServer::Patroni(_) => None,
            StoreServer::Redis(server) => server.pid(),
            StoreServer::Etcd(server) => server.pid(0),
        }
    }

    /// Returns the number of rows or keys. Blocks, so it must not run on the runtime's own threads.
    pub(crate) fn rows(&self) -> Result<u64> {
        let number = |text: String| -> Result<u64> {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            digits.parse().with_context(|| format!("not a number: {text:?}"))
        };
        match &self.server {
            StoreServer::Sqlite(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join(FILE))?;
                connection.busy_timeout(Duration::from_secs(10))?;
                let count = count_all("main.");
                Ok(connection.query_row(&count, [], |row| row.get::<_, i64>(0))?.try_into()?)
            }
            StoreServer::Postgres(server) => number(server.sql(&count_all("tenure."))?),
            StoreServer::Pair(pair) => number(pair[0].sql(&count_all("tenure."))?),
            StoreServer::Patroni(pair) => number(pair.sql(0, &count_all("tenure."))?),
            StoreServer::Redis(server) => number(server.cli(&["dbsize"])?),
            StoreServer::Etcd(server) => {
                // etcd counts all keys, whatever the limit.
                let words = "get  --prefix --keys-only --limit 1 --write-out fields";
                let fields = server.etcdctl(&words.split(' ').collect::<Vec<_>>())?;
                let count = fields.lines().find(|line| line.starts_with("\"Count\""));
                number(count.context("etcd did not count its keys")?.to_owned())
            }
        }
    }
}

/// Tables that must not grow with time, apart from one row for each session of the last week.
const TABLES: [&str; 6] = ["audit", "checkpoint", "history", "hold", "session", "spent"];

fn count_all(schema: &str) -> String {
    let counts = TABLES.map(|table| format!("(SELECT count(*) FROM {schema}{table})"));
    format!("SELECT {}", counts.join(" + "))
}

/// Time limit for a standby to connect, and for Patroni to notice that the primary is gone.
const TAKEOVER: Duration = Duration::from_secs(60);

/// Starts a primary and a standby without Patroni.
fn pair(synchronous: bool) -> Result<StoreServer> {
    let primary = PostgresServer::start(PostgresOptions::default())?;
    let standby = PostgresServer::standby_of(&primary)?;
    if synchronous {
        // The standby was copied before this, so it waits for no standby of its own.
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        primary.sql("SELECT pg_reload_conf()")?;
    }
    let states = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'";
    let wanted = if synchronous { "sync" } else { "async" };
    let streams = || primary.sql(states).is_ok_and(|state| state.trim() == wanted);
    wait_until("the standby", TAKEOVER, streams)?;
    Ok(StoreServer::Pair(Box::new([primary, standby])))
}

impl StoreServer {
    fn start(kind: ChaosStore) -> Result<Self> {
        Ok(match kind {
            ChaosStore::Sqlite => Self::Sqlite(Folder::new()?),
            ChaosStore::Postgres => {
                Self::Postgres(PostgresServer::start(PostgresOptions::default())?)
            }
            ChaosStore::Redis => {
                // Without its file a restart would lose acknowledged writes, as `doctor` reports.
                let options = RedisOptions { append_only: true, ..RedisOptions::default() };
                Self::Redis(RedisServer::start(options)?)
            }
            ChaosStore::Etcd => {
                // Otherwise a server grows with every write, as `doctor` reports.
                let options = EtcdOptions { is_lean: true, ..EtcdOptions::default() };
                Self::Etcd(EtcdServer::start(options)?)
            }
        })
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join(FILE).display()),
            Self::Postgres(server) => server.url(),
            Self::Pair(pair) => pair[0].url(),
            Self::Patroni(pair) => pair.url(0),
            Self::Redis(server) => server.url(),
            Self::Etcd(server) => server.url(),
        }
    }

    fn port(&self) -> Option<u16> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(server) => Some(server.port()),
            Self::Pair(pair) => Some(pair[0].port()),
            Self::Patroni(pair) => Some(pair.port(0)),
            Self::Redis(server) => Some(server.port()),
            Self::Etcd(server) => Some(server.port(0)),
        }
    }

    fn kill(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(server) => server.kill(),
            Self::Pair(pair) => pair[0].kill(),
            Self::Patroni(pair) => pair.kill(0),
            Self::Redis(server) => server.kill(),
            Self::Etcd(server) => server.kill(0),
        }
    }

    fn start_again(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(server) => server.start_again(),
            Self::Pair(pair) => pair[0].start_again(),
            Self::Patroni(pair) => pair.start_again(0),
            Self::Redis(server) => server.start_again(),
            Self::Etcd(server) => server.start_again(0),
        }
    }
}
