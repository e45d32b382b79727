//! A cursor file: one process, one host, nothing to run.
//!
//! The cursor file itself is the checkpoint of one duty, in a form that a connector which keeps a
//! plain `cursor.json` still reads (see `tenure_wire::cursor`); so one can begin with such a file,
//! and go back to it. Everything that is no cursor is in a folder beside it:
//!
//! ```text
//! cursor.json                        the duty that the URL names (`file/cursor`)
//! cursor.json.partition-ID           another duty of the same group
//! cursor.json.partition-GROUP+ID     a duty of another group
//! cursor.json.corrupt-N              what could not be read; never removed
//! cursor.json.tenure/lock            held by the process that has the store open
//! cursor.json.tenure/store.json      format, incarnation, floor, retention
//! cursor.json.tenure/group-NAME.json epochs, spent nonces, evictions, document, newest audit
//! cursor.json.tenure/audit-NAME.jsonl
//! cursor.json.tenure/history/GROUP+ID/VERSION.json, VERSION.next.json before it is stored
//! ```
//!
//! **One user.** The process that has the lock is the only one, so sessions live in memory: whoever
//! opens the store knows that all sessions of before are over. The rules are those of the memory
//! store; a step is tried on a copy, written down, and only then done in memory. A keep-alive
//! writes nothing and does not wait for the disk.
//!
//! **Order.** A file is replaced by writing another one, making its data durable, renaming it, and
//! making the name durable. A grant is durable before it is given. A commit puts the new checkpoint
//! into the history first, under a name of its own, and then replaces the cursor file, which
//! decides: only then it gets its name in the history. That the history has the newest one, too,
//! and not only what was replaced, keeps the count of versions when somebody else overwrites the
//! cursor file, or puts an older one back. Audit entries travel with the state that they tell of.
//!
//! **Batches.** A claim, a release or an eviction is one file, but commits are one file per duty:
//! the process can be killed between two of them. So the store promises no more than one item
//! together.
//!
//! **Others.** A file without our member was written by somebody else: it is the newest checkpoint.
//! A file that cannot be read is kept under another name, and the duty has no checkpoint until an
//! operator decides; it never starts from nothing by itself. The duty can be claimed meanwhile,
//! because its epochs are known, but neither loaded nor committed.

mod audit;
mod boot;
mod checkpoint;
mod disk;
#[cfg(feature = "conformance")]
pub mod faulty_disk;
mod live;
mod paths;
mod upkeep;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::guarantee::{Fact, Survey};
use tenure_core::store::{
    Abilities, Adopt, Adopted, AuditEntry, AuditRange, Checkpoint, ClaimRequest, Claimed, Closed,
    Commit, Committed, Evict, Evicted, Forgotten, GroupDocument, Holder, KeptAlive, Member,
    OpenSession, Opened, Released, Replaced, Retention, Watch, check,
};
use tenure_core::{
    Clock, Code, Document, DutyKey, GroupName, Hold, InstanceId, Note, Reason, Session, Store,
    StoreError, Version,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

#[cfg(feature = "conformance")]
pub use disk::{Disk, FileAccess, Lock, RealDisk, Stamp};
#[cfg(not(feature = "conformance"))]
use disk::{Disk, RealDisk};

use crate::{BootClock, IfAbsent};
use live::LiveState;
use writer::FileWriter;

/// Time limit of a call that waits for the disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(60);

/// Attempts to take the lock, and the time between them. A process that is about to start another
/// program has, for a moment, a twin that has every file open, too; so the lock can outlive its
/// holder by that moment.
const MAX_LOCK_ATTEMPTS: u32 = 50;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Settings of a cursor file store.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// The cursor file; `PATH.tenure` appears beside it.
    pub path: PathBuf,
    /// The duty whose checkpoint is the file itself; `file/cursor`, or what it was before, if none
    /// is given.
    pub duty: Option<DutyKey>,
    /// Whether to make a store. A plain cursor file is one already; looking at it writes nothing.
    pub if_absent: IfAbsent,
    /// The clock that judges expiry.
    pub clock: Arc<dyn Clock>,
    /// 128 random bits that name a new store.
    pub entropy: u128,
}

impl Default for FileSettings {
    /// `cursor.json`, made when absent, on the boot clock.
    fn default() -> Self {
        Self {
            path: "cursor.json".into(),
            duty: None,
            if_absent: IfAbsent::Create,
            clock: Arc::new(BootClock),
            entropy: 0,
        }
    }
}

/// A store in a cursor file and the folder beside it.
#[derive(Debug)]
pub struct FileStore {
    live: Arc<LiveState>,
    writer: Arc<Mutex<FileWriter>>,
    folder: PathBuf,
}

impl FileStore {
    /// Opens the file and ends all sessions of before.
    pub async fn open(settings: FileSettings) -> Result<Self, StoreError> {
        Self::on(settings, Arc::new(RealDisk::default())).await
    }

    /// Opens the file on another disk.
    #[cfg(feature = "conformance")]
    pub async fn open_on(settings: FileSettings, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        Self::on(settings, disk).await
    }

    async fn on(settings: FileSettings, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let mut attempts = 1;
        loop {
            let opened = Self::attempt(settings.clone(), disk.clone()).await;
            let in_use = matches!(&opened, Err(error) if error.code() == Code::InUse);
            if !in_use || attempts == MAX_LOCK_ATTEMPTS {
                return opened;
            }
            attempts += 1;
            tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
        }
    }

    async fn attempt(settings: FileSettings, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let open = move || {
            let (writer, live) = boot::open(settings, disk)?;
            let folder = writer.paths.parent().to_owned();
            Ok(Self { live: Arc::new(live), writer: Arc::new(Mutex::new(writer)), folder })
        };
        let opened = tokio::task::spawn_blocking(open).await;
        opened.map_err(|error| StoreError::unknown(Code::Failed, error.to_string()))?
    }

    /// Does something with the disk, off the runtime's threads, one at a time. A call that is
    /// dropped may still happen.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut FileWriter, &LiveState) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let busy = |_| StoreError::refused(Code::Busy, "others are still writing");
        let waiting = self.writer.clone().lock_owned();
        let mut writer = timeout(DISK_TIMEOUT, waiting).await.map_err(busy)?;
        let live = self.live.clone();
        let work = tokio::task::spawn_blocking(move || {
            writer.settle()?;
            job(&mut writer, &live)
        });
        let late = |_| StoreError::unknown(Code::Lost, "the disk did not answer in time");
        let done = timeout(DISK_TIMEOUT, work).await.map_err(late)?;
        done.map_err(|error| StoreError::unknown(Code::Failed, error.to_string()))?
    }
}

#[async_trait]
impl Store for FileStore {
    fn abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: true,
            durable: true,
            atomic_batch: 1,
            history_slots: self.live.step(|state, _| state.retention()).history_slots,
            exclusive_effects: false,
            shared: false,
        }
    }

    async fn open_session(&self, open: &OpenSession) -> Result<Opened, StoreError> {
        let (wish, group) = (open.clone(), open.group.clone());
        let opened = self
            .run(move |writer, live| writer.change(live, &group, |s, now| s.open(&wish, now)))
            .await?;
        self.live.hints.send(&open.group);
        Ok(opened)
    }

    async fn close_session(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> Result<Closed, StoreError> {
        let (own, reason) = (session.clone(), reason.clone());
        let close = move |writer: &mut FileWriter, live: &LiveState| {
            writer.change(live, &own.group, |state, now| state.close(&own, &reason, now))
        };
        let closed = self.run(close).await?;
        self.live.hints.send(&session.group);
        Ok(closed)
    }

    async fn keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError> {
        check::keep_alive(holds)?;
        let kept = self.live.step(|state, now| state.keep_alive(session, note, holds, now));
        if note.is_some() {
            self.live.hints.send(&session.group);
        }
        Ok(kept)
    }

    async fn claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> Result<Vec<Claimed>, StoreError> {
        check::claim(session, wants)?;
        let (own, wants, reason) = (session.clone(), wants.to_vec(), reason.clone());
        let claim = move |writer: &mut FileWriter, live: &LiveState| {
            writer.prepare(live)?;
            writer.finish_forgetting(live)?;
            for want in &wants {
                writer.refresh_if_whole(live, &want.duty)?;
            }
            writer.change(live, &own.group, |state, now| state.claim(&own, &wants, &reason, now))?
        };
        let claimed = self.run(claim).await?;
        self.live.hints.send(&session.group);
        Ok(claimed)
    }

    async fn release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> Result<Vec<Released>, StoreError> {
        check::release(session, holds)?;
        let (own, holds, reason) = (session.clone(), holds.to_vec(), reason.clone());
        let release = move |writer: &mut FileWriter, live: &LiveState| {
            writer.change(live, &own.group, |state, now| state.release(&own, &holds, &reason, now))
        };
        let released = self.run(release).await?;
        self.live.hints.send(&session.group);
        Ok(released)
    }

    async fn evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> Result<Evicted, StoreError> {
        let (name, instance, reason) = (group.clone(), instance.clone(), reason.clone());
        let evict = move |writer: &mut FileWriter, live: &LiveState| {
            let step = |state: &mut crate::state::StoreState, now| {
                state.evict(&name, &instance, when, &reason, now)
            };
            writer.change(live, &name, step)
        };
        let evicted = self.run(evict).await?;
        self.live.hints.send(group);
        Ok(evicted)
    }

    async fn groups(&self) -> Result<Vec<GroupName>, StoreError> {
        self.run(|writer, live| {
            let main = writer.paths.main.clone();
            writer.refresh_if_whole(live, &main)?;
            Ok(live.step(|state, _| state.groups()))
        })
        .await
    }

    async fn members(&self, group: &GroupName) -> Result<Vec<Member>, StoreError> {
        Ok(self.live.step(|state, now| state.members(group, now)))
    }

    async fn holders(&self, group: &GroupName) -> Result<Vec<Holder>, StoreError> {
        let group = group.clone();
        self.run(move |writer, live| {
            let main = writer.paths.main.clone();
            writer.refresh_if_whole(live, &main)?;
            Ok(live.step(|state, now| state.holders(&group, now)))
        })
        .await
    }

    async fn load(&self, duties: &[DutyKey]) -> Result<Vec<Option<Checkpoint>>, StoreError> {
        check::load(duties)?;
        let duties = duties.to_vec();
        self.run(move |writer, live| duties.iter().map(|duty| writer.read(live, duty)).collect())
            .await
    }

    async fn commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> Result<Vec<Committed>, StoreError> {
        check::commit(session, commits)?;
        let (session, commits) = (session.clone(), commits.to_vec());
        self.run(move |writer, live| writer.commit(live, &session, &commits)).await
    }

    async fn history(&self, duty: &DutyKey) -> Result<Vec<Checkpoint>, StoreError> {
        let duty = duty.clone();
        self.run(move |writer, live| writer.history(live, &duty)).await
    }

    async fn group_document(&self, group: &GroupName) -> Result<GroupDocument, StoreError> {
        Ok(self.live.step(|state, _| state.document(group)))
    }

    async fn replace_group_document(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> Result<Replaced, StoreError> {
        let (name, document) = (group.clone(), document.clone());
        let replace = move |writer: &mut FileWriter, live: &LiveState| {
            let step = |state: &mut crate::state::StoreState, _| {
                state.replace_document(&name, expected, &document)
            };
            writer.change(live, &name, step)?
        };
        let replaced = self.run(replace).await?;
        self.live.hints.send(group);
        Ok(replaced)
    }

    async fn watch(&self, group: &GroupName) -> Result<Box<dyn Watch>, StoreError> {
        Ok(self.live.hints.watch(group))
    }

    async fn audit(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let group = group.clone();
        self.run(move |writer, live| writer.audit(live, &group, range)).await
    }

    async fn forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> Result<Vec<Forgotten>, StoreError> {
        check::forget(duties)?;
        let (own, reason) = (duties.to_vec(), reason.clone());
        let forgotten = self.run(move |writer, live| writer.forget(live, &own, &reason)).await?;
        duties.iter().for_each(|duty| self.live.hints.send(&duty.group));
        Ok(forgotten)
    }

    async fn adopt(&self, adopt: &Adopt) -> Result<Adopted, StoreError> {
        let adopt = *adopt;
        check::adopt(&adopt)?;
        self.run(move |writer, live| writer.adopt(live, &adopt)).await
    }

    async fn retain(&self, retention: Retention) -> Result<(), StoreError> {
        let retention = retention.check()?;
        self.run(move |writer, live| writer.retain(live, retention)).await
    }

    async fn retention(&self) -> Result<Retention, StoreError> {
        self.run(|writer, _| Ok(writer.retention())).await
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        let folder = self.folder.clone();
        let kind = tokio::task::spawn_blocking(move || crate::filesystem::kind(&folder)).await;
        let filesystem = Fact { setting: "filesystem", value: kind.ok().flatten() };
        let facts = vec![filesystem, Fact::read("lock", "flock"), Fact::read("users", "one")];
        Ok(Survey { backend: "file", facts, unix_ms: Some(live::unix_ms()) })
    }
}

/// Faults for the conformance suite.
#[cfg(feature = "conformance")]
impl FileStore {
    /// Ends the TTL of a session.
    pub fn lapse(&self, session: &Session) {
        self.live.step(|state, now| state.lapse(session, now));
    }

    /// Forgets who held a duty.
    pub fn lose_epoch(&self, duty: &DutyKey) {
        self.live.step(|state, _| state.lose_epoch(duty));
    }
}
