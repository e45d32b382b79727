//! Disk operations of the file store, behind a trait so that tests can replace the disk.
//!
//! The operations match what a disk guarantees: written data is durable only after [`Disk::sync`],
//! and a name only after [`Disk::sync_folder`].

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Fingerprint of a file's state, taken without reading its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Inode number, which changes when another file is renamed to this name.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the data, in nanoseconds.
    pub modified: i128,
    /// Time of the last change of data or metadata, in nanoseconds.
    pub changed: i128,
    /// Number of hard links.
    pub links: u64,
}

impl Stamp {
    /// Returns the time of the last change of the data, in milliseconds since 1970.
    pub(super) fn unix_ms(self) -> u64 {
        u64::try_from(self.modified / 1_000_000).unwrap_or(0)
    }
}

/// Owner and mode of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAccess {
    /// Permission bits; `None` for the default of the process.
    pub mode: Option<u32>,
    /// User and group, set where this process may do so.
    pub owner: Option<(u32, u32)>,
}

impl FileAccess {
    /// Sets mode and owner of a new file, before it contains data.
    pub(super) fn give(self, file: &File) -> io::Result<()> {
        let mut mode = self.mode;
        if let Some((user, group)) = self.owner {
            let found = file.metadata()?;
            let kept = (found.uid(), found.gid()) == (user, group)
                || fchown(file, Some(user), Some(group)).is_ok()
                || found.gid() == group
                || fchown(file, None, Some(group)).is_ok();
            if !kept {
                // The rights of one group must not pass to another.
                mode = mode.map(|mode| mode & !0o070);
            }
        }
        mode.map_or(Ok(()), |mode| file.set_permissions(Permissions::from_mode(mode)))
    }

    /// Gives this access to a file, or to a folder with all that is in it.
    #[cfg(feature = "sqlite")]
    pub(super) fn give_all(self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        self.give(&file)?;
        if file.metadata()?.is_dir() {
            for entry in fs::read_dir(path)? {
                self.give_all(&entry?.path())?;
            }
        }
        Ok(())
    }

    /// Opens a file for writing; a new file gets this access.
    fn open(self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true);
        // Nobody else can open it before it has its owner.
        match options.clone().create_new(true).mode(self.mode.map_or(0o666, |_| 0o600)).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(path),
            made => made.and_then(|file| self.give(&file).map(|()| file)),
        }
    }
}

/// Lock that is held until this is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: Option<File>,
}

impl Lock {
    /// Returns a lock on a disk that nobody else can reach.
    #[cfg(feature = "conformance")]
    pub(crate) fn alone() -> Self {
        Self { _file: None }
    }
}

/// Disk operations of the file store.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Resolves links in a path; the file itself need not exist.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;

    /// Reads all bytes of a file; refuses a file with more than `most`.
    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>>;

    /// Reads the state of a file; `None` when it does not exist.
    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>>;

    /// Reads owner and mode of a file; `None` when it does not exist.
    fn access(&self, path: &Path) -> io::Result<Option<FileAccess>>;

    /// Lists the names in a folder, sorted; none when it does not exist.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Creates a folder, unless it exists.
    fn make_folder(&self, folder: &Path, access: FileAccess) -> io::Result<()>;

    /// Creates or overwrites a file. Nothing is durable yet.
    fn write(&self, path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()>;

    /// Truncates a file to `at` bytes and appends. Nothing is durable yet.
    fn append(&self, path: &Path, at: u64, bytes: &[u8], access: FileAccess) -> io::Result<()>;

    /// Makes the data of a file durable, but not its name.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Renames a file in one step, replacing any file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file, if it exists.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder, if it exists.
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Creates a file and locks it; `None` when another process has the lock.
    fn lock(&self, path: &Path, access: FileAccess) -> io::Result<Option<Lock>>;
}

/// The disk of this machine.
#[derive(Debug, Default)]
pub struct RealDisk {
    /// The file written last. Syncing it through the same descriptor reports errors that happened
    /// while its data was written back.
    last: Mutex<Option<(PathBuf, File)>>,
}

impl RealDisk {
    fn remember(&self, path: &Path, file: File) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((path.to_owned(), file));
    }

    fn take(&self, path: &Path) -> Option<File> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, file) = last.take()?;
        (name == path).then_some(file)
    }
}

fn unless_absent<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Disk for RealDisk {
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut path = path.to_owned();
        // The kernel follows the same number of links.
        for _ in 0..40 {
            let name = path.file_name().ok_or(ErrorKind::IsADirectory)?.to_owned();
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder.canonicalize()?,
                _ => Path::new(".").canonicalize()?,
            };
            let whole = folder.join(name);
            match whole.read_link() {
                Ok(target) => path = folder.join(target),
                Err(_) => return Ok(whole),
            }
        }
        Err(ErrorKind::InvalidInput.into())
    }

    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > most { Err(ErrorKind::InvalidData.into()) } else { Ok(bytes) }
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let nanos =
            |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Ok(unless_absent(fs::metadata(path))?.map(|found| Stamp {
            inode: found.ino(),
            size: found.size(),
            modified: nanos(found.mtime(), found.mtime_nsec()),
            changed: nanos(found.ctime(), found.ctime_nsec()),
            links: if found.is_dir() { 1 } else { found.nlink() },
        }))
    }

    fn access(&self, path: &Path) -> io::Result<Option<FileAccess>> {
        Ok(unless_absent(fs::metadata(path))?.map(|found| FileAccess {
            mode: Some(found.mode() & 0o777),
            owner: Some((found.uid(), found.gid())),
        }))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let Some(entries) = unless_absent(fs::read_dir(folder))? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for entry in entries {
            // The store creates no names that are not UTF-8.
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    fn make_folder(&self, folder: &Path, access: FileAccess) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            done => done.and_then(|()| access.give(&File::open(folder)?)),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
        // A file left by a crash may be readable by others.
        unless_absent(fs::remove_file(path))?;
        let mut file = access.open(path)?;
        file.write_all(bytes)?;
        self.remember(path, file);
        Ok(())
    }

    fn append(&self, path: &Path, at: u64, bytes: &[u8], access: FileAccess) -> io::Result<()> {
        let mut file = access.open(path)?;
        file.set_len(at)?;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)?;
        self.remember(path, file);
        Ok(())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        match self.take(path) {
            Some(file) => file.sync_all(),
            None => File::open(path)?.sync_all(),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        unless_absent(fs::remove_file(path)).map(drop)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        unless_absent(fs::remove_dir(folder)).map(drop)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    /// Uses `flock`: the lock belongs to the open file, which no other program inherits, and the
    /// kernel releases it with the process.
    fn lock(&self, path: &Path, access: FileAccess) -> io::Result<Option<Lock>> {
        let file = access.open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: Some(file) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
