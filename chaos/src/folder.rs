//! Temporary folder that is removed when its owner ends, even by `kill -9`.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Shell that removes the folder when its input closes, which happens even after Ctrl-C or `kill
/// -9`. Other processes may still be writing there for a moment.
const GUARD: &str = r#"
trap '' INT TERM HUP
read -r word && [ "$word" = keep ] && exit
for _ in 1 2 3 4 5; do rm -rf -- "$1" && exit; sleep 1; done"#;

#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    guard: Child,
}

impl Folder {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("chaos-").tempdir()?;
        let guard = Command::new("sh")
            .args(["-c", GUARD, "chaos-guard"])
            .arg(folder.path())
            // Ctrl-C is meant for the owner only.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the guard of a folder")?;
        Ok(Self { path: folder.keep(), guard })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder from now on.
    pub(crate) fn keep(&mut self) -> &Path {
        if let Some(mut guard) = self.guard.stdin.take() {
            // If the guard is gone, nothing removes the folder.
            let _ = guard.write_all(b"keep\n");
        }
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}
