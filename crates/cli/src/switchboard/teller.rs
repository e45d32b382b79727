//! What the switchboard says on standard error while it runs.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use tenure_switchboard::{ConnectorEvent, ServerNotice};

use crate::failure::Failure;
use crate::observe::{Form, Level, Note, json_line};
use crate::output::{shown, to_stderr};

/// How many lines wait to be written. Notices are rare: more means that nobody reads.
const WAITING: usize = 1024;
/// How long the last lines may take.
const LAST: Duration = Duration::from_secs(1);

/// Writes lines on a thread of its own: whoever does not read them keeps nobody from work.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    form: Form,
    lines: SyncSender<String>,
}

/// Closes when the last line is written.
pub(super) struct Written(Receiver<()>);

impl Written {
    /// Waits for the last lines, unless nobody reads them.
    pub(super) fn wait(&self) {
        let _ = self.0.recv_timeout(LAST);
    }
}

impl Teller {
    pub(super) fn start(form: Form) -> Result<(Self, Written), Failure> {
        let (lines, waiting) = sync_channel::<String>(WAITING);
        let (ended, end) = sync_channel(0);
        let thread = std::thread::Builder::new().name("tenure-log".to_owned());
        let running = thread.spawn(move || {
            waiting.iter().for_each(|line| to_stderr(&line));
            drop::<SyncSender<()>>(ended);
        });
        running.context("cannot start the thread of the log")?;
        Ok((Self { form, lines }, Written(end)))
    }

    /// Never waits.
    pub(super) fn notice(&self, notice: &ServerNotice) {
        let (level, event) = kind(notice);
        self.say(level, event, notice.to_string());
    }

    /// Never waits.
    pub(super) fn say(&self, level: Level, event: &'static str, what: String) {
        let line = match self.form {
            Form::Human => shown(&what),
            Form::Json => json_line(&Note { level, event, duty: None, reason: what }),
        };
        // When it is full nobody reads.
        let _ = self.lines.try_send(line);
    }

    /// For the switchboard.
    pub(super) fn log(&self) -> tenure_switchboard::NoticeSink {
        let teller = self.clone();
        Arc::new(move |notice| teller.notice(&notice))
    }
}

fn kind(notice: &ServerNotice) -> (Level, &'static str) {
    match notice {
        ServerNotice::Listening { .. } => (Level::Info, "listening"),
        ServerNotice::Open => (Level::Warn, "open"),
        ServerNotice::TokensRequired => (Level::Info, "tokens_required"),
        ServerNotice::Draining => (Level::Info, "draining"),
        ServerNotice::CutOff => (Level::Warn, "cut_off"),
        ServerNotice::Stopped => (Level::Info, "stopped"),
        ServerNotice::AddressFull { .. } => (Level::Warn, "address_full"),
        ServerNotice::StoreLost(_) => (Level::Error, "store_lost"),
        ServerNotice::StoreFull(_) => (Level::Error, "store_full"),
        ServerNotice::StoreFound => (Level::Info, "store_found"),
        ServerNotice::UpkeepFailed(_) => (Level::Warn, "upkeep_failed"),
        ServerNotice::Unadvertised => (Level::Info, "unadvertised"),
        ServerNotice::NotAnnounced(_) => (Level::Warn, "not_announced"),
        ServerNotice::CertificateChanged => (Level::Info, "certificate_changed"),
        ServerNotice::CertificateUnusable(_) => (Level::Warn, "certificate_unusable"),
        ServerNotice::Connector { news, .. } => match news {
            ConnectorEvent::Registered => (Level::Info, "connector_registered"),
            ConnectorEvent::Revived => (Level::Info, "connector_revived"),
            ConnectorEvent::Replaced { .. } => (Level::Info, "connector_instance_changed"),
            ConnectorEvent::CountersReset => (Level::Warn, "connector_counters_reset"),
            ConnectorEvent::CounterJumped => (Level::Warn, "connector_counter_jumped"),
            ConnectorEvent::ClockOff(_) => (Level::Warn, "connector_clock_off"),
            ConnectorEvent::ClockRight => (Level::Info, "connector_clock_right"),
        },
        ServerNotice::HistoryUnwritten { .. } => (Level::Warn, "history_unwritten"),
        ServerNotice::Counting { .. } => (Level::Info, "statistics_here"),
        ServerNotice::NotCounting => (Level::Warn, "statistics_not_here"),
        ServerNotice::StatisticsFailed(_) => (Level::Warn, "statistics_failed"),
        ServerNotice::Tidied(_) => (Level::Info, "statistics_tidied"),
    }
}
