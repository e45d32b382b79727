//! A private Redis server.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::certs::TestCertificateFiles;
use crate::clock::{self, FakedClock};
use crate::guard::{ServerGuard, output};
use crate::ports::on_a_free_port;

/// Options of a [`RedisServer`]. The default keeps nothing on disk.
#[derive(Debug, Default, Clone)]
pub struct RedisOptions {
    /// Whether each write is on disk before the response.
    pub append_only: bool,
    /// Whether the server is a cluster of one node that owns every slot.
    pub cluster: bool,
    /// The password of the default user; none by default.
    pub password: Option<String>,
    /// The port of the server to copy, which must have the same password.
    pub replica_of: Option<u16>,
    /// Whether the wall clock can be moved by [`RedisServer::step_clock`].
    pub faked_clock: bool,
    /// RDB file to load first.
    pub snapshot: Option<PathBuf>,
    /// Accepts only TLS connections, with a client certificate if required.
    pub tls: Option<TestCertificateFiles>,
}

/// Private Redis server; removed when dropped, or when this process ends in any way.
#[derive(Debug)]
pub struct RedisServer {
    guard: ServerGuard,
    port: u16,
    options: RedisOptions,
    clock: Option<FakedClock>,
}

impl RedisServer {
    /// Starts an empty server and waits until it responds.
    pub fn start(mut options: RedisOptions) -> Result<Self> {
        let guard = ServerGuard::new("redis")?;
        if let Some(snapshot) = &options.snapshot {
            fs::copy(snapshot, guard.folder().join("dump.rdb"))?;
        }
        options.tls = options.tls.map(|tls| tls.moved_to(guard.folder())).transpose()?;
        let clock = options.faked_clock.then(|| FakedClock::new(guard.folder())).transpose()?;
        let mut server = Self { guard, port: 0, options, clock };
        server.port = on_a_free_port(|port| {
            server.guard.kill()?;
            server.launch(port)
        })?;
        if server.options.cluster {
            server.cli(&["cluster", "addslotsrange", "0", "16383"])?;
            server.wait_for_cluster()?;
        }
        Ok(server)
    }

    /// The default user's URL.
    #[must_use]
    pub fn url(&self) -> String {
        let password = self.options.password.as_ref();
        let user = password.map(|password| format!(":{password}@")).unwrap_or_default();
        let scheme = if self.options.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{user}127.0.0.1:{}/0", self.port)
    }

    /// The TCP port on 127.0.0.1; kept across [`RedisServer::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs `redis-cli` with these words; returns its output. Error replies are failures.
    pub fn cli(&self, words: &[&str]) -> Result<String> {
        self.cli_at(self.port, words)
    }

    /// The process that was started last, for measurements.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.guard.server()
    }

    /// Kills the server at once, as a power cut would.
    pub fn kill(&self) -> Result<()> {
        self.guard.kill()
    }

    /// Starts a killed server on its old folder and port, and waits until it responds.
    pub fn start_again(&self) -> Result<()> {
        self.launch(self.port)?;
        if self.options.cluster { self.wait_for_cluster() } else { Ok(()) }
    }

    /// Freezes the server: connections stay open and nothing answers.
    pub fn pause(&self) -> Result<()> {
        self.guard.signal_all("STOP")
    }

    /// Resumes a frozen server.
    pub fn resume(&self) -> Result<()> {
        self.guard.signal_all("CONT")
    }

    /// Moves the server's wall clock by `seconds` from its current time; needs `faked_clock`.
    pub fn step_clock(&self, seconds: i64) -> Result<()> {
        clock::step(self.clock.as_ref(), seconds)
    }

    fn launch(&self, port: u16) -> Result<()> {
        let mut command = match &self.clock {
            Some(clock) => clock.prefix()?,
            None => Vec::new(),
        };
        command.push("redis-server".to_owned());
        for (name, value) in self.settings(port) {
            command.extend([format!("--{name}"), value]);
        }
        if let Some(primary) = self.options.replica_of {
            command.extend(["--replicaof", "127.0.0.1", &primary.to_string()].map(str::to_owned));
        }
        self.guard.start(&command)?;
        self.guard.wait_until_ready(|| {
            (self.options.tls.is_some() || answers(port)) && self.is_ours(port)
        })
    }

    fn settings(&self, port: u16) -> Vec<(&'static str, String)> {
        let options = &self.options;
        let mut settings = vec![
            ("port", port.to_string()),
            ("bind", "127.0.0.1".to_owned()),
            ("dir", self.guard.folder().display().to_string()),
            ("save", String::new()),
        ];
        if let Some(tls) = &options.tls {
            let [authority, certificate, key] = tls.files();
            let asked = if tls.ask_clients { "yes" } else { "no" };
            settings[0] = ("port", "0".to_owned());
            settings.extend([
                ("tls-port", port.to_string()),
                ("tls-ca-cert-file", authority),
                ("tls-cert-file", certificate),
                ("tls-key-file", key),
                ("tls-auth-clients", asked.to_owned()),
            ]);
        }
        if options.append_only {
            settings.push(("appendonly", "yes".to_owned()));
            settings.push(("appendfsync", "always".to_owned()));
        }
        if options.cluster {
            settings.push(("cluster-enabled", "yes".to_owned()));
        }
        if let Some(password) = &options.password {
            settings.push(("requirepass", password.clone()));
            settings.push(("masterauth", password.clone()));
        }
        settings
    }

    /// Whether the server on `port` is ours, and not another one that took the port first.
    fn is_ours(&self, port: u16) -> bool {
        let Some(server) = self.guard.server() else {
            return false;
        };
        let line = format!("process_id:{server}");
        self.cli_at(port, &["info", "server"])
            .is_ok_and(|info| info.lines().any(|given| given.trim_end() == line))
    }

    fn wait_for_cluster(&self) -> Result<()> {
        let is_up = |info: String| info.contains("cluster_state:ok");
        self.guard.wait_until_ready(|| self.cli(&["cluster", "info"]).is_ok_and(is_up))
    }

    fn cli_at(&self, port: u16, words: &[&str]) -> Result<String> {
        let mut command = Command::new("redis-cli");
        // With `-e` an error reply is a failure.
        command.args(["-e", "-h", "127.0.0.1", "-p", &port.to_string()]);
        if let Some(tls) = &self.options.tls {
            let [certificate, key] = tls.client();
            // This is our server, so its certificate need not be valid.
            command.args(["--tls", "--insecure", "--cert", &certificate, "--key", &key]);
        }
        if let Some(password) = &self.options.password {
            command.env("REDISCLI_AUTH", password);
        }
        output(command.args(words))
    }
}

/// Whether a loaded Redis responds on `port`; one that requires a password first also counts.
fn answers(port: u16) -> bool {
    let ping = || -> std::io::Result<Vec<u8>> {
        let limit = Duration::from_secs(2);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = vec![0; 64];
        let length = stream.read(&mut reply)?;
        reply.truncate(length);
        Ok(reply)
    };
    ping().is_ok_and(|reply| reply.starts_with(b"+PONG") || reply.starts_with(b"-NOAUTH"))
}
