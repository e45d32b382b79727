//! Private folders of this process: for deadline files, sockets and the files of commands.
//!
//! A process that is killed together with its guards leaves its folder behind; the next one that
//! starts removes it. It is told from a folder in use by a lock, which the kernel drops with the
//! last process that has it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;
use tempfile::TempDir;

/// Nobody else gives a folder this name.
const PREFIX: &str = "tenure-scratch-";
/// Attempts to create a folder that no starting process takes for a left-over.
const MAX_ATTEMPTS: u32 = 10;

/// The private folder of this process.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
    parts: AtomicU32,
}

impl Scratch {
    /// Creates the folder, and removes those of processes that were killed.
    pub(crate) fn create() -> io::Result<Self> {
        remove_leftovers(&std::env::temp_dir());
        for _ in 0..MAX_ATTEMPTS {
            let mode = Permissions::from_mode(0o700);
            let folder = tempfile::Builder::new().prefix(PREFIX).permissions(mode).tempdir()?;
            // Another process may remove it before it is locked.
            match lock(folder.path(), FlockOperation::LockShared) {
                Ok(lock) if folder.path().exists() => {
                    return Ok(Self { folder, _lock: lock, parts: AtomicU32::new(0) });
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Err(io::Error::other("other processes keep removing it"))
    }

    /// Creates a new folder below this one, for one guard and its commands.
    pub(crate) fn part(&self) -> io::Result<PathBuf> {
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(number.to_string());
        fs::create_dir(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        Ok(path)
    }

    /// Path of the folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Keeps the folder of a part as long as the result lives, also if its process has ended.
pub(crate) fn keep(part: &Path) -> Option<File> {
    lock(part.parent()?, FlockOperation::LockShared).ok()
}

/// Removes a part. What was removed before is no error.
pub(crate) fn remove_part(part: &Path) {
    let _ = fs::remove_dir_all(part);
}

/// Removes a part of a process that has ended, and its folder if nothing else is left in it.
pub(crate) fn remove(part: &Path) {
    remove_part(part);
    if let Some(folder) = part.parent() {
        let _ = fs::remove_dir(folder);
    }
}

fn lock(folder: &Path, operation: FlockOperation) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let folder = File::options().read(true).custom_flags(flags).open(folder)?;
    flock(&folder, operation)?;
    Ok(folder)
}

/// Removes folders of this user that no process has locked.
fn remove_leftovers(within: &Path) {
    let Ok(entries) = fs::read_dir(within) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let own = |found: fs::Metadata| found.is_dir() && found.uid() == geteuid().as_raw();
        if !named || !path.symlink_metadata().is_ok_and(own) {
            continue;
        }
        // Kept until the folder is gone, so that its creator notices.
        if let Ok(_lock) = lock(&path, FlockOperation::NonBlockingLockExclusive) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_without_a_process_are_removed() {
        let within = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = within.path().join(name);
            fs::create_dir_all(path.join("0")).unwrap();
            fs::write(path.join("0/1.sock"), "").unwrap();
            path
        };
        let (left, used) = (make("tenure-scratch-left"), make("tenure-scratch-used"));
        let (other, link) = (make("tenure-backup"), within.path().join("tenure-scratch-link"));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        // A guard keeps the folder after its parent was killed.
        let guard = keep(&used.join("0")).unwrap();
        remove_leftovers(within.path());
        assert!(!left.exists() && used.exists() && other.join("0").exists() && link.exists());
        drop(guard);
        remove(&used.join("0"));
        assert!(!used.exists());
    }

    /// Each process takes the others' new folders for left-overs until they are locked.
    #[test]
    fn folders_may_be_created_at_the_same_time() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let scratch = Scratch::create().unwrap();
                        assert!(scratch.part().unwrap().is_dir());
                    }
                });
            }
        });
    }

    #[test]
    fn a_folder_is_private_and_goes_with_its_process() {
        let scratch = Scratch::create().unwrap();
        let (one, two) = (scratch.part().unwrap(), scratch.part().unwrap());
        assert_ne!(one, two);
        for path in [scratch.path(), &one] {
            assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        }
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }
}
