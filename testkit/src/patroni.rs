//! Two PostgreSQL servers under Patroni, with an etcd that records which is the primary.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::etcd::{EtcdOptions, EtcdServer};
use crate::guard::{START_LIMIT, ServerGuard, output, unprivileged};
use crate::packages;
use crate::ports::{free_port, random};
use crate::postgres::{psql, url};
use crate::wait::wait_until;

/// A primary, and a standby that takes its place when it dies; removed when dropped, or when this
/// process ends in any way.
#[derive(Debug)]
pub struct Patroni {
    nodes: [PatroniNode; 2],
    password: String,
    synchronous: bool,
    etcd: EtcdServer,
}

#[derive(Debug)]
struct PatroniNode {
    guard: ServerGuard,
    port: u16,
    control: u16,
}

impl Patroni {
    /// Starts both servers and waits until the second streams from the first. If `synchronous`,
    /// both have every acknowledged commit, and a primary without its standby acknowledges nothing.
    pub fn start(synchronous: bool) -> Result<Self> {
        let node = || -> Result<PatroniNode> {
            let guard = ServerGuard::for_unprivileged("patroni")?;
            Ok(PatroniNode { guard, port: free_port()?, control: free_port()? })
        };
        let etcd = EtcdServer::start(EtcdOptions::default())?;
        let password = format!("{:016x}", random());
        let pair = Self { nodes: [node()?, node()?], password, synchronous, etcd };
        pair.start_again(0)?;
        wait_until("the primary", START_LIMIT, || pair.primary().is_ok())?;
        pair.start_again(1)?;
        let wanted = if synchronous { "sync" } else { "async" };
        let states = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'";
        wait_until("the standby", START_LIMIT, || {
            pair.sql(0, states).is_ok_and(|state| state.trim() == wanted)
        })?;
        Ok(pair)
    }

    /// The superuser's URL of a server.
    #[must_use]
    pub fn url(&self, node: usize) -> String {
        url(&self.password, self.nodes[node].port)
    }

    /// The TCP port of a server on 127.0.0.1; kept across [`Patroni::start_again`].
    #[must_use]
    pub fn port(&self, node: usize) -> u16 {
        self.nodes[node].port
    }

    /// Runs `statement` on a server; returns the bare values, a row a line.
    pub fn sql(&self, node: usize, statement: &str) -> Result<String> {
        psql(&self.url(node), statement)
    }

    /// Returns the server that accepts writes now.
    pub fn primary(&self) -> Result<usize> {
        let takes_writes = |node: &usize| {
            self.sql(*node, "SELECT pg_is_in_recovery()").is_ok_and(|answer| answer.trim() == "f")
        };
        (0..2).find(takes_writes).context("no server takes writes")
    }

    /// Waits until the other server has taken the place of a killed one.
    pub fn wait_for_takeover(&self, killed: usize, limit: Duration) -> Result<()> {
        let other = 1 - killed;
        wait_until("the takeover", limit, || self.primary().is_ok_and(|node| node == other))
    }

    /// Kills a server and its Patroni at once, as a power cut would.
    pub fn kill(&self, node: usize) -> Result<()> {
        let guard = &self.nodes[node].guard;
        guard.kill()?;
        // The server is no child of Patroni. It is stopped first, so that it starts no process.
        let file = fs::read_to_string(guard.folder().join("data/postmaster.pid"))?;
        let server = file.lines().next().context("the server has no process")?;
        let script = "kill -s STOP $0; kill -s KILL $0 $(cat /proc/$0/task/$0/children)";
        output(Command::new("sh").args(["-c", script, server])).map(drop)
    }

    /// Restarts a killed server, which follows the other one, and waits until it responds.
    pub fn start_again(&self, node: usize) -> Result<()> {
        let PatroniNode { guard, port, .. } = &self.nodes[node];
        let file = guard.folder().join("patroni.yml");
        fs::write(&file, self.configuration(node))?;
        let program = packages::find("patroni").context("patroni is missing; install it")?;
        let command = [program.display().to_string(), file.display().to_string()];
        guard.start(&unprivileged(command.into()))?;
        let url = url(&self.password, *port);
        guard.wait_until_ready(|| psql(&url, "SELECT 1").is_ok())
    }

    fn configuration(&self, node: usize) -> String {
        let PatroniNode { guard, port, control } = &self.nodes[node];
        let (folder, password) = (guard.folder().display(), &self.password);
        let programs = packages::find("initdb").and_then(|file| Some(file.parent()?.to_owned()));
        let programs = programs.unwrap_or_default();
        let (programs, synchronous) = (programs.display(), self.synchronous);
        let etcd = self.etcd.hosts();
        format!(
            r#"scope: testkit
name: node{node}
restapi: {{listen: "127.0.0.1:{control}", connect_address: "127.0.0.1:{control}"}}
etcd3: {{host: "{etcd}"}}
bootstrap:
  dcs:
    ttl: 5
    loop_wait: 1
    retry_timeout: 3
    maximum_lag_on_failover: 104857600
    synchronous_mode: {synchronous}
    synchronous_mode_strict: {synchronous}
    postgresql:
      use_pg_rewind: true
      parameters: {{wal_log_hints: "on", max_connections: 200}}
  initdb: [{{encoding: UTF8}}, {{locale: C.UTF-8}}, no-sync]
postgresql:
  listen: "127.0.0.1:{port}"
  connect_address: "127.0.0.1:{port}"
  data_dir: "{folder}/data"
  bin_dir: "{programs}"
  pgpass: "{folder}/pgpass"
  authentication:
    superuser: {{username: tenure, password: "{password}"}}
    replication: {{username: replicator, password: "{password}"}}
    rewind: {{username: tenure, password: "{password}"}}
  parameters: {{unix_socket_directories: "{folder}", dynamic_shared_memory_type: mmap}}
  pg_hba:
    - local all all scram-sha-256
    - host all all 127.0.0.1/32 scram-sha-256
    - host replication all 127.0.0.1/32 scram-sha-256
"#
        )
    }
}
