//! Options of log and HTTP server of a long-running command.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::ValueEnum;
use tenure_supervise::observe::{LogFormat, LogLevel, ObserveSettings};

use crate::{env, paint};

/// Log and HTTP server of a long-running command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ObserveArgs {
    /// Address of /health, /ready and /metrics; a port alone listens on 127.0.0.1
    #[arg(long, value_name = "[ADDRESS:]PORT", env = env::HEALTH_PORT, value_parser = listen)]
    listen: Option<ListenAddress>,
    /// Log format [default: human on a terminal, json otherwise]
    #[arg(long, value_enum)]
    log: Option<LogFormatArg>,
    /// Lowest level that is logged
    #[arg(long, value_enum, default_value = "info")]
    log_level: LogLevelArg,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormatArg {
    /// Readable text
    Human,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogLevelArg {
    /// Interrupted work
    Error,
    /// Failures that are retried
    Warn,
    /// State changes
    Info,
    /// All of the above, and successful renewals
    Debug,
}

/// Listen address; `None` for an empty variable, which disables the server.
#[derive(Clone, Copy, Debug)]
struct ListenAddress(Option<SocketAddr>);

fn listen(text: &str) -> Result<ListenAddress, String> {
    let address = (!text.is_empty()).then(|| socket_address(text)).transpose()?;
    Ok(ListenAddress(address))
}

/// Parses a port, or an address with a port. A port alone is on 127.0.0.1.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = text.parse().map(|port: u16| SocketAddr::new(here, port));
    port.or_else(|_| text.parse()).map_err(|_| {
        "not a PORT or ADDRESS:PORT, as in 8420, 127.0.0.1:8420, 0.0.0.0:8420 or [::1]:8420"
            .to_owned()
    })
}

impl From<LogFormatArg> for LogFormat {
    fn from(format: LogFormatArg) -> Self {
        match format {
            LogFormatArg::Human => Self::Human,
            LogFormatArg::Json => Self::Json,
        }
    }
}

impl From<&ObserveArgs> for ObserveSettings {
    fn from(args: &ObserveArgs) -> Self {
        Self {
            listen: args.listen.and_then(|listen| listen.0),
            format: args.log.map(Into::into),
            has_colors: paint::is_on_stderr(),
            level: match args.log_level {
                LogLevelArg::Error => LogLevel::Error,
                LogLevelArg::Warn => LogLevel::Warn,
                LogLevelArg::Info => LogLevel::Info,
                LogLevelArg::Debug => LogLevel::Debug,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_for_this_host() {
        for (text, expected) in
            [("9100", "127.0.0.1:9100"), ("0.0.0.0:1", "0.0.0.0:1"), ("[::1]:2", "[::1]:2")]
        {
            assert_eq!(listen(text).unwrap().0.unwrap(), expected.parse().unwrap());
        }
        assert_eq!(listen("").unwrap().0, None);
        for bad in ["host:1", "65536", "70000", "127.0.0.1", ":1", "::1"] {
            assert!(listen(bad).is_err(), "{bad}");
        }
    }
}
