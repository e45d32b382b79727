//! Compared locks, the stores that they need, and the faults.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use testkit::{
    EtcdOptions, EtcdServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

use super::trial::Programs;

/// A program that runs a command while it holds a lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockSystem {
    pub(crate) name: &'static str,
    pub(crate) store: LockStore,
    kind: WrapperKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockStore {
    /// A file on this host.
    File,
    Postgres,
    Redis,
    Etcd,
}

#[derive(Debug, PartialEq, Eq)]
enum WrapperKind {
    Tenure,
    Flock,
    EtcdctlLock,
    /// A script in `recipes`.
    Recipe(&'static str),
}

const fn system(name: &'static str, store: LockStore, kind: WrapperKind) -> LockSystem {
    LockSystem { name, store, kind }
}

pub(crate) const SYSTEMS: &[LockSystem] = &[
    system("tenure-sqlite", LockStore::File, WrapperKind::Tenure),
    system("tenure-postgres", LockStore::Postgres, WrapperKind::Tenure),
    system("tenure-redis", LockStore::Redis, WrapperKind::Tenure),
    system("tenure-etcd", LockStore::Etcd, WrapperKind::Tenure),
    system("flock", LockStore::File, WrapperKind::Flock),
    system("etcdctl-lock", LockStore::Etcd, WrapperKind::EtcdctlLock),
    system("pg-advisory", LockStore::Postgres, WrapperKind::Recipe("pg_advisory.py")),
    system(
        "pg-advisory-careful",
        LockStore::Postgres,
        WrapperKind::Recipe("pg_advisory_careful.py"),
    ),
    system("python-redis-lock", LockStore::Redis, WrapperKind::Recipe("python_redis_lock.py")),
    system("redis-py-careful", LockStore::Redis, WrapperKind::Recipe("redis_py_careful.py")),
];

impl LockSystem {
    /// Returns the command line that wraps the command.
    pub(crate) fn wrapper(&self, programs: &Programs, url: &str, folder: &Path) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        match &self.kind {
            WrapperKind::Tenure => {
                let program = text(&programs.tenure);
                let words = ["run", "--duty", "g/x", "--ttl", "5s", "--store", url, "--"];
                [&[program], &words.map(str::to_owned)[..]].concat()
            }
            WrapperKind::Flock => vec!["flock".to_owned(), text(&folder.join("lock"))],
            WrapperKind::EtcdctlLock => {
                let host = url.trim_start_matches("etcd://");
                let words = ["etcdctl", "--endpoints", host, "lock", "--ttl", "5", "g/x", "--"];
                words.map(str::to_owned).to_vec()
            }
            WrapperKind::Recipe(script) => {
                vec![text(&programs.python), text(&programs.recipes.join(script)), url.to_owned()]
            }
        }
    }
}

impl LockStore {
    pub(crate) fn has_server(self) -> bool {
        self != Self::File
    }
}

/// Server of one trial.
pub(crate) enum LockServer {
    Postgres(PostgresServer),
    Redis(RedisServer),
    Etcd(EtcdServer),
}

impl LockServer {
    pub(crate) fn start(store: LockStore) -> Result<Self> {
        Ok(match store {
            LockStore::File => bail!("a file has no server"),
            LockStore::Postgres => {
                Self::Postgres(PostgresServer::start(PostgresOptions::default())?)
            }
            LockStore::Redis => {
                let options = RedisOptions { append_only: true, ..RedisOptions::default() };
                Self::Redis(RedisServer::start(options)?)
            }
            LockStore::Etcd => Self::Etcd(EtcdServer::start(EtcdOptions::default())?),
        })
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::Redis(server) => server.url(),
            Self::Etcd(server) => server.url(),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Postgres(server) => server.port(),
            Self::Redis(server) => server.port(),
            Self::Etcd(server) => server.port(0),
        }
    }

    pub(crate) fn kill(&self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::Redis(server) => server.kill(),
            Self::Etcd(server) => server.kill(0),
        }
    }

    pub(crate) fn start_again(&self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.start_again(),
            Self::Redis(server) => server.start_again(),
            Self::Etcd(server) => server.start_again(0),
        }
    }
}

/// Fault of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockFault {
    Term,
    Kill,
    Stop,
    Freeze,
    Cut,
    Restart,
    Outage,
}

pub(crate) const FAULTS: [LockFault; 7] = [
    LockFault::Term,
    LockFault::Kill,
    LockFault::Stop,
    LockFault::Freeze,
    LockFault::Cut,
    LockFault::Restart,
    LockFault::Outage,
];
/// Time for which processes are stopped and the network is cut: more than two TTLs.
pub(crate) const FAULT_DURATION: Duration = Duration::from_secs(12);
/// Time for which a killed server is down.
pub(crate) const OUTAGE_DURATION: Duration = Duration::from_secs(8);

impl LockFault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Term => "term",
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Freeze => "freeze",
            Self::Cut => "cut",
            Self::Restart => "restart",
            Self::Outage => "outage",
        }
    }

    /// Returns the heading of its column.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Term => "SIGTERM",
            Self::Kill => "kill -9",
            Self::Stop => "SIGSTOP 12 s",
            Self::Freeze => "SIGSTOP 12 s, child too",
            Self::Cut => "network cut 12 s",
            Self::Restart => "store restarted",
            Self::Outage => "store away 8 s",
        }
    }

    /// Whether it needs no server.
    pub(crate) fn is_local(self) -> bool {
        matches!(self, Self::Term | Self::Kill | Self::Stop | Self::Freeze)
    }

    /// Returns the time from the fault to the end of the trial.
    pub(crate) fn observed(self) -> Duration {
        match self {
            Self::Term | Self::Kill => Duration::from_secs(14),
            Self::Stop | Self::Freeze | Self::Cut => FAULT_DURATION + Duration::from_secs(10),
            Self::Restart => Duration::from_secs(16),
            Self::Outage => OUTAGE_DURATION + Duration::from_secs(16),
        }
    }
}
