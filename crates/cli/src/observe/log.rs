//! The log: one line per record, on standard error.
//!
//! A writer of its own and no logging library: a record is one line with known fields, and what a
//! library would add, filters by module and spans, has nothing to act on. What counts here is that
//! the thread that renews never waits for whoever reads the log: lines go through a queue with an
//! end, and when they come faster than they are written, the rest is dropped, counted, and said.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use tenure_core::text::counted;
use tenure_core::{Change, DutyId, DutyKey, Epoch, GroupName, InstanceId, Record};
use tenure_duty::process;

use super::{Form, lock};
use crate::failure::Failure;
use crate::output::shown;
use crate::time;

/// How many lines wait to be written: several for each of the 10,000 duties that an instance holds
/// at most, which may all begin or end at once.
const WAITING: usize = 65_536;
/// How many bytes are written in one piece: a pipe keeps as many together (`PIPE_BUF`), so that
/// what others write to it comes before or after.
const PIECE: usize = 4096;
/// After how many lines that came without a pause it is said how many were dropped.
const AT_A_TIME: usize = 4096;
/// How long the end waits for a line to be written.
const STUCK: Duration = Duration::from_secs(1);
/// How long the last lines may take.
const LAST: Duration = Duration::from_secs(10);

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Level {
    /// Work was cut off
    Error,
    /// Something is wrong, and is tried again
    Warn,
    /// What changes
    Info,
    /// Renewals that went well, too
    Debug,
}

impl Level {
    fn of(change: Change) -> Self {
        match change {
            Change::SessionLost | Change::Expired | Change::Revoked => Self::Error,
            Change::JoinFailed
            | Change::RenewFailed
            | Change::ReleaseFailed
            | Change::Suspended
            | Change::Unheld
            | Change::ListFailed
            | Change::LookFailed
            | Change::Waiting
            | Change::Refused => Self::Warn,
            Change::Joined
            | Change::Left
            | Change::Acquired
            | Change::TakenOver
            | Change::AcquireFailed
            | Change::Resumed
            | Change::Draining
            | Change::Released
            | Change::Standby
            | Change::Listed => Self::Info,
            Change::Renewed => Self::Debug,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Where records go to be written.
#[derive(Debug)]
pub(super) struct Log {
    level: Level,
    /// `None` after the end.
    queue: Mutex<Option<Sender<Entry>>>,
    counts: Arc<Counts>,
    /// Closes when the last line is written.
    end: Mutex<Receiver<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Not written yet.
    waiting: AtomicUsize,
    /// Neither written nor told of yet.
    dropped: AtomicU64,
}

/// What is written on another thread, where putting it into words costs nobody's time.
enum Entry {
    Record { group: GroupName, record: Record, unix_ms: u64 },
    Note { note: Note, unix_ms: u64 },
}

/// Something besides the transitions of a member that belongs into the log.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) level: Level,
    /// The word for it, one of few.
    pub(crate) event: &'static str,
    /// The duty that it is about.
    pub(crate) duty: Option<(DutyKey, Epoch)>,
    /// What happened.
    pub(crate) reason: String,
}

impl Log {
    pub(super) fn to_stderr(
        form: Option<Form>,
        level: Level,
        instance: InstanceId,
    ) -> Result<Self, Failure> {
        let by_reader = if io::stderr().is_terminal() { Form::Human } else { Form::Json };
        Self::start(io::stderr(), form.unwrap_or(by_reader), level, instance)
    }

    pub(super) fn start(
        to: impl Write + Send + 'static,
        form: Form,
        level: Level,
        instance: InstanceId,
    ) -> Result<Self, Failure> {
        // It has an end by `counts`: so it takes no more memory than what waits.
        let (queue, entries) = channel();
        let (ended, end) = sync_channel(0);
        let counts = Arc::new(Counts::default());
        let to = BufWriter::with_capacity(PIECE, to);
        let mut writer = Writer { to, form, instance, counts: Arc::clone(&counts) };
        let thread = std::thread::Builder::new().name("tenure-log".to_owned());
        let running = thread.spawn(move || {
            writer.run(&entries);
            drop(ended);
        });
        running.context("cannot start the thread of the log")?;
        Ok(Self { level, queue: Mutex::new(Some(queue)), counts, end: Mutex::new(end) })
    }

    /// Never waits.
    pub(super) fn write(&self, group: &GroupName, record: &Record, unix_ms: u64) {
        if Level::of(record.change) > self.level {
            return;
        }
        self.enqueue(Entry::Record { group: group.clone(), record: record.clone(), unix_ms });
    }

    /// Never waits.
    pub(super) fn note(&self, note: Note, unix_ms: u64) {
        if note.level <= self.level {
            self.enqueue(Entry::Note { note, unix_ms });
        }
    }

    fn enqueue(&self, entry: Entry) {
        let Some(queue) = &*lock(&self.queue) else { return };
        // Under the lock, so nobody else adds to it meanwhile.
        if self.counts.waiting.load(Ordering::Relaxed) >= WAITING {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        // The thread ends after this queue does.
        let _ = queue.send(entry);
    }

    /// Writes what waits as long as it is read: whoever does not read would keep us for ever.
    pub(super) fn finish(&self) {
        drop(lock(&self.queue).take());
        let end = lock(&self.end);
        let mut before = usize::MAX;
        for _ in 0..LAST.as_secs() / STUCK.as_secs() {
            let waiting = self.counts.waiting.load(Ordering::Relaxed);
            let goes_on = waiting < before;
            before = waiting;
            if !goes_on || end.recv_timeout(STUCK) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
    }
}

/// A note as a line of the log, for those who write it themselves.
pub(crate) fn json_line(note: &Note) -> String {
    let line = Line::noting(note, process::instance().id(), process::unix_ms());
    // Text and numbers: this cannot fail.
    serde_json::to_string(&line).unwrap_or_default()
}

struct Writer<W: Write> {
    to: BufWriter<W>,
    form: Form,
    instance: InstanceId,
    counts: Arc<Counts>,
}

impl<W: Write> Writer<W> {
    fn run(&mut self, entries: &Receiver<Entry>) {
        while let Ok(entry) = entries.recv() {
            self.write(&entry);
            for entry in entries.try_iter().take(AT_A_TIME) {
                self.write(&entry);
            }
            self.say_dropped();
            let _ = self.to.flush();
        }
    }

    fn write(&mut self, entry: &Entry) {
        let line = match entry {
            Entry::Record { group, record, unix_ms } => Line::of(group, record, *unix_ms),
            Entry::Note { note, unix_ms } => Line::noting(note, &self.instance, *unix_ms),
        };
        write_line(&mut self.to, self.form, &line);
        self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn say_dropped(&mut self) {
        let dropped = self.counts.dropped.swap(0, Ordering::Relaxed);
        if dropped == 0 {
            return;
        }
        let instance = self.instance.clone();
        let reason =
            format!("{} came faster than they were written", counted(dropped, "line", "lines"));
        let line = Line {
            timestamp: time::shown(process::unix_ms()),
            level: Level::Warn.as_str(),
            event: "log_dropped",
            instance_id: instance.as_str(),
            reason: &reason,
            dropped: Some(dropped),
            ..Line::default()
        };
        write_line(&mut self.to, self.form, &line);
    }
}

/// Whole lines, so that those of others do not come in between. If nobody reads any more, nobody
/// can be told.
fn write_line(to: &mut impl Write, form: Form, line: &Line<'_>) {
    let text = match form {
        Form::Human => line.for_people(),
        // Text and numbers: this cannot fail.
        Form::Json => serde_json::to_string(line).unwrap_or_default() + "\n",
    };
    let _ = to.write_all(text.as_bytes());
}

/// The fields of a line, in their order.
#[derive(Default, Serialize)]
struct Line<'a> {
    timestamp: String,
    level: &'static str,
    event: &'static str,
    instance_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    /// The duty's id alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_id: Option<&'a str>,
    /// As commands take it: group and id, escaped.
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

impl<'a> Line<'a> {
    fn noting(note: &'a Note, instance: &'a InstanceId, unix_ms: u64) -> Self {
        let duty = note.duty.as_ref();
        Self {
            timestamp: time::shown(unix_ms),
            level: note.level.as_str(),
            event: note.event,
            instance_id: instance.as_str(),
            group: duty.map(|(duty, _)| duty.group.as_str()),
            endpoint_id: duty.map(|(duty, _)| duty.id.as_str()),
            duty: duty.map(|(duty, _)| duty.to_string()),
            epoch: duty.map(|(_, epoch)| epoch.get()),
            reason: &note.reason,
            ..Self::default()
        }
    }

    fn of(group: &'a GroupName, record: &'a Record, unix_ms: u64) -> Self {
        let key = |id: &DutyId| DutyKey { group: group.clone(), id: id.clone() };
        Self {
            timestamp: time::shown(unix_ms),
            level: Level::of(record.change).as_str(),
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

    fn for_people(&self) -> String {
        let Self { timestamp, level, event, .. } = self;
        let about = self.duty.as_deref().or(self.group).unwrap_or("-");
        let mut text = format!("{timestamp} {level:5} {event:14} {}", shown(about));
        if let Some(epoch) = self.epoch {
            text += &format!(" epoch={epoch}");
        }
        // Its quotes are escaped, too, so that it can be told where it ends.
        text += &format!(" reason={:?}", self.reason);
        if let Some(other) = self.other {
            text += &format!(" other={}", shown(other));
        }
        text + &format!(" instance={}\n", shown(self.instance_id))
    }
}
