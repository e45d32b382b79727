//! Load balancer for HTTP servers.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use anyhow::{Context, Result};

use crate::guard::{ServerGuard, unprivileged};
use crate::packages;
use crate::ports::on_a_free_port;

/// HAProxy that sends each request to the next server in turn, whatever its connection.
#[derive(Debug)]
pub struct Haproxy {
    /// Kept until drop.
    _guard: ServerGuard,
    port: u16,
}

impl Haproxy {
    /// Starts a balancer for these servers and waits until it listens.
    pub fn start(servers: &[SocketAddr]) -> Result<Self> {
        let guard = ServerGuard::for_unprivileged("haproxy")?;
        let program = packages::find("haproxy").context("haproxy is missing; install it")?;
        let file = guard.folder().join("haproxy.cfg");
        let command = [program.display().to_string(), "-f".to_owned(), file.display().to_string()];
        let command = unprivileged(command.into());
        let port = on_a_free_port(|port| {
            guard.kill()?;
            fs::write(&file, configuration(servers, port))?;
            guard.start(&command)?;
            guard.wait_until_ready(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
        })?;
        Ok(Self { _guard: guard, port })
    }

    /// Returns the port on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }
}

/// Returns the configuration. HAProxy adds the client's address, as such proxies do. It passes a
/// stream on without waiting for more data, and ends it when its client disconnects.
fn configuration(servers: &[SocketAddr], port: u16) -> String {
    let mut text = format!(
        "defaults\n\
         mode http\n\
         option forwardfor\n\
         option redispatch\n\
         option http-no-delay\n\
         option abortonclose\n\
         retries 3\n\
         timeout connect 5s\n\
         timeout client 60s\n\
         timeout server 60s\n\
         listen all\n\
         bind 127.0.0.1:{port}\n\
         balance roundrobin\n"
    );
    for (n, server) in servers.iter().enumerate() {
        // Writing to a String never fails.
        let _ = writeln!(text, "server s{n} {server}");
    }
    text
}
