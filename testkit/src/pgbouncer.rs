//! PgBouncer in front of a private PostgreSQL server.

use std::fs;

use anyhow::{Context, Result};

use crate::guard::{ServerGuard, unprivileged};
use crate::packages;
use crate::ports::on_a_free_port;
use crate::postgres::{PostgresServer, psql, url};

/// PgBouncer in transaction pooling mode: each transaction may run on another connection.
#[derive(Debug)]
pub struct Pgbouncer {
    /// Kept until drop.
    _guard: ServerGuard,
    port: u16,
    password: String,
}

impl Pgbouncer {
    /// Starts a pooler for `server` and waits until a query passes through it.
    pub fn start(server: &PostgresServer) -> Result<Self> {
        let guard = ServerGuard::for_unprivileged("pgbouncer")?;
        let program = packages::find("pgbouncer").context("pgbouncer is missing; install it")?;
        let (user, password) = server.user();
        fs::write(guard.folder().join("users"), format!("\"{user}\" \"{password}\"\n"))?;
        let file = guard.folder().join("pgbouncer.ini");
        let command = [program.display().to_string(), file.display().to_string()];
        let command = unprivileged(command.into());
        let port = on_a_free_port(|port| {
            guard.kill()?;
            fs::write(&file, configuration(&guard, server.port(), port))?;
            guard.start(&command)?;
            guard.wait_until_ready(|| psql(&url(password, port), "select 1").is_ok())
        })?;
        Ok(Self { password: password.to_owned(), _guard: guard, port })
    }

    /// The superuser's URL, through the pooler.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.password, self.port)
    }
}

fn configuration(guard: &ServerGuard, server: u16, port: u16) -> String {
    let folder = guard.folder().display();
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir = {folder}\n\
         auth_type = scram-sha-256\n\
         auth_file = {folder}/users\n\
         pool_mode = transaction\n\
         max_client_conn = 200\n\
         default_pool_size = 20\n"
    )
}
