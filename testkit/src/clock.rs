//! A wall clock that a test can step, for servers that read the system's.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// The offset that libfaketime reads before each look at the clock.
#[derive(Debug)]
pub(crate) struct FakedClock {
    file: PathBuf,
    offset: Mutex<i64>,
}

impl FakedClock {
    /// A clock that runs true until it is stepped; its file lies in the server's folder.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let clock = Self {
            file: folder.join("clock"),
            offset: Mutex::new(0),
        };
        clock.step(0)?;
        Ok(clock)
    }

    /// Moves the clock by `seconds` from where it stands.
    pub(crate) fn step(&self, seconds: i64) -> Result<()> {
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        *offset += seconds;
        // Renamed into place: the server must never read half a number.
        let draft = self.file.with_extension("draft");
        fs::write(&draft, format!("{:+}s\n", *offset))?;
        fs::rename(&draft, &self.file)?;
        Ok(())
    }

    /// The words to put before the server's command line.
    ///
    /// The monotonic clock stays true: a step of the wall clock does not move it either.
    pub(crate) fn prefix(&self) -> Result<Vec<String>> {
        Ok(vec![
            "env".to_owned(),
            // Before jemalloc, which Redis is linked with: it reads the clock while it starts, and
            // libfaketime cannot start without memory.
            format!("LD_PRELOAD={}:libc.so.6", library()?.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file.display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
            // The older name of the same switch.
            "DONT_FAKE_MONOTONIC=1".to_owned(),
        ])
    }
}

/// Steps `clock`, or says which option was forgotten.
pub(crate) fn step(clock: Option<&FakedClock>, seconds: i64) -> Result<()> {
    clock
        .context("the server was started without `faked_clock`")?
        .step(seconds)
}

/// Not the `MT` build: its lock deadlocks when a signal handler reads the clock, as Postgres does.
fn library() -> Result<PathBuf> {
    fs::read_dir("/usr/lib")?
        .filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketime.so.1")))
        .find(|library| library.exists())
        .context("libfaketime is missing; install the package faketime")
}
