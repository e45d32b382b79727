//! Everything that the file store does to a disk, so that tests can put another one in its place.
//!
//! The steps are as small as the promises of a disk: data that was written is not there for sure
//! before [`Disk::sync`], and a name not before [`Disk::sync_folder`].

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Identifies a state of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The inode: another one after each rename.
    pub inode: u64,
    /// Its size.
    pub size: u64,
    /// When its data changed, in nanoseconds.
    pub modified: i128,
    /// When anything of it changed, in nanoseconds.
    pub changed: i128,
    /// Number of hard links.
    pub links: u64,
}

impl Stamp {
    /// When its data changed, in milliseconds since 1970.
    pub(super) fn unix_ms(self) -> u64 {
        u64::try_from(self.modified / 1_000_000).unwrap_or(0)
    }
}

/// Owner and mode of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAccess {
    /// The permission bits; as the process makes files, if none are given.
    pub mode: Option<u32>,
    /// User and group, kept where this process may do so.
    pub owner: Option<(u32, u32)>,
}

impl FileAccess {
    /// Before there is any data in it.
    fn give(self, file: &File) -> io::Result<()> {
        let mut mode = self.mode;
        if let Some((user, group)) = self.owner {
            let found = file.metadata()?;
            let kept = (found.uid(), found.gid()) == (user, group)
                || fchown(file, Some(user), Some(group)).is_ok()
                || found.gid() == group
                || fchown(file, None, Some(group)).is_ok();
            if !kept {
                // What one group was allowed is not for another one.
                mode = mode.map(|mode| mode & !0o070);
            }
        }
        mode.map_or(Ok(()), |mode| file.set_permissions(Permissions::from_mode(mode)))
    }

    /// Opens a file for writing; if it is a new one, with this access.
    fn open(self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true);
        // Nobody else opens it before it has its owner.
        match options.clone().create_new(true).mode(self.mode.map_or(0o666, |_| 0o600)).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(path),
            made => made.and_then(|file| self.give(&file).map(|()| file)),
        }
    }
}

/// A lock that lasts until this is dropped, or its process ends.
#[derive(Debug)]
pub struct Lock {
    _file: Option<File>,
}

impl Lock {
    /// A lock of a disk that nobody else can reach.
    #[cfg(feature = "conformance")]
    pub(crate) fn alone() -> Self {
        Self { _file: None }
    }
}

/// The steps that the file store is made of.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Resolves links in a path; the file itself need not exist.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;

    /// All bytes of a file; refused when there are more than `most`.
    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>>;

    /// The state of a file; `None` when it is not there.
    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>>;

    /// Reads owner and mode of a file; `None` when it does not exist.
    fn access(&self, path: &Path) -> io::Result<Option<FileAccess>>;

    /// The names in a folder, sorted; none when it is not there.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Makes a folder, if it is not there.
    fn make_folder(&self, folder: &Path, access: FileAccess) -> io::Result<()>;

    /// Makes or overwrites a file. Nothing of it is durable yet.
    fn write(&self, path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()>;

    /// Cuts a file to `at` bytes and goes on from there. Nothing of it is durable yet.
    fn append(&self, path: &Path, at: u64, bytes: &[u8], access: FileAccess) -> io::Result<()>;

    /// Makes the data of a file durable; its name is another matter.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name in one step; what had that name is gone.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file, if it is there.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder, if it is there.
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes a file and locks it; `None` when another process has the lock.
    fn lock(&self, path: &Path, access: FileAccess) -> io::Result<Option<Lock>>;
}

/// The disk of this machine.
#[derive(Debug, Default)]
pub struct RealDisk {
    /// The file that was written last: syncing it through the same descriptor tells of errors that
    /// happened while its data was on the way.
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
        // As many links as the kernel follows.
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
            // A name that is not UTF-8 is none of ours.
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
        // What a crash left there may be open to others.
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

    /// `flock`: it belongs to the open file, which no other program inherits, and the kernel frees
    /// it with the process.
    fn lock(&self, path: &Path, access: FileAccess) -> io::Result<Option<Lock>> {
        let file = access.open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: Some(file) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
