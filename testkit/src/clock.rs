//! Wall clock that a test can step, for servers that read the system's clock.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// Offset that libfaketime reads before each read of the clock.
#[derive(Debug)]
pub(crate) struct FakedClock {
    file: PathBuf,
    offset: Mutex<i64>,
}

impl FakedClock {
    /// Creates a clock without an offset; its file is in the server's folder.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let clock = Self { file: folder.join("clock"), offset: Mutex::new(0) };
        clock.step(0)?;
        Ok(clock)
    }

    /// Moves the clock by `seconds` from its current time.
    pub(crate) fn step(&self, seconds: i64) -> Result<()> {
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        *offset += seconds;
        // Renamed into place: the server must never read a partial number.
        let draft = self.file.with_extension("draft");
        fs::write(&draft, format!("{:+}s\n", *offset))?;
        fs::rename(&draft, &self.file)?;
        Ok(())
    }

    /// Returns the words to put before the server's command line.
    ///
    /// The monotonic clock is not faked: a real step of the wall clock does not change it either.
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

/// Steps `clock`; without one, fails and names the missing option.
pub(crate) fn step(clock: Option<&FakedClock>, seconds: i64) -> Result<()> {
    clock.context("the server was started without `faked_clock`")?.step(seconds)
}

/// Finds the library. The `MT` build deadlocks when a signal handler (Postgres) reads the clock.
fn library() -> Result<PathBuf> {
    fs::read_dir("/usr/lib")?
        .filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketime.so.1")))
        .find(|library| library.exists())
        .context("libfaketime is missing; install the package faketime")
}
