//! The switchboard on SQLite: one host, any number of processes.
//!
//! Every change is one `BEGIN IMMEDIATE` transaction, so changes happen one after another, and the
//! order of commits is the order of positions. Reads have a thread and a connection of their own,
//! and never wait for a write; so have checkpoints of the write-ahead log.

mod channel;
mod clock;
mod commit;
mod dead_letter;
mod fence;
mod inbox;
mod registry;
mod replica;
mod retention;
mod row;
mod statements;
mod token;
mod wal;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Error, ErrorCode};
use tenure_core::{Code, StoreError};
use tenure_duty::process;
use tenure_store::sql::sqlite::{
    SqliteConnection, Worker, WritePriority, connect, is_there, migrate, script as write_script,
    statement_error,
};
use tenure_store::sql::{Migration, MigrationHistory};
use tenure_store::{BootClock, IfAbsent};
use uuid::Uuid;

use super::{
    Admission, Attempt, ClockMeasurement, ClockReading, DeadLetter, Decision, InboxQuery,
    InboxRead, InboxRetention, IngestFence, KnownFence, LetterQuery, LetterResolution,
    MessageLookup, NewToken, Permitted, PostOutcome, PruneReport, ResolveOutcome, SourceScope,
    Storage, StoredLetter, Submission, SubmissionOutcome, TimeSource, Token, TokenAudit,
    TokenUsage,
};
use crate::error::{StorageResult, SwitchboardError};
use retention::PrunedTable;
use statements as sql;

const HISTORY: MigrationHistory = MigrationHistory {
    table: "switchboard_migration",
    migrations: &[
        Migration { number: 1, name: "ground", sql: include_str!("migrations/0001_ground.sql") },
        Migration {
            number: 2,
            name: "connectors",
            sql: include_str!("migrations/0002_connectors.sql"),
        },
        Migration { number: 3, name: "clock", sql: include_str!("migrations/0003_clock.sql") },
        Migration { number: 4, name: "cursors", sql: include_str!("migrations/0004_cursors.sql") },
        Migration {
            number: 5,
            name: "heartbeats",
            sql: include_str!("migrations/0005_heartbeats.sql"),
        },
        Migration { number: 6, name: "fences", sql: include_str!("migrations/0006_fences.sql") },
        Migration {
            number: 7,
            name: "channels",
            sql: include_str!("migrations/0007_channels.sql"),
        },
    ],
};

/// A switchboard's storage in a SQLite file, which may be that of a store.
#[derive(Debug)]
pub struct SqliteStorage {
    writer: Worker,
    reader: Worker,
    wal: wal::WalCheckpointer,
}

/// Opens the file, updates its tables and starts the threads.
pub async fn open(path: PathBuf, if_absent: IfAbsent) -> StorageResult<SqliteStorage> {
    let opened = tokio::task::spawn_blocking(move || open_blocking(&path, if_absent)).await;
    opened.map_err(|error| {
        SwitchboardError::unknown(Code::Failed, error.to_string()).caused_by(error)
    })?
}

/// The schema as a script.
pub fn script() -> String {
    write_script(&HISTORY)
}

fn open_blocking(path: &PathBuf, if_absent: IfAbsent) -> StorageResult<SqliteStorage> {
    let absent = || SwitchboardError::refused(Code::Absent, path.display().to_string());
    if if_absent == IfAbsent::Refuse && !path.exists() {
        return Err(absent());
    }
    let connection = connect(path).map_err(statement_error)?;
    if !is_there(&connection, &HISTORY)? && if_absent == IfAbsent::Refuse {
        return Err(absent());
    }
    wal::leave_to_checkpointer(&connection).map_err(statement_error)?;
    row::add_functions(&connection).map_err(statement_error)?;
    let owned = |connection| {
        SqliteConnection::new(connection, Arc::new(BootClock), WritePriority::Yielding)
    };
    let mut writer = owned(connection);
    migrate(&mut writer, &HISTORY)?;
    let reader = owned(connect(path).map_err(statement_error)?);
    let checkpointer = owned(connect(path).map_err(statement_error)?);
    Ok(SqliteStorage {
        writer: Worker::start("switch-writer", writer)?,
        reader: Worker::start("switch-reader", reader)?,
        wal: wal::WalCheckpointer::start(checkpointer)?,
    })
}

/// The wall clock in Unix microseconds.
fn now() -> i64 {
    i64::try_from(process::unix_micros()).unwrap_or(i64::MAX)
}

/// Classifies an error before `COMMIT`: a row that can never be stored is `Unstorable`.
fn failed(error: Error) -> StoreError {
    let never = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
    );
    match statement_error(error) {
        StoreError::Refused(problem) if never => {
            StoreError::refused(Code::Unstorable, problem.detail)
        }
        other => other,
    }
}

impl SqliteStorage {
    /// Runs a transaction that may change something. The clock is read once it has begun.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> StorageResult<T> {
        let job = |connection: &mut SqliteConnection| {
            connection.write(|db, _| job(db, now()).map_err(failed))
        };
        Ok(self.writer.run(job).await?)
    }

    /// Runs a transaction that may change something with a token, which has to be valid then.
    async fn write_with<T: Send + 'static>(
        &self,
        token_id: Option<&str>,
        job: impl FnOnce(&Connection, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> Permitted<T> {
        let token_id = token_id.map(str::to_owned);
        let job = move |db: &Connection, now| match token::ended(db, token_id.as_deref(), now)? {
            Some(ended) => Ok(Err(ended)),
            None => job(db, now).map(Ok),
        };
        self.write(job).await
    }

    /// Runs a transaction that only reads.
    async fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> StorageResult<T> {
        let job = |connection: &mut SqliteConnection| {
            connection.read(|db, _| job(db, now()).map_err(failed))
        };
        Ok(self.reader.run(job).await?)
    }
}

#[async_trait]
impl Storage for SqliteStorage {
    async fn commit(&self, group: &[Submission]) -> StorageResult<Vec<SubmissionOutcome>> {
        let group = group.to_vec();
        let settled = self.write(move |db, now| commit::commit(db, &group, now)).await?;
        self.wal.note(wal::added(&settled)).await;
        Ok(settled)
    }

    async fn inbox(&self, query: &InboxQuery) -> StorageResult<InboxRead> {
        let query = query.clone();
        self.read(move |db, _| inbox::page(db, &query)).await
    }

    async fn message(&self, request_id: Uuid) -> StorageResult<MessageLookup> {
        self.read(move |db, _| inbox::message(db, request_id)).await
    }

    async fn last_position(&self) -> StorageResult<i64> {
        self.read(|db, _| Ok(inbox::bounds(db)?.last)).await
    }

    async fn adopt(&self, by: &str) -> StorageResult<i64> {
        let by = by.to_owned();
        self.write(move |db, now| inbox::adopt(db, &by, now)).await
    }

    async fn fences(
        &self,
        of: Option<&SourceScope>,
        after: &str,
        limit: usize,
    ) -> StorageResult<Vec<KnownFence>> {
        let (of, after) = (of.cloned(), after.to_owned());
        self.read(move |db, _| fence::list(db, of.as_ref(), &after, limit)).await
    }

    async fn reset_fence(
        &self,
        duty: &str,
        source: Option<&SourceScope>,
        decision: &Decision,
    ) -> Permitted<Vec<KnownFence>> {
        let (duty, source, why) = (duty.to_owned(), source.cloned(), decision.clone());
        let job = move |db: &Connection, now| fence::reset(db, &duty, source.as_ref(), &why, now);
        self.write_with(decision.token_id.as_deref(), job).await
    }

    async fn post_letter(
        &self,
        letter: &DeadLetter,
        fence: Option<&IngestFence>,
        token_id: Option<&str>,
    ) -> StorageResult<PostOutcome> {
        let letter = letter.clone();
        let (fence, token_id) = (fence.cloned(), token_id.map(str::to_owned));
        let job = move |db: &Connection, now| {
            dead_letter::post(db, &letter, fence.as_ref(), token_id.as_deref(), now)
        };
        self.write(job).await
    }

    async fn letters(&self, query: &LetterQuery) -> StorageResult<Vec<StoredLetter>> {
        let query = query.clone();
        self.read(move |db, _| dead_letter::list(db, &query)).await
    }

    async fn letter(&self, id: Uuid) -> StorageResult<Option<StoredLetter>> {
        self.read(move |db, _| row::first(db, sql::LETTER_SHOW, [id.as_bytes()])).await
    }

    async fn resolve_letter(&self, resolve: &LetterResolution) -> Permitted<ResolveOutcome> {
        let (token_id, resolve) = (resolve.decision.token_id.as_deref(), resolve.clone());
        self.write_with(token_id, move |db, now| dead_letter::resolve(db, &resolve, now)).await
    }

    async fn pending_letters(&self) -> StorageResult<u64> {
        let pending: i64 = self.read(|db, _| row::one(db, sql::LETTER_COUNT_PENDING, [])).await?;
        Ok(pending.unsigned_abs())
    }

    async fn admit(&self, attempt: &Attempt<'_>) -> StorageResult<Admission> {
        let attempt = token::OwnedAttempt::new(attempt);
        let again = attempt.clone();
        match self.read(move |db, now| token::judge(db, &attempt, now)).await? {
            // Only a failure is written, and judged again where no other is counted meanwhile.
            Admission::Unknown => self.write(move |db, now| token::count(db, &again, now)).await,
            judged => Ok(judged),
        }
    }

    async fn has_tokens(&self) -> StorageResult<bool> {
        self.read(|db, _| row::one(db, sql::TOKEN_ANY, [])).await
    }

    async fn create_token(&self, token: &NewToken) -> StorageResult<bool> {
        let token = token.clone();
        self.write(move |db, now| token::create(db, &token, now)).await
    }

    async fn tokens(&self) -> StorageResult<Vec<Token>> {
        self.read(|db, _| row::all(db, sql::TOKEN_LIST, [])).await
    }

    async fn revoke_token(
        &self,
        token_id: &str,
        by: &str,
        reason: &str,
    ) -> StorageResult<Option<bool>> {
        let (token_id, by, reason) = (token_id.to_owned(), by.to_owned(), reason.to_owned());
        self.write(move |db, now| token::revoke(db, &token_id, &by, &reason, now)).await
    }

    async fn add_usage(&self, usage: &[TokenUsage]) -> StorageResult<()> {
        let usage = usage.to_vec();
        self.write(move |db, now| token::add_usage(db, &usage, now)).await
    }

    async fn usage(
        &self,
        token_id: Option<&str>,
        since_day: &str,
    ) -> StorageResult<Vec<TokenUsage>> {
        let (token_id, since_day) = (token_id.map(str::to_owned), since_day.to_owned());
        self.read(move |db, _| row::all(db, sql::USAGE_LIST, (token_id, since_day))).await
    }

    async fn audit(&self, token_id: Option<&str>, limit: usize) -> StorageResult<Vec<TokenAudit>> {
        let token_id = token_id.map(str::to_owned);
        self.read(move |db, _| token::audit(db, token_id.as_deref(), limit)).await
    }

    async fn tick(
        &self,
        since: Option<ClockMeasurement>,
        when: TimeSource,
    ) -> StorageResult<ClockReading> {
        let wall = move |now| if let TimeSource::At(at) = when { at } else { now };
        self.write(move |db, now| clock::tick(db, since, wall(now))).await
    }

    async fn prune(&self, keep: InboxRetention) -> StorageResult<PruneReport> {
        // A transaction for each table: submissions get in between.
        let mut pruned = PruneReport::default();
        for table in PrunedTable::ALL {
            let deleted = self.write(move |db, _| retention::prune(db, table, keep)).await;
            let deleted = deleted.map_err(SwitchboardError::or_happened)?;
            retention::add_pruned(&mut pruned, table, deleted);
        }
        Ok(pruned)
    }

    async fn ping(&self) -> StorageResult<()> {
        // Takes the database for writing, for a moment.
        self.write(|db, _| row::execute(db, sql::INBOX_TOUCH, [])).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rusqlite::Connection;
    use tenure_store::IfAbsent;

    use super::{open_blocking, row};

    fn prepare_all(db: &Connection, folder: &Path) -> usize {
        let mut prepared = 0;
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                prepared += prepare_all(db, &path);
                continue;
            }
            let sql = std::fs::read_to_string(&path).unwrap();
            for sql in row::statements(&sql) {
                db.prepare(sql).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                prepared += 1;
            }
        }
        prepared
    }

    #[test]
    fn every_statement_fits_the_tables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switchboard.db");
        drop(open_blocking(&path, IfAbsent::Create).unwrap());
        let db = Connection::open(&path).unwrap();
        row::add_functions(&db).unwrap();
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/storage/sqlite/sql");
        assert!(prepare_all(&db, &files) > 100);
    }
}
