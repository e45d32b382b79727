//! The store under test: its server, the wire to it, and what can be done to both.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tenure::store::{IfAbsent, StoreUrl};
use tenure::{Store, process};
use testkit::{Etcd, EtcdOptions, Postgres, PostgresOptions, Redis, RedisOptions};

use crate::proxy::{Proxy, Wire};

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A file of this machine: no server, no wire.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// Redis with an append-only file that is synced at each write.
    Redis,
    /// etcd, one member.
    Etcd,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sqlite, Self::Postgres, Self::Redis, Self::Etcd];
}

impl fmt::Display for Kind {
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
enum Server {
    Sqlite(TempDir),
    Postgres(Postgres),
    Redis(Redis),
    Etcd(Etcd),
}

/// A store that a run may break.
#[derive(Debug)]
pub struct Place {
    server: Server,
    proxy: Option<Proxy>,
    /// For the instances: through the proxy.
    pub url: String,
    /// For those who look: past it.
    direct: String,
}

impl Place {
    /// Starts the server and the proxy before it.
    pub async fn start(kind: Kind) -> Result<Arc<Self>> {
        let server = tokio::task::spawn_blocking(move || Server::start(kind)).await??;
        let direct = server.url();
        let (proxy, url) = match server.port() {
            Some(port) => {
                let proxy = Proxy::start(port).await?;
                let (own, other) = (format!("127.0.0.1:{port}"), proxy.port());
                let url = direct.replace(&own, &format!("127.0.0.1:{other}"));
                (Some(proxy), url)
            }
            None => (None, direct.clone()),
        };
        Ok(Arc::new(Self { server, proxy, url, direct }))
    }

    /// A handle past the proxy. The store is made if it is not there.
    pub async fn store(&self) -> Result<Arc<dyn Store>> {
        Ok(StoreUrl::parse(&self.direct)?.open(IfAbsent::Create, process::entropy()).await?)
    }

    /// Changes the wire; nothing to change where there is none.
    pub(crate) fn wire(&self, change: impl FnOnce(&mut Wire)) {
        if let Some(proxy) = &self.proxy {
            proxy.change(change);
        }
    }

    /// Kills the server, and starts it again after a while.
    pub(crate) async fn restart(self: &Arc<Self>, away: Duration) -> Result<()> {
        let place = Arc::clone(self);
        tokio::task::spawn_blocking(move || place.server.kill()).await??;
        tokio::time::sleep(away).await;
        let place = Arc::clone(self);
        tokio::task::spawn_blocking(move || place.server.start_again()).await?
    }

    /// Keeps the file locked for a while, as a program does that has forgotten its transaction.
    pub(crate) async fn lock(self: &Arc<Self>, lasts: Duration) -> Result<()> {
        let Server::Sqlite(folder) = &self.server else { return Ok(()) };
        let file = folder.path().join(FILE);
        let begin = move || -> Result<rusqlite::Connection> {
            let connection = rusqlite::Connection::open(file)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.execute_batch("BEGIN IMMEDIATE")?;
            Ok(connection)
        };
        let connection = tokio::task::spawn_blocking(begin).await?.context("cannot lock")?;
        tokio::time::sleep(lasts).await;
        Ok(connection.execute_batch("ROLLBACK")?)
    }
}

const FILE: &str = "tenure.db";

impl Server {
    fn start(kind: Kind) -> Result<Self> {
        Ok(match kind {
            Kind::Sqlite => Self::Sqlite(TempDir::new()?),
            Kind::Postgres => Self::Postgres(Postgres::start(PostgresOptions::default())?),
            Kind::Redis => {
                // Without its file a restart would lose what was answered, as `doctor` says.
                let options = RedisOptions { append_only: true, ..RedisOptions::default() };
                Self::Redis(Redis::start(options)?)
            }
            Kind::Etcd => Self::Etcd(Etcd::start(EtcdOptions::default())?),
        })
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join(FILE).display()),
            Self::Postgres(server) => server.url(),
            Self::Redis(server) => server.url(),
            Self::Etcd(server) => server.url(),
        }
    }

    fn port(&self) -> Option<u16> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(server) => Some(server.port()),
            Self::Redis(server) => Some(server.port()),
            Self::Etcd(server) => Some(server.port(0)),
        }
    }

    fn kill(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(server) => server.kill(),
            Self::Redis(server) => server.kill(),
            Self::Etcd(server) => server.kill(0),
        }
    }

    fn start_again(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(server) => server.start_again(),
            Self::Redis(server) => server.start_again(),
            Self::Etcd(server) => server.start_again(0),
        }
    }
}
