//! Store in a cursor file: one process, one host, no server.
//!
//! The cursor file itself is the checkpoint of one duty, in a form that a connector with a plain
//! `cursor.json` can still read (see `tenure_wire::cursor`). So users can start with such a file,
//! and go back to it. Everything else is in a folder beside it:
//!
//! ```text
//! cursor.json                        the duty that the URL names (`file/cursor`)
//! cursor.json.partition-ID           another duty of the same group
//! cursor.json.partition-GROUP+ID     a duty of another group
//! cursor.json.corrupt-N              a file that could not be read; never removed
//! cursor.json.tenure/lock            held by the process that has the store open
//! cursor.json.tenure/restoring       while a restore replaces the files; nobody can open the store
//! cursor.json.tenure/store.json      format, incarnation, floor, retention
//! cursor.json.tenure/group-NAME.json epochs, used nonces, evictions, document, reports, new audit
//! cursor.json.tenure/audit-NAME.jsonl
//! cursor.json.tenure/history/GROUP+ID/VERSION.json, VERSION.next.json before it is stored
//! ```
//!
//! **One user.** Only the process that has the lock uses the store. So sessions are in memory, and
//! all earlier sessions have ended when the store is opened. The rules are those of the memory
//! store; a step is tried on a copy, written to disk, and only then applied in memory. A keep-alive
//! writes nothing and does not wait for the disk.
//!
//! **Order.** A file is replaced by writing another one, making its data durable, renaming it, and
//! making the name durable. A grant is durable before it is returned. A commit first writes the new
//! checkpoint into the history under a temporary name, then replaces the cursor file, which
//! decides, and then renames the history entry. The history includes the newest checkpoint, so that
//! versions are not reused when somebody else overwrites the cursor file or puts an older one back.
//! Audit entries are written together with the change that they record.
//!
//! **Batches.** A claim, a release or an eviction writes one file, but commits write one file per
//! duty, and the process can be killed between two of them. So only single items are atomic.
//!
//! **Other writers.** A cursor file without our `_tenure` member was written by another program: it
//! is the newest checkpoint. A file that cannot be read is set aside under another name, and the
//! duty has no checkpoint until an operator decides; it never starts from nothing by itself. The
//! duty can be claimed meanwhile, because its epochs are known, but neither loaded nor committed.

mod audit;
#[cfg(feature = "sqlite")]
pub(crate) mod backup;
mod boot;
mod checkpoint;
mod disk;
mod paths;
mod upkeep;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::guarantee::{Fact, Survey};
use tenure_core::store::{
    Abilities, Adopt, Adopted, AuditEntry, AuditRange, Checkpoint, ClaimRequest, Claimed, Closed,
    Commit, Committed, DutyReport, Evict, Evicted, Forgotten, GroupDocument, Holder, KeptAlive,
    Member, OpenSession, Opened, Released, Replaced, Report, Reported, Retention, Watch,
};
use tenure_core::{
    Clock, Code, Document, DutyKey, GroupName, Hold, InstanceId, LocalInstant, Note, Reason,
    Session, StoreError, StoreResult, Version,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

#[cfg(feature = "conformance")]
pub use disk::{Disk, FileAccess, Lock, RealDisk, Stamp};
#[cfg(not(feature = "conformance"))]
use disk::{Disk, RealDisk};

pub(crate) use paths::FOLDER_SUFFIX;

use crate::clock::unix_ms;
use crate::delegate::{impl_store, own_method};
use crate::state::{LiveState, StoreState};
use crate::{BootClock, IfAbsent};
use writer::FileWriter;

/// Time limit of a call that waits for the disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(60);

/// Attempts to take the lock, and the time between them. A process that starts another program
/// forks first, and the child has every file open until it executes the program; so the lock can
/// outlive its holder for a moment.
const MAX_LOCK_ATTEMPTS: u32 = 50;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Settings of a cursor file store.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// The cursor file; `PATH.tenure` appears beside it.
    pub path: PathBuf,
    /// The duty whose checkpoint is the file itself. `None` means the one recorded in the store, or
    /// `file/cursor` in a new store.
    pub duty: Option<DutyKey>,
    /// Whether to create a store. A plain cursor file counts as one; reading it writes nothing.
    pub if_absent: IfAbsent,
    /// The clock that judges expiry.
    pub clock: Arc<dyn Clock>,
    /// 128 random bits that identify a new store.
    pub entropy: u128,
}

impl Default for FileSettings {
    /// `cursor.json`, created when absent, with the boot clock.
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
    pub(crate) live: Arc<LiveState>,
    writer: Arc<Mutex<FileWriter>>,
    folder: PathBuf,
}

impl FileStore {
    /// Opens the file and ends all earlier sessions.
    pub async fn open(settings: FileSettings) -> StoreResult<Self> {
        Self::on(settings, Arc::new(RealDisk::default())).await
    }

    /// Opens the file on another disk.
    #[cfg(feature = "conformance")]
    pub async fn open_on(settings: FileSettings, disk: Arc<dyn Disk>) -> StoreResult<Self> {
        Self::on(settings, disk).await
    }

    async fn on(settings: FileSettings, disk: Arc<dyn Disk>) -> StoreResult<Self> {
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

    async fn attempt(settings: FileSettings, disk: Arc<dyn Disk>) -> StoreResult<Self> {
        let open = move || {
            let writer = boot::open(settings, disk)?;
            let (live, folder) = (writer.live.clone(), writer.paths.parent().to_owned());
            Ok(Self { live, writer: Arc::new(Mutex::new(writer)), folder })
        };
        let opened = tokio::task::spawn_blocking(open).await;
        opened.map_err(|error| StoreError::unknown(Code::Failed, error.to_string()))?
    }

    /// Runs a job on the disk, outside the runtime's threads, one at a time. A job may complete
    /// although its call was dropped.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut FileWriter) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let busy = |_| StoreError::refused(Code::Busy, "other calls are still writing");
        let waiting = self.writer.clone().lock_owned();
        let mut writer = timeout(DISK_TIMEOUT, waiting).await.map_err(busy)?;
        let work = tokio::task::spawn_blocking(move || {
            writer.settle()?;
            job(&mut writer)
        });
        let late = |_| StoreError::unknown(Code::Lost, "the disk did not answer in time");
        let done = timeout(DISK_TIMEOUT, work).await.map_err(late)?;
        done.map_err(|error| StoreError::unknown(Code::Failed, error.to_string()))?
    }

    /// Makes one step on a group, on disk and in memory, and notifies its watchers.
    async fn change<T: Send + 'static>(
        &self,
        group: &GroupName,
        step: impl Fn(&mut StoreState, LocalInstant) -> T + Send + 'static,
    ) -> StoreResult<T> {
        let name = group.clone();
        let changed = self.run(move |writer| writer.change(&name, step)).await?;
        self.live.hints.send(group);
        Ok(changed)
    }

    /// Reads the state after refreshing the main cursor file, which others may have replaced.
    async fn refreshed<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut StoreState, LocalInstant) -> T + Send + 'static,
    ) -> StoreResult<T> {
        self.run(|writer| {
            let main = writer.paths.main.clone();
            writer.refresh_if_whole(&main)?;
            Ok(writer.live.step(read))
        })
        .await
    }
}

impl FileStore {
    fn store_abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: true,
            durable: true,
            atomic_batch: 1,
            history_slots: self.live.step(|state, _| state.retention()).history_slots,
            exclusive_effects: false,
            shared: false,
        }
    }

    async fn session_open(&self, open: &OpenSession) -> StoreResult<Opened> {
        let own = open.clone();
        self.change(&open.group, move |state, now| state.open(&own, now)).await
    }

    async fn session_close(&self, session: &Session, reason: &Reason) -> StoreResult<Closed> {
        let (own, reason) = (session.clone(), reason.clone());
        self.change(&session.group, move |state, now| state.close(&own, &reason, now)).await
    }

    async fn session_keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> StoreResult<KeptAlive> {
        let kept = self.live.step(|state, now| state.keep_alive(session, note, holds, now));
        if note.is_some() {
            self.live.hints.send(&session.group);
        }
        Ok(kept)
    }

    async fn hold_claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> StoreResult<Vec<Claimed>> {
        let (own, wants, reason) = (session.clone(), wants.to_vec(), reason.clone());
        let claim = move |writer: &mut FileWriter| {
            writer.prepare()?;
            writer.finish_forgetting()?;
            for want in &wants {
                writer.refresh_if_whole(&want.duty)?;
            }
            writer.change(&own.group, |state, now| state.claim(&own, &wants, &reason, now))?
        };
        let claimed = self.run(claim).await?;
        self.live.hints.send(&session.group);
        Ok(claimed)
    }

    async fn hold_release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> StoreResult<Vec<Released>> {
        let (own, holds, reason) = (session.clone(), holds.to_vec(), reason.clone());
        let release = move |state: &mut StoreState, now| state.release(&own, &holds, &reason, now);
        self.change(&session.group, release).await
    }

    async fn session_evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> StoreResult<Evicted> {
        let (name, instance, reason) = (group.clone(), instance.clone(), reason.clone());
        self.change(group, move |state, now| state.evict(&name, &instance, when, &reason, now))
            .await
    }

    async fn group_list(&self) -> StoreResult<Vec<GroupName>> {
        self.refreshed(|state, _| state.groups()).await
    }

    async fn group_members(&self, group: &GroupName) -> StoreResult<Vec<Member>> {
        Ok(self.live.step(|state, now| state.members(group, now)))
    }

    async fn group_holders(&self, group: &GroupName) -> StoreResult<Vec<Holder>> {
        let group = group.clone();
        self.refreshed(move |state, now| state.holders(&group, now)).await
    }

    async fn checkpoint_load(&self, duties: &[DutyKey]) -> StoreResult<Vec<Option<Checkpoint>>> {
        let duties = duties.to_vec();
        self.run(move |writer| duties.iter().map(|duty| writer.read(duty)).collect()).await
    }

    async fn checkpoint_commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> StoreResult<Vec<Committed>> {
        let (session, commits) = (session.clone(), commits.to_vec());
        self.run(move |writer| writer.commit(&session, &commits)).await
    }

    async fn checkpoint_history(&self, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
        let duty = duty.clone();
        self.run(move |writer| writer.history(&duty)).await
    }

    async fn report_store(
        &self,
        session: &Session,
        reports: &[Report],
    ) -> StoreResult<Vec<Reported>> {
        let (own, reports) = (session.clone(), reports.to_vec());
        let report = move |writer: &mut FileWriter| {
            writer.change(&own.group, |state, now| state.report(&own, &reports, now))
        };
        self.run(report).await
    }

    /// A step of a report is on disk before it is in memory.
    async fn report_load(&self, duties: &[DutyKey]) -> StoreResult<Vec<Option<DutyReport>>> {
        Ok(self.live.step(|state, _| state.reports(duties)))
    }

    async fn document_read(&self, group: &GroupName) -> StoreResult<GroupDocument> {
        Ok(self.live.step(|state, _| state.document(group)))
    }

    async fn document_replace(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> StoreResult<Replaced> {
        let (name, document) = (group.clone(), document.clone());
        self.change(group, move |state, _| state.replace_document(&name, expected, &document))
            .await?
    }

    async fn group_watch(&self, group: &GroupName) -> StoreResult<Box<dyn Watch>> {
        Ok(self.live.hints.watch(group, ()))
    }

    async fn audit_read(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> StoreResult<Vec<AuditEntry>> {
        let group = group.clone();
        self.run(move |writer| writer.audit(&group, range)).await
    }

    async fn duty_forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> StoreResult<Vec<Forgotten>> {
        let (own, reason) = (duties.to_vec(), reason.clone());
        let forgotten = self.run(move |writer| writer.forget(&own, &reason)).await?;
        duties.iter().for_each(|duty| self.live.hints.send(&duty.group));
        Ok(forgotten)
    }

    async fn store_adopt(&self, adopt: &Adopt) -> StoreResult<Adopted> {
        let adopt = *adopt;
        self.run(move |writer| writer.adopt(&adopt)).await
    }

    async fn store_retain(&self, retention: Retention) -> StoreResult<()> {
        self.run(move |writer| writer.retain(retention)).await
    }

    async fn store_retention(&self) -> StoreResult<Retention> {
        self.run(|writer| Ok(writer.retention())).await
    }

    async fn store_survey(&self) -> StoreResult<Survey> {
        let folder = self.folder.clone();
        let kind = tokio::task::spawn_blocking(move || crate::filesystem::kind(&folder)).await;
        let filesystem = Fact { setting: "filesystem", value: kind.ok().flatten() };
        let facts = vec![filesystem, Fact::read("lock", "flock"), Fact::read("users", "one")];
        Ok(Survey { backend: "file", facts, unix_ms: Some(unix_ms()) })
    }

    async fn store_wall_clock(&self) -> StoreResult<Option<u64>> {
        Ok(Some(unix_ms()))
    }
}

impl_store!(FileStore by own_method);
