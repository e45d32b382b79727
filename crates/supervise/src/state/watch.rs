//! Watch of one file by inotify, through its folder: a file that is replaced is another file.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::net::unix::pipe;

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
    /// Its folder is gone: there will be no more changes.
    FolderGone,
}

/// A watch of one file.
#[derive(Debug)]
pub(super) struct FileWatch {
    /// The inotify descriptor: a stream of records, read like a pipe.
    events: pipe::Receiver,
    name: OsString,
}

impl FileWatch {
    /// Watches a file, which need not exist, in a folder that does.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&events, folder.unwrap_or(Path::new(".")), flags)?;
        Ok(Self { events: pipe::Receiver::from_owned_fd_unchecked(events)?, name })
    }

    /// Waits for changes of the file. Cancellation-safe.
    pub(super) async fn changes(&mut self) -> Vec<FileChange> {
        loop {
            // These reads clear the readiness when there is nothing more.
            let changes = self.read(|buffer| self.events.try_read(buffer));
            if !changes.is_empty() {
                return changes;
            }
            if self.events.readable().await.is_err() {
                // The runtime ends.
                return std::future::pending().await;
            }
        }
    }

    /// Returns changes that were not reported yet, whether or not the runtime has noticed them.
    pub(super) fn pending(&self) -> Vec<FileChange> {
        self.read(|buffer| Ok(rustix::io::read(&self.events, buffer)?))
    }

    fn read(&self, read: impl Fn(&mut [u8]) -> io::Result<usize>) -> Vec<FileChange> {
        let (mut changes, mut buffer) = (Vec::new(), [0; BUFFER_BYTES]);
        while let Ok(read @ 1..) = read(&mut buffer) {
            let mut rest = &buffer[..read];
            while let Some((flags, name, next)) = record(rest) {
                changes.extend(self.change(flags, name));
                rest = next;
            }
        }
        changes
    }

    fn change(&self, flags: ReadFlags, name: &[u8]) -> Option<FileChange> {
        // The watch of a folder that is deleted, or no longer mounted, ends with `IGNORED`.
        let gone = ReadFlags::MOVE_SELF | ReadFlags::IGNORED;
        match () {
            () if flags.intersects(gone) => Some(FileChange::FolderGone),
            // Events were dropped: which ones is not known.
            () if flags.contains(ReadFlags::QUEUE_OVERFLOW) => Some(FileChange::Closed),
            () if name != self.name.as_bytes() => None,
            () if flags.contains(ReadFlags::MOVED_TO) => Some(FileChange::Replaced),
            () => Some(FileChange::Closed),
        }
    }
}

/// Reads the first record, as inotify(7) defines it: its flags, its name, and the bytes after it.
// rustix has a reader, which needs an asynchronous descriptor that only unsafe code can make.
fn record(bytes: &[u8]) -> Option<(ReadFlags, &[u8], &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let number = |at: usize| header[at..at + 4].try_into().map(u32::from_ne_bytes).ok();
    let (name, rest) = rest.split_at_checked(number(12)? as usize)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some((ReadFlags::from_bits_retain(number(4)?), &name[..end], rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn only_whole_writes_of_the_file_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let mut watch = FileWatch::new(&path).unwrap();
        fs::write(folder.path().join("other"), "x").unwrap();
        assert_eq!(watch.pending(), []);
        fs::write(&path, "1").unwrap();
        assert_eq!(watch.changes().await, [FileChange::Closed]);
        // A file that is only read, or still open, is no change.
        fs::read(&path).unwrap();
        let open = fs::File::options().append(true).open(&path).unwrap();
        assert_eq!(watch.pending(), []);
        drop(open);
        fs::rename(folder.path().join("other"), &path).unwrap();
        assert_eq!(watch.pending(), [FileChange::Closed, FileChange::Replaced]);
        // More records than fit into the buffer.
        for _ in 0..500 {
            fs::write(&path, "2").unwrap();
            fs::rename(&path, folder.path().join("away")).unwrap();
        }
        assert_eq!(watch.pending(), vec![FileChange::Closed; 500]);
        folder.close().unwrap();
        assert!(watch.changes().await.contains(&FileChange::FolderGone));
    }

    #[tokio::test]
    async fn a_folder_that_is_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for path in ["none/state.json", "file/state.json"] {
            assert!(FileWatch::new(&folder.path().join(path)).is_err(), "{path}");
        }
    }
}
