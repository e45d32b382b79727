//! `tenure serve`: runs the switchboard.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tenure_core::guarantee::Level;
use tenure_core::text::span;
use tenure_core::{Code, StoreError};
use tenure_duty::process;
use tenure_operate::doctor;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_supervise::member::describe_store;
use tenure_supervise::observe::LogLevel;
use tenure_supervise::{Signal, Signals};
use tenure_switchboard::liveness::Policy;
use tenure_switchboard::storage::{self, InboxRetention};
use tenure_switchboard::{CertificateFiles, ClientTimeouts, Limiter, ServerSettings};
use tenure_wire::ingest::Fields;
use tokio::sync::oneshot;

use super::liveness;
use super::serve_log::ServeLog;
use super::token::micros;
use crate::args::{duration, path, words};
use crate::failure::Failure;
use crate::limits::{MAX_AGE, check_count, check_time};
use crate::observe::{LogFormatArg, socket_address};
use crate::operate::ended_by;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Options of `tenure serve`. Each of those in [`crate::env::SERVE`] has a variable of its name.
#[derive(clap::Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on; a port alone listens on 127.0.0.1
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    #[arg(default_value = "127.0.0.1:8420", value_parser = socket_address)]
    listen: SocketAddr,
    /// TLS certificate chain (PEM); enables TLS
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// TLS private key (PEM)
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Number of trusted proxies in front that append to X-Forwarded-For
    #[arg(long, value_name = "N", default_value_t = 0)]
    trusted_proxies: usize,
    /// Address at which other replicas reach this one [default: --listen, unless it is a wildcard]
    #[arg(long, value_name = "HOST:PORT", value_parser = reachable)]
    advertise: Option<String>,
    /// Host name that MCP clients may use for this server; repeatable [default: any]
    #[arg(long = "allowed-host", value_name = "HOST[:PORT]", value_delimiter = ',')]
    #[arg(value_parser = host)]
    allowed_hosts: Vec<String>,
    /// Retention of inbox messages and closed dead letters, 1h to 3650d
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration)]
    keep_bodies: Duration,
    /// Retention of dedupe keys after an event was last seen; at least --keep-bodies
    #[arg(long, value_name = "TIME", default_value = "45d", value_parser = duration)]
    keep_keys: Duration,
    /// Failed authentications of an address within --auth-window before it is rejected
    #[arg(long, value_name = "N", default_value_t = 5)]
    auth_failures: u32,
    /// Time window of --auth-failures
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration)]
    auth_window: Duration,
    /// Maximum number of open connections
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_connections: usize,
    /// Maximum number of connections per address; ignored with --trusted-proxies [default: three
    /// quarters of --max-connections, no limit on a loopback address]
    #[arg(long, value_name = "N")]
    max_connections_per_address: Option<usize>,
    /// Memory for requests in progress, at least 9MiB
    #[arg(long, value_name = "BYTES", default_value = "32MiB", value_parser = bytes)]
    memory_budget: usize,
    /// Idle timeout while reading a request or writing a response, 1s to 1h; a whole body or
    /// response may take three times as long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    client_timeout: Duration,
    /// Time that open requests may take to finish on shutdown, at most 1h
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    drain: Duration,
    /// Liveness policy: silence after which a connector is stale, then offline
    #[arg(long, value_name = liveness::WORDS)]
    #[arg(default_value = "usual", value_parser = liveness::policy)]
    liveness: Policy,
    /// Interval between updates of the connector statistics, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    statistics_every: Duration,
    /// Minimum guarantee of the store; the switchboard does not start below it
    #[arg(long, value_name = "LEVEL", value_parser = words(Level::ALL, Level::as_str))]
    require: Option<Level>,
    /// Event fields that `ingest.v1` does not define: reject the event, or store them
    #[arg(long, value_name = "refused|kept", default_value = "refused", value_parser = fields)]
    fields: Fields,
    /// Format of messages on standard error
    #[arg(long, value_enum, default_value = "human")]
    log: LogFormatArg,
}

/// Parses the handling of unknown event fields.
pub(super) fn fields(text: &str) -> Result<Fields, String> {
    match text {
        "refused" => Ok(Fields::Refused),
        "kept" => Ok(Fields::Kept),
        _ => Err("refused or kept".to_owned()),
    }
}

/// Parses a host and a port.
fn reachable(text: &str) -> Result<String, String> {
    let (name, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    match port.filter(|_| !name.contains(':') || name.starts_with('[')).and(host(name).ok()) {
        Some(_) => Ok(text.to_owned()),
        None => Err("not a HOST:PORT, as in board-1.example:8420 or [fd00::1]:8420".to_owned()),
    }
}

/// Parses a host, perhaps with a port.
fn host(text: &str) -> Result<String, String> {
    let known = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    match !text.is_empty() && text.chars().all(known) {
        true => Ok(text.to_owned()),
        false => Err("not a HOST or HOST:PORT, as in board.example or 10.0.0.1:8420".to_owned()),
    }
}

/// Parses `32MiB`, `500KiB`, `1GiB` or a number of bytes.
fn bytes(text: &str) -> Result<usize, String> {
    let wrong = || "a number of bytes, as in 32MiB, 500KiB, 1GiB or 1048576".to_owned();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: usize = match text.get(digits.len()..).unwrap_or_default().trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: usize = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

impl ServeArgs {
    /// Checks the options, before anything is opened or created.
    fn check(&self) -> Result<(), Failure> {
        check_time("--keep-bodies", self.keep_bodies, HOUR, MAX_AGE)?;
        check_time("--keep-keys", self.keep_keys, HOUR, MAX_AGE)?;
        if self.keep_keys < self.keep_bodies {
            let [keys, bodies] = [self.keep_keys, self.keep_bodies].map(span);
            return Err(Failure::Usage(format!(
                "--keep-keys ({keys}) is shorter than --keep-bodies ({bodies}): duplicates of an \
                 event have to be recognised while it is in the inbox"
            )));
        }
        check_count("--trusted-proxies", self.trusted_proxies, 0, 16)?;
        check_count("--auth-failures", self.auth_failures as usize, 1, 1_000_000)?;
        check_time("--auth-window", self.auth_window, Duration::from_secs(1), DAY)?;
        check_count("--max-connections", self.max_connections, 1, 65_536)?;
        if let Some(most) = self.max_connections_per_address {
            check_count("--max-connections-per-address", most, 1, 65_536)?;
        }
        check_count("--memory-budget", self.memory_budget, 9 << 20, 1 << 40)?;
        check_time("--client-timeout", self.client_timeout, Duration::from_secs(1), HOUR)?;
        check_time("--drain", self.drain, Duration::ZERO, HOUR)?;
        check_time("--statistics-every", self.statistics_every, Duration::from_millis(100), HOUR)?;
        Ok(())
    }

    fn settings(&self, store: StoreUrl) -> Result<ServerSettings, Failure> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(CertificateFiles { certificate: path(certificate)?, key: path(key)? })
            }
            _ => None,
        };
        Ok(ServerSettings {
            listen: self.listen,
            tls,
            max_connections: self.max_connections,
            max_connections_per_address: self.max_connections_per_address,
            memory_budget: self.memory_budget,
            keep: InboxRetention { bodies: micros(self.keep_bodies), keys: micros(self.keep_keys) },
            limiter: Limiter {
                failures: self.auth_failures,
                window: self.auth_window,
                trusted_proxies: self.trusted_proxies,
            },
            advertise: self.advertise.clone(),
            allowed_hosts: self.allowed_hosts.clone(),
            timeouts: timeouts(self.client_timeout),
            drain: self.drain,
            store: Some(store),
            liveness: self.liveness,
            fields: self.fields,
            statistics_every: self.statistics_every,
            ..ServerSettings::default()
        })
    }
}

/// Returns the timeouts: `step` for each step of a client, more for a whole body or response.
fn timeouts(step: Duration) -> ClientTimeouts {
    let usual = ClientTimeouts::default();
    ClientTimeouts {
        first_byte: step,
        head: step,
        body_stall: step,
        write_stall: step,
        body: step * 3,
        write: step * 3,
        tick: usual.tick.min(step / 4),
        ..usual
    }
}

/// Runs the switchboard until a termination signal, with one thread per core.
pub(crate) fn main(args: &ServeArgs, store: &StoreUrl) -> Result<ExitCode, Failure> {
    store.tables()?;
    args.check()?;
    let server = args.settings(store.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let (log, flushed) = ServeLog::start(args.log.into())?;
    let ended = runtime.block_on(run(args, store, server, &log));
    drop(log);
    // Abort requests that exceeded their drain time.
    runtime.shutdown_background();
    flushed.wait();
    ended
}

async fn run(
    args: &ServeArgs,
    store: &StoreUrl,
    mut server: ServerSettings,
    log: &ServeLog,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    server.log = log.sink();
    let is_encrypted = server.tls.is_some();
    let opening = async {
        // The tables of the switchboard are in the same database or file.
        let opened = store.open(IfAbsent::Create, process::entropy()).await?;
        let level = doctor::level(&*opened).await?;
        doctor::check(level, args.require)?;
        Ok::<_, StoreError>((storage::open(store, IfAbsent::Create).await?, level))
    };
    let (storage, level) = tokio::select! {
        opened = opening => opened?,
        signal = stop_signal(&mut signals) => return Ok(ended_by(signal)),
    };
    let has_tokens = storage.has_tokens().await?;
    let (ask, asked) = oneshot::channel::<()>();
    let asked = Box::pin(async {
        let _ = asked.await;
    });
    let started = tenure_switchboard::serve(server, storage, asked).await;
    let handle = started.map_err(|error| match error.code() {
        // Not "nothing was changed": the store or its tables may have been created.
        Code::OpenToAll => Failure::from(error).keeping("the server was not started"),
        _ => Failure::from(error),
    })?;
    if has_tokens {
        log.write(LogLevel::Info, "tokens", "tokens are required".to_owned());
    }
    log.write(LogLevel::Info, "store", format!("store {}", describe_store(store)));
    log.write(LogLevel::Info, "guarantee", format!("guarantee: {level} (see `tenure doctor`)"));
    if args.log == LogFormatArg::Human && std::io::stderr().is_terminal() {
        let url = format!("{}://{}", if is_encrypted { "https" } else { "http" }, handle.address());
        log.write(LogLevel::Info, "try", format!("try: {}", first_event(&url, has_tokens)));
    }
    let mut finished = std::pin::pin!(handle.finished());
    tokio::select! {
        () = &mut finished => return Ok(ExitCode::SUCCESS),
        _ = stop_signal(&mut signals) => {}
    }
    let _ = ask.send(());
    tokio::select! {
        () = &mut finished => Ok(ExitCode::SUCCESS),
        signal = stop_signal(&mut signals) => Ok(ended_by(signal)),
    }
}

/// Waits for a termination signal.
async fn stop_signal(signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        if [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].contains(&signal) {
            return signal;
        }
    }
}

/// Returns a command that submits an event, for users to copy.
fn first_event(url: &str, has_tokens: bool) -> String {
    let token = if has_tokens { " -H \"Authorization: Bearer $TOKEN\"" } else { "" };
    let json = "-H 'Content-Type: application/json'";
    format!("curl {url}/api/switchboard/ingest {json}{token} -d '{FIRST_EVENT}'")
}

const FIRST_EVENT: &str = concat!(
    r#"{"schema_version":"ingest.v1","#,
    r#""source":{"channel":"api","provider":"internal","endpoint_identity":"demo"},"#,
    r#""event":{"external_event_id":"1","observed_at":"2026-02-15T10:30:00Z"},"#,
    r#""sender":{"identity":"me"},"payload":{"raw":{},"normalized_text":"hello"}}"#,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_is_one() {
        let event = tenure_wire::ingest::read(FIRST_EVENT.as_bytes()).unwrap();
        assert_eq!(event.dedupe.key, "event:api:internal:demo:1");
        assert!(!FIRST_EVENT.contains('\''), "it stands in quotes");
    }

    #[test]
    fn addresses_and_sizes_are_read() {
        assert_eq!(socket_address("0"), Ok("127.0.0.1:0".parse().unwrap()));
        for text in ["board:80", "10.0.0.1:8420", "[::1]:80"] {
            assert_eq!(reachable(text).as_deref(), Ok(text));
        }
        for text in ["", "board", ":80", "board:0", "::1:80", "a b:80", "board:http", "x/y:80"] {
            assert!(reachable(text).is_err(), "{text}");
        }
        assert!(host("board.example").is_ok() && host("http://board").is_err());
        assert_eq!(socket_address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        for text in ["", "host:80", "70000", "127.0.0.1", "::1"] {
            assert!(socket_address(text).is_err(), "{text}");
        }
        for (text, expected) in [("32MiB", 32 << 20), ("1 GiB", 1 << 30), ("7", 7), ("2KiB", 2048)]
        {
            assert_eq!(bytes(text), Ok(expected));
        }
        for text in ["", "MiB", "1MB", "1.5MiB", "-1", "99999999999GiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
