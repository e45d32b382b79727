//! Backups of a cursor file store, and their restoration.
//!
//! A backup is a folder with a store of the same form. Files are copied while a process writes
//! them, in an order in which each refers only to what was copied before:
//!
//! 1. the history of a duty, its cursor file, and what the history has got since, up to the version
//!    of the cursor;
//! 2. the state of each group, with versions lowered to those of the cursors;
//! 3. the audit trail, up to the newest entry that the group's state knows;
//! 4. the settings, if they are those from before. Otherwise, and if a duty was forgotten
//!    meanwhile, all is copied again.
//!
//! Epochs in the state of a group may be newer than its checkpoints, never older.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tenure_core::{Code, DutyKey, Epoch, GroupName, StoreError, StoreResult, Version};
use tenure_wire::cursor::{self, CursorFile, InvalidCursorFile};
use tenure_wire::folder::{self, FORMAT, GroupFile, StoreFile};

use super::audit::MAX_AUDIT_FILE_BYTES;
use super::boot::{being_restored, default_duty};
use super::disk::{Disk as _, FileAccess, Lock, RealDisk};
use super::paths::{FilePaths, is_aside};
use super::writer::{DiskResult as _, damaged};
use super::{LOCK_RETRY_INTERVAL, MAX_LOCK_ATTEMPTS};
use crate::backup::{BackupContents, BackupProgress, keep_free_name, unusable};

/// Attempts to copy a store whose duties or settings change.
const MAX_COPIES: u32 = 20;
/// Mode of copied files, which only their owner may read.
const COPY_ACCESS: FileAccess = FileAccess { mode: Some(0o600), owner: None };

/// A copy that was left, because the store has changed in a way that the copied files do not show.
enum CopyError {
    Changed,
    Store(StoreError),
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

type CopyResult<T> = Result<T, CopyError>;

/// Copies the store at `from`, which may be in use, to `to`, in a folder that is private and empty.
/// `duty` is that of the URL.
pub(crate) fn copy(
    from: &Path,
    duty: Option<&str>,
    to: &Path,
    progress: BackupProgress<'_>,
) -> StoreResult<BackupContents> {
    let disk = RealDisk::default();
    let from = disk.resolve(from).at(from)?;
    let asked = duty.map_or_else(default_duty, str::parse)?;
    let parent = to.parent().unwrap_or(Path::new("/"));
    for _ in 0..MAX_COPIES {
        let settings = settings(&disk, &FilePaths::new(from.clone(), asked.clone()))?;
        let main = settings.as_ref().map_or(Ok(asked.clone()), |found| found.duty.parse())?;
        let copier = FileCopier {
            disk: &disk,
            from: FilePaths::new(from.clone(), main.clone()),
            to: FilePaths::new(to.to_owned(), main),
            cursors: BTreeMap::new(),
            duties: BTreeSet::new(),
            groups: BTreeSet::new(),
            newest: Epoch::ZERO,
        };
        match copier.run(settings, progress) {
            Ok(contents) => {
                let synced = File::open(parent).and_then(|it| Ok(rustix::fs::syncfs(it)?));
                synced.at(parent)?;
                return Ok(contents);
            }
            Err(CopyError::Store(error)) => return Err(error),
            Err(CopyError::Changed) => {
                let remove = || {
                    fs::remove_dir_all(parent)?;
                    DirBuilder::new().mode(0o700).create(parent)
                };
                remove().at(parent)?;
            }
        }
    }
    let what = format!("the duties or settings of {} keep changing", from.display());
    Err(StoreError::refused(Code::Busy, what))
}

/// Reads the settings of a store; `None` for a plain cursor file.
fn settings(disk: &RealDisk, paths: &FilePaths) -> StoreResult<Option<StoreFile>> {
    let folder = paths.folder();
    let names = disk.list(&folder).at(&folder)?;
    if names.iter().any(|name| name == FilePaths::RESTORING) {
        return Err(being_restored(paths));
    }
    let path = paths.store();
    let bytes = match disk.read(&path, MAX_AUDIT_FILE_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match names.iter().any(|name| FilePaths::is_group(name).is_some()) {
                true => Err(damaged(format!("{} is missing", path.display()))),
                false => Ok(None),
            };
        }
        read => read.at(&path)?,
    };
    let found: StoreFile = readable(folder::read(&bytes), &path)?;
    if found.format > FORMAT {
        let what = format!("{} has format {}", path.display(), found.format);
        return Err(StoreError::refused(Code::NewerSchema, what));
    }
    Ok(Some(found))
}

fn readable<T>(read: Result<T, InvalidCursorFile>, path: &Path) -> StoreResult<T> {
    read.map_err(|InvalidCursorFile(why)| damaged(format!("{} {why}", path.display())))
}

struct FileCopier<'a> {
    disk: &'a RealDisk,
    from: FilePaths,
    to: FilePaths,
    /// Copied cursor files, each with the newest version that was copied; `None` for a file that
    /// another program has written.
    cursors: BTreeMap<DutyKey, Option<Version>>,
    duties: BTreeSet<DutyKey>,
    groups: BTreeSet<GroupName>,
    newest: Epoch,
}

impl FileCopier<'_> {
    fn run(
        mut self,
        settings: Option<StoreFile>,
        progress: BackupProgress<'_>,
    ) -> CopyResult<BackupContents> {
        let names = self.disk.list(self.from.parent()).at(self.from.parent())?;
        let cursors: Vec<_> = names
            .iter()
            .filter_map(|name| Some((self.from.parent().join(name), self.from.is_cursor(name)?)))
            .collect();
        if cursors.is_empty() && settings.is_none() {
            let path = self.from.path().display().to_string();
            return Err(StoreError::refused(Code::Absent, path).into());
        }
        self.make_folder(&self.to.folder())?;
        let all = cursors.len() as u64;
        for (done, (path, duty)) in (1..).zip(cursors) {
            self.cursor(&path, duty)?;
            progress(done, all);
        }
        self.groups()?;
        self.asides(&names)?;
        if self::settings(self.disk, &self.from)? != settings {
            return Err(CopyError::Changed);
        }
        self.check_cursors()?;
        if let Some(settings) = settings {
            self.write(&self.to.store(), &folder::write(&settings))?;
        }
        Ok(BackupContents {
            groups: self.groups.len() as u64,
            duties: self.duties.len() as u64,
            checkpoints: self.cursors.len() as u64,
            newest_epoch: self.newest,
        })
    }

    fn make_folder(&self, folder: &Path) -> StoreResult<()> {
        self.disk.make_folder(folder, FileAccess { mode: Some(0o700), owner: None }).at(folder)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> StoreResult<()> {
        self.disk.write(path, bytes, COPY_ACCESS).at(path)
    }

    /// Reads a file that was there a moment ago.
    fn read(&self, path: &Path, most: usize) -> CopyResult<Vec<u8>> {
        match self.disk.read(path, most) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(CopyError::Changed),
            read => Ok(read.at(path)?),
        }
    }

    fn read_cursor(&self, path: &Path) -> CopyResult<(Vec<u8>, CursorFile)> {
        let bytes = self.read(path, cursor::MAX_CURSOR_FILE_BYTES)?;
        let read = readable(cursor::read(&bytes), path)?;
        Ok((bytes, read))
    }

    /// Copies a cursor file and its history.
    fn cursor(&mut self, path: &Path, duty: Option<DutyKey>) -> CopyResult<()> {
        let duty = match duty {
            Some(duty) => duty,
            // The name was too long to contain it.
            None => match self.read_cursor(path)?.1 {
                CursorFile::Ours(duty, _) if self.from.cursor(&duty) == path => duty,
                _ => return Ok(()),
            },
        };
        let known = self.history(&duty, None)?;
        let (bytes, read) = self.read_cursor(path)?;
        let known = match read {
            CursorFile::Ours(of, found) if of == duty => {
                self.newest = self.newest.max(found.epoch);
                self.history(&duty, Some(found.version))?;
                Some(found.version.max(known))
            }
            CursorFile::Ours(of, _) => {
                let what = format!("{} is the cursor of {of}, not of {duty}", path.display());
                return Err(damaged(what).into());
            }
            CursorFile::Plain(_) => None,
        };
        self.write(&self.to.cursor(&duty), &bytes)?;
        self.duties.insert(duty.clone());
        self.groups.insert(duty.group.clone());
        self.cursors.insert(duty, known);
        Ok(())
    }

    /// Copies the history of a duty up to a version, without what was copied before. Returns the
    /// newest copied version.
    fn history(&self, duty: &DutyKey, most: Option<Version>) -> CopyResult<Version> {
        let folder = self.from.history(duty);
        let names = self.disk.list(&folder).at(&folder)?;
        let versions = names.iter().filter_map(|name| FilePaths::is_generation(name));
        let mut newest = Version::ZERO;
        for version in versions.filter(|version| most.is_none_or(|most| *version <= most)) {
            let (from, to) =
                (self.from.generation(duty, version), self.to.generation(duty, version));
            if to.exists() {
                continue;
            }
            match self.read(&from, cursor::MAX_CURSOR_FILE_BYTES) {
                // It has left the history.
                Err(CopyError::Changed) => continue,
                read => {
                    self.make_folder(&self.to.histories())?;
                    self.make_folder(&self.to.history(duty))?;
                    self.write(&to, &read?)?;
                }
            }
            newest = newest.max(version);
        }
        Ok(newest)
    }

    /// Copies the state and the audit trail of each group.
    fn groups(&mut self) -> CopyResult<()> {
        let folder = self.from.folder();
        for name in self.disk.list(&folder).at(&folder)? {
            let Some((stem, true)) = FilePaths::is_group(&name) else { continue };
            let path = self.from.group(stem);
            let bytes = self.read(&path, MAX_AUDIT_FILE_BYTES)?;
            let mut state: GroupFile = readable(folder::read(&bytes), &path)?;
            let group = GroupName::new(state.group.clone())?;
            for grant in &state.duties {
                self.newest = self.newest.max(Epoch::new(grant.epoch)?);
                self.duties.insert(DutyKey::new(group.as_str(), grant.id.as_str())?);
            }
            self.lower_versions(&group, &mut state)?;
            self.write(&self.to.group(stem), &folder::write(&state))?;
            let audit = self.from.audit(&group);
            match self.read(&audit, MAX_AUDIT_FILE_BYTES) {
                Err(CopyError::Changed) => {}
                read => {
                    let (mut lines, _) = folder::read_lines(&read?);
                    lines.retain(|line| line.seq <= state.last_seq);
                    self.write(&self.to.audit(&group), &folder::write_lines(&lines))?;
                }
            }
            self.groups.insert(group);
        }
        Ok(())
    }

    /// Lowers the newest known versions to those of the copied checkpoints.
    fn lower_versions(&self, group: &GroupName, state: &mut GroupFile) -> CopyResult<()> {
        let mut lowered = Vec::new();
        for (id, version) in std::mem::take(&mut state.versions) {
            let duty = DutyKey::new(group.as_str(), id.as_str())?;
            let path = self.from.cursor(&duty);
            match self.cursors.get(&duty) {
                Some(Some(known)) => lowered.push((id, version.min(known.get()))),
                Some(None) => lowered.push((id, version)),
                // Its first checkpoint was stored since.
                None if self.disk.stamp(&path).at(&path)?.is_some() => {}
                // Its cursor file is missing: the history has the way back.
                None => {
                    self.history(&duty, None)?;
                    lowered.push((id, version));
                }
            }
        }
        state.versions = lowered;
        Ok(())
    }

    /// Copies damaged files that were set aside.
    fn asides(&self, names: &[String]) -> CopyResult<()> {
        let name =
            |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (own, new) = (name(self.from.path()), name(self.to.path()));
        for rest in names.iter().filter(|name| is_aside(name)) {
            let Some(rest) = rest.strip_prefix(&own) else { continue };
            let (from, to) = (format!("{own}{rest}"), format!("{new}{rest}"));
            self.aside(&self.from.parent().join(from), &self.to.parent().join(to))?;
        }
        let folder = self.from.folder();
        for name in self.disk.list(&folder).at(&folder)?.iter().filter(|name| is_aside(name)) {
            self.aside(&folder.join(name), &self.to.folder().join(name))?;
        }
        Ok(())
    }

    fn aside(&self, from: &Path, to: &Path) -> CopyResult<()> {
        let bytes = self.read(from, MAX_AUDIT_FILE_BYTES)?;
        Ok(self.write(to, &bytes)?)
    }

    /// Checks that no duty was forgotten since its cursor file was copied.
    fn check_cursors(&self) -> CopyResult<()> {
        for (duty, known) in &self.cursors {
            let path = self.from.cursor(duty);
            match known {
                None if self.disk.stamp(&path).at(&path)?.is_some() => {}
                None => return Err(CopyError::Changed),
                Some(_) => {
                    let (_, read) = self.read_cursor(&path)?;
                    let copied = self.read_cursor(&self.to.cursor(duty))?.1;
                    let (CursorFile::Ours(_, now), CursorFile::Ours(_, then)) = (read, copied)
                    else {
                        return Err(CopyError::Changed);
                    };
                    if now.version < then.version {
                        return Err(CopyError::Changed);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The store that a restore replaces. Nobody else can open it until this is dropped.
pub(crate) struct FileTarget {
    paths: FilePaths,
    /// Largest epoch of the store before, as far as it is known.
    pub(crate) floor: Epoch,
    _lock: Lock,
}

impl FileTarget {
    /// Locks the store; refused while a process has it open.
    pub(crate) fn lock(path: &Path) -> StoreResult<Self> {
        let disk = RealDisk::default();
        let path = disk.resolve(path).at(path)?;
        let paths = FilePaths::new(path, default_duty()?);
        let (folder, file) = (paths.folder(), paths.lock());
        let access = disk.access(paths.path()).at(paths.path())?;
        let owner = access.and_then(|access| access.owner);
        disk.make_folder(&folder, FileAccess { mode: Some(0o700), owner }).at(&folder)?;
        for _ in 0..MAX_LOCK_ATTEMPTS {
            let lock = disk.lock(&file, FileAccess { mode: Some(0o600), owner }).at(&file)?;
            let Some(lock) = lock else {
                std::thread::park_timeout(LOCK_RETRY_INTERVAL);
                continue;
            };
            let mut target = Self { paths, floor: Epoch::ZERO, _lock: lock };
            target.floor = target.known();
            return Ok(target);
        }
        Err(StoreError::refused(Code::InUse, format!("{} is locked", file.display())))
    }

    /// Returns the largest known epoch. Damaged files count as absent.
    fn known(&self) -> Epoch {
        let read = |path: &Path| fs::read(path).unwrap_or_default();
        let mut known = vec![
            // Of a restore that was interrupted.
            String::from_utf8_lossy(&read(&self.marker())).trim().parse().unwrap_or_default(),
            folder::read(&read(&self.paths.store())).map_or(0, |store: StoreFile| store.floor),
        ];
        for name in self.names(&self.paths.folder()) {
            let path = self.paths.folder().join(&name);
            if let (Some(_), Ok(group)) =
                (FilePaths::is_group(&name), folder::read::<GroupFile>(&read(&path)))
            {
                known.push(group.floor);
                known.extend(group.duties.iter().map(|grant| grant.epoch));
            }
        }
        for name in self.cursor_names() {
            let path = self.paths.parent().join(name);
            if let Ok(CursorFile::Ours(_, found)) = cursor::read(&read(&path)) {
                known.push(found.epoch.get());
            }
        }
        let largest = known.into_iter().max().unwrap_or_default();
        Epoch::new(largest).unwrap_or_default()
    }

    fn marker(&self) -> PathBuf {
        self.paths.folder().join(FilePaths::RESTORING)
    }

    /// Names of the files in a folder; an unreadable one has none.
    fn names(&self, folder: &Path) -> Vec<String> {
        RealDisk::default().list(folder).unwrap_or_default()
    }

    /// Names of the files beside the folder that belong to the store.
    fn cursor_names(&self) -> Vec<String> {
        let mut names = self.names(self.paths.parent());
        names.retain(|name| self.paths.is_beside(name));
        names
    }

    /// Puts a staged store into place. Until that is complete, the store cannot be opened. Returns
    /// where the files before are kept.
    pub(crate) fn replace(&self, staged: &Path) -> StoreResult<Option<PathBuf>> {
        let put = || {
            let folder = self.paths.folder();
            let cursor = RealDisk::default().access(self.paths.path())?.unwrap_or(COPY_ACCESS);
            self.mark()?;
            let before = self.move_away()?;
            let staged = FilePaths::new(staged.to_owned(), self.paths.main.clone());
            for name in self.names(staged.parent()).iter().filter(|name| staged.is_beside(name)) {
                let from = staged.parent().join(name);
                cursor.give(&File::open(&from)?)?;
                fs::rename(from, self.paths.parent().join(name))?;
            }
            let own = FileAccess { mode: None, owner: cursor.owner };
            for name in self.names(&staged.folder()).iter().filter(|name| *name != "lock") {
                let from = staged.folder().join(name);
                own.give_all(&from)?;
                fs::rename(from, folder.join(name))?;
            }
            sync(&folder)?;
            sync(self.paths.parent())?;
            fs::remove_file(self.marker())?;
            sync(&folder)?;
            Ok(before)
        };
        put().map_err(|error: io::Error| {
            unusable(self.paths.path(), &format!("it cannot be replaced: {error}; run it again"))
        })
    }

    /// Creates the file that keeps others out, also if this process is killed.
    fn mark(&self) -> io::Result<()> {
        fs::write(self.marker(), self.floor.to_string())?;
        File::open(self.marker())?.sync_all()?;
        sync(&self.paths.folder())
    }

    fn move_away(&self) -> io::Result<Option<PathBuf>> {
        let own = ["lock", FilePaths::RESTORING];
        let (folder, beside) = (self.paths.folder(), self.cursor_names());
        let mut inside = self.names(&folder);
        inside.retain(|name| !own.contains(&name.as_str()));
        if beside.is_empty() && inside.is_empty() {
            return Ok(None);
        }
        let make = |folder: &Path| DirBuilder::new().mode(0o700).create(folder);
        let before = keep_free_name(self.paths.path(), make)?;
        let name = self.paths.path().file_name().unwrap_or_default();
        let kept = FilePaths::new(before.join(name), self.paths.main.clone());
        make(&kept.folder())?;
        inside
            .iter()
            .try_for_each(|name| fs::rename(folder.join(name), kept.folder().join(name)))?;
        let parent = self.paths.parent();
        beside.iter().try_for_each(|name| fs::rename(parent.join(name), before.join(name)))?;
        for folder in [&kept.folder(), &before, parent, &folder] {
            sync(folder)?;
        }
        Ok(Some(before))
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
