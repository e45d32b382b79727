//! A private etcd: one member, or a cluster of three.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::certs::Certificates;
use crate::guard::{ServerGuard, output};
use crate::ports::{free_port, random};
use crate::proxy::Proxy;

/// Options of an [`EtcdServer`]. The default has one member, no password and no encryption.
#[derive(Debug, Default)]
pub struct EtcdOptions<'a> {
    /// Number of members; zero counts as one.
    pub members: usize,
    /// Members reach each other through proxies, for [`EtcdServer::cut_peers`].
    pub proxied_peers: bool,
    /// Snapshot to restore first; only for a single member.
    pub snapshot: Option<PathBuf>,
    /// Size at which the database refuses further writes; etcd's own by default.
    pub quota_bytes: Option<u64>,
    /// Keeps little history: revisions for a minute and 5,000 entries of its log, instead of etcd's
    /// defaults of all revisions and 100,000 entries.
    pub is_lean: bool,
    /// Clients must use TLS, and verify the server's certificate with this authority.
    pub tls: Option<&'a Certificates>,
    /// Clients must present a certificate of the same authority.
    pub client_certificates: bool,
    /// The password of the user `root`, which turns authentication on.
    pub password: Option<String>,
}

/// Private etcd; removed when dropped, or when this process ends in any way.
#[derive(Debug)]
pub struct EtcdServer {
    members: Vec<EtcdMember>,
    token: String,
    quota_bytes: Option<u64>,
    is_lean: bool,
    tls: Option<EtcdTlsArguments>,
    password: Option<String>,
}

#[derive(Debug)]
struct EtcdMember {
    guard: ServerGuard,
    client: u16,
    peer: u16,
    proxy: Option<Proxy>,
}

/// TLS files as arguments of the servers and of `etcdctl`.
#[derive(Debug)]
struct EtcdTlsArguments {
    server: Vec<String>,
    client: Vec<String>,
}

/// Attempts to start: another process may take a port between the check and the use.
const START_ATTEMPTS: usize = 3;

impl EtcdServer {
    /// Starts an empty cluster and waits until it accepts writes.
    pub fn start(options: EtcdOptions<'_>) -> Result<Self> {
        let tls = options
            .tls
            .map(|certificates| EtcdTlsArguments::of(certificates, options.client_certificates));
        let mut server = Self {
            members: Vec::new(),
            token: format!("testkit-{:x}", random()),
            quota_bytes: options.quota_bytes,
            is_lean: options.is_lean,
            tls,
            password: None,
        };
        let mut tried = Ok(());
        for _ in 0..START_ATTEMPTS {
            server.members = (0..options.members.max(1))
                .map(|_| EtcdMember::new(options.proxied_peers))
                .collect::<Result<_>>()?;
            if let Some(snapshot) = &options.snapshot {
                server.restore(snapshot)?;
            }
            tried = server.launch_all();
            if tried.is_ok() {
                break;
            }
        }
        tried?;
        if let Some(password) = options.password {
            server.etcdctl(&["user", "add", &format!("root:{password}")])?;
            server.etcdctl(&["user", "grant-role", "root", "root"])?;
            server.etcdctl(&["auth", "enable"])?;
            server.password = Some(password);
        }
        Ok(server)
    }

    /// The URL of the store, with all members and, if there is one, root's password.
    #[must_use]
    pub fn url(&self) -> String {
        let user = self.password.as_ref().map(|password| format!("root:{password}@"));
        format!("etcd://{}{}", user.unwrap_or_default(), self.hosts())
    }

    /// The addresses of all members, separated by commas.
    #[must_use]
    pub fn hosts(&self) -> String {
        let host = |member: &EtcdMember| format!("127.0.0.1:{}", member.client);
        self.members.iter().map(host).collect::<Vec<_>>().join(",")
    }

    /// The port for clients of a member; kept across [`EtcdServer::start_again`].
    #[must_use]
    pub fn port(&self, member: usize) -> u16 {
        self.members[member].client
    }

    /// Returns the member that leads now.
    pub fn leader(&self) -> Result<usize> {
        let leads = |member: &EtcdMember| {
            let endpoint = self.endpoint(member);
            let words = ["endpoint", "status", "--write-out", "fields"];
            let status = self.ctl(&endpoint, &words).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.map(|value| value.trim_start_matches([' ', ':']).to_owned())
            };
            let id = field("\"MemberID\"");
            id.is_some() && id == field("\"Leader\"")
        };
        self.members.iter().position(leads).context("no member leads")
    }

    /// Runs `etcdctl` with these words on all members, as root if there is a password.
    pub fn etcdctl(&self, words: &[&str]) -> Result<String> {
        let endpoints: Vec<String> =
            self.members.iter().map(|member| self.endpoint(member)).collect();
        self.ctl(&endpoints.join(","), words)
    }

    /// The process of a member that was started last, for measurements.
    #[must_use]
    pub fn pid(&self, member: usize) -> Option<u32> {
        self.members[member].guard.server()
    }

    /// Kills a member at once, as a power cut would.
    pub fn kill(&self, member: usize) -> Result<()> {
        self.members[member].guard.kill()
    }

    /// Starts a killed member on its old folder and ports, and waits until it serves.
    pub fn start_again(&self, member: usize) -> Result<()> {
        self.launch(member)?;
        self.wait_for(member)
    }

    /// Freezes a member: its connections stay open and nothing answers.
    pub fn pause(&self, member: usize) -> Result<()> {
        self.members[member].guard.signal_all("STOP")
    }

    /// Resumes a frozen member.
    pub fn resume(&self, member: usize) -> Result<()> {
        self.members[member].guard.signal_all("CONT")
    }

    /// Ends the connections of other members to this one, and refuses new ones. Its own connections
    /// to others remain.
    pub fn cut_peers(&self, member: usize) {
        self.members[member].proxy.iter().for_each(Proxy::cut);
    }

    /// Lets other members connect again.
    pub fn restore_peers(&self, member: usize) -> Result<()> {
        self.members[member].proxy.iter().try_for_each(Proxy::restore)
    }

    /// Creates the data folder of the only member from a snapshot.
    fn restore(&self, snapshot: &Path) -> Result<()> {
        let [member] = &self.members[..] else { bail!("a snapshot needs a single member") };
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(snapshot);
        command.arg("--data-dir").arg(member.guard.folder().join("data"));
        command.args(["--name", "m0", "--initial-cluster-token", &self.token]);
        command.args(["--initial-cluster", &format!("m0={}", member.peer_url())]);
        output(command.args(["--initial-advertise-peer-urls", &member.peer_url()]))?;
        Ok(())
    }

    fn launch_all(&self) -> Result<()> {
        (0..self.members.len()).try_for_each(|member| self.launch(member))?;
        (0..self.members.len()).try_for_each(|member| self.wait_for(member))
    }

    fn launch(&self, index: usize) -> Result<()> {
        let member = &self.members[index];
        let (client, peer) = (self.endpoint(member), member.peer_url());
        let cluster: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(index, member)| format!("m{index}={}", member.peer_url()))
            .collect();
        let mut command = vec!["etcd".to_owned()];
        for (name, value) in [
            ("name", format!("m{index}")),
            ("data-dir", member.guard.folder().join("data").display().to_string()),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", format!("http://127.0.0.1:{}", member.peer)),
            ("initial-advertise-peer-urls", peer),
            ("initial-cluster", cluster.join(",")),
            ("initial-cluster-token", self.token.clone()),
        ] {
            command.extend([format!("--{name}"), value]);
        }
        if let Some(quota) = self.quota_bytes {
            command.extend(["--quota-backend-bytes".to_owned(), quota.to_string()]);
        }
        if self.is_lean {
            let words = ["--auto-compaction-retention", "1m", "--snapshot-count", "5000"];
            command.extend(words.map(str::to_owned));
        }
        command.extend(self.tls.iter().flat_map(|tls| tls.server.clone()));
        member.guard.start(&command)
    }

    /// Waits until it has a leader and responds; fails if a different cluster uses the port.
    fn wait_for(&self, index: usize) -> Result<()> {
        let member = &self.members[index];
        let endpoint = self.endpoint(member);
        member.guard.wait_until_ready(|| {
            is_open(member.client) && self.ctl(&endpoint, &["endpoint", "health"]).is_ok()
        })?;
        let listed = self.ctl(&endpoint, &["member", "list"])?;
        ensure!(listed.contains(&member.peer_url()), "another etcd took port {}", member.client);
        Ok(())
    }

    fn endpoint(&self, member: &EtcdMember) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", member.client)
    }

    fn ctl(&self, endpoints: &str, words: &[&str]) -> Result<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", endpoints]);
        command.args(self.tls.iter().flat_map(|tls| tls.client.clone()));
        if let Some(password) = &self.password {
            command.env("ETCDCTL_USER", format!("root:{password}"));
        }
        output(command.args(words))
    }
}

impl EtcdMember {
    fn new(proxied: bool) -> Result<Self> {
        let (guard, client) = (ServerGuard::new("etcd")?, free_port()?);
        let mut peer = free_port()?;
        while peer == client {
            peer = free_port()?;
        }
        let proxy = proxied.then(|| Proxy::start(peer)).transpose()?;
        Ok(Self { guard, client, peer, proxy })
    }

    /// Returns the URL at which the other members reach it.
    fn peer_url(&self) -> String {
        let port = self.proxy.as_ref().map_or(self.peer, Proxy::port);
        format!("http://127.0.0.1:{port}")
    }
}

impl EtcdTlsArguments {
    fn of(certificates: &Certificates, client_certificates: bool) -> Self {
        let flag = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        let (server, client) = (certificates.server(), certificates.client());
        let authority = certificates.authority();
        let mut servers = vec![flag("cert-file", server.0), flag("key-file", server.1)];
        if client_certificates {
            servers.push(flag("trusted-ca-file", authority.clone()));
            servers.push("--client-cert-auth".to_owned());
        }
        let clients =
            vec![flag("cacert", authority), flag("cert", client.0), flag("key", client.1)];
        Self { server: servers, client: clients }
    }
}

fn is_open(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}
