//! Log of `tenure serve`, on standard error.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use tenure_supervise::observe::{LogEvent, LogFormat, LogLevel, json_line};
use tenure_switchboard::{ConnectorEvent, NoticeSink, ServerNotice};

use crate::failure::Failure;
use crate::output::{shown, to_stderr};

/// Lines that wait to be written. Notices are rare: more lines mean that nobody reads.
const MAX_QUEUED_LINES: usize = 1024;
/// Limit on writing the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes lines on a thread of its own, so that a stuck reader does not block the server.
#[derive(Clone, Debug)]
pub(super) struct ServeLog {
    format: LogFormat,
    lines: SyncSender<String>,
}

/// Closes when the last line is written.
pub(super) struct Flushed(Receiver<()>);

impl Flushed {
    /// Waits for the last lines, unless nobody reads them.
    pub(super) fn wait(&self) {
        let _ = self.0.recv_timeout(FLUSH_TIMEOUT);
    }
}

impl ServeLog {
    pub(super) fn start(format: LogFormat) -> Result<(Self, Flushed), Failure> {
        let (lines, waiting) = sync_channel::<String>(MAX_QUEUED_LINES);
        let (ended, end) = sync_channel(0);
        let thread = std::thread::Builder::new().name("tenure-log".to_owned());
        let running = thread.spawn(move || {
            waiting.iter().for_each(|line| to_stderr(&line));
            drop::<SyncSender<()>>(ended);
        });
        running.context("cannot start the log thread")?;
        Ok((Self { format, lines }, Flushed(end)))
    }

    /// Writes a line. Never blocks; drops the line when the queue is full.
    pub(super) fn write(&self, level: LogLevel, event: &'static str, what: String) {
        let line = match self.format {
            LogFormat::Human => shown(&what),
            LogFormat::Json => json_line(&LogEvent { level, event, duty: None, reason: what }),
        };
        let _ = self.lines.try_send(line);
    }

    /// The sink of the switchboard's notices.
    pub(super) fn sink(&self) -> NoticeSink {
        let log = self.clone();
        Arc::new(move |notice| {
            let (level, event) = classify(&notice);
            log.write(level, event, notice.to_string());
        })
    }
}

/// Returns level and event name of a notice.
fn classify(notice: &ServerNotice) -> (LogLevel, &'static str) {
    match notice {
        ServerNotice::Listening { .. } => (LogLevel::Info, "listening"),
        ServerNotice::Open => (LogLevel::Warn, "open"),
        ServerNotice::TokensRequired => (LogLevel::Info, "tokens_required"),
        ServerNotice::Draining => (LogLevel::Info, "draining"),
        ServerNotice::CutOff => (LogLevel::Warn, "cut_off"),
        ServerNotice::Stopped => (LogLevel::Info, "stopped"),
        ServerNotice::AddressFull { .. } => (LogLevel::Warn, "address_full"),
        ServerNotice::StoreLost(_) => (LogLevel::Error, "store_lost"),
        ServerNotice::StoreFull(_) => (LogLevel::Error, "store_full"),
        ServerNotice::StoreFound => (LogLevel::Info, "store_found"),
        ServerNotice::UpkeepFailed(_) => (LogLevel::Warn, "upkeep_failed"),
        ServerNotice::Unadvertised => (LogLevel::Info, "unadvertised"),
        ServerNotice::NotAnnounced(_) => (LogLevel::Warn, "not_announced"),
        ServerNotice::CertificateChanged => (LogLevel::Info, "certificate_changed"),
        ServerNotice::CertificateUnusable(_) => (LogLevel::Warn, "certificate_unusable"),
        ServerNotice::Connector { news, .. } => match news {
            ConnectorEvent::Registered => (LogLevel::Info, "connector_registered"),
            ConnectorEvent::Revived => (LogLevel::Info, "connector_revived"),
            ConnectorEvent::Replaced { .. } => (LogLevel::Info, "connector_instance_changed"),
            ConnectorEvent::CountersReset => (LogLevel::Warn, "connector_counters_reset"),
            ConnectorEvent::CounterJumped => (LogLevel::Warn, "connector_counter_jumped"),
            ConnectorEvent::ClockOff(_) => (LogLevel::Warn, "connector_clock_off"),
            ConnectorEvent::ClockRight => (LogLevel::Info, "connector_clock_right"),
        },
        ServerNotice::HistoryUnwritten { .. } => (LogLevel::Warn, "history_unwritten"),
        ServerNotice::Counting { .. } => (LogLevel::Info, "statistics_here"),
        ServerNotice::NotCounting => (LogLevel::Warn, "statistics_not_here"),
        ServerNotice::StatisticsFailed(_) => (LogLevel::Warn, "statistics_failed"),
        ServerNotice::Tidied(_) => (LogLevel::Info, "statistics_tidied"),
    }
}
