//! `tenure beat --every`: a heartbeat again and again, beside a connector that cannot send its own.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tenure_supervise::{Caller, Signal, Signals, is_stop};
use tenure_switchboard::storage::STOPPING;
use tenure_wire::heartbeat::{Counters, Health};
use tokio::time::{MissedTickBehavior, interval};

use super::{Beat, Connector, print};
use crate::env;
use crate::failure::Failure;
use crate::output::{shown, to_stderr};

const USUAL: Duration = Duration::from_secs(120);
const SHORTEST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(300);

/// How often, and for whom.
#[derive(Debug)]
pub(super) struct Every {
    time: Duration,
    /// The process whose heartbeats these are: without it there is nothing to tell.
    caller: Option<Caller>,
}

impl Every {
    /// What was typed, or stands in a variable. What is outside the limits is brought into them.
    pub(super) fn new(typed: Option<Duration>, caller: Option<Caller>) -> Result<Self, Failure> {
        let (time, warning) = time(typed, std::env::var(env::HEARTBEAT_INTERVAL).ok().as_deref())?;
        if let Some(warning) = warning {
            to_stderr(&warning);
        }
        Ok(Self { time, caller })
    }
}

fn time(
    typed: Option<Duration>,
    variable: Option<&str>,
) -> Result<(Duration, Option<String>), Failure> {
    let name = env::HEARTBEAT_INTERVAL;
    let variable = variable.map(str::trim).filter(|text| !text.is_empty());
    let (given, from) = match (typed, variable) {
        (Some(time), _) => (time, "--every"),
        (None, None) => (USUAL, ""),
        (None, Some(text)) => {
            let seconds: i64 = text.parse().map_err(|_| {
                Failure::Usage(format!("{name} is not a whole number of seconds, as in 120"))
            })?;
            (Duration::from_secs(u64::try_from(seconds).unwrap_or(0)), name)
        }
    };
    let time = given.clamp(SHORTEST, LONGEST);
    let warning = (time != given).then(|| {
        let (least, most) = (SHORTEST.as_secs(), LONGEST.as_secs());
        format!("warning: {from} is taken as {} s: it is {least} to {most} s", time.as_secs())
    });
    Ok((time, warning))
}

/// Beats until a signal comes, or until the connector is gone.
pub(super) async fn run(beat: &Beat, every: &Every, json: bool) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().context("cannot hear signals")?;
    let mut beats = interval(every.time);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut counters = Counters::default();
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                // Something has changed that others should know of.
                Signal::USR1 => beats.reset(),
                signal if is_stop(signal) => break,
                _ => continue,
            },
            _ = beats.tick() => {}
        }
        if every.caller.is_some_and(|caller| !caller.is_alive()) {
            to_stderr("the process that this beats for is gone: so is this");
            break;
        }
        one(beat, &beat.connector, &mut counters, json).await?;
    }
    let last = Connector {
        state: Health::Degraded,
        message: Some(STOPPING.to_owned()),
        ..beat.connector.clone()
    };
    let second = async { while !is_stop(signals.next().await) {} };
    tokio::select! {
        sent = one(beat, &last, &mut counters, json) => sent?,
        // Whoever asks twice does not want to wait for an answer.
        () = second => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// One heartbeat. What fails is said, and the next one comes in its time.
async fn one(
    beat: &Beat,
    connector: &Connector,
    counters: &mut Counters,
    json: bool,
) -> Result<(), Failure> {
    match beat.counters.read(true) {
        Ok(read) => *counters = read,
        // It lives all the same: it is told with what it had counted before.
        Err(error) => to_stderr(&format!("warning: {}", shown(&error.problem().to_string()))),
    }
    match beat.send(connector, *counters).await {
        Ok(accepted) => print(&beat.told(&accepted, json, |value| format!("{value}\n"))),
        Err(error) => {
            to_stderr(&format!("warning: {}", shown(&error.problem().to_string())));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_brought_into_their_limits() {
        let second = Duration::from_secs;
        let read = |typed: Option<u64>, variable| {
            let (time, warning) = time(typed.map(second), variable).unwrap();
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
                "warning: CONNECTOR_HEARTBEAT_INTERVAL_S is taken as {taken} s: it is 30 to 300 s"
            );
            assert_eq!(warning, says);
        }
        assert!(read(Some(1), None).1.starts_with("warning: --every is taken as 30 s"));
        for text in ["soon", "120s", "1.5", "2m", "99999999999999999999"] {
            let Err(Failure::Usage(what)) = time(None, Some(text)) else { panic!("{text}") };
            assert!(what.starts_with("CONNECTOR_HEARTBEAT_INTERVAL_S") && !what.contains(text));
        }
    }
}
