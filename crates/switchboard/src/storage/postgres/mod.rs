//! The switchboard on PostgreSQL: several replicas as one.
//!
//! Each change is one statement that commits by itself: nobody waits for a client that is paused
//! between two. Ingest takes turns: whoever commits locks the one row of `inbox_position` first, so
//! that positions become visible in their order and no two commits wait for each other in a circle.

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

use std::fmt;

use async_trait::async_trait;
use tenure_core::Code;
use tenure_store::IfAbsent;
use tenure_store::sql::postgres::{
    Parameter, PostgresPool, is_direct, prefer_index_plans, primary_only, read_committed,
    server_from_url, with_timeout,
};
use tenure_store::sql::{self, Migration, MigrationHistory};
use uuid::Uuid;

use super::{
    Admission, Attempt, ClockMeasurement, ClockReading, DeadLetter, Decision, InboxQuery,
    InboxRead, InboxRetention, IngestFence, KnownFence, LetterQuery, LetterResolution,
    MessageLookup, NewToken, Permitted, PostOutcome, PruneReport, ResolveOutcome, SourceScope,
    Storage, StoredLetter, Submission, SubmissionOutcome, TimeSource, Token, TokenAudit,
    TokenUsage,
};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::row::FromRow;
use registry::ConnectorLocks;
use row::{column, from_row, missing};
use statements::Statements;

/// Commits take turns in the server: one works, one waits, one is replaced.
const COMMIT_CONNECTIONS: usize = 3;
/// Heartbeats may wait for their history: nothing else waits behind them.
const BEAT_CONNECTIONS: usize = 4;
/// Connections for everything else.
const DATA_CONNECTIONS: usize = 8;
/// Functions belong to the newest migration: a new one takes them over.
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
        Migration { number: 8, name: "tokens", sql: include_str!("migrations/0008_tokens.sql") },
        Migration {
            number: 9,
            name: "beats",
            sql: concat!(
                include_str!("migrations/0009_beats.sql"),
                include_str!("sql/routine/isolation.sql"),
                include_str!("sql/routine/switchboard_clock.sql"),
                include_str!("sql/routine/token_ended.sql"),
                include_str!("sql/routine/ingest_gate.sql"),
                include_str!("sql/routine/inbox_jump.sql"),
                include_str!("sql/routine/ingest_commit.sql"),
                include_str!("sql/routine/inbox_endpoint.sql"),
                include_str!("sql/routine/inbox_prune.sql"),
                include_str!("sql/routine/fence_reset.sql"),
                include_str!("sql/routine/letter_post.sql"),
                include_str!("sql/routine/token_revoke.sql"),
                include_str!("sql/routine/usage_add.sql"),
                include_str!("sql/routine/connector_beat_apply.sql"),
                include_str!("sql/routine/connector_delete.sql"),
                include_str!("sql/routine/connector_bound.sql"),
                include_str!("sql/routine/connector_count.sql"),
                include_str!("sql/routine/connector_roll_up.sql"),
                include_str!("sql/routine/connector_recount.sql"),
                include_str!("sql/routine/connector_days.sql"),
                include_str!("sql/routine/outcome_report.sql"),
            ),
        },
    ],
};

const RIGHTS: &str = "-- For each role that runs the switchboard:\n\
    -- GRANT USAGE ON SCHEMA tenure TO role;\n\
    -- GRANT SELECT ON tenure.switchboard_migration TO role;\n\
    -- GRANT SELECT, UPDATE ON tenure.inbox_position, tenure.connector_stats_progress,\n\
    --     tenure.switchboard_clock TO role;\n\
    -- GRANT USAGE ON SEQUENCE tenure.connector_heartbeat_log_id_seq TO role;\n\
    -- GRANT SELECT, INSERT, UPDATE, DELETE ON tenure.message_inbox, tenure.ingest_dedupe,\n\
    --     tenure.ingest_fence, tenure.ingest_channel, tenure.dead_letter, tenure.auth_failure,\n\
    --     tenure.inbox_outcome, tenure.connector_registry, tenure.connector_instances,\n\
    --     tenure.connector_heartbeat_log, tenure.connector_heartbeat_log_default,\n\
    --     tenure.connector_stats_hourly, tenure.connector_stats_daily,\n\
    --     tenure.connector_fanout_daily, tenure.connector_stats_window,\n\
    --     tenure.switchboard_replica TO role;\n\
    -- GRANT EXECUTE ON FUNCTION tenure.connector_days_make, tenure.connector_days_drop TO role;\n\
    -- GRANT SELECT, INSERT, UPDATE ON tenure.connector_tokens, tenure.token_usage TO role;\n\
    -- GRANT SELECT, INSERT ON tenure.token_audit_log TO role;\n";

/// The tables and functions as a script, for an administrator.
pub fn script(schema: &str) -> StorageResult<String> {
    sql::postgres::check_name(schema)?;
    Ok(sql::postgres::script(schema, &HISTORY, RIGHTS))
}

/// A switchboard's tables in a PostgreSQL schema.
pub struct PostgresStorage {
    commits: PostgresPool,
    beats: PostgresPool,
    data: PostgresPool,
    statements: Statements,
    schema: String,
    connector_locks: ConnectorLocks,
}

impl fmt::Debug for PostgresStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PostgresStorage");
        shown.field("schema", &self.schema).field("direct", &self.data.is_direct());
        shown.finish_non_exhaustive()
    }
}

/// Connects, looks at the server, and brings the tables up to date.
pub async fn open(url: &str, schema: &str, if_absent: IfAbsent) -> StorageResult<PostgresStorage> {
    sql::postgres::check_name(schema)?;
    let mut server = server_from_url(url).await?;
    let named = is_direct(&server).await;
    if named {
        prefer_index_plans(&mut server);
    }
    // The first connection takes any server, to say what is wrong with it; the others take a
    // primary only, also after a failover.
    let mut client = PostgresPool::new(&server, 1, false)?.client().await?;
    let inspect = include_str!("sql/server/inspect.sql");
    let rows = with_timeout(client.query_typed(inspect, &[])).await?;
    let row = rows.first().ok_or_else(missing)?;
    if column(row, 0)? {
        return Err(SwitchboardError::refused(Code::ReadOnly, "this server is a standby"));
    }
    let encoding: &str = column(row, 1)?;
    if encoding != "UTF8" {
        let detail = format!("the database's encoding is {encoding}; events need UTF8");
        return Err(SwitchboardError::refused(Code::BadUrl, detail));
    }
    read_committed(&mut server, &client).await?;
    sql::postgres::migrate(&mut client, schema, &HISTORY, if_absent).await?;
    drop(client);
    primary_only(&mut server);
    let postgres = PostgresStorage {
        commits: PostgresPool::new(&server, COMMIT_CONNECTIONS, named)?,
        beats: PostgresPool::new(&server, BEAT_CONNECTIONS, named)?,
        data: PostgresPool::new(&server, DATA_CONNECTIONS, named)?,
        statements: Statements::new(schema),
        schema: schema.to_owned(),
        connector_locks: ConnectorLocks::default(),
    };
    // Without a day of its own a beat is kept, too; and it is tried again every minute.
    let _ = postgres.make_days(TimeSource::Now).await;
    // A server that does not tell its timeline is taken as it is. Of one that is known to tell it,
    // each commit asks again.
    let _ = postgres.data.query(&postgres.statements.inbox_recognise, &[]).await;
    Ok(postgres)
}

impl PostgresStorage {
    /// Reads the rows of a statement.
    async fn rows<T: FromRow>(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> StorageResult<Vec<T>> {
        let rows = self.data.query(sql, parameters).await?;
        rows.iter().map(|row| from_row(row, 0)).collect()
    }

    /// Reads the first column of the only row.
    async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(
        &self,
        sql: &str,
    ) -> StorageResult<T> {
        let rows = self.data.query(sql, &[]).await?;
        column(rows.first().ok_or_else(missing)?, 0)
    }
}

#[async_trait]
impl Storage for PostgresStorage {
    async fn commit(&self, group: &[Submission]) -> StorageResult<Vec<SubmissionOutcome>> {
        self.commit_group(group).await
    }

    async fn inbox(&self, query: &InboxQuery) -> StorageResult<InboxRead> {
        self.read_inbox(query).await
    }

    async fn message(&self, request_id: Uuid) -> StorageResult<MessageLookup> {
        self.show_message(request_id).await
    }

    async fn last_position(&self) -> StorageResult<i64> {
        self.value(&self.statements.inbox_last).await
    }

    async fn adopt(&self, by: &str) -> StorageResult<i64> {
        self.adopt_inbox(by).await
    }

    async fn fences(
        &self,
        of: Option<&SourceScope>,
        after: &str,
        limit: usize,
    ) -> StorageResult<Vec<KnownFence>> {
        self.list_fences(of, after, limit).await
    }

    async fn reset_fence(
        &self,
        duty: &str,
        source: Option<&SourceScope>,
        decision: &Decision,
    ) -> Permitted<Vec<KnownFence>> {
        self.forget_fence(duty, source, decision).await
    }

    async fn post_letter(
        &self,
        letter: &DeadLetter,
        fence: Option<&IngestFence>,
        token_id: Option<&str>,
    ) -> StorageResult<PostOutcome> {
        self.keep_letter(letter, fence, token_id).await
    }

    async fn letters(&self, query: &LetterQuery) -> StorageResult<Vec<StoredLetter>> {
        self.list_letters(query).await
    }

    async fn letter(&self, id: Uuid) -> StorageResult<Option<StoredLetter>> {
        self.show_letter(id).await
    }

    async fn resolve_letter(&self, resolve: &LetterResolution) -> Permitted<ResolveOutcome> {
        self.end_letter(resolve).await
    }

    async fn pending_letters(&self) -> StorageResult<u64> {
        let pending: i64 = self.value(&self.statements.letter_count_pending).await?;
        Ok(u64::try_from(pending).unwrap_or(0))
    }

    async fn admit(&self, attempt: &Attempt<'_>) -> StorageResult<Admission> {
        self.judge(attempt).await
    }

    async fn has_tokens(&self) -> StorageResult<bool> {
        self.value(&self.statements.token_any).await
    }

    async fn create_token(&self, token: &NewToken) -> StorageResult<bool> {
        self.make_token(token).await
    }

    async fn tokens(&self) -> StorageResult<Vec<Token>> {
        self.list_tokens().await
    }

    async fn revoke_token(
        &self,
        token_id: &str,
        by: &str,
        reason: &str,
    ) -> StorageResult<Option<bool>> {
        self.end_token(token_id, by, reason).await
    }

    async fn add_usage(&self, usage: &[TokenUsage]) -> StorageResult<()> {
        self.count_usage(usage).await
    }

    async fn usage(
        &self,
        token_id: Option<&str>,
        since_day: &str,
    ) -> StorageResult<Vec<TokenUsage>> {
        self.read_usage(token_id, since_day).await
    }

    async fn audit(&self, token_id: Option<&str>, limit: usize) -> StorageResult<Vec<TokenAudit>> {
        self.read_audit(token_id, limit).await
    }

    async fn tick(
        &self,
        since: Option<ClockMeasurement>,
        when: TimeSource,
    ) -> StorageResult<ClockReading> {
        self.move_clock(since, when).await
    }

    async fn prune(&self, keep: InboxRetention) -> StorageResult<PruneReport> {
        self.prune_inbox(keep).await
    }

    async fn ping(&self) -> StorageResult<()> {
        if self.value(&self.statements.server_takes_writes).await? {
            return Ok(());
        }
        Err(SwitchboardError::refused(Code::ReadOnly, "the server takes no writes"))
    }
}
