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

/// The disk's side of a store. Whoever has it is the only one who writes.
#[derive(Debug)]
pub(super) struct FileWriter {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) live: Arc<LiveState>,
    pub(super) paths: FilePaths,
    /// `None` while there is only a plain cursor file that was looked at: nothing is written.
    pub(super) lock: Option<Lock>,
    pub(super) store: StoreFile,
    pub(super) rooms: BTreeMap<GroupName, GroupFiles>,
    /// Groups whose state is damaged or gone, by the stem of their file, and what to say of them.
    pub(super) lost: BTreeMap<String, String>,
    /// Folders whose names may not be durable, because telling the disk failed.
    pub(super) unsynced: BTreeSet<PathBuf>,
}

/// State of a group's files.
#[derive(Debug, Default)]
pub(super) struct GroupFiles {
    /// Its state is in a file.
    pub(super) saved: bool,
    /// The newest version that was ever seen of a duty's checkpoint.
    pub(super) versions: BTreeMap<DutyId, Version>,
    /// The cursor files as they were when they were read.
    pub(super) stamps: BTreeMap<DutyId, Stamp>,
    /// Duties that were forgotten and whose files may still be there.
    pub(super) forgotten: BTreeSet<DutyId>,
    /// Duties whose cursor file was put aside, and under which name.
    pub(super) aside: BTreeMap<DutyId, String>,
    /// The newest audit entry that is in a file.
    pub(super) durable_seq: u64,
    /// The audit file, once it was looked at.
    pub(super) trail: Option<AuditFile>,
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

/// A file that is not as we wrote it.
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

    /// Replaces a file so that the old one or the new one is there, whole, whenever the power goes:
    /// the data first, then the name. Refused means that the old one is there.
    pub(super) fn write_file(&mut self, path: &Path, bytes: &[u8]) -> StoreResult<()> {
        let temp = FilePaths::temp(path);
        let access = self.access(path)?;
        let written = self.disk.write(&temp, bytes, access);
        let written = written.and_then(|()| self.disk.sync(&temp));
        if let Err(error) = written {
            // It may fill the disk; if it stays, the next write takes its place.
            let _ = self.disk.remove(&temp);
            return Err(refused(&error, path));
        }
        let renamed = self.disk.rename(&temp, path);
        renamed.map_err(|error| refused(&error, path).or_happened())?;
        self.sync_parent(path)
    }

    /// Owner and mode of a new file. A cursor file keeps its own, a new one is like
    /// the one of the main duty. The folder beside it holds copies of all of them, and everything
    /// that one could grant oneself a hold with: it is for the owner of the cursor file alone.
    pub(super) fn access(&self, path: &Path) -> StoreResult<FileAccess> {
        let look = |path: &Path| self.disk.access(path).at(path);
        let main = look(self.paths.path())?;
        if path.starts_with(self.paths.folder()) {
            return Ok(FileAccess { mode: Some(0o600), owner: main.and_then(|main| main.owner) });
        }
        Ok(look(path)?.or(main).unwrap_or_default())
    }

    /// Makes a folder for the same eyes.
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

    /// Nothing may be read that could vanish again: names that are not durable yet become so first.
    pub(super) fn settle(&mut self) -> StoreResult<()> {
        while let Some(folder) = self.unsynced.first().cloned() {
            self.disk.sync_folder(&folder).at(&folder)?;
            self.unsynced.remove(&folder);
        }
        Ok(())
    }

    /// A group may be changed only while all of its state is known.
    pub(super) fn ready(&self, group: &GroupName) -> StoreResult<()> {
        match self.lost.get(&FilePaths::stem(group)) {
            Some(what) => Err(damaged(what.clone())),
            None => Ok(()),
        }
    }

    /// One step on a group: tried on a copy, written down, and only then done in memory. When
    /// writing fails, memory is as it was.
    ///
    /// Keep-alives go on meanwhile. They extend sessions that live, so the step finds the same the
    /// second time: it is done at the same instant.
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

    /// Writes a group's state down.
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

    /// Writes a group's state down as it is in memory.
    pub(super) fn persist_as_is(&mut self, name: &GroupName) -> StoreResult<()> {
        let (group, unix_ms) = self
            .live
            .step(|state, _| (state.group(name).clone(), state.unix_ms.unwrap_or_default()));
        self.persist(name, &group, unix_ms)
    }

    /// Writes down what is true of the whole store.
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
        Err(damaged(format!("{}: too many files were put aside", path.display())))
    }

    /// The duties of a group that are in memory.
    pub(super) fn duties(&self, group: &GroupName) -> Vec<DutyKey> {
        self.live.step(|state, now| state.holders(group, now)).into_iter().map(|h| h.duty).collect()
    }
}
