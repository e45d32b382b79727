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

/// One PostgreSQL, one Redis and one etcd; they end with this process in any case.
pub(crate) struct Servers {
    postgres: PostgresServer,
    redis: RedisServer,
    etcd: EtcdServer,
    /// Variables of Python programs, which are not servers.
    programs: Vec<(&'static str, String)>,
}

impl Servers {
    /// Installs the required packages, and starts all servers.
    pub(crate) fn start() -> Result<Self> {
        install()?;
        let postgres = PostgresServer::start(PostgresOptions::default())?;
        let redis = RedisServer::start(RedisOptions::default())?;
        let etcd = EtcdServer::start(EtcdOptions::default())?;
        let programs = python::interpreters()?;
        Ok(Self { postgres, redis, etcd, programs })
    }

    /// The URL of the PostgreSQL server.
    pub(crate) fn postgres(&self) -> String {
        self.postgres.url()
    }

    /// Returns the variables by which the tests find the servers.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = self.programs.clone();
        variables.push((TEST_POSTGRES, self.postgres.url()));
        variables.push((TEST_REDIS, self.redis.url()));
        variables.push((TEST_ETCD, self.etcd.url()));
        variables
    }
}

/// Starts the servers and prints lines for a shell to source; runs until standard input closes.
///
/// Ctrl-C needs no handler: the servers' guards notice that this process has ended.
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

/// Installs missing packages for a failover under Patroni.
pub(crate) fn install_patroni() -> Result<()> {
    install_all(&packages::missing_of(packages::PATRONI))
}

/// Installs missing packages for the examples that only a soak runs.
pub(crate) fn install_examples() -> Result<()> {
    install_all(&packages::missing_of(packages::EXAMPLES))
}

/// Installs these packages; without the permission, fails and lists them.
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
