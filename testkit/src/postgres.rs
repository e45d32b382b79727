//! A private PostgreSQL server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::certs::TestCertificateFiles;
use crate::clock::{self, FakedClock};
use crate::guard::{START_LIMIT, STOP_LIMIT, ServerGuard, output, unprivileged};
use crate::packages;
use crate::ports::{on_a_free_port, random};

const USER: &str = "tenure";
const DATABASE: &str = "postgres";

/// Options of a [`PostgresServer`].
#[derive(Debug, Default, Clone)]
pub struct PostgresOptions {
    /// Settings as in `postgresql.conf`, by name and value.
    pub settings: Vec<(String, String)>,
    /// Whether the wall clock can be moved by [`PostgresServer::step_clock`].
    pub faked_clock: bool,
    /// Accepts only TLS connections with a password, and a client certificate if required.
    pub tls: Option<TestCertificateFiles>,
}

/// Private PostgreSQL server; removed when dropped, or when this process ends in any way.
#[derive(Debug)]
pub struct PostgresServer {
    guard: ServerGuard,
    port: u16,
    password: String,
    settings: Vec<(String, String)>,
    clock: Option<FakedClock>,
    tls: Option<TestCertificateFiles>,
}

impl PostgresServer {
    /// Starts an empty server and waits until it accepts connections.
    pub fn start(options: PostgresOptions) -> Result<Self> {
        let guard = ServerGuard::for_unprivileged("postgres")?;
        let password = format!("{:016x}", random());
        let password_file = guard.folder().join("password");
        fs::write(&password_file, &password)?;
        let initdb = words(&[
            &program("initdb")?,
            "--pgdata",
            &guard.folder().join("data").display().to_string(),
            "--username",
            USER,
            "--pwfile",
            &password_file.display().to_string(),
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]);
        guard.run(&unprivileged(initdb), START_LIMIT)?;
        let clock = options.faked_clock.then(|| FakedClock::new(guard.folder())).transpose()?;
        let tls = options.tls.map(|tls| tls.moved_to(guard.folder())).transpose()?;
        if let Some(tls) = &tls {
            fs::write(guard.folder().join("data/pg_hba.conf"), encrypted_only(tls))?;
        }
        Self { guard, port: 0, password, settings: options.settings, clock, tls }.on_a_free_port()
    }

    /// Starts a hot standby that streams from `primary`, with the primary's settings and password.
    pub fn standby_of(primary: &Self) -> Result<Self> {
        let guard = ServerGuard::for_unprivileged("standby")?;
        let basebackup = words(&[
            &program("pg_basebackup")?,
            "--pgdata",
            &guard.folder().join("data").display().to_string(),
            // The password given here is what the standby will stream with.
            "--dbname",
            &primary.url(),
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
            "--no-sync",
        ]);
        guard.run(&unprivileged(basebackup), START_LIMIT)?;
        let (password, settings) = (primary.password.clone(), primary.settings.clone());
        Self { guard, port: 0, password, settings, clock: None, tls: None }.on_a_free_port()
    }

    /// The superuser's URL.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.password, self.port)
    }

    /// The same URL without the password, which the server refuses.
    #[must_use]
    pub fn url_without_password(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// The TCP port on 127.0.0.1; kept across [`PostgresServer::start_again`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs `statement` in a connection of its own; returns the bare values, a row a line.
    pub fn sql(&self, statement: &str) -> Result<String> {
        psql(&self.private_url(self.port), statement)
    }

    /// The process that was started last, for measurements.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.guard.server()
    }

    /// Kills the server and every backend at once, as a power cut would.
    pub fn kill(&self) -> Result<()> {
        self.guard.kill()
    }

    /// Shuts the server down, which ends every connection, and waits until it has ended.
    pub fn stop(&self) -> Result<()> {
        self.guard.signal("INT")?;
        self.guard.wait_for_end(STOP_LIMIT)
    }

    /// Starts a killed or stopped server on its old data and port, and waits until it is ready.
    pub fn start_again(&self) -> Result<()> {
        self.launch(self.port)
    }

    /// Freezes the server: connections stay open and nothing answers.
    pub fn pause(&self) -> Result<()> {
        self.guard.signal_all("STOP")
    }

    /// Resumes a frozen server.
    pub fn resume(&self) -> Result<()> {
        self.guard.signal_all("CONT")
    }

    /// Promotes a standby and waits until it accepts writes.
    pub fn promote(&self) -> Result<()> {
        self.sql("select pg_promote()").map(drop)
    }

    /// Moves the server's wall clock by `seconds` from its current time; needs `faked_clock`.
    pub fn step_clock(&self, seconds: i64) -> Result<()> {
        clock::step(self.clock.as_ref(), seconds)
    }

    pub(crate) fn user(&self) -> (&str, &str) {
        (USER, &self.password)
    }

    /// URL for our own programs. A server with TLS may require a client certificate, but not
    /// through the socket in its folder.
    fn private_url(&self, port: u16) -> String {
        let (password, folder) = (&self.password, self.guard.folder().display());
        match self.tls {
            Some(_) => {
                format!("postgres://{USER}:{password}@/{DATABASE}?host={folder}&port={port}")
            }
            None => url(password, port),
        }
    }

    fn on_a_free_port(mut self) -> Result<Self> {
        self.port = on_a_free_port(|port| {
            self.guard.kill()?;
            self.launch(port)
        })?;
        Ok(self)
    }

    fn launch(&self, port: u16) -> Result<()> {
        let folder = self.guard.folder();
        let mut command = match &self.clock {
            Some(clock) => clock.prefix()?,
            None => Vec::new(),
        };
        let data = folder.join("data").display().to_string();
        command.extend(words(&[&program("postgres")?, "-D", &data]));
        let fixed = [
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("port", port.to_string()),
            ("unix_socket_directories", folder.display().to_string()),
            ("max_connections", "200".to_owned()),
            // In the folder, which the guard removes, and not in /dev/shm, which nothing cleans up.
            ("dynamic_shared_memory_type", "mmap".to_owned()),
        ];
        let encrypted = self.tls.iter().flat_map(|tls| {
            let [authority, certificate, key] = tls.files();
            [
                ("ssl", "on".to_owned()),
                ("ssl_ca_file", authority),
                ("ssl_cert_file", certificate),
                ("ssl_key_file", key),
            ]
        });
        let chosen = self.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
        for (name, value) in fixed.into_iter().chain(encrypted).chain(chosen) {
            command.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        self.guard.start(&unprivileged(command))?;
        // The password is unique, so another server on this port is not mistaken for ours.
        let url = self.private_url(port);
        self.guard.wait_until_ready(|| psql(&url, "select 1").is_ok())
    }
}

/// Access rules of a server with certificates.
fn encrypted_only(tls: &TestCertificateFiles) -> String {
    let certificate = if tls.ask_clients { "clientcert=verify-full" } else { "" };
    format!(
        "local all all scram-sha-256\n\
         hostssl all all 127.0.0.1/32 scram-sha-256 {certificate}\n"
    )
}

/// Runs `statement` at `url` with the client of the same PostgreSQL version.
pub fn psql(url: &str, statement: &str) -> Result<String> {
    output(
        Command::new(program("psql")?)
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", statement])
            .env("PGCONNECT_TIMEOUT", "5"),
    )
}

/// Runs the script in a file at `url`.
pub fn psql_file(url: &str, script: &Path) -> Result<String> {
    output(
        Command::new(program("psql")?)
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-f"])
            .arg(script)
            .env("PGCONNECT_TIMEOUT", "5"),
    )
}

/// The URL of a server, or of a pooler in front of it.
pub(crate) fn url(password: &str, port: u16) -> String {
    format!("postgres://{USER}:{password}@127.0.0.1:{port}/{DATABASE}")
}

fn program(name: &str) -> Result<String> {
    let found: Option<PathBuf> = packages::find(name);
    let path = found.with_context(|| format!("{name} is missing; install postgresql"))?;
    Ok(path.display().to_string())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
