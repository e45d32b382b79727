//! The servers that the tests share.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use anyhow::{Result, bail};
use testkit::{
    EtcdOptions, EtcdServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer, TEST_ETCD,
    TEST_POSTGRES, TEST_REDIS, packages,
};

use crate::python;
use crate::run::check;

/// One PostgreSQL, one Redis and one etcd; they die with this process, however it ends.
pub(crate) struct Servers {
    postgres: PostgresServer,
    redis: RedisServer,
    etcd: EtcdServer,
    /// Not servers: the clients of others.
    clients: Vec<(&'static str, String)>,
}

impl Servers {
    /// Starts all of them, after installing what that needs.
    pub(crate) fn start() -> Result<Self> {
        install()?;
        let postgres = PostgresServer::start(PostgresOptions::default())?;
        let redis = RedisServer::start(RedisOptions::default())?;
        let etcd = EtcdServer::start(EtcdOptions::default())?;
        let clients = python::mcp_clients()?;
        Ok(Self { postgres, redis, etcd, clients })
    }

    /// The URL of the PostgreSQL server.
    pub(crate) fn postgres(&self) -> String {
        self.postgres.url()
    }

    /// The variables by which the tests find them.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = self.clients.clone();
        variables.push((TEST_POSTGRES, self.postgres.url()));
        variables.push((TEST_REDIS, self.redis.url()));
        variables.push((TEST_ETCD, self.etcd.url()));
        variables
    }
}

/// Starts the servers for whoever sources the printed lines, until standard input closes.
///
/// Ctrl-C needs no handler: the servers' guards see this process end.
pub(crate) fn hold() -> Result<()> {
    let servers = Servers::start()?;
    for (name, url) in servers.variables() {
        println!("export {name}={url}");
    }
    eprintln!("the servers run until Ctrl-C");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Installs the packages that are missing.
pub(crate) fn install() -> Result<()> {
    install_all(&packages::missing())
}

/// The same for what a failover under Patroni needs besides.
pub(crate) fn install_patroni() -> Result<()> {
    install_all(&packages::missing_of(packages::PATRONI))
}

/// The same for what buckets are measured beside.
pub(crate) fn install_buckets() -> Result<()> {
    install_all(&packages::missing_of(packages::BUCKETS))
}

/// Installs these packages; without the right to, says which.
pub(crate) fn install_all(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    if fs::metadata("/proc/self")?.uid() != 0 {
        bail!("install these packages first: sudo apt-get install {}", missing.join(" "));
    }
    check(apt_get().arg("update"))?;
    check(apt_get().args(["install", "-y", "--no-install-recommends"]).args(missing))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
