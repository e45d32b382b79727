//! SQLite store: one host, any number of processes, no server.
//!
//! Every change is one `BEGIN IMMEDIATE` transaction, so changes happen one after another. Time is
//! `CLOCK_BOOTTIME`, read once the transaction has the database: the wall clock plays no part.
//! Sessions and holds have a connection and thread of their own, apart from checkpoints (R7); no
//! user code runs inside a transaction.

mod audit;
#[cfg(feature = "file")]
pub(crate) mod backup;
pub(crate) mod boot;
mod checkpoint;
pub(crate) mod connect;
pub(crate) mod error;
mod group;
mod hold;
mod mutants;
mod report;
pub(crate) mod schema;
mod session;
mod survey;
mod upkeep;
mod watch;
pub(crate) mod worker;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension as _, Row};
use tenure_core::store::{
    Abilities, Adopt, Adopted, AuditEntry, AuditRange, Checkpoint, ClaimRequest, Claimed, Closed,
    Commit, Committed, DutyReport, Evict, Evicted, Forgotten, GroupDocument, HoldFate, Holder,
    KeptAlive, Member, OpenSession, Opened, Released, Replaced, Report, Reported, Retention, Watch,
};
use tenure_core::{
    Clock, Code, Document, DutyKey, GroupName, Hold, InstanceId, Mutant, Note, Reason, Session,
    StoreError, StoreResult, Version,
};

use crate::delegate::{impl_store, own_method};
use crate::{BootClock, CLAIMS_PER_TRIM, IfAbsent, fates_by_mark};
use error::statement_error;
use watch::ChangePoller;
use worker::{SqliteConnection, Worker, WritePriority};

/// A statement by the name of its file below `sql/`.
macro_rules! sql {
    ($file:literal) => {
        tenure_core::mutant::Swap::apply(
            crate::sqlite::mutants::SWAPS,
            include_str!(concat!("sql/", $file, ".sql")),
        )
    };
}
use sql;

/// Settings of a SQLite store.
#[derive(Clone, Debug)]
pub struct SqliteSettings {
    /// The file; `-wal`, `-shm` and `-boot` appear beside it.
    pub path: PathBuf,
    /// Whether to create the file.
    pub if_absent: IfAbsent,
    /// The clock that judges expiry; all processes on one file must use the same.
    pub clock: Arc<dyn Clock>,
}

impl Default for SqliteSettings {
    /// `tenure.db`, created when absent, with the boot clock.
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
    /// Value that this handle read last; the statements use the one in the store.
    history_slots: AtomicUsize,
    _boot: boot::BootLock,
}

/// Returns the schema as a script.
pub(crate) fn script() -> String {
    schema::script(&schema::HISTORY)
}

impl Sqlite {
    /// Opens the file, updates its tables and starts the threads.
    pub async fn open(settings: SqliteSettings) -> StoreResult<Self> {
        let open = move || Self::open_blocking(settings);
        let opened = tokio::task::spawn_blocking(open).await;
        opened.map_err(|error| StoreError::unknown(Code::Failed, error.to_string()))?
    }

    fn open_blocking(settings: SqliteSettings) -> StoreResult<Self> {
        let SqliteSettings { path, if_absent, clock } = settings;
        if if_absent == IfAbsent::Refuse && !path.exists() {
            return Err(StoreError::refused(Code::Absent, path.display().to_string()));
        }
        let early = boot::share(&path)?;
        let open = |priority| {
            let connection = connect::connect(&path);
            let connection = connection.map_err(|error| error::open_error(&path, error))?;
            Ok::<_, StoreError>(SqliteConnection::new(connection, clock.clone(), priority))
        };
        let mut vital = open(WritePriority::Vital)?;
        if !schema::is_there(&vital.connection, &schema::HISTORY)? && if_absent == IfAbsent::Refuse
        {
            return Err(StoreError::refused(Code::Absent, path.display().to_string()));
        }
        schema::migrate(&mut vital, &schema::HISTORY)?;
        let boot = boot::enter(&path, &vital.connection, &boot::identity()?, early)?;
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

    fn watcher(&self) -> StoreResult<Arc<ChangePoller>> {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watcher) = &*watcher {
            return Ok(watcher.clone());
        }
        Ok(watcher.insert(Arc::new(ChangePoller::start(&self.path)?)).clone())
    }
}

impl Sqlite {
    fn store_abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: true,
            durable: true,
            atomic_batch: usize::MAX,
            history_slots: self.history_slots.load(Ordering::Relaxed),
            exclusive_effects: false,
            shared: true,
        }
    }

    async fn session_open(&self, open: &OpenSession) -> StoreResult<Opened> {
        let open = open.clone();
        self.vital.write(move |db, now| session::open(db, &open, now)).await
    }

    async fn session_close(&self, session: &Session, reason: &Reason) -> StoreResult<Closed> {
        let (session, reason) = (session.clone(), reason.clone());
        self.vital.write(move |db, now| session::close(db, &session, &reason, now)).await
    }

    async fn session_keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> StoreResult<KeptAlive> {
        let (owned, note) = (session.clone(), note.cloned());
        let job = move |connection: &mut SqliteConnection| {
            connection.write(|db, now| session::keep_alive(db, &owned, note.as_ref(), now))
        };
        let keeping = self.vital.begin(job).await?;
        let common = Hold::common_mark(holds, session);
        let Some(mark) = keeping.answer().await? else { return Ok(KeptAlive::Ended) };
        // Most marks show that the hold is valid; only the others are looked up on the thread.
        let (mut fates, unsure) = fates_by_mark(session, holds, common, mark);
        if !unsure.is_empty() {
            let asked: Vec<Hold> = unsure.iter().map(|n| holds[*n].clone()).collect();
            let job = move |connection: &mut SqliteConnection| {
                let of = |hold| if Mutant::R8Whole.is_on() { &asked[0] } else { hold };
                connection
                    .read(|db, now| asked.iter().map(|it| hold::stands(db, of(it), now)).collect())
            };
            // The session is already extended: a failed look-up means unknown, not refused.
            let looked: StoreResult<Vec<bool>> = self.vital.run(job).await;
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

    async fn hold_claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> StoreResult<Vec<Claimed>> {
        let (session, wants, reason) = (session.clone(), wants.to_vec(), reason.clone());
        let claims = self.claims.fetch_add(1, Ordering::Relaxed);
        let job = move |connection: &mut SqliteConnection| {
            let claimed =
                connection.write(|db, now| hold::claim(db, &session, &wants, &reason, now))?;
            if claims % CLAIMS_PER_TRIM == CLAIMS_PER_TRIM - 1 {
                // The claim has happened; the next trim removes what this one did not.
                let _ = audit::trim(connection);
            }
            Ok(claimed)
        };
        self.vital.run(job).await
    }

    async fn hold_release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> StoreResult<Vec<Released>> {
        let (session, holds, reason) = (session.clone(), holds.to_vec(), reason.clone());
        self.vital.write(move |db, now| hold::release(db, &session, &holds, &reason, now)).await
    }

    async fn session_evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> StoreResult<Evicted> {
        let (group, instance, reason) = (group.clone(), instance.clone(), reason.clone());
        self.vital
            .write(move |db, now| session::evict(db, &group, &instance, when, &reason, now))
            .await
    }

    async fn group_list(&self) -> StoreResult<Vec<GroupName>> {
        self.data.read(|db, _| group::groups(db)).await
    }

    async fn group_members(&self, group: &GroupName) -> StoreResult<Vec<Member>> {
        let group = group.clone();
        self.data.read(move |db, now| group::members(db, &group, now)).await
    }

    async fn group_holders(&self, group: &GroupName) -> StoreResult<Vec<Holder>> {
        let group = group.clone();
        self.data.read(move |db, now| group::holders(db, &group, now)).await
    }

    async fn checkpoint_load(&self, duties: &[DutyKey]) -> StoreResult<Vec<Option<Checkpoint>>> {
        let duties = duties.to_vec();
        self.data.read(move |db, _| checkpoint::load(db, &duties)).await
    }

    async fn checkpoint_commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> StoreResult<Vec<Committed>> {
        let (session, commits) = (session.clone(), commits.to_vec());
        self.data.write(move |db, now| checkpoint::commit(db, &session, &commits, now)).await
    }

    async fn checkpoint_history(&self, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
        let duty = duty.clone();
        self.data.read(move |db, _| checkpoint::history(db, &duty)).await
    }

    async fn report_store(
        &self,
        session: &Session,
        reports: &[Report],
    ) -> StoreResult<Vec<Reported>> {
        let (session, reports) = (session.clone(), reports.to_vec());
        self.data.write(move |db, now| report::store(db, &session, &reports, now)).await
    }

    async fn report_load(&self, duties: &[DutyKey]) -> StoreResult<Vec<Option<DutyReport>>> {
        let duties = duties.to_vec();
        self.data.read(move |db, _| report::load(db, &duties)).await
    }

    async fn document_read(&self, group: &GroupName) -> StoreResult<GroupDocument> {
        let group = group.clone();
        self.data.read(move |db, _| group::document(db, &group)).await
    }

    async fn document_replace(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> StoreResult<Replaced> {
        let (group, document) = (group.clone(), document.clone());
        self.data.write(move |db, _| group::replace_document(db, &group, expected, &document)).await
    }

    async fn group_watch(&self, group: &GroupName) -> StoreResult<Box<dyn Watch>> {
        self.watcher()?.watch(group).await
    }

    async fn audit_read(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> StoreResult<Vec<AuditEntry>> {
        let group = group.clone();
        self.data.read(move |db, _| audit::read(db, &group, range)).await
    }

    async fn duty_forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> StoreResult<Vec<Forgotten>> {
        let (duties, reason) = (duties.to_vec(), reason.clone());
        self.data.write(move |db, now| upkeep::forget(db, &duties, &reason, now)).await
    }

    async fn store_adopt(&self, adopt: &Adopt) -> StoreResult<Adopted> {
        let adopt = *adopt;
        self.data.write(move |db, now| upkeep::adopt(db, &adopt, now)).await
    }

    async fn store_retain(&self, new: Retention) -> StoreResult<()> {
        self.data.write(move |db, _| upkeep::retain(db, new)).await?;
        self.history_slots.store(new.history_slots, Ordering::Relaxed);
        Ok(())
    }

    async fn store_retention(&self) -> StoreResult<Retention> {
        self.data.read(|db, _| upkeep::retention(db)).await
    }

    /// The clock of this host, which SQLite writes into the tables, too.
    async fn store_wall_clock(&self) -> StoreResult<Option<u64>> {
        Ok(Some(crate::clock::unix_ms()))
    }
}

impl_store!(Sqlite by own_method);

/// Notifies the watchers of a group.
fn hint(db: &Connection, group: &GroupName) -> StoreResult<()> {
    execute(db, sql!("change/count"), [group.as_str()])?;
    Ok(())
}

/// Runs a cached prepared statement and returns the number of rows that it changed.
fn execute(db: &Connection, sql: &str, parameters: impl rusqlite::Params) -> StoreResult<usize> {
    let run = || db.prepare_cached(sql)?.execute(parameters);
    run().map_err(statement_error)
}

/// Reads the first row of a statement, if any.
fn first<R>(db: &Connection, sql: &str, parameters: impl rusqlite::Params) -> StoreResult<Option<R>>
where
    R: for<'a> TryFrom<&'a Row<'a>, Error = rusqlite::Error>,
{
    let run = || db.prepare_cached(sql)?.query_row(parameters, |row| R::try_from(row)).optional();
    run().map_err(statement_error)
}

/// Reads all rows of a statement.
fn all<R, T>(
    db: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
    read: impl FnMut(R) -> StoreResult<T>,
) -> StoreResult<Vec<T>>
where
    R: for<'a> TryFrom<&'a Row<'a>, Error = rusqlite::Error>,
{
    let run = || {
        let mut statement = db.prepare_cached(sql)?;
        statement.query_map(parameters, |row| R::try_from(row))?.collect::<Result<Vec<R>, _>>()
    };
    run().map_err(statement_error)?.into_iter().map(read).collect()
}
