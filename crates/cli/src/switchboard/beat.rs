//! `tenure beat`: sends heartbeats of a connector.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tenure_connector::{
    ConnectorError, ConnectorStatus, CounterSource, CounterValues, DEFAULT_INTERVAL,
    HeartbeatAccepted, HeartbeatClient, HeartbeatCommand, HeartbeatReport, HeartbeatSender,
    MAX_COUNT, MAX_INTERVAL, MIN_INTERVAL, SwitchboardUrl,
};
use tenure_core::StoreError;
use tenure_supervise::{Caller, Signal, Signals, is_stop};
use tenure_wire::heartbeat::Health;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::MICROS;
use crate::args::{Global, NOT_SHOWN, duration, may_be_token, path, words};
use crate::env;
use crate::failure::Failure;
use crate::limits::check_time;
use crate::output::{document, shown, to_stderr, write_stdout};

/// Clock difference from which a warning is printed, in microseconds.
const MAX_CLOCK_DRIFT: i64 = 5 * MICROS;

#[derive(clap::Args)]
pub(crate) struct BeatArgs {
    /// Switchboard URL: http://HOST:PORT or https://HOST
    #[arg(long, value_name = "URL", env = env::SWITCHBOARD_URL)]
    url: Option<String>,
    /// File with the token [default: the value of SWITCHBOARD_API_TOKEN]
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// CA certificates to trust (PEM) [default: system certificates]
    #[arg(long, value_name = "PATH")]
    cacert: Option<PathBuf>,
    /// Timeout for connecting, and separately for the response
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    /// Connector type, such as telegram_bot
    #[arg(long = "type", value_name = "TYPE", env = env::CONNECTOR_TYPE)]
    kind: Option<String>,
    /// Endpoint identity of the connector, as in the scope of its token
    #[arg(long, value_name = "IDENTITY", env = env::CONNECTOR_ENDPOINT)]
    endpoint: Option<String>,
    /// Instance id of the connector process [default: derived from the calling process]
    #[arg(long, value_name = "UUID", env = env::CONNECTOR_INSTANCE)]
    instance: Option<String>,
    /// State of the connector
    #[arg(long, default_value = "healthy", value_parser = words(Health::ALL, Health::as_str))]
    state: Health,
    /// Description of the problem
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// Version of the connector
    #[arg(long = "version", value_name = "TEXT")]
    software: Option<String>,
    /// Uptime of the connector, in seconds or as in 2h [default: since the calling process started]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    uptime: Option<Duration>,
    #[command(flatten)]
    counters: CounterArgs,
    /// Current checkpoint of the connector
    #[arg(long, value_name = "TEXT")]
    cursor: Option<String>,
    /// Time of the checkpoint, such as 2026-02-15T10:30:00Z
    #[arg(long, value_name = "TIME", requires = "cursor")]
    cursor_at: Option<String>,
    /// Send heartbeats at this interval until a signal arrives, 30s to 300s [default:
    /// CONNECTOR_HEARTBEAT_INTERVAL_S, or 120s]
    #[arg(long, value_name = "TIME", num_args = 0..=1, value_parser = seconds)]
    every: Option<Option<Duration>>,
}

/// Parses `90`, `90s` or `2h`.
fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).or_else(|_| duration(text))
}

#[derive(clap::Args)]
struct CounterArgs {
    /// Messages accepted as new since the connector started
    #[arg(long, value_name = "N", value_parser = count())]
    ingested: Option<u64>,
    /// Messages given up since the connector started
    #[arg(long, value_name = "N", value_parser = count())]
    failed: Option<u64>,
    /// Calls to the source's API since the connector started
    #[arg(long, value_name = "N", value_parser = count())]
    api_calls: Option<u64>,
    /// Checkpoints saved since the connector started
    #[arg(long, value_name = "N", value_parser = count())]
    checkpoint_saves: Option<u64>,
    /// Messages accepted as duplicates since the connector started
    #[arg(long, value_name = "N", value_parser = count())]
    duplicates: Option<u64>,
    /// File with counters, a JSON object or lines NAME=N; - is standard input; options override it
    #[arg(long, value_name = "PATH")]
    counters: Option<PathBuf>,
}

fn count() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(0..=MAX_COUNT)
}

impl BeatArgs {
    /// Sends one heartbeat, or repeats it with `--every`.
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        if is_off(std::env::var(env::HEARTBEAT_ENABLED).ok().as_deref()) {
            let name = env::HEARTBEAT_ENABLED;
            let text = || format!("heartbeats are switched off by {name}: nothing was sent\n");
            return Ok(global.show(&json!({ "status": "off" }), text));
        }
        let caller = Caller::find();
        let sender = HeartbeatSender {
            client: client(self)?,
            status: status(self, caller)?,
            counters: self.counters.source(),
        };
        if self.every.is_some() && sender.counters.is_stdin() {
            let what = "--counters - can be read once only: with --every, give a file";
            return Err(Failure::Usage(what.to_owned()));
        }
        let variable = std::env::var(env::HEARTBEAT_INTERVAL).ok();
        let every = self.every.map(|given| interval(given, variable.as_deref())).transpose()?;
        let checked = sender.status.check();
        checked.map_err(|invalid| Failure::Usage(shown(&invalid.to_string())))?;
        let Some((interval, warning)) = every else {
            let accepted = sender.send().await.map_err(failure)?;
            return Ok(describe(&sender.status, &accepted, global.json, document));
        };
        if let Some(warning) = warning {
            to_stderr(&warning);
        }
        let caller = caller.filter(|_| self.instance().is_none());
        repeat(&sender, interval, caller, global.json).await?;
        Ok(String::new())
    }

    fn instance(&self) -> Option<&str> {
        self.instance.as_deref().filter(|text| !text.is_empty())
    }
}

impl CounterArgs {
    fn source(&self) -> CounterSource {
        let values = CounterValues {
            messages_ingested: self.ingested,
            messages_failed: self.failed,
            source_api_calls: self.api_calls,
            checkpoint_saves: self.checkpoint_saves,
            dedupe_accepted: self.duplicates,
        };
        CounterSource { values, file: self.counters.clone() }
    }
}

fn client(args: &BeatArgs) -> Result<HeartbeatClient, Failure> {
    let url = needed(args.url.as_deref(), "--url", env::SWITCHBOARD_URL)?;
    let url = SwitchboardUrl::parse(url).map_err(|error| {
        let what = match error {
            ConnectorError::Url(what) => what.to_owned(),
            other => other.to_string(),
        };
        let variable = env::SWITCHBOARD_URL;
        Failure::Usage(format!("--url ({variable}) {what}: use http://HOST:PORT or https://HOST"))
    })?;
    check_time("--timeout", args.timeout, Duration::from_millis(100), Duration::from_secs(300))?;
    let mut client = HeartbeatClient::new(url, args.timeout);
    if let Some(token) = token(args.token_file.as_deref())? {
        client = client.with_token(&token).map_err(|_| {
            let what = "the token is not one word, such as sw_live_...";
            Failure::Usage(what.to_owned())
        })?;
    }
    if let Some(file) = &args.cacert {
        let file = path(file)?.into_os_string().into_string();
        let file = file.map_err(|_| Failure::Usage("--cacert takes a name in UTF-8".to_owned()))?;
        client = client.with_ca_file(file);
    }
    Ok(client)
}

fn status(args: &BeatArgs, caller: Option<Caller>) -> Result<ConnectorStatus, Failure> {
    let instance = match args.instance() {
        Some(text) => Uuid::try_parse(text.trim()).map_err(|_| {
            let name = env::CONNECTOR_INSTANCE;
            Failure::Usage(format!("--instance ({name}) is not a UUID"))
        })?,
        None => caller.and_then(Caller::instance).ok_or_else(|| {
            let what = "cannot find the calling process: give --instance UUID, the same for as \
                        long as the counters continue";
            Failure::Usage(what.to_owned())
        })?,
    };
    let kind = needed(args.kind.as_deref(), "--type", env::CONNECTOR_TYPE)?;
    let endpoint = needed(args.endpoint.as_deref(), "--endpoint", env::CONNECTOR_ENDPOINT)?;
    let mut status = ConnectorStatus::new(kind, endpoint, instance);
    status.labels.version.clone_from(&args.software);
    status.state = args.state;
    status.message.clone_from(&args.message);
    status.cursor.clone_from(&args.cursor);
    status.cursor_at.clone_from(&args.cursor_at);
    let since_start = || caller.or_else(Caller::this).map(Caller::uptime);
    status.set_uptime(args.uptime.or_else(since_start).unwrap_or_default());
    Ok(status)
}

/// Returns a required value that is given by an option or a variable.
fn needed<'a>(given: Option<&'a str>, option: &str, variable: &str) -> Result<&'a str, Failure> {
    let missing = || Failure::Usage(format!("{option} is missing: give it, or set {variable}"));
    given.filter(|text| !text.trim().is_empty()).ok_or_else(missing)
}

fn is_off(enabled: Option<&str>) -> bool {
    let word = enabled.unwrap_or_default().trim().to_ascii_lowercase();
    ["false", "0", "no", "off"].contains(&word.as_str())
}

/// Reads the token from the file, else from the variable.
fn token(file: Option<&Path>) -> Result<Option<String>, Failure> {
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
    Ok(token.map(str::to_owned))
}

/// Returns the interval of `--every` or the variable, clamped to its limits with a warning.
fn interval(
    given: Option<Duration>,
    variable: Option<&str>,
) -> Result<(Duration, Option<String>), Failure> {
    let name = env::HEARTBEAT_INTERVAL;
    let variable = variable.map(str::trim).filter(|text| !text.is_empty());
    let (given, from) = match (given, variable) {
        (Some(time), _) => (time, "--every"),
        (None, None) => (DEFAULT_INTERVAL, ""),
        (None, Some(text)) => {
            let seconds: i64 = text.parse().map_err(|_| {
                Failure::Usage(format!("{name} is not a whole number of seconds, as in 120"))
            })?;
            (Duration::from_secs(u64::try_from(seconds).unwrap_or(0)), name)
        }
    };
    let time = given.clamp(MIN_INTERVAL, MAX_INTERVAL);
    let warning = (time != given).then(|| {
        let (least, most) = (MIN_INTERVAL.as_secs(), MAX_INTERVAL.as_secs());
        format!(
            "warning: {from} is set to {} s: the limits are {least} and {most} s",
            time.as_secs()
        )
    });
    Ok((time, warning))
}

/// Sends heartbeats until a signal comes, or until the connector has ended.
async fn repeat(
    sender: &HeartbeatSender,
    interval: Duration,
    caller: Option<Caller>,
    json: bool,
) -> Result<(), Failure> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let (commands, mut received) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let command = match signals.next().await {
                // The connector reports a change that should be known at once.
                Signal::USR1 => HeartbeatCommand::SendNow,
                signal if is_stop(signal) => HeartbeatCommand::Stop,
                _ => continue,
            };
            if commands.send(command).await.is_err() {
                break;
            }
        }
    });
    let is_alive = || caller.is_none_or(Caller::is_alive);
    let mut report = |report| {
        match report {
            HeartbeatReport::Accepted(accepted) => {
                let line = |value: &Value| format!("{value}\n");
                write_stdout(describe(&sender.status, &accepted, json, line))?;
            }
            HeartbeatReport::Failed(error) => {
                let error = StoreError::from(error);
                to_stderr(&format!("warning: {}", shown(&error.problem().to_string())));
            }
            HeartbeatReport::ConnectorGone => {
                to_stderr("the calling process has ended: no more heartbeats");
            }
        }
        Ok(())
    };
    let sent = sender.repeat(interval, &mut received, &is_alive, &mut report).await;
    Ok(sent.context("cannot write to standard output")?)
}

/// Converts an error. An unknown outcome needs no check: the next heartbeat repeats the counters.
fn failure(error: ConnectorError) -> Failure {
    let error = StoreError::from(error);
    let kept = "it may have been accepted; the next heartbeat repeats all counters";
    match error.is_unknown() {
        true => Failure::from(error).keeping(kept),
        false => error.into(),
    }
}

/// Describes a response; prints its warnings to standard error.
fn describe(
    status: &ConnectorStatus,
    accepted: &HeartbeatAccepted,
    json: bool,
    document: fn(&Value) -> String,
) -> String {
    let HeartbeatAccepted { server_time, warnings, .. } = accepted;
    for warning in warnings {
        to_stderr(&format!("warning: {}", shown(warning)));
    }
    let drift = accepted.drift_micros();
    // Skip the warning if the switchboard has sent one.
    if let Some(drift) = drift
        && drift.abs() > MAX_CLOCK_DRIFT
        && !warnings.iter().any(|warning| warning.contains("clock"))
    {
        let (seconds, side) = (drift.abs() / MICROS, if drift > 0 { "behind" } else { "ahead of" });
        let what = format!("the clock of this machine is {seconds} s {side} the switchboard's");
        to_stderr(&format!("warning: {what}"));
    }
    let ConnectorStatus { connector_type, endpoint_identity, instance_id, .. } = status;
    if !json {
        let name = shown(&format!("{connector_type} {endpoint_identity}"));
        let time = shown(server_time);
        return format!("accepted: {name} at {time}, instance {instance_id}\n");
    }
    document(&json!({
        "status": "accepted",
        "server_time": server_time,
        "warnings": warnings,
        "instance_id": instance_id.to_string(),
        "drift_ms": drift.map(|drift| drift / 1000),
    }))
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

    #[test]
    fn times_are_brought_into_their_limits() {
        let second = Duration::from_secs;
        let read = |typed: Option<u64>, variable| {
            let (time, warning) = interval(typed.map(second), variable).unwrap();
            (time.as_secs(), warning.unwrap_or_default())
        };
        let quiet = |time: u64| (time, String::new());
        assert_eq!(read(None, None), quiet(120));
        assert_eq!(read(None, Some("")), quiet(120));
        assert_eq!(read(None, Some(" 30 ")), quiet(30));
        assert_eq!(read(None, Some("300")), quiet(300));
        assert_eq!(read(Some(45), Some("60")), quiet(45));
        assert_eq!(read(Some(45), Some("soon")), quiet(45));
        for (given, taken) in [("29", 30), ("0", 30), ("-5", 30), ("301", 300), ("86400", 300)] {
            let (time, warning) = read(None, Some(given));
            assert_eq!(time, taken);
            let says = format!(
                "warning: CONNECTOR_HEARTBEAT_INTERVAL_S is set to {taken} s: the limits \
                 are 30 and 300 s"
            );
            assert_eq!(warning, says);
        }
        assert!(read(Some(1), None).1.starts_with("warning: --every is set to 30 s"));
        for text in ["soon", "120s", "1.5", "2m", "99999999999999999999"] {
            let Err(Failure::Usage(what)) = interval(None, Some(text)) else { panic!("{text}") };
            assert!(what.starts_with("CONNECTOR_HEARTBEAT_INTERVAL_S") && !what.contains(text));
        }
    }
}
