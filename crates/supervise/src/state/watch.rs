//! Watch of files by inotify, through their folders: a file that is replaced is another file.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Space for several events with the longest name.
const BUFFER_BYTES: usize = 4096;
/// Watch descriptor, flags, cookie and length of the name: four numbers of four bytes.
const HEADER_BYTES: usize = 16;

/// Change of a watched file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileChange {
    /// Another file was renamed into its place.
    Replaced,
    /// A process that had it open for writing has closed it.
    Closed,
}

/// Changes of a watched file since they were taken last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileChanges {
    /// The last one.
    pub(super) last: Option<FileChange>,
    /// Whether one of them was [`FileChange::Closed`].
    pub(super) closed: bool,
    /// Whether its folder is gone: there will be no more changes.
    pub(super) folder_gone: bool,
}

/// Watches of any number of files by one inotify descriptor: a user may have few of them.
#[derive(Debug)]
pub(crate) struct FileWatches {
    events: Arc<RecordQueue>,
    reader: JoinHandle<()>,
}

#[derive(Debug)]
struct RecordQueue {
    /// The inotify descriptor: a stream of records, read like a pipe.
    records: pipe::Receiver,
    folders: Mutex<Folders>,
}

/// Watched files by the number of their folder's watch, and by name.
type Folders = BTreeMap<i32, BTreeMap<OsString, Arc<WatchedFile>>>;

#[derive(Debug, Default)]
struct WatchedFile {
    changes: Mutex<FileChanges>,
    changed: Notify,
}

/// A watch of one file.
#[derive(Debug)]
pub(super) struct FileWatch {
    watches: Arc<FileWatches>,
    folder: i32,
    name: OsString,
    file: Arc<WatchedFile>,
}

impl FileWatches {
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let records = pipe::Receiver::from_owned_fd_unchecked(descriptor)?;
        let events = Arc::new(RecordQueue { records, folders: Mutex::default() });
        let read = Arc::clone(&events);
        let reader = tokio::spawn(async move {
            loop {
                // These reads clear the readiness when there is nothing more.
                read.read(|buffer| read.records.try_read(buffer));
                if read.records.readable().await.is_err() {
                    // The runtime ends.
                    return;
                }
            }
        });
        Ok(Self { events, reader })
    }

    /// Watches a file, which need not exist, in a folder that does.
    pub(super) fn watch(self: &Arc<Self>, path: &Path) -> io::Result<FileWatch> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let flags = WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let mut folders = self.events.lock();
        let folder = folder.unwrap_or(Path::new("."));
        let folder = inotify::add_watch(&self.events.records, folder, flags)?;
        let file = Arc::<WatchedFile>::default();
        folders.entry(folder).or_default().insert(name.clone(), Arc::clone(&file));
        Ok(FileWatch { watches: Arc::clone(self), folder, name, file })
    }
}

impl Drop for FileWatches {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl RecordQueue {
    fn lock(&self) -> MutexGuard<'_, Folders> {
        // It is consistent at any time, also after a panic.
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands all records to their files. The lock keeps them in their order.
    fn read(&self, read: impl Fn(&mut [u8]) -> io::Result<usize>) {
        let (mut folders, mut buffer) = (self.lock(), [0; BUFFER_BYTES]);
        while let Ok(read @ 1..) = read(&mut buffer) {
            let mut rest = &buffer[..read];
            while let Some((folder, flags, name, next)) = record(rest) {
                deliver(&mut folders, folder, flags, name);
                rest = next;
            }
        }
    }
}

fn deliver(folders: &mut Folders, folder: i32, flags: ReadFlags, name: &[u8]) {
    if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
        // Events were dropped: which ones is not known.
        let all = folders.values().flat_map(BTreeMap::values);
        return all.for_each(|file| file.note(FileChange::Closed));
    }
    if flags.intersects(ReadFlags::MOVE_SELF | ReadFlags::IGNORED) {
        // The watch of a folder that is deleted, or no longer mounted, ends with `IGNORED`.
        let files = match flags.contains(ReadFlags::IGNORED) {
            true => folders.remove(&folder),
            false => folders.get(&folder).cloned(),
        };
        let files = files.unwrap_or_default();
        return files.values().for_each(|file| file.update(|changes| changes.folder_gone = true));
    }
    if let Some(file) = folders.get(&folder).and_then(|files| files.get(OsStr::from_bytes(name))) {
        let replaced = flags.contains(ReadFlags::MOVED_TO);
        file.note(if replaced { FileChange::Replaced } else { FileChange::Closed });
    }
}

impl WatchedFile {
    fn lock(&self) -> MutexGuard<'_, FileChanges> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, change: FileChange) {
        self.update(|changes| {
            changes.last = Some(change);
            changes.closed |= change == FileChange::Closed;
        });
    }

    fn update(&self, update: impl FnOnce(&mut FileChanges)) {
        update(&mut self.lock());
        self.changed.notify_one();
    }
}

impl FileWatch {
    /// Waits for changes of the file. Cancellation-safe.
    pub(super) async fn changes(&self) -> FileChanges {
        loop {
            let changes = std::mem::take(&mut *self.file.lock());
            if changes != FileChanges::default() {
                return changes;
            }
            self.file.changed.notified().await;
        }
    }

    /// Returns changes that were not reported yet, whether or not the runtime has noticed them.
    pub(super) fn pending(&self) -> FileChanges {
        let events = &self.watches.events;
        events.read(|buffer| Ok(rustix::io::read(&events.records, buffer)?));
        std::mem::take(&mut *self.file.lock())
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        let events = &self.watches.events;
        let mut folders = events.lock();
        let Some(files) = folders.get_mut(&self.folder) else { return };
        // The next one of the same file may be there already.
        if files.get(&self.name).is_some_and(|file| Arc::ptr_eq(file, &self.file)) {
            files.remove(&self.name);
        }
        if files.is_empty() {
            folders.remove(&self.folder);
            // It fails if the folder is gone.
            let _ = inotify::remove_watch(&events.records, self.folder);
        }
    }
}

/// Reads the first record, as inotify(7) defines it: its watch, its flags, its name, and the bytes
/// after it.
// rustix has a reader, which needs an asynchronous descriptor that only unsafe code can make.
fn record(bytes: &[u8]) -> Option<(i32, ReadFlags, &[u8], &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let number = |at: usize| header[at..at + 4].try_into().map(u32::from_ne_bytes).ok();
    let (name, rest) = rest.split_at_checked(number(12)? as usize)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let (watch, flags) = (number(0)?.cast_signed(), ReadFlags::from_bits_retain(number(4)?));
    Some((watch, flags, &name[..end], rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn watches() -> Arc<FileWatches> {
        Arc::new(FileWatches::new().unwrap())
    }

    fn last(change: FileChange) -> FileChanges {
        let closed = change == FileChange::Closed;
        FileChanges { last: Some(change), closed, folder_gone: false }
    }

    #[tokio::test]
    async fn only_whole_writes_of_the_file_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let watch = watches().watch(&path).unwrap();
        fs::write(folder.path().join("other"), "x").unwrap();
        assert_eq!(watch.pending(), FileChanges::default());
        fs::write(&path, "1").unwrap();
        assert_eq!(watch.changes().await, last(FileChange::Closed));
        // A file that is only read, or still open, is no change.
        fs::read(&path).unwrap();
        let open = fs::File::options().append(true).open(&path).unwrap();
        assert_eq!(watch.pending(), FileChanges::default());
        drop(open);
        assert_eq!(watch.pending(), last(FileChange::Closed));
        fs::rename(folder.path().join("other"), &path).unwrap();
        assert_eq!(watch.pending(), last(FileChange::Replaced));
        // More records than fit into the buffer.
        for _ in 0..500 {
            fs::rename(&path, folder.path().join("away")).unwrap();
            fs::rename(folder.path().join("away"), &path).unwrap();
        }
        assert_eq!(watch.pending(), last(FileChange::Replaced));
        fs::write(&path, "2").unwrap();
        fs::rename(&path, folder.path().join("away")).unwrap();
        fs::rename(folder.path().join("away"), &path).unwrap();
        let both = FileChanges { closed: true, ..last(FileChange::Replaced) };
        assert_eq!(watch.pending(), both);
        folder.close().unwrap();
        assert!(watch.changes().await.folder_gone);
    }

    /// A user may have 128 inotify descriptors, and more duties.
    #[tokio::test]
    async fn files_share_a_descriptor_and_hear_only_of_themselves() {
        let (folder, watches) = (tempfile::tempdir().unwrap(), watches());
        let path = |n: usize| folder.path().join(format!("{}", n / 2)).join(format!("{n}"));
        let watch = |n: usize| {
            fs::create_dir_all(path(n).parent().unwrap()).unwrap();
            watches.watch(&path(n)).unwrap()
        };
        let mut all: Vec<FileWatch> = (0..1_000).map(watch).collect();
        fs::write(path(500), "1").unwrap();
        assert_eq!(all[500].changes().await, last(FileChange::Closed));
        assert_eq!(all[501].pending(), FileChanges::default());
        // The next watch of a file replaces the one before, which may end later.
        let again = watch(500);
        drop(std::mem::replace(&mut all[500], again));
        fs::write(path(500), "2").unwrap();
        assert_eq!(all[500].changes().await, last(FileChange::Closed));
        drop(all);
        assert!(watches.events.lock().is_empty());
        fs::write(path(500), "3").unwrap();
        assert_eq!(watch(500).pending(), FileChanges::default());
    }

    #[tokio::test]
    async fn a_folder_that_is_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for path in ["none/state.json", "file/state.json"] {
            assert!(watches().watch(&folder.path().join(path)).is_err(), "{path}");
        }
    }
}
