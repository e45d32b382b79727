//! Hints: a thread that reads a counter per group after the file was written.
//!
//! Each commit begins by appending to the write-ahead log, which inotify reports, and is visible
//! only once the log is on disk, which nothing reports. So the counter is read at growing intervals
//! after each report, and seldom otherwise: an idle member costs next to nothing.

use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tenure_core::store::Watch;
use tenure_core::{Code, GroupName, StoreError, StoreResult};
use tokio::sync::{oneshot, watch};

use super::connect::connect;
use super::error::statement_error;
use super::sql;
use crate::hints::HintWatch;

/// The shortest interval between two reads, and the first one after a write.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(2);
/// Interval of reads while no write is reported.
const IDLE_READ_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of reads where writes are not reported: the longest delay of a hint.
const BLIND_READ_INTERVAL: Duration = Duration::from_millis(250);
/// Space for many reports of writes, which have no name.
const REPORT_BYTES: usize = 1024;

type HintReceiver = watch::Receiver<i64>;
type Subscribed = StoreResult<HintReceiver>;

struct Subscribe {
    group: GroupName,
    answer: oneshot::Sender<Subscribed>,
}

/// Handle of the reading thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct ChangePoller {
    subscribe: Sender<Subscribe>,
    /// Wakes the thread: one byte after each request, and its end at the end.
    bell: PipeWriter,
}

impl ChangePoller {
    pub(super) fn start(path: &PathBuf) -> StoreResult<Self> {
        PollerThread::new(path)?.start()
    }

    pub(super) async fn watch(self: Arc<Self>, group: &GroupName) -> StoreResult<Box<dyn Watch>> {
        let (answer, wait) = oneshot::channel();
        let gone = || StoreError::refused(Code::Failed, "the watch thread has ended");
        let request = Subscribe { group: group.clone(), answer };
        self.subscribe.send(request).map_err(|_| gone())?;
        // The thread empties the pipe long before it is full.
        (&self.bell).write_all(&[0]).map_err(|_| gone())?;
        let hints = wait.await.map_err(|_| gone())??;
        Ok(Box::new(HintWatch { hints, _source: self }))
    }
}

struct PollerThread {
    connection: Connection,
    /// Reports of writes to the log; `None` without inotify, of which a user has few instances.
    writes: Option<OwnedFd>,
    /// Longest interval between two reads.
    idle: Duration,
    /// SQLite's own counter of commits by others: a cheap first check.
    seen: Option<i64>,
    groups: BTreeMap<GroupName, watch::Sender<i64>>,
}

/// Begins to watch the log of a database, which exists while a connection to it is open.
fn watch_log(path: &Path) -> io::Result<OwnedFd> {
    // SQLite follows links before it adds the suffix.
    let mut log = path.canonicalize()?.into_os_string();
    log.push("-wal");
    let writes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&writes, PathBuf::from(log), WatchFlags::MODIFY)?;
    Ok(writes)
}

impl PollerThread {
    fn new(path: &PathBuf) -> StoreResult<Self> {
        let connection = connect(path).map_err(statement_error)?;
        let mut thread = Self {
            connection,
            writes: None,
            idle: BLIND_READ_INTERVAL,
            seen: None,
            groups: BTreeMap::new(),
        };
        // The first read opens the log, and creates it if no other connection has.
        thread.look();
        if let Ok(writes) = watch_log(path) {
            (thread.writes, thread.idle) = (Some(writes), IDLE_READ_INTERVAL);
        }
        Ok(thread)
    }

    fn start(self) -> StoreResult<ChangePoller> {
        let failed = |error: io::Error| {
            StoreError::refused(Code::Failed, format!("cannot start the SQLite thread: {error}"))
        };
        let (subscribe, requests) = channel();
        let (rung, bell) = io::pipe().map_err(failed)?;
        let thread = std::thread::Builder::new().name("tenure-watch".to_owned());
        thread.spawn(move || self.run(&requests, &rung)).map_err(failed)?;
        Ok(ChangePoller { subscribe, bell })
    }

    fn run(mut self, requests: &Receiver<Subscribe>, mut bell: &PipeReader) {
        let mut interval = self.idle;
        loop {
            if self.wait(bell, interval) {
                if !matches!(bell.read(&mut [0; 64]), Ok(1..)) {
                    return;
                }
                for Subscribe { group, answer } in requests.try_iter() {
                    drop(answer.send(self.subscribe(group)));
                }
            }
            interval = match self.was_written() {
                true => MIN_READ_INTERVAL,
                false => interval.saturating_mul(2).min(self.idle),
            };
            self.look();
        }
    }

    /// Waits for the bell, for a write, or for the end of the interval. Returns whether it was the
    /// bell.
    fn wait(&self, bell: &PipeReader, interval: Duration) -> bool {
        let mut ready = vec![PollFd::new(bell, PollFlags::IN)];
        // Right after a write further ones are not waited for: they would cause a read each.
        let writes = self.writes.as_ref().filter(|_| interval > MIN_READ_INTERVAL);
        ready.extend(writes.map(|writes| PollFd::new(writes, PollFlags::IN)));
        let interval =
            Timespec { tv_sec: interval.as_secs() as i64, tv_nsec: interval.subsec_nanos().into() };
        // A signal ends the wait early, which does no harm.
        poll(&mut ready, Some(&interval)).is_ok() && !ready[0].revents().is_empty()
    }

    /// Whether there were writes since the last call.
    fn was_written(&self) -> bool {
        let mut written = false;
        let mut reports = [0; REPORT_BYTES];
        while let Some(writes) = &self.writes
            && matches!(rustix::io::read(writes, &mut reports), Ok(1..))
        {
            written = true;
        }
        written
    }

    fn count(&self, group: &GroupName) -> rusqlite::Result<i64> {
        let mut statement = self.connection.prepare_cached(sql!("change/read"))?;
        Ok(statement.query_row([group.as_str()], |row| row.get(0)).optional()?.unwrap_or(0))
    }

    fn subscribe(&mut self, group: GroupName) -> Subscribed {
        let count = self.count(&group).map_err(statement_error)?;
        let sender = self.groups.entry(group).or_insert_with(|| watch::channel(count).0);
        // A late subscriber starts from now; earlier ones still get what they have not seen.
        sender.send_if_modified(|seen| std::mem::replace(seen, count) != count);
        Ok(sender.subscribe())
    }

    /// Reads once. The next read repeats a failed one, and the counter loses no change meanwhile.
    fn look(&mut self) {
        self.groups.retain(|_, sender| sender.receiver_count() > 0);
        let version = self.connection.query_row("PRAGMA data_version", [], |row| row.get(0));
        let Ok(version) = version else { return };
        if self.groups.is_empty() || self.seen == Some(version) {
            return;
        }
        for (group, sender) in &self.groups {
            let Ok(count) = self.count(group) else { return };
            sender.send_if_modified(|seen| std::mem::replace(seen, count) != count);
        }
        self.seen = Some(version);
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{Document, Version};

    use super::*;
    use crate::sqlite::{Sqlite, SqliteSettings};

    /// Only keeps a failing test from hanging.
    const HANG_TIMEOUT: Duration = Duration::from_secs(60);

    /// Waits for the hint of each of some changes.
    async fn hints(change: impl FnOnce(&mut PollerThread)) {
        let folder = tempfile::tempdir().unwrap();
        // SQLite keeps its log beside the file that a link names.
        let (path, link) = (folder.path().join("t.db"), folder.path().join("link.db"));
        let settings = SqliteSettings { path: path.clone(), ..SqliteSettings::default() };
        let store = Sqlite::open(settings).await.unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut thread = PollerThread::new(&link).unwrap();
        change(&mut thread);
        let group = GroupName::new("g").unwrap();
        let mut watch = Arc::new(thread.start().unwrap()).watch(&group).await.unwrap();
        for version in 0..20 {
            let document = Document::new(version.to_string()).unwrap();
            let before = Version::new(version).unwrap();
            store.document_replace(&group, before, &document).await.unwrap();
            tokio::time::timeout(HANG_TIMEOUT, watch.changed()).await.expect("no hint").unwrap();
        }
    }

    #[tokio::test]
    async fn a_write_makes_a_hint_without_the_idle_reads() {
        hints(|thread| thread.idle = Duration::from_secs(24 * 60 * 60)).await;
    }

    #[tokio::test]
    async fn without_inotify_the_idle_reads_make_hints() {
        let blind = |thread: &mut PollerThread| {
            (thread.writes, thread.idle) = (None, Duration::from_millis(5));
        };
        hints(blind).await;
    }
}
