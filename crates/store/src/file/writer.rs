//! Files on disk, each changed in an order that survives a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::{
    Code, DutyId, DutyKey, GroupName, LocalInstant, StoreError, StoreResult, Version,
};
use tenure_wire::folder::{self, StoreFile};

use super::audit::AuditFile;
use super::disk::{Disk, FileAccess, Lock, Stamp};
use super::paths::FilePaths;
use crate::state::{GroupRows, LiveState, StoreState};

/// On-disk side of a store. Only its owner writes.
#[derive(Debug)]
pub(super) struct FileWriter {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) live: Arc<LiveState>,
    pub(super) paths: FilePaths,
    /// `None` while a plain cursor file was only read: nothing is written.
    pub(super) lock: Option<Lock>,
    pub(super) store: StoreFile,
    pub(super) rooms: BTreeMap<GroupName, GroupFiles>,
    /// Groups whose state is damaged or missing, by the stem of their file, with the error.
    pub(super) lost: BTreeMap<String, String>,
    /// Folders whose names may not be durable, because they have not been synced.
    pub(super) unsynced: BTreeSet<PathBuf>,
}

/// State of a group's files.
#[derive(Debug, Default)]
pub(super) struct GroupFiles {
    /// Whether its state is in a file.
    pub(super) saved: bool,
    /// Newest version ever seen of each duty's checkpoint.
    pub(super) versions: BTreeMap<DutyId, Version>,
    /// Stamps of the cursor files when they were last read.
    pub(super) stamps: BTreeMap<DutyId, Stamp>,
    /// Forgotten duties whose files may still exist.
    pub(super) forgotten: BTreeSet<DutyId>,
    /// New names of the cursor files that were set aside.
    pub(super) aside: BTreeMap<DutyId, String>,
    /// Number of the newest audit entry that is in a file.
    pub(super) durable_seq: u64,
    /// The audit file, once it was read.
    pub(super) trail: Option<AuditFile>,
    /// Damage of the audit file, until a reader gets it as an error.
    pub(super) damage: Option<StoreError>,
}

/// Converts an error of the disk; nothing was changed.
pub(super) fn refused(error: &io::Error, path: &Path) -> StoreError {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Code::Full,
        ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
        ErrorKind::PermissionDenied => Code::Denied,
        ErrorKind::NotFound | ErrorKind::NotADirectory => Code::Unreachable,
        _ => Code::Failed,
    };
    StoreError::refused(code, format!("{}: {error}", path.display()))
}

/// Returns the error for a file that is not as we wrote it.
pub(super) fn damaged(detail: String) -> StoreError {
    StoreError::refused(Code::Damaged, detail)
}

/// Converts a result of the disk; an error means that nothing was changed.
pub(super) trait DiskResult<T> {
    /// Names the file or folder in the error.
    fn at(self, path: &Path) -> StoreResult<T>;
}

impl<T> DiskResult<T> for io::Result<T> {
    fn at(self, path: &Path) -> StoreResult<T> {
        self.map_err(|error| refused(&error, path))
    }
}

impl FileWriter {
    pub(super) fn room(&mut self, group: &GroupName) -> &mut GroupFiles {
        self.rooms.entry(group.clone()).or_default()
    }

    /// Replaces a file so that a power cut leaves either the old or the new one complete: the data
    /// becomes durable first, then the name. Refused means that the old file is unchanged.
    pub(super) fn write_file(&mut self, path: &Path, bytes: &[u8]) -> StoreResult<()> {
        let temp = FilePaths::temp(path);
        let access = self.access(path)?;
        let written = self.disk.write(&temp, bytes, access);
        let written = written.and_then(|()| self.disk.sync(&temp));
        if let Err(error) = written {
            // It may fill the disk. If it cannot be removed, the next write replaces it.
            let _ = self.disk.remove(&temp);
            return Err(refused(&error, path));
        }
        let renamed = self.disk.rename(&temp, path);
        renamed.map_err(|error| refused(&error, path).or_happened())?;
        self.sync_parent(path)
    }

    /// Returns owner and mode for a new file. A cursor file keeps its own; a new one gets those of
    /// the main duty's file. The folder beside it contains copies of all cursors, and the data to
    /// forge a hold with, so only the owner of the cursor file may read it.
    pub(super) fn access(&self, path: &Path) -> StoreResult<FileAccess> {
        let look = |path: &Path| self.disk.access(path).at(path);
        let main = look(self.paths.path())?;
        if path.starts_with(self.paths.folder()) {
            return Ok(FileAccess { mode: Some(0o600), owner: main.and_then(|main| main.owner) });
        }
        Ok(look(path)?.or(main).unwrap_or_default())
    }

    /// Creates a folder that only the same owner may read.
    pub(super) fn make_folder(&self, folder: &Path) -> StoreResult<()> {
        let access = FileAccess { mode: Some(0o700), ..self.access(folder)? };
        self.disk.make_folder(folder, access).at(folder)
    }

    /// Makes the name of a file durable.
    pub(super) fn sync_parent(&mut self, path: &Path) -> StoreResult<()> {
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        self.disk.sync_folder(&folder).map_err(|error| {
            let error = refused(&error, &folder).or_happened();
            self.unsynced.insert(folder);
            error
        })
    }

    /// Syncs all unsynced folders first, because nothing may be read that could vanish again.
    pub(super) fn settle(&mut self) -> StoreResult<()> {
        while let Some(folder) = self.unsynced.first().cloned() {
            self.disk.sync_folder(&folder).at(&folder)?;
            self.unsynced.remove(&folder);
        }
        Ok(())
    }

    /// Checks that all state of a group is known, which every change requires.
    pub(super) fn ready(&self, group: &GroupName) -> StoreResult<()> {
        match self.lost.get(&FilePaths::stem(group)) {
            Some(what) => Err(damaged(what.clone())),
            None => Ok(()),
        }
    }

    /// Runs one step on a group: tries it on a copy, writes the result, and only then applies it in
    /// memory. If writing fails, memory is unchanged.
    ///
    /// Keep-alives continue meanwhile. They only extend live sessions, and the step runs at the
    /// same instant both times, so its result is the same.
    pub(super) fn change<T>(
        &mut self,
        group: &GroupName,
        step: impl Fn(&mut StoreState, LocalInstant) -> T,
    ) -> StoreResult<T> {
        self.prepare()?;
        self.ready(group)?;
        let (mut trial, now) = self.live.step(|state, now| (state.only(group), now));
        let unix_ms = trial.unix_ms;
        let before = trial.group(group).durable_mark();
        let answer = step(&mut trial, now);
        if trial.group(group).durable_mark() != before {
            self.persist(group, trial.group(group), unix_ms.unwrap_or_default())?;
        }
        let flushed = self.flushed(group);
        self.live.step(|state, _| {
            state.unix_ms = unix_ms;
            step(state, now);
            state.group(group).audit.retain(|entry| entry.seq > flushed);
        });
        Ok(answer)
    }

    /// Writes a group's state to disk.
    pub(super) fn persist(
        &mut self,
        name: &GroupName,
        group: &GroupRows,
        unix_ms: u64,
    ) -> StoreResult<()> {
        self.flush(name, group)?;
        let flushed = self.flushed(name);
        let room = self.room(name);
        let mut file = group.export(name, unix_ms);
        let id = |id: &DutyId| id.as_str().to_owned();
        file.versions = room.versions.iter().map(|(d, version)| (id(d), version.get())).collect();
        file.forgotten = room.forgotten.iter().map(id).collect();
        file.aside = room.aside.iter().map(|(d, aside)| (id(d), aside.clone())).collect();
        file.audit.retain(|line| line.seq > flushed);
        let path = self.paths.group(&FilePaths::stem(name));
        self.write_file(&path, &folder::write(&file))?;
        let room = self.room(name);
        room.saved = true;
        room.durable_seq = group.last_seq;
        Ok(())
    }

    /// Writes a group's state to disk as it is in memory.
    pub(super) fn persist_as_is(&mut self, name: &GroupName) -> StoreResult<()> {
        let (group, unix_ms) = self
            .live
            .step(|state, _| (state.group(name).clone(), state.unix_ms.unwrap_or_default()));
        self.persist(name, &group, unix_ms)
    }

    /// Writes the state of the whole store to disk.
    pub(super) fn persist_store(&mut self, store: StoreFile) -> StoreResult<()> {
        let path = self.paths.store();
        self.write_file(&path, &folder::write(&store))?;
        self.store = store;
        Ok(())
    }

    /// Renames a damaged file to a name that is free, so that it is neither used nor lost.
    pub(super) fn rename_aside(&mut self, path: &Path) -> StoreResult<PathBuf> {
        let aside = self.free_aside(path)?;
        self.disk.rename(path, &aside).at(path)?;
        self.sync_parent(path)?;
        Ok(aside)
    }

    pub(super) fn free_aside(&self, path: &Path) -> StoreResult<PathBuf> {
        for number in 1..=u32::MAX {
            let aside = FilePaths::aside(path, number);
            if self.disk.stamp(&aside).at(&aside)?.is_none() {
                return Ok(aside);
            }
        }
        Err(damaged(format!("{}: too many damaged files were set aside", path.display())))
    }

    /// The duties of a group that are in memory.
    pub(super) fn duties(&self, group: &GroupName) -> Vec<DutyKey> {
        self.live.step(|state, now| state.holders(group, now)).into_iter().map(|h| h.duty).collect()
    }
}
