//! Faulty disks: one kills its own process, the other simulates a power cut.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Signal, getpid, kill_process};

use crate::file::{Disk, FileAccess, Lock, RealDisk, Stamp};

/// The real disk, until a given step kills the process.
#[derive(Debug)]
pub struct CrashingDisk {
    real: RealDisk,
    steps: AtomicU64,
    last: u64,
}

impl CrashingDisk {
    /// Kills this process when step number `last`, counted from one, begins.
    pub fn at(last: u64) -> Self {
        Self { real: RealDisk::default(), steps: AtomicU64::new(0), last }
    }

    /// Returns the number of completed steps.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    fn step(&self, half: impl FnOnce()) {
        if self.steps.fetch_add(1, Ordering::SeqCst) + 1 == self.last {
            half();
            // Nothing runs in this process afterwards.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}

impl Disk for CrashingDisk {
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.real.resolve(path)
    }

    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        self.real.read(path, most)
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        self.real.stamp(path)
    }

    fn access(&self, path: &Path) -> io::Result<Option<FileAccess>> {
        self.real.access(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.real.list(folder)
    }

    fn make_folder(&self, folder: &Path, access: FileAccess) -> io::Result<()> {
        self.step(|| ());
        self.real.make_folder(folder, access)
    }

    /// If killed in this step, half of the data is written.
    fn write(&self, path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
        self.step(|| drop(self.real.write(path, &bytes[..bytes.len() / 2], access)));
        self.real.write(path, bytes, access)
    }

    /// If killed in this step, half of the data is written.
    fn append(&self, path: &Path, at: u64, bytes: &[u8], access: FileAccess) -> io::Result<()> {
        self.step(|| drop(self.real.append(path, at, &bytes[..bytes.len() / 2], access)));
        self.real.append(path, at, bytes, access)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.step(|| ());
        self.real.sync(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|| ());
        self.real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step(|| ());
        self.real.remove(path)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.step(|| ());
        self.real.remove_folder(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.step(|| ());
        self.real.sync_folder(folder)
    }

    fn lock(&self, path: &Path, access: FileAccess) -> io::Result<Option<Lock>> {
        self.real.lock(path, access)
    }
}

/// A disk in memory that guarantees no more than a real one: data is durable after a sync of its
/// file, a name after a sync of its folder. Unsynced changes survive or are lost independently.
#[derive(Debug, Default)]
pub struct SimulatedDisk(Mutex<DiskModel>);

#[derive(Clone, Debug, Default)]
struct DiskModel {
    files: BTreeMap<u64, FileData>,
    folders: BTreeMap<PathBuf, FolderNames>,
    /// Number of changes so far; also the clock of this disk.
    steps: u64,
    off_at: Option<u64>,
    fail_at: Option<(u64, ErrorKind)>,
}

#[derive(Clone, Debug, Default)]
struct FileData {
    durable: Vec<u8>,
    now: Vec<u8>,
    changed: u64,
}

#[derive(Clone, Debug, Default)]
struct FolderNames {
    durable: BTreeMap<String, DiskNode>,
    now: BTreeMap<String, DiskNode>,
    /// Changes since the names were last durable.
    edits: Vec<NameChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskNode {
    File(u64),
    Folder,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(String, DiskNode),
    Unset(String),
    Move(String, String, DiskNode),
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, DiskNode>) {
        match self {
            Self::Set(name, node) => drop(names.insert(name, node)),
            Self::Unset(name) => drop(names.remove(&name)),
            Self::Move(from, to, node) => {
                names.remove(&from);
                names.insert(to, node);
            }
        }
    }
}

/// Random numbers from a seed (splitmix64).
struct SeededRandom(u64);

impl SeededRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) % sides.max(1) as u64) as usize
    }
}

fn taken_apart(path: &Path) -> io::Result<(PathBuf, String)> {
    let (folder, name) = (path.parent(), path.file_name());
    let name = name.ok_or(ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    Ok((folder.ok_or(ErrorKind::InvalidInput)?.to_owned(), name))
}

impl DiskModel {
    /// Counts one change; fails if the power is off or this step is set to fail.
    fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        self.powered()?;
        match self.fail_at {
            Some((at, kind)) if at == self.steps => Err(kind.into()),
            _ => Ok(()),
        }
    }

    fn powered(&self) -> io::Result<()> {
        match self.off_at {
            Some(at) if self.steps >= at => Err(io::Error::other("the power is off")),
            _ => Ok(()),
        }
    }

    fn find(&self, path: &Path) -> io::Result<Option<DiskNode>> {
        self.powered()?;
        let (folder, name) = taken_apart(path)?;
        Ok(self.folders.get(&folder).and_then(|names| names.now.get(&name).copied()))
    }

    fn edit(&mut self, folder: &Path, edit: NameChange) -> io::Result<()> {
        let names = self.folders.get_mut(folder).ok_or(ErrorKind::NotFound)?;
        edit.clone().apply(&mut names.now);
        names.edits.push(edit);
        Ok(())
    }

    fn put(&mut self, path: &Path, at: Option<u64>, bytes: &[u8]) -> io::Result<()> {
        let failed = self.step();
        self.powered()?;
        let inode = match self.find(path)? {
            Some(DiskNode::File(inode)) => inode,
            Some(DiskNode::Folder) => return Err(ErrorKind::IsADirectory.into()),
            None => {
                let inode = self.files.keys().next_back().map_or(1, |last| last + 1);
                let (folder, name) = taken_apart(path)?;
                self.files.insert(inode, FileData::default());
                self.edit(&folder, NameChange::Set(name, DiskNode::File(inode)))?;
                inode
            }
        };
        let steps = self.steps;
        let data = self.files.entry(inode).or_default();
        data.now.resize(at.unwrap_or(0) as usize, 0);
        data.changed = steps;
        // A failed write is partly done.
        let done = if failed.is_err() { bytes.len() / 2 } else { bytes.len() };
        data.now.extend(&bytes[..done]);
        failed
    }

    /// Returns possible contents of a file whose last data was not durable.
    fn torn(data: &FileData, dice: &mut SeededRandom) -> Vec<u8> {
        if data.now == data.durable {
            return data.now.clone();
        }
        let kept = dice.roll(data.now.len() + 1);
        match dice.roll(5) {
            0 => data.durable.clone(),
            1 => data.now.clone(),
            2 => data.now[..kept].to_vec(),
            // The size reached the disk, the data did not.
            3 => vec![0; data.now.len()],
            _ => {
                let mut mixed = data.now[..kept].to_vec();
                mixed.resize(data.now.len(), 0);
                mixed
            }
        }
    }

    fn after_power_cut(&self, seed: u64) -> Self {
        let mut dice = SeededRandom(seed);
        let mut after = Self { steps: self.steps, ..Self::default() };
        for (inode, data) in &self.files {
            let left = Self::torn(data, &mut dice);
            let data = FileData { durable: left.clone(), now: left, changed: self.steps };
            after.files.insert(*inode, data);
        }
        for (path, names) in &self.folders {
            let mut left = names.durable.clone();
            // From "nearly all" to "nearly nothing" survives.
            let luck = dice.roll(5);
            for edit in &names.edits {
                if dice.roll(4) < luck {
                    edit.clone().apply(&mut left);
                }
            }
            let names = FolderNames { durable: left.clone(), now: left, edits: Vec::new() };
            after.folders.insert(path.clone(), names);
        }
        // A folder whose own name is lost takes its content with it; parents come first.
        let paths: Vec<PathBuf> = after.folders.keys().cloned().collect();
        for path in paths.iter().skip(1) {
            if !matches!(after.find(path), Ok(Some(DiskNode::Folder))) {
                after.folders.remove(path);
            }
        }
        after
    }
}

impl SimulatedDisk {
    /// Creates a disk with one empty folder.
    pub fn new(folder: &Path) -> Self {
        let folders = BTreeMap::from([(folder.to_owned(), FolderNames::default())]);
        Self(Mutex::new(DiskModel { folders, ..DiskModel::default() }))
    }

    fn model(&self) -> MutexGuard<'_, DiskModel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of changes.
    pub fn steps(&self) -> u64 {
        self.model().steps
    }

    /// Cuts the power when the given step begins.
    pub fn off_at(&self, step: u64) {
        self.model().off_at = Some(step);
    }

    /// Makes the given step fail.
    pub fn fail_at(&self, step: u64, kind: ErrorKind) {
        self.model().fail_at = Some((step, kind));
    }

    /// Returns a copy as the next process finds it if only the process has ended.
    pub fn copy(&self) -> Self {
        let model = DiskModel { off_at: None, fail_at: None, ..self.model().clone() };
        Self(Mutex::new(model))
    }

    /// Returns one of the possible disks after a power cut.
    pub fn after_power_cut(&self, seed: u64) -> Self {
        Self(Mutex::new(self.model().after_power_cut(seed)))
    }
}

impl Disk for SimulatedDisk {
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let model = self.model();
        match model.find(path)? {
            Some(DiskNode::File(inode)) => match &model.files[&inode].now {
                bytes if bytes.len() > most => Err(ErrorKind::InvalidData.into()),
                bytes => Ok(bytes.clone()),
            },
            Some(DiskNode::Folder) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let model = self.model();
        let found = model.find(path)?.map(|node| match node {
            DiskNode::Folder => Stamp { inode: 0, size: 0, modified: 0, changed: 0, links: 1 },
            DiskNode::File(inode) => {
                let data = &model.files[&inode];
                let changed = i128::from(data.changed);
                let size = data.now.len() as u64;
                Stamp { inode, size, modified: changed, changed, links: 1 }
            }
        });
        Ok(found)
    }

    fn access(&self, path: &Path) -> io::Result<Option<FileAccess>> {
        Ok(self.model().find(path)?.map(|_| FileAccess::default()))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let model = self.model();
        model.powered()?;
        let names = model.folders.get(folder);
        Ok(names.map(|names| names.now.keys().cloned().collect()).unwrap_or_default())
    }

    fn make_folder(&self, folder: &Path, _access: FileAccess) -> io::Result<()> {
        let mut model = self.model();
        model.step()?;
        if model.find(folder)?.is_some() {
            return Ok(());
        }
        let (parent, name) = taken_apart(folder)?;
        model.edit(&parent, NameChange::Set(name.clone(), DiskNode::Folder))?;
        let parent = model.folders.get(&parent);
        if parent.is_none_or(|names| !names.durable.contains_key(&name)) {
            // The removal of the earlier folder is durable.
            model.folders.remove(folder);
        }
        model.folders.entry(folder.to_owned()).or_default();
        Ok(())
    }

    fn write(&self, path: &Path, bytes: &[u8], _access: FileAccess) -> io::Result<()> {
        self.model().put(path, None, bytes)
    }

    fn append(&self, path: &Path, at: u64, bytes: &[u8], _access: FileAccess) -> io::Result<()> {
        self.model().put(path, Some(at), bytes)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let mut model = self.model();
        model.step()?;
        let Some(DiskNode::File(inode)) = model.find(path)? else {
            return Err(ErrorKind::NotFound.into());
        };
        let data = model.files.entry(inode).or_default();
        data.durable.clone_from(&data.now);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut model = self.model();
        model.step()?;
        let node = model.find(from)?.ok_or(ErrorKind::NotFound)?;
        let ((folder, from), (other, to)) = (taken_apart(from)?, taken_apart(to)?);
        if folder != other {
            return Err(ErrorKind::CrossesDevices.into());
        }
        model.edit(&folder, NameChange::Move(from, to, node))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut model = self.model();
        model.step()?;
        if model.find(path)?.is_none() {
            return Ok(());
        }
        let (folder, name) = taken_apart(path)?;
        model.edit(&folder, NameChange::Unset(name))
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        let mut model = self.model();
        model.step()?;
        match model.folders.get(folder) {
            None => return Ok(()),
            Some(names) if !names.now.is_empty() => {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            Some(_) => {}
        }
        // Its names stay in the model: until the removal is durable, the folder may come back.
        let (parent, name) = taken_apart(folder)?;
        model.edit(&parent, NameChange::Unset(name))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut model = self.model();
        model.step()?;
        let names = model.folders.get_mut(folder).ok_or(ErrorKind::NotFound)?;
        names.durable.clone_from(&names.now);
        names.edits.clear();
        Ok(())
    }

    fn lock(&self, _path: &Path, _access: FileAccess) -> io::Result<Option<Lock>> {
        self.model().powered()?;
        Ok(Some(Lock::alone()))
    }
}
