//! Warnings of our functions in PostgreSQL, which its driver passes on through the `log` crate.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};

use ::log::{LevelFilter, Metadata, Record};

use super::{Level, Note, Notes, lock};

/// Our warnings begin so, after a severity in the server's language.
const OURS: &str = ": tenure: ";
/// So many are remembered, so that one which each claim repeats is logged once.
const REMEMBERED: usize = 100;

static NOTICES: OnceLock<Notices> = OnceLock::new();

#[derive(Debug)]
pub(super) struct Notices {
    notes: Notes,
    logged: Mutex<BTreeSet<String>>,
}

/// Logs them from now on; the first call of a process counts.
pub(super) fn follow(notes: Notes) {
    if ::log::set_logger(NOTICES.get_or_init(|| Notices::new(notes))).is_ok() {
        ::log::set_max_level(LevelFilter::Info);
    }
}

impl Notices {
    pub(super) fn new(notes: Notes) -> Self {
        Self { notes, logged: Mutex::default() }
    }
}

impl ::log::Log for Notices {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tokio_postgres")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        let Some((_, reason)) = text.split_once(OURS) else { return };
        let mut logged = lock(&self.logged);
        if logged.len() >= REMEMBERED {
            logged.clear();
        }
        if logged.insert(reason.to_owned()) {
            let (level, reason) = (Level::Warn, reason.to_owned());
            self.notes.say(Note { level, event: "store_notice", duty: None, reason });
        }
    }

    fn flush(&self) {}
}
