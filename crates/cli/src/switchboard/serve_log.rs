//! Log of `tenure serve`, on standard error.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use tenure_supervise::observe::{LogEvent, LogFormat, LogLevel, json_line};
use tenure_switchboard::{NoticeLevel, NoticeSink};

use crate::failure::Failure;
use crate::output::{shown, to_stderr};
use crate::paint::Paint;

/// Maximum number of queued lines. Notices are rare: a full queue means that the reader is stuck.
const MAX_QUEUED_LINES: usize = 1024;
/// Timeout for writing the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Log writer on a thread of its own, so that a stuck reader does not block the server.
#[derive(Clone, Debug)]
pub(super) struct ServeLog {
    format: LogFormat,
    lines: SyncSender<String>,
}

/// Channel that closes when the last line is written.
pub(super) struct Flushed(Receiver<()>);

impl Flushed {
    /// Waits until the last lines are written, for a limited time.
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
            LogFormat::Human => match level {
                LogLevel::Error => Paint::Bad.err(&shown(&what)),
                LogLevel::Warn => Paint::Warning.err(&shown(&what)),
                LogLevel::Info | LogLevel::Debug => shown(&what),
            },
            LogFormat::Json => json_line(&LogEvent { level, event, duty: None, reason: what }),
        };
        let _ = self.lines.try_send(line);
    }

    /// Returns the sink for the switchboard's notices.
    pub(super) fn sink(&self) -> NoticeSink {
        let log = self.clone();
        Arc::new(move |notice| {
            let level = match notice.level() {
                NoticeLevel::Info => LogLevel::Info,
                NoticeLevel::Warn => LogLevel::Warn,
                NoticeLevel::Error => LogLevel::Error,
            };
            log.write(level, notice.event(), notice.to_string());
        })
    }
}
