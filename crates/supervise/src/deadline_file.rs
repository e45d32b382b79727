//! Deadline file: the state of a hold, for the command that runs under it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tenure_core::{Clock, Epoch};
use tenure_duty::{HoldStatus, process};
use tenure_store::BootClock;

/// The file that `TENURE_DEADLINE_FILE` names. It is replaced atomically, and only its owner can
/// read it.
#[derive(Debug)]
pub(crate) struct DeadlineFile {
    path: PathBuf,
    epoch: Epoch,
}

impl DeadlineFile {
    pub(crate) fn new(folder: &Path, epoch: Epoch) -> Self {
        Self { path: folder.join("deadline"), epoch }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&self, status: &HoldStatus) -> io::Result<()> {
        let folder = self.path.parent().ok_or(io::ErrorKind::NotFound)?;
        // Created with mode 0600.
        let mut file = NamedTempFile::new_in(folder)?;
        let left = status.deadline.since(BootClock.now()).as_millis();
        let unix_ms = u128::from(process::unix_ms()) + left;
        let (boottime_ns, epoch) = (status.deadline.as_nanos(), self.epoch);
        let state = match status {
            HoldStatus { lost: true, .. } => "lost",
            HoldStatus { draining: true, .. } => "draining",
            _ => "held",
        };
        write!(
            file,
            "boottime_ns={boottime_ns}\nunix_ms={unix_ms}\nepoch={epoch}\nstate={state}\n"
        )?;
        file.persist(&self.path)?;
        Ok(())
    }
}
