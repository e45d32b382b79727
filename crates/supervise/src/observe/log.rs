//! Log: one line per record, on standard error.
//!
//! No logging library: a record is one line with known fields. The thread that renews never waits
//! for the reader of the log: lines go through a bounded queue, and lines that do not fit are
//! dropped, counted and reported.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use tenure_core::text::{counted, escaped};
use tenure_core::{DutyId, DutyKey, Epoch, GroupName, InstanceId, LogLevel, Record};
use tenure_duty::process;
use tenure_operate::timestamp;

use super::{ObserveSettings, lock};
use crate::error::{SuperviseError, SystemContext as _};

/// Lines that wait to be written: several for each of the 10,000 duties of an instance, which may
/// all begin or end at once.
const MAX_QUEUED_LINES: usize = 65_536;
/// Bytes per write: `PIPE_BUF`, which a pipe does not interleave with the writes of others.
const WRITE_BYTES: usize = 4096;
/// Lines written without a pause before dropped lines are reported.
const MAX_BURST_LINES: usize = 4096;
/// Time without progress after which the last lines are abandoned.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit on writing the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

/// Format of log lines, and whether the levels of human-readable ones have colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogStyle {
    pub(super) format: LogFormat,
    pub(super) has_colors: bool,
}

/// Styles of a terminal.
const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";
const PLAIN: &str = "\u{1b}[0m";

#[derive(Debug)]
pub(super) struct LogQueue {
    level: LogLevel,
    /// `None` after `finish`.
    queue: Mutex<Option<Sender<QueuedLine>>>,
    counts: Arc<QueueCounts>,
    /// Closes when the last line is written.
    end: Mutex<Receiver<()>>,
}

#[derive(Debug, Default)]
struct QueueCounts {
    /// Lines not written yet.
    waiting: AtomicUsize,
    /// Lines dropped and not reported yet.
    dropped: AtomicU64,
}

/// A line before it is formatted, which happens on the log's thread.
enum QueuedLine {
    Record { group: GroupName, record: Record, unix_ms: u64 },
    Event { event: LogEvent, unix_ms: u64 },
}

/// A log line that is not a transition of a member.
#[derive(Clone, Debug)]
pub struct LogEvent {
    /// Its severity.
    pub level: LogLevel,
    /// Name of the event, from a fixed set.
    pub event: &'static str,
    /// The duty that it is about.
    pub duty: Option<(DutyKey, Epoch)>,
    /// Description of the event.
    pub reason: String,
}

impl LogQueue {
    pub(super) fn to_stderr(
        settings: &ObserveSettings,
        instance: InstanceId,
    ) -> Result<Self, SuperviseError> {
        let is_terminal = io::stderr().is_terminal();
        let default = if is_terminal { LogFormat::Human } else { LogFormat::Json };
        let style = LogStyle {
            format: settings.format.unwrap_or(default),
            has_colors: settings.has_colors,
        };
        Self::start(io::stderr(), style, settings.level, instance)
    }

    pub(super) fn start(
        to: impl Write + Send + 'static,
        style: LogStyle,
        level: LogLevel,
        instance: InstanceId,
    ) -> Result<Self, SuperviseError> {
        // Bounded by `counts`, so that its memory grows only with the queued lines.
        let (queue, lines) = channel();
        let (ended, end) = sync_channel(0);
        let counts = Arc::new(QueueCounts::default());
        let to = BufWriter::with_capacity(WRITE_BYTES, to);
        let mut writer = LogWriter { to, style, instance, counts: Arc::clone(&counts) };
        let thread = std::thread::Builder::new().name("tenure-log".to_owned());
        let running = thread.spawn(move || {
            writer.run(&lines);
            drop(ended);
        });
        running.context("cannot start the log thread")?;
        Ok(Self { level, queue: Mutex::new(Some(queue)), counts, end: Mutex::new(end) })
    }

    pub(super) fn record(&self, group: &GroupName, record: &Record, unix_ms: u64) {
        if record.change.level() <= self.level {
            let (group, record) = (group.clone(), record.clone());
            self.enqueue(QueuedLine::Record { group, record, unix_ms });
        }
    }

    /// Queues an event. Never blocks.
    pub(super) fn event(&self, event: LogEvent, unix_ms: u64) {
        if event.level <= self.level {
            self.enqueue(QueuedLine::Event { event, unix_ms });
        }
    }

    fn enqueue(&self, line: QueuedLine) {
        let Some(queue) = &*lock(&self.queue) else { return };
        // Checked under the lock, so that no other thread adds a line in between.
        if self.counts.waiting.load(Ordering::Relaxed) >= MAX_QUEUED_LINES {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        // Cannot fail: the log's thread outlives this queue.
        let _ = queue.send(line);
    }

    /// Writes the queued lines while they are read: a stuck reader must not block the exit.
    pub(super) fn finish(&self) {
        drop(lock(&self.queue).take());
        let end = lock(&self.end);
        let mut before = usize::MAX;
        for _ in 0..FLUSH_TIMEOUT.as_secs() / STALL_TIMEOUT.as_secs() {
            let waiting = self.counts.waiting.load(Ordering::Relaxed);
            let progresses = waiting < before;
            before = waiting;
            if !progresses || end.recv_timeout(STALL_TIMEOUT) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
    }
}

/// Formats an event as a JSON log line, for a caller that writes it itself.
pub fn json_line(event: &LogEvent) -> String {
    let line = LogLine::of_event(event, process::instance().id(), process::unix_ms());
    // Text and numbers: this cannot fail.
    serde_json::to_string(&line).unwrap_or_default()
}

struct LogWriter<W: Write> {
    to: BufWriter<W>,
    style: LogStyle,
    instance: InstanceId,
    counts: Arc<QueueCounts>,
}

impl<W: Write> LogWriter<W> {
    fn run(&mut self, queue: &Receiver<QueuedLine>) {
        while let Ok(line) = queue.recv() {
            self.write(&line);
            for line in queue.try_iter().take(MAX_BURST_LINES) {
                self.write(&line);
            }
            self.report_dropped();
            let _ = self.to.flush();
        }
    }

    fn write(&mut self, line: &QueuedLine) {
        let line = match line {
            QueuedLine::Record { group, record, unix_ms } => {
                LogLine::of_record(group, record, *unix_ms)
            }
            QueuedLine::Event { event, unix_ms } => {
                LogLine::of_event(event, &self.instance, *unix_ms)
            }
        };
        write_line(&mut self.to, self.style, &line);
        self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn report_dropped(&mut self) {
        let dropped = self.counts.dropped.swap(0, Ordering::Relaxed);
        if dropped == 0 {
            return;
        }
        let lines = counted(dropped, "line", "lines");
        let reason = format!("{lines} dropped: the log was written too slowly");
        let (level, event) = (LogLevel::Warn, "log_dropped");
        let event = LogEvent { level, event, duty: None, reason };
        let line = LogLine::of_event(&event, &self.instance, process::unix_ms());
        write_line(&mut self.to, self.style, &LogLine { dropped: Some(dropped), ..line });
    }
}

/// Writes a whole line, so that lines of other processes do not interleave. Errors are ignored:
/// there is nowhere to report them.
fn write_line(to: &mut impl Write, style: LogStyle, line: &LogLine<'_>) {
    let text = match style.format {
        LogFormat::Human => line.to_text(style.has_colors),
        // Text and numbers: this cannot fail.
        LogFormat::Json => serde_json::to_string(line).unwrap_or_default() + "\n",
    };
    let _ = to.write_all(text.as_bytes());
}

/// Fields of a log line, in their order.
#[derive(Default, Serialize)]
struct LogLine<'a> {
    timestamp: String,
    level: &'static str,
    event: &'static str,
    instance_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    /// Id of the duty without its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_id: Option<&'a str>,
    /// Group and id of the duty, escaped as in command-line arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    duty: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boottime_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
}

impl<'a> LogLine<'a> {
    fn of_event(event: &'a LogEvent, instance: &'a InstanceId, unix_ms: u64) -> Self {
        let duty = event.duty.as_ref();
        Self {
            timestamp: timestamp(unix_ms),
            level: event.level.as_str(),
            event: event.event,
            instance_id: instance.as_str(),
            group: duty.map(|(duty, _)| duty.group.as_str()),
            endpoint_id: duty.map(|(duty, _)| duty.id.as_str()),
            duty: duty.map(|(duty, _)| duty.to_string()),
            epoch: duty.map(|(_, epoch)| epoch.get()),
            reason: &event.reason,
            ..Self::default()
        }
    }

    fn of_record(group: &'a GroupName, record: &'a Record, unix_ms: u64) -> Self {
        let key = |id: &DutyId| DutyKey { group: group.clone(), id: id.clone() };
        Self {
            timestamp: timestamp(unix_ms),
            level: record.change.level().as_str(),
            event: record.change.as_str(),
            instance_id: record.instance.as_str(),
            group: Some(group.as_str()),
            endpoint_id: record.duty.as_ref().map(DutyId::as_str),
            duty: record.duty.as_ref().map(|duty| key(duty).to_string()),
            epoch: record.epoch.map(Epoch::get),
            reason: &record.reason,
            other: record.other.as_ref().map(InstanceId::as_str),
            boottime_ns: Some(record.at.as_nanos()),
            dropped: None,
        }
    }

    fn to_text(&self, has_colors: bool) -> String {
        let Self { timestamp, level, event, .. } = self;
        let level = match *level {
            "error" if has_colors => format!("{RED}{level:5}{PLAIN}"),
            "warn" if has_colors => format!("{YELLOW}{level:5}{PLAIN}"),
            _ => format!("{level:5}"),
        };
        let about = self.duty.as_deref().or(self.group).unwrap_or("-");
        let mut text = format!("{timestamp} {level} {event:14} {}", escaped(about));
        if let Some(epoch) = self.epoch {
            text += &format!(" epoch={epoch}");
        }
        // Quotes inside are escaped, too, so that the end is unambiguous.
        text += &format!(" reason={:?}", self.reason);
        if let Some(other) = self.other {
            text += &format!(" other={}", escaped(other));
        }
        text + &format!(" instance={}\n", escaped(self.instance_id))
    }
}
