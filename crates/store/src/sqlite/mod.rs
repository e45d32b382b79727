//! SQLite: one host, any number of processes, nothing to run.
//!
//! Every change is one `BEGIN IMMEDIATE` transaction, so changes happen one after another. Time is
//! `CLOCK_BOOTTIME`, read once the transaction has the database: the wall clock plays no part.
//! Sessions and holds have a connection and thread of their own, apart from checkpoints (R7); no
//! user code runs inside a transaction.

mod audit;
mod boot;
mod checkpoint;
pub(crate) mod connect;
pub(crate) mod error;
mod group;
mod hold;
pub(crate) mod schema;
mod session;
mod statements;
mod survey;
mod upkeep;
mod watch;
pub(crate) mod worker;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::Connection;
use tenure_core::guarantee::Survey;
use tenure_core::store::{
    Abilities, Adopt, Adopted, AuditEntry, AuditRange, Checkpoint, ClaimRequest, Claimed, Closed,
    Commit, Committed, Evict, Evicted, Forgotten, GroupDocument, HoldFate, Holder, KeptAlive,
    Member, OpenSession, Opened, Released, Replaced, Retention, Watch, check,
};
use tenure_core::{
    Clock, Code, Document, DutyKey, GroupName, Hold, InstanceId, Note, Reason, Session, Store,
    StoreError, Version,
};

use crate::{BootClock, CLAIMS_PER_TRIM, IfAbsent, fates_by_mark};
use error::statement_error;
use watch::ChangePoller;
use worker::{SqliteConnection, Worker, WritePriority};

/// Settings of a SQLite store.
#[derive(Clone, Debug)]
pub struct SqliteSettings {
    /// The file; `-wal`, `-shm` and `-boot` appear beside it.
    pub path: PathBuf,
    /// Whether to make the file.
    pub if_absent: IfAbsent,
    /// The clock that judges expiry; all processes on one file must use the same.
    pub clock: Arc<dyn Clock>,
}

impl Default for SqliteSettings {
    /// `tenure.db`, made when absent, on the boot clock.
    fn default() -> Self {
        Self { path: "tenure.db".into(), if_absent: IfAbsent::Create, clock: Arc::new(BootClock) }
    }
}

/// A store in a SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    /// Sessions and holds.
    vital: Worker,
    /// Checkpoints, documents and everything that only reads.
    data: Worker,
    watcher: Mutex<Option<Arc<ChangePoller>>>,
    claims: AtomicU64,
    /// As it was when this handle last heard of it; the statements read the store's own.
    history_slots: AtomicUsize,
    _boot: boot::BootLock,
}

/// The schema as a script.
pub(crate) fn script() -> String {
    schema::script(&schema::HISTORY)
}

impl Sqlite {
    /// Opens the file, updates its tables and starts the threads.
    pub async fn open(settings: SqliteSettings) -> Result<Self, StoreError> {
        let open = move || Self::open_blocking(settings);
        let opened = tokio::task::spawn_blocking(open).await;
        opened.map_err(|error| StoreError::unknown(Code::Failed, error.to_string()))?
    }

    fn open_blocking(settings: SqliteSettings) -> Result<Self, StoreError> {
        let SqliteSettings { path, if_absent, clock } = settings;
        if if_absent == IfAbsent::Refuse && !path.exists() {
            return Err(StoreError::refused(Code::Absent, path.display().to_string()));
        }
        let open = |manners| {
            let connection = connect::connect(&path);
            let connection = connection.map_err(|error| error::open_error(&path, error))?;
            Ok::<_, StoreError>(SqliteConnection::new(connection, clock.clone(), manners))
        };
        let mut vital = open(WritePriority::Vital)?;
        if !schema::is_there(&vital.connection, &schema::HISTORY)? && if_absent == IfAbsent::Refuse
        {
            return Err(StoreError::refused(Code::Absent, path.display().to_string()));
        }
        schema::migrate(&mut vital, &schema::HISTORY)?;
        let boot = boot::enter(&path, &vital.connection, &boot::identity()?)?;
        audit::trim(&mut vital)?;
        let retention = vital.read(|db, _| upkeep::retention(db))?;
        Ok(Self {
            vital: Worker::start("vital", vital)?,
            data: Worker::start("data", open(WritePriority::Yielding)?)?,
            watcher: Mutex::new(None),
            claims: AtomicU64::new(0),
            history_slots: AtomicUsize::new(retention.history_slots),
            _boot: boot,
            path,
        })
    }

    fn watcher(&self) -> Result<Arc<ChangePoller>, StoreError> {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watcher) = &*watcher {
            return Ok(watcher.clone());
        }
        Ok(watcher.insert(Arc::new(ChangePoller::start(&self.path)?)).clone())
    }
}

#[async_trait]
impl Store for Sqlite {
    fn abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: true,
            durable: true,
            atomic_batch: usize::MAX,
            history_slots: self.history_slots.load(Ordering::Relaxed),
            exclusive_effects: false,
            shared: true,
        }
    }

    async fn open_session(&self, open: &OpenSession) -> Result<Opened, StoreError> {
        let open = open.clone();
        self.vital
            .run(move |connection| connection.write(|db, now| session::open(db, &open, now)))
            .await
    }

    async fn close_session(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> Result<Closed, StoreError> {
        let (session, reason) = (session.clone(), reason.clone());
        let job = move |connection: &mut SqliteConnection| {
            connection.write(|db, now| session::close(db, &session, &reason, now))
        };
        self.vital.run(job).await
    }

    async fn keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError> {
        check::keep_alive(holds)?;
        let (owned, note) = (session.clone(), note.cloned());
        let job = move |connection: &mut SqliteConnection| {
            connection.write(|db, now| session::keep_alive(db, &owned, note.as_ref(), now))
        };
        let keeping = self.vital.begin(job).await?;
        let common = Hold::common_mark(holds, session);
        let Some(mark) = keeping.answer().await? else { return Ok(KeptAlive::Ended) };
        // Most marks say by themselves that the hold stands; only the others cross the thread.
        let (mut fates, unsure) = fates_by_mark(session, holds, common, mark);
        if !unsure.is_empty() {
            let asked: Vec<Hold> = unsure.iter().map(|n| holds[*n].clone()).collect();
            let job = move |connection: &mut SqliteConnection| {
                connection
                    .read(|db, now| asked.iter().map(|it| hold::stands(db, it, now)).collect())
            };
            // The session is extended by now: what cannot be looked at is unknown, not refused.
            let looked: Result<Vec<bool>, StoreError> = self.vital.run(job).await;
            for (position, n) in unsure.into_iter().enumerate() {
                fates[n] = match looked.as_ref().map(|stands| stands[position]) {
                    Ok(true) => HoldFate::Kept,
                    Ok(false) => HoldFate::Lost,
                    Err(_) => HoldFate::Unknown,
                };
            }
        }
        Ok(KeptAlive::Kept { mark, holds: fates })
    }

    async fn claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> Result<Vec<Claimed>, StoreError> {
        check::claim(session, wants)?;
        let (session, wants, reason) = (session.clone(), wants.to_vec(), reason.clone());
        let claims = self.claims.fetch_add(1, Ordering::Relaxed);
        let job = move |connection: &mut SqliteConnection| {
            let claimed =
                connection.write(|db, now| hold::claim(db, &session, &wants, &reason, now))?;
            if claims % CLAIMS_PER_TRIM == CLAIMS_PER_TRIM - 1 {
                // What is not cut now is cut the next time; the claim has happened.
                let _ = audit::trim(connection);
            }
            Ok(claimed)
        };
        self.vital.run(job).await
    }

    async fn release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> Result<Vec<Released>, StoreError> {
        check::release(session, holds)?;
        let (session, holds, reason) = (session.clone(), holds.to_vec(), reason.clone());
        let job = move |connection: &mut SqliteConnection| {
            connection.write(|db, now| hold::release(db, &session, &holds, &reason, now))
        };
        self.vital.run(job).await
    }

    async fn evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> Result<Evicted, StoreError> {
        let (group, instance, reason) = (group.clone(), instance.clone(), reason.clone());
        let job = move |connection: &mut SqliteConnection| {
            connection.write(|db, now| session::evict(db, &group, &instance, when, &reason, now))
        };
        self.vital.run(job).await
    }

    async fn groups(&self) -> Result<Vec<GroupName>, StoreError> {
        self.data.run(|connection| connection.read(|db, _| group::groups(db))).await
    }

    async fn members(&self, group: &GroupName) -> Result<Vec<Member>, StoreError> {
        let group = group.clone();
        self.data
            .run(move |connection| connection.read(|db, now| group::members(db, &group, now)))
            .await
    }

    async fn holders(&self, group: &GroupName) -> Result<Vec<Holder>, StoreError> {
        let group = group.clone();
        self.data
            .run(move |connection| connection.read(|db, now| group::holders(db, &group, now)))
            .await
    }

    async fn load(&self, duties: &[DutyKey]) -> Result<Vec<Option<Checkpoint>>, StoreError> {
        check::load(duties)?;
        let duties = duties.to_vec();
        self.data
            .run(move |connection| connection.read(|db, _| checkpoint::load(db, &duties)))
            .await
    }

    async fn commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> Result<Vec<Committed>, StoreError> {
        check::commit(session, commits)?;
        let (session, commits) = (session.clone(), commits.to_vec());
        let job = move |connection: &mut SqliteConnection| {
            connection.write(|db, now| checkpoint::commit(db, &session, &commits, now))
        };
        self.data.run(job).await
    }

    async fn history(&self, duty: &DutyKey) -> Result<Vec<Checkpoint>, StoreError> {
        let duty = duty.clone();
        self.data
            .run(move |connection| connection.read(|db, _| checkpoint::history(db, &duty)))
            .await
    }

    async fn group_document(&self, group: &GroupName) -> Result<GroupDocument, StoreError> {
        let group = group.clone();
        self.data.run(move |connection| connection.read(|db, _| group::document(db, &group))).await
    }

    async fn replace_group_document(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> Result<Replaced, StoreError> {
        let (group, document) = (group.clone(), document.clone());
        let job = move |connection: &mut SqliteConnection| {
            connection.write(|db, _| group::replace_document(db, &group, expected, &document))
        };
        self.data.run(job).await
    }

    async fn watch(&self, group: &GroupName) -> Result<Box<dyn Watch>, StoreError> {
        self.watcher()?.watch(group).await
    }

    async fn audit(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let group = group.clone();
        self.data
            .run(move |connection| connection.read(|db, _| audit::read(db, &group, range)))
            .await
    }

    async fn forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> Result<Vec<Forgotten>, StoreError> {
        check::forget(duties)?;
        let (duties, reason) = (duties.to_vec(), reason.clone());
        let job = move |connection: &mut SqliteConnection| {
            connection.write(|db, now| upkeep::forget(db, &duties, &reason, now))
        };
        self.data.run(job).await
    }

    async fn adopt(&self, adopt: &Adopt) -> Result<Adopted, StoreError> {
        check::adopt(adopt)?;
        let adopt = *adopt;
        self.data
            .run(move |connection| connection.write(|db, now| upkeep::adopt(db, &adopt, now)))
            .await
    }

    async fn retain(&self, retention: Retention) -> Result<(), StoreError> {
        let new = retention.check()?;
        self.data.run(move |connection| connection.write(|db, _| upkeep::retain(db, new))).await?;
        self.history_slots.store(new.history_slots, Ordering::Relaxed);
        Ok(())
    }

    async fn retention(&self) -> Result<Retention, StoreError> {
        self.data.run(|connection| connection.read(|db, _| upkeep::retention(db))).await
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        self.store_survey().await
    }
}

/// Notifies the watchers of a group.
fn hint(db: &Connection, group: &GroupName) -> Result<(), StoreError> {
    execute(db, statements::CHANGE_COUNT, [group.as_str()])?;
    Ok(())
}

/// Runs a statement through the cache of prepared ones and says how many rows it changed.
fn execute(
    db: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
) -> Result<usize, StoreError> {
    let run = || db.prepare_cached(sql)?.execute(parameters);
    run().map_err(statement_error)
}

/// Reads the row of a statement, if there is one.
fn first<T>(
    db: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
    read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    use rusqlite::OptionalExtension;
    let run = || db.prepare_cached(sql)?.query_row(parameters, read).optional();
    run().map_err(statement_error)
}

/// Reads all rows of a statement.
fn all<T>(
    db: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<Result<T, StoreError>>,
) -> Result<Vec<T>, StoreError> {
    let run = || {
        let mut statement = db.prepare_cached(sql)?;
        statement.query_map(parameters, read)?.collect::<rusqlite::Result<Vec<_>>>()
    };
    run().map_err(statement_error)?.into_iter().collect()
}
