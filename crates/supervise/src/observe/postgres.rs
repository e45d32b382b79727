//! Warnings of Tenure's PostgreSQL functions: events of the store, read through the `log` crate.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};

use ::log::{LevelFilter, Metadata, Record};

use super::{LogLevel, Recorder, lock};

/// Precedes the text of Tenure's warnings, after a severity in the server's language.
const WARNING_PREFIX: &str = ": tenure: ";
/// Limit on remembered warnings. Remembering logs a warning that every claim repeats only once.
const MAX_REMEMBERED_WARNINGS: usize = 100;

static NOTICES: OnceLock<PostgresNotices> = OnceLock::new();

#[derive(Debug)]
pub(super) struct PostgresNotices {
    recorder: Recorder,
    logged: Mutex<BTreeSet<String>>,
}

/// Logs these warnings from now on. Only the first call of a process has an effect.
pub(super) fn follow(recorder: Recorder) {
    if ::log::set_logger(NOTICES.get_or_init(|| PostgresNotices::new(recorder))).is_ok() {
        ::log::set_max_level(LevelFilter::Info);
    }
}

impl PostgresNotices {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, logged: Mutex::default() }
    }
}

impl ::log::Log for PostgresNotices {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure_store::postgres")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        let Some((_, reason)) = text.split_once(WARNING_PREFIX) else { return };
        let mut logged = lock(&self.logged);
        if logged.len() >= MAX_REMEMBERED_WARNINGS {
            logged.clear();
        }
        if logged.insert(reason.to_owned()) {
            self.recorder.log_instance(LogLevel::Warn, "store_notice", reason.to_owned());
        }
    }

    fn flush(&self) {}
}
