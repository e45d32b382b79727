//! Opening of a store: the lock, the stored state, and the files of other programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tenure_core::store::Retention;
use tenure_core::{Code, DutyId, DutyKey, Epoch, GroupName, StoreError, StoreResult, Version};
use tenure_wire::cursor::{self, CursorFile, InvalidCursorFile};
use tenure_wire::folder::{self, FORMAT, GroupFile, StoreFile};

use super::FileSettings;
use super::audit::MAX_AUDIT_FILE_BYTES;
use super::disk::Disk;
use super::paths::FilePaths;
use super::writer::{DiskResult as _, FileWriter, GroupFiles, damaged};
use crate::IfAbsent;
use crate::clock::unix_ms;
use crate::state::{GroupRows, LiveState, StoreState, durable};

/// The duty of a cursor file whose URL names none.
pub(super) fn default_duty() -> StoreResult<DutyKey> {
    DutyKey::new("file", "cursor")
}

/// Retention of the state in memory: every audit entry, until it is a line in a file.
pub(super) fn in_memory(retention: Retention) -> Retention {
    Retention { audit_kept: usize::MAX, ..retention }
}

/// Returns the error for a store whose files are being replaced.
pub(super) fn being_restored(paths: &FilePaths) -> StoreError {
    let what = format!("{}: a restore was interrupted: run it again", paths.path().display());
    StoreError::refused(Code::BadBackup, what)
}

fn absent(paths: &FilePaths) -> StoreError {
    StoreError::refused(Code::Absent, paths.path().display().to_string())
}

/// Opens the store and reads all of its state.
pub(super) fn open(settings: FileSettings, disk: Arc<dyn Disk>) -> StoreResult<FileWriter> {
    let FileSettings { path, duty, if_absent, clock, entropy } = settings;
    let path = disk.resolve(&path).at(&path)?;
    let asked = duty.is_some();
    let main = duty.map_or_else(default_duty, Ok)?;
    let retention = Retention::default();
    let store = StoreFile {
        format: FORMAT,
        duty: main.to_string(),
        incarnation: format!("{entropy:032x}"),
        floor: 0,
        history_slots: retention.history_slots as u64,
        audit_kept: retention.audit_kept as u64,
    };
    let live = Arc::new(LiveState::new(clock, || Some(unix_ms())));
    live.step(|state, _| state.retain(in_memory(retention)));
    let mut writer = FileWriter {
        disk,
        live,
        paths: FilePaths::new(path, main),
        lock: None,
        store,
        rooms: BTreeMap::new(),
        lost: BTreeMap::new(),
        unsynced: BTreeSet::new(),
    };
    writer.belongs_to_nobody()?;
    let there = writer.has_store()?;
    if !there && if_absent == IfAbsent::Refuse {
        if writer.cursors()?.is_empty() {
            return Err(absent(&writer.paths));
        }
        writer.scan()?;
        return Ok(writer);
    }
    writer.enter(asked)?;
    Ok(writer)
}

impl FileWriter {
    fn has_store(&self) -> StoreResult<bool> {
        let folder = self.paths.folder();
        let names = self.disk.list(&folder).at(&folder)?;
        // A folder that contains only a lock belongs to a store whose creation was not completed.
        let is_ours = |name: &String| {
            name.starts_with("store.json")
                || name.starts_with("group-")
                || name == FilePaths::RESTORING
        };
        Ok(names.iter().any(is_ours))
    }

    /// Refuses a file that is another duty's cursor: the lock of that duty's store protects it.
    fn belongs_to_nobody(&self) -> StoreResult<()> {
        for owner in self.paths.owners() {
            if self.disk.stamp(&owner).at(&owner)?.is_some() {
                let (path, owner) = (self.paths.path().display(), owner.display());
                let what = format!("{path} belongs to the store {owner}: open that store");
                return Err(StoreError::refused(Code::BadUrl, what));
            }
        }
        Ok(())
    }

    /// Refuses hard links: a file with two names would have two folders and two independent locks.
    fn has_one_name(&self) -> StoreResult<()> {
        for (name, _) in self.cursors()? {
            let path = self.paths.parent().join(name);
            let stamp = self.disk.stamp(&path).at(&path)?;
            if stamp.is_some_and(|stamp| stamp.links > 1) {
                let path = path.display();
                let what = format!(
                    "{path} has hard links, and each name would be a separate store: remove the \
                     other names, or replace the file by a copy"
                );
                return Err(StoreError::refused(Code::BadUrl, what));
            }
        }
        Ok(())
    }

    /// Returns the names of all cursor files, each with its duty if the name contains it.
    fn cursors(&self) -> StoreResult<Vec<(String, Option<DutyKey>)>> {
        let folder = self.paths.parent();
        let names = self.disk.list(folder).at(folder)?;
        let cursor = |name: String| self.paths.is_cursor(&name).map(|duty| (name, duty));
        Ok(names.into_iter().filter_map(cursor).collect())
    }

    /// Enters the store before the first write, if its file was only read so far.
    pub(super) fn prepare(&mut self) -> StoreResult<()> {
        match self.lock {
            Some(_) => Ok(()),
            None => self.enter(true),
        }
    }

    /// Takes the lock, and reads the state or writes the initial one.
    fn enter(&mut self, asked: bool) -> StoreResult<()> {
        self.has_one_name()?;
        let folder = self.paths.folder();
        self.make_folder(&folder)?;
        let path = self.paths.lock();
        let access = self.access(&path)?;
        let lock = self.disk.lock(&path, access).at(&path)?;
        let Some(lock) = lock else {
            let what = format!("{} is locked", path.display());
            return Err(StoreError::refused(Code::InUse, what));
        };
        // Writes of the previous process must be durable before anything builds on them.
        self.unsynced.extend([self.paths.parent().to_owned(), folder.clone()]);
        self.settle()?;
        let names = self.disk.list(&folder).at(&folder)?;
        if names.iter().any(|name| name == FilePaths::RESTORING) {
            return Err(being_restored(&self.paths));
        }
        self.enter_store(&names, asked)?;
        self.lock = Some(lock);
        let entered = self.enter_all(&names);
        if entered.is_err() {
            // The lock's holder must know every epoch: with only some, the next call could grant
            // one again. So the store is read-only again, and the next call starts over.
            self.lock = None;
            self.rooms.clear();
            self.lost.clear();
            let _ = self.scan();
        }
        entered
    }

    fn enter_all(&mut self, names: &[String]) -> StoreResult<()> {
        self.rooms.clear();
        self.lost.clear();
        self.enter_groups(names)?;
        self.finish_forgetting()?;
        self.scan()
    }

    fn enter_store(&mut self, names: &[String], asked: bool) -> StoreResult<()> {
        let path = self.paths.store();
        if !names.iter().any(|name| name == "store.json") {
            let kept = names.iter().find(|name| name.starts_with("store.json.corrupt-"));
            if kept.is_none() && !names.iter().any(|name| FilePaths::is_group(name).is_some()) {
                return self.persist_store(self.store.clone());
            }
            let kept = kept.map_or(String::new(), |kept| format!("; it is kept as {kept}"));
            return Err(damaged(format!("{} is missing{kept}; restore it", path.display())));
        }
        let bytes = self.disk.read(&path, MAX_AUDIT_FILE_BYTES).at(&path)?;
        let store: StoreFile = match folder::read(&bytes) {
            Ok(store) => store,
            Err(InvalidCursorFile(why)) => {
                let aside = self.rename_aside(&path)?;
                let (path, aside) = (path.display(), aside.display());
                return Err(damaged(format!("{path} {why}; it is kept as {aside}")));
            }
        };
        if store.format > FORMAT {
            let what = format!("{} has format {}", path.display(), store.format);
            return Err(StoreError::refused(Code::NewerSchema, what));
        }
        let main: DutyKey = store.duty.parse()?;
        if asked && main != self.paths.main {
            let what = format!("this file is the cursor of {main}: add #{main} to the URL");
            return Err(StoreError::refused(Code::BadUrl, what));
        }
        self.paths.main = main;
        self.store = store;
        Ok(())
    }

    /// Reads the state of every group. Damaged files are set aside and recorded in `lost`.
    fn enter_groups(&mut self, names: &[String]) -> StoreResult<()> {
        let retention = Retention {
            history_slots: usize::try_from(self.store.history_slots).unwrap_or(1),
            audit_kept: usize::try_from(self.store.audit_kept).unwrap_or(usize::MAX),
        };
        let (retention, floor) = (retention.check()?, Epoch::new(self.store.floor)?);
        self.live.step(|state, _| {
            state.groups.clear();
            state.floor = floor;
            state.retain(in_memory(retention));
        });
        for name in names {
            let Some((stem, whole)) = FilePaths::is_group(name) else { continue };
            let path = self.paths.group(stem);
            let restore = "restore a valid copy, or run `tenure store adopt`";
            if !whole {
                if !names.iter().any(|other| *other == format!("group-{stem}.json")) {
                    let what = format!("{} is missing, see {name}; {restore}", path.display());
                    self.lost.insert(stem.to_owned(), what);
                }
                continue;
            }
            let bytes = self.disk.read(&path, MAX_AUDIT_FILE_BYTES).at(&path)?;
            match enter_group(&bytes) {
                Ok((name, group, room)) => {
                    self.live.step(|state, _| state.groups.insert(name.clone(), group));
                    self.rooms.insert(name, room);
                }
                Err(InvalidCursorFile(why)) => {
                    let aside = self.rename_aside(&path)?;
                    let (path, aside) = (path.display(), aside.display());
                    let what = format!("{path} {why}; it is kept as {aside}; {restore}");
                    self.lost.insert(stem.to_owned(), what);
                }
            }
        }
        Ok(())
    }

    /// Reads cursor files that the state does not know: those of other programs, and those whose
    /// state was lost. Errors are ignored here; a call for that duty reports them.
    fn scan(&mut self) -> StoreResult<()> {
        for (name, duty) in self.cursors()? {
            let path = self.paths.parent().join(name);
            let duty = match duty {
                Some(duty) => Some(duty),
                None => self.named_inside(&path),
            };
            let Some(duty) = duty else { continue };
            let known =
                |state: &mut StoreState| state.group(&duty.group).holds.contains_key(&duty.id);
            if !self.live.step(|state, _| known(state)) {
                let _ = self.read(&duty);
            }
        }
        Ok(())
    }

    /// Returns the duty of a cursor file whose name was too long to contain it.
    fn named_inside(&self, path: &Path) -> Option<DutyKey> {
        let bytes = self.disk.read(path, cursor::MAX_CURSOR_FILE_BYTES).ok()?;
        match cursor::read(&bytes) {
            Ok(CursorFile::Ours(duty, _)) if self.paths.cursor(&duty) == path => Some(duty),
            _ => None,
        }
    }
}

fn enter_group(bytes: &[u8]) -> Result<(GroupName, GroupRows, GroupFiles), InvalidCursorFile> {
    let file: GroupFile = folder::read(bytes)?;
    let (name, group) = GroupRows::import(&file)?;
    let bad = |error: StoreError| InvalidCursorFile(format!("has an invalid value: {error}"));
    let mut versions = BTreeMap::new();
    for (id, version) in durable::by_duty(&file.versions)? {
        versions.insert(id, Version::new(version).map_err(bad)?);
    }
    let forgotten: Result<BTreeSet<_>, _> = file.forgotten.into_iter().map(DutyId::new).collect();
    let room = GroupFiles {
        saved: true,
        versions,
        forgotten: forgotten.map_err(bad)?,
        aside: durable::by_duty(&file.aside)?,
        durable_seq: file.last_seq,
        ..GroupFiles::default()
    };
    Ok((name, group, room))
}
