//! `tenure beat`: a connector says that it lives.

mod counters;
mod every;
mod send;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use hyper::header::HeaderValue;
use serde_json::{Value, json};
use tenure_core::{Clock, LocalInstant, StoreError};
use tenure_store::BootClock;
use tenure_supervise::Caller;
use tenure_wire::heartbeat::{self, Counters, Health, SCHEMA_VERSION};
use uuid::Uuid;

use self::every::Every;
use self::send::{Accepted, Place, Sender};
use super::{MICROS, at, now};
use crate::args::{self, NOT_SHOWN, duration, may_be_token, path};
use crate::env;
use crate::failure::Failure;
use crate::limits::check_time;
use crate::output::{document, shown, to_stderr, to_stdout};

/// A clock may be off by so much before it is said.
const OFF: i64 = 5 * MICROS;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The switchboard: http://HOST:PORT or https://HOST
    #[arg(long, value_name = "URL", env = env::SWITCHBOARD_URL, hide_env_values = true)]
    url: Option<String>,
    /// A file with the token, if it does not stand in SWITCHBOARD_API_TOKEN
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// A file with the authorities to trust, in PEM, instead of those of the system
    #[arg(long, value_name = "PATH")]
    cacert: Option<PathBuf>,
    /// How long the connection may take, and then the answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = args::duration)]
    timeout: Duration,
    /// The type of the connector, as in telegram_bot
    #[arg(long = "type", value_name = "TYPE", env = env::CONNECTOR_TYPE, hide_env_values = true)]
    kind: Option<String>,
    /// Whom it receives for: the endpoint that its token is for
    #[arg(
        long,
        value_name = "IDENTITY",
        env = env::CONNECTOR_ENDPOINT,
        hide_env_values = true
    )]
    endpoint: Option<String>,
    /// The process that counts [default: made from the process that calls this command]
    #[arg(long, value_name = "UUID", env = env::CONNECTOR_INSTANCE, hide_env_values = true)]
    instance: Option<String>,
    /// How it is
    #[arg(long, default_value = "healthy", value_parser = states())]
    state: String,
    /// What the trouble is, for people
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// The version of the connector
    #[arg(long = "version", value_name = "TEXT")]
    software: Option<String>,
    /// How long it runs, in seconds or as in 2h [default: since the calling process started]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    uptime: Option<Duration>,
    #[command(flatten)]
    counters: counters::Options,
    /// The checkpoint that it has come to
    #[arg(long, value_name = "TEXT")]
    cursor: Option<String>,
    /// When it got there, as in 2026-02-15T10:30:00Z
    #[arg(long, value_name = "TIME", requires = "cursor")]
    cursor_at: Option<String>,
    /// Go on until a signal comes: a heartbeat now and every TIME, 30s to 300s [default:
    /// CONNECTOR_HEARTBEAT_INTERVAL_S, or 120s]
    #[arg(long, value_name = "TIME", num_args = 0..=1, value_parser = seconds)]
    every: Option<Option<Duration>>,
}

fn states() -> PossibleValuesParser {
    PossibleValuesParser::new(Health::ALL.map(Health::as_str))
}

/// Reads `90`, `90s` or `2h`.
fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).or_else(|_| duration(text))
}

/// A heartbeat that was read and checked, as far as it is known before it is sent.
#[derive(Debug)]
pub(crate) enum Settings {
    /// Somebody has switched heartbeats off.
    Off,
    Beat(Box<Beat>),
}

/// What to send, and where.
#[derive(Debug)]
pub(crate) struct Beat {
    sender: Sender,
    connector: Connector,
    counters: counters::Source,
    every: Option<Every>,
}

/// Who beats, and how it is.
#[derive(Clone, Debug)]
struct Connector {
    kind: String,
    endpoint: String,
    instance: Uuid,
    version: Option<String>,
    state: Health,
    message: Option<String>,
    cursor: Option<String>,
    cursor_at: Option<String>,
    /// How long it had run at that time.
    uptime: (Duration, LocalInstant),
}

impl Settings {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        if is_off(std::env::var(env::HEARTBEAT_ENABLED).ok().as_deref()) {
            return Ok(Self::Off);
        }
        let url = needed(args.url.as_deref(), "--url", env::SWITCHBOARD_URL)?;
        check_time(
            "--timeout",
            args.timeout,
            Duration::from_millis(100),
            Duration::from_secs(300),
        )?;
        let caller = Caller::find();
        let beat = Beat {
            sender: Sender {
                place: Place::parse(url)?,
                bearer: bearer(args.token_file.as_deref())?,
                cacert: args.cacert.as_deref().map(pem).transpose()?,
                timeout: args.timeout,
            },
            connector: Connector::new(args, caller)?,
            counters: counters::Source::new(&args.counters),
            every: match args.every {
                Some(time) => Some(Every::new(time, caller.filter(|_| args.is_for_caller()))?),
                None => None,
            },
        };
        if beat.every.is_some() && beat.counters.is_stdin() {
            let what = "--counters - can be read once only: with --every, give a file";
            return Err(Failure::Usage(what.to_owned()));
        }
        // What the switchboard would refuse is bad usage, and said before anything is sent.
        let envelope = beat.connector.envelope(Counters::default());
        heartbeat::read(envelope.as_bytes())
            .map_err(|invalid| Failure::Usage(shown(&invalid.to_string())))?;
        Ok(Self::Beat(Box::new(beat)))
    }
}

impl Args {
    /// Whether the process that calls is the instance.
    fn is_for_caller(&self) -> bool {
        self.instance.as_deref().is_none_or(str::is_empty)
    }
}

impl Connector {
    fn new(args: &Args, caller: Option<Caller>) -> Result<Self, Failure> {
        let instance = match args.instance.as_deref().filter(|text| !text.is_empty()) {
            Some(text) => Uuid::try_parse(text.trim()).map_err(|_| {
                let name = env::CONNECTOR_INSTANCE;
                Failure::Usage(format!("--instance ({name}) is not a UUID"))
            })?,
            None => caller.and_then(Caller::instance).ok_or_else(|| {
                let what = "cannot see which process calls this: give --instance UUID, the same \
                            for as long as the counters go on";
                Failure::Usage(what.to_owned())
            })?,
        };
        let since_start = || caller.or_else(Caller::this).map(Caller::uptime);
        let uptime = args.uptime.or_else(since_start).unwrap_or_default();
        Ok(Self {
            kind: needed(args.kind.as_deref(), "--type", env::CONNECTOR_TYPE)?.to_owned(),
            endpoint: needed(args.endpoint.as_deref(), "--endpoint", env::CONNECTOR_ENDPOINT)?
                .to_owned(),
            instance,
            version: args.software.clone(),
            state: Health::parse(&args.state).unwrap_or(Health::Healthy),
            message: args.message.clone(),
            cursor: args.cursor.clone(),
            cursor_at: args.cursor_at.clone(),
            uptime: (uptime, BootClock.now()),
        })
    }

    /// The heartbeat as it is sent now.
    fn envelope(&self, counters: Counters) -> String {
        let (uptime, at_that_time) = self.uptime;
        let uptime = uptime.saturating_add(BootClock.now().since(at_that_time));
        let checkpoint = self
            .cursor
            .as_ref()
            .map(|cursor| json!({ "cursor": cursor, "updated_at": self.cursor_at }));
        let envelope = json!({
            "schema_version": SCHEMA_VERSION,
            "connector": {
                "connector_type": self.kind,
                "endpoint_identity": self.endpoint,
                "instance_id": self.instance.to_string(),
                "version": self.version,
            },
            "status": {
                "state": self.state.as_str(),
                "error_message": self.message,
                "uptime_s": uptime.as_secs(),
            },
            "counters": {
                "messages_ingested": counters.messages_ingested,
                "messages_failed": counters.messages_failed,
                "source_api_calls": counters.source_api_calls,
                "checkpoint_saves": counters.checkpoint_saves,
                "dedupe_accepted": counters.dedupe_accepted,
            },
            "checkpoint": checkpoint,
            "sent_at": at(now()),
        });
        envelope.to_string()
    }
}

/// What has to be said, in an option or a variable.
fn needed<'a>(given: Option<&'a str>, option: &str, variable: &str) -> Result<&'a str, Failure> {
    let missing = || Failure::Usage(format!("{option} is missing; {variable} can say it, too"));
    given.filter(|text| !text.trim().is_empty()).ok_or_else(missing)
}

fn is_off(enabled: Option<&str>) -> bool {
    let word = enabled.unwrap_or_default().trim().to_ascii_lowercase();
    ["false", "0", "no", "off"].contains(&word.as_str())
}

/// The token of the file, else of the variable.
fn bearer(file: Option<&Path>) -> Result<Option<HeaderValue>, Failure> {
    let token = match file {
        Some(file) if may_be_token(&file.to_string_lossy()) => {
            let what = format!("--token-file takes the name of a file; {NOT_SHOWN} is a token");
            return Err(Failure::Usage(what));
        }
        Some(file) => {
            let file = path(file)?;
            let text = fs::read_to_string(&file);
            let text = text.with_context(|| format!("cannot read {}", file.display()))?;
            if text.trim().is_empty() {
                return Err(Failure::Usage(format!("{} is empty", shown(&file.to_string_lossy()))));
            }
            Some(text)
        }
        None => std::env::var(env::SWITCHBOARD_TOKEN).ok(),
    };
    let token = token.as_deref().map(str::trim).filter(|token| !token.is_empty());
    token.map(send::bearer).transpose()
}

fn pem(file: &Path) -> Result<String, Failure> {
    let file = path(file)?.into_os_string().into_string();
    file.map_err(|_| Failure::Usage("--cacert takes a name in UTF-8".to_owned()))
}

/// Sends one heartbeat, or goes on.
pub(crate) async fn run(settings: Settings, json: bool) -> Result<ExitCode, Failure> {
    let beat = match settings {
        Settings::Beat(beat) => beat,
        Settings::Off => {
            let name = env::HEARTBEAT_ENABLED;
            print(&match json {
                true => document(&json!({ "status": "off" })),
                false => format!("heartbeats are switched off by {name}: nothing was sent\n"),
            })?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    if let Some(every) = &beat.every {
        return every::run(&beat, every, json).await;
    }
    let counters = beat.counters.read(false)?;
    let accepted = beat.send(&beat.connector, counters).await.map_err(failure)?;
    print(&beat.told(&accepted, json, document))?;
    Ok(ExitCode::SUCCESS)
}

/// A heartbeat that may have been taken is no reason to look first: the next one tells all of it.
fn failure(error: StoreError) -> Failure {
    match error.is_unknown() {
        true => Failure::Kept { error, kept: "it may have been taken; the next one tells it all" },
        false => Failure::Store(error),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    Ok(to_stdout(text).context("cannot write to standard output")?)
}

impl Beat {
    async fn send(
        &self,
        connector: &Connector,
        counters: Counters,
    ) -> Result<Accepted, StoreError> {
        self.sender.send(connector.envelope(counters)).await
    }

    /// What an answer says; its warnings go to standard error.
    fn told(&self, accepted: &Accepted, json: bool, document: fn(&Value) -> String) -> String {
        let Accepted { server_time, warnings, .. } = accepted;
        let Connector { kind, endpoint, instance, .. } = &self.connector;
        for warning in warnings {
            to_stderr(&format!("warning: {}", shown(warning)));
        }
        let drift = accepted.drift();
        // The switchboard may have seen it, too.
        if let Some(drift) = drift
            && drift.abs() > OFF
            && !warnings.iter().any(|warning| warning.contains("clock"))
        {
            let (seconds, side) =
                (drift.abs() / MICROS, if drift > 0 { "behind" } else { "ahead of" });
            let what = format!("the clock of this machine is {seconds} s {side} the switchboard's");
            to_stderr(&format!("warning: {what}"));
        }
        if !json {
            let (name, time) = (shown(&format!("{kind} {endpoint}")), shown(server_time));
            return format!("accepted: {name} at {time}, instance {instance}\n");
        }
        document(&json!({
            "status": "accepted",
            "server_time": server_time,
            "warnings": warnings,
            "instance_id": instance.to_string(),
            "drift_ms": drift.map(|drift| drift / 1000),
        }))
    }
}

impl Accepted {
    /// How far the clock here is behind the switchboard's, in microseconds.
    fn drift(&self) -> Option<i64> {
        let time: jiff::Timestamp = self.server_time.parse().ok()?;
        Some(time.as_microsecond().saturating_sub(self.halfway))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_switched_off_by_a_few_words() {
        for word in ["false", "0", "no", "off", "OFF", " False "] {
            assert!(is_off(Some(word)), "{word}");
        }
        for word in [None, Some(""), Some("true"), Some("1"), Some("yes"), Some("on"), Some("2")] {
            assert!(!is_off(word), "{word:?}");
        }
    }

    #[test]
    fn times_may_be_seconds() {
        assert_eq!(seconds("90"), Ok(Duration::from_secs(90)));
        assert_eq!(seconds("2h"), Ok(Duration::from_secs(7_200)));
        assert!(seconds("-1").is_err() && seconds("soon").is_err());
    }
}
