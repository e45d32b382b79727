//! Backups of stores in files, and their restoration; for servers, the commands of their own tools.

mod commands;

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenure_core::{Code, Epoch, StoreError, StoreResult};

use crate::StoreUrl;
use crate::file::FOLDER_SUFFIX;
use crate::url::{UrlScheme, resolved};

/// Name of the database in the folder of a new backup.
const SQLITE_BACKUP: &str = "tenure.db";
/// Name of the cursor file in a backup.
const CURSOR_BACKUP: &str = "cursor.json";

/// Content of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupContents {
    /// Number of groups.
    pub groups: u64,
    /// Number of duties that were ever granted or have a checkpoint.
    pub duties: u64,
    /// Number of newest checkpoints.
    pub checkpoints: u64,
    /// Largest epoch that was granted.
    pub newest_epoch: Epoch,
}

/// Called while a backup is made, with the number of bytes or files that are done, and of all.
pub type BackupProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// Returns a path with an ending after its name.
pub(crate) fn ending(path: &Path, end: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Keeps what is at a path under the first free name `PATH.before-N`.
pub(crate) fn keep_free_name(
    path: &Path,
    keep: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    for number in 1..u32::MAX {
        let before = ending(path, &format!(".before-{number}"));
        match keep(&before) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            kept => return kept.map(|()| before),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Returns the error for a backup, or a place for one, that cannot be used.
pub(crate) fn unusable(path: &Path, why: &str) -> StoreError {
    StoreError::refused(Code::BadBackup, format!("{}: {why}", path.display()))
}

/// A store in files that a restore replaces. Nobody else can use it until this is dropped.
pub struct RestoreTarget(TargetKind);

enum TargetKind {
    Sqlite(crate::sqlite::backup::SqliteTarget),
    File(crate::file::backup::FileTarget),
}

impl RestoreTarget {
    /// Largest epoch of the store that is replaced, as far as it is known.
    pub fn floor(&self) -> Epoch {
        match &self.0 {
            TargetKind::Sqlite(target) => target.floor,
            TargetKind::File(target) => target.floor,
        }
    }

    /// Replaces the store by a staged one that nobody uses any more. Returns where the files before
    /// are kept.
    pub fn replace(&self, staged: &StoreUrl) -> StoreResult<Option<PathBuf>> {
        let staged = staged.local_path()?;
        match &self.0 {
            TargetKind::Sqlite(target) => {
                crate::sqlite::backup::seal(&staged)?;
                target.replace(&staged)
            }
            TargetKind::File(target) => target.replace(&staged),
        }
    }
}

impl StoreUrl {
    /// Copies the store, which may be in use, into a folder that is private and empty. Returns the
    /// URL of the copy, which is checked.
    pub fn back_up(
        &self,
        folder: &Path,
        progress: BackupProgress<'_>,
    ) -> StoreResult<(Self, BackupContents)> {
        let from = self.local_path()?;
        if self.kind == UrlScheme::File {
            let to = folder.join(CURSOR_BACKUP);
            let contents =
                crate::file::backup::copy(&from, self.namespace.as_deref(), &to, progress)?;
            return Ok((self.at(&to)?, contents));
        }
        let to = folder.join(SQLITE_BACKUP);
        crate::sqlite::backup::back_up(&from, &to, progress)?;
        Ok((self.at(&to)?, crate::sqlite::backup::check(&to)?))
    }

    /// Copies a backup of a store like this one into a folder that is private and empty. Returns
    /// the URL of the copy, which is checked.
    pub fn stage(&self, backup: &Path, folder: &Path) -> StoreResult<(Self, BackupContents)> {
        // A device or a pipe may have no end.
        if fs::metadata(backup).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Err(unusable(backup, "it is not a regular file or a folder"));
        }
        let to = folder.join(self.real_path()?.file_name().unwrap_or_default());
        if self.kind == UrlScheme::File {
            let from = if backup.is_dir() { backup.join(CURSOR_BACKUP) } else { backup.into() };
            let beside = ending(&resolved(&from), FOLDER_SUFFIX);
            if from.exists() && !beside.is_dir() {
                let why = format!("history and audit are missing: copy {} too", beside.display());
                return Err(unusable(backup, &why));
            }
            let duty = self.namespace.as_deref();
            let staged = crate::file::backup::copy(&from, duty, &to, &mut |_, _| {});
            let contents = staged.map_err(|error| match error.code() {
                Code::Absent => unusable(backup, "it is not a backup of a cursor file"),
                Code::Damaged => unusable(backup, &error.problem().detail),
                _ => error,
            })?;
            return Ok((self.at(&to)?, contents));
        }
        crate::sqlite::backup::stage(backup, &to)?;
        // A message about the copy is one about the backup.
        let checked = crate::sqlite::backup::check(&to);
        let contents = checked.map_err(|error| about(error, &to, backup))?;
        Ok((self.at(&to)?, contents))
    }

    /// Returns the path of a store in files, with links resolved as far as it exists.
    pub fn real_path(&self) -> StoreResult<PathBuf> {
        Ok(resolved(&self.local_path()?))
    }

    /// Locks the store, so that it can be replaced; refused while any process uses it.
    pub fn lock_for_restore(&self) -> StoreResult<RestoreTarget> {
        let path = self.local_path()?;
        Ok(RestoreTarget(if self.kind == UrlScheme::File {
            TargetKind::File(crate::file::backup::FileTarget::lock(&path)?)
        } else {
            TargetKind::Sqlite(crate::sqlite::backup::SqliteTarget::lock(&path)?)
        }))
    }
}

/// Replaces the path in an error.
fn about(error: StoreError, staged: &Path, backup: &Path) -> StoreError {
    let detail = &error.problem().detail;
    let detail = detail.replace(&staged.display().to_string(), &backup.display().to_string());
    StoreError::refused(error.code(), detail)
}
