//! Temporary folder of a backup or a restore: removed when the command ends, also by a signal.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{OnceLock, mpsc};
use std::thread;

use tempfile::TempDir;
use tenure_core::StoreError;
use tenure_supervise::Signals;

use super::backup::unusable;
use crate::operate::end_signal;
use crate::output::to_stderr;

/// Attempts to remove a folder in which another thread creates files.
const MAX_REMOVALS: usize = 1_000;

/// Whether a signal has ended the command before it ended by itself or made its change.
static IS_INTERRUPTED: OnceLock<bool> = OnceLock::new();

/// Creates a private folder beside a path, from which files can be renamed to it.
pub(super) fn folder_beside(path: &Path) -> Result<TempDir, StoreError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let made = tempfile::Builder::new()
        // The prefix identifies what a killed process left behind.
        .prefix(&format!(".{name}."))
        .suffix(".tmp")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent);
    let made =
        made.map_err(|error| unusable(path, &format!("its folder cannot be written: {error}")))?;
    remove_on_signal(&made);
    Ok(made)
}

/// Removes the folder if a signal ends the command before [`complete`].
pub(super) fn remove_on_signal(folder: &TempDir) {
    let path = folder.path().to_owned();
    let (listening, is_listening) = mpsc::channel();
    // The thread of the command copies and waits for no signal.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut signals = Signals::listen()?;
            let _ = listening.send(());
            let signal = end_signal(&mut signals).await;
            if IS_INTERRUPTED.set(true).is_ok() {
                let removed = || !path.exists() || fs::remove_dir_all(&path).is_ok();
                let _ = (0..MAX_REMOVALS).any(|_| removed());
                to_stderr("interrupted: nothing was changed");
                std::process::exit(128 + signal.as_raw());
            }
            std::io::Result::Ok(())
        })
    });
    // If it cannot listen, a signal ends the process and leaves the folder.
    let _ = is_listening.recv();
}

/// Lets the command complete: signals have no effect from now on.
pub(super) fn complete() {
    while *IS_INTERRUPTED.get_or_init(|| false) {
        thread::park();
    }
}
