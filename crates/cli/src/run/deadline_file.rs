//! What a command can read of its hold.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tenure_core::{Clock, Epoch};
use tenure_duty::{HoldStatus, process};
use tenure_store::BootClock;

/// The file that `TENURE_DEADLINE_FILE` names. It is always whole: it is replaced, not written
/// over. Only its owner can read it.
#[derive(Debug)]
pub(super) struct DeadlineFile {
    path: PathBuf,
    epoch: Epoch,
}

impl DeadlineFile {
    pub(super) fn new(folder: &Path, epoch: Epoch) -> Self {
        Self { path: folder.join("deadline"), epoch }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, standing: &HoldStatus) -> io::Result<()> {
        let folder = self.path.parent().ok_or(io::ErrorKind::NotFound)?;
        // Mode 0600.
        let mut file = NamedTempFile::new_in(folder)?;
        let left = standing.deadline.since(BootClock.now()).as_millis();
        let unix_ms = u128::from(process::unix_ms()) + left;
        let (boottime_ns, epoch) = (standing.deadline.as_nanos(), self.epoch);
        let state = match standing {
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
