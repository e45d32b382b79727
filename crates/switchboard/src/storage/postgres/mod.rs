//! Switchboard storage on PostgreSQL, for several replicas.
//!
//! Each change is one statement that commits by itself, so that a paused client blocks nobody.
//! Each commit locks the row of `inbox_position` first: positions become visible in order, and
//! commits cannot deadlock.

mod channel;
mod commit;
mod dead_letter;
mod fence;
mod inbox;
mod mutants;
mod parameter;
mod registry;
mod replica;
mod retention;
mod row;
mod token;

use std::fmt;

use tenure_core::Code;
use tenure_core::mutant::Swap;
use tenure_store::IfAbsent;
use tenure_store::sql::MigrationHistory;
use tenure_store::sql::postgres::{
    Parameter, PostgresPool, check_name, in_schema, is_direct, migrate, prefer_index_plans,
    primary_only, read_committed, script as write_script, server_from_url, with_timeout,
};
use tokio::sync::Mutex;
use tokio_postgres::Row;

use super::row::FromRow;
use super::{Permitted, TimeSource, migration};
use crate::error::{StorageResult, SwitchboardError};
use mutants::SWAPS;
use parameter::parameters;
use registry::connector_locks;
use row::{column, first, from_row, missing};
use token::refusal;

/// Text of a statement, by the name of its file below `sql/`.
macro_rules! sql {
    ($file:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/storage/postgres/sql/",
            $file,
            ".sql"
        ))
    };
}
use sql;

tenure_store::statements! {
    /// Statements of events and heartbeats, which run most often.
    struct FrequentStatements swapped by SWAPS {
        commit: "sql/inbox/commit.sql",
        state: "sql/registry/state.sql",
        apply_beat: "sql/registry/apply_beat.sql",
    }
}

/// The server serializes commits: one runs, one waits, and one connection may be reconnecting.
const COMMIT_CONNECTIONS: usize = 3;
/// Separate connections, because heartbeats may block on their history.
const BEAT_CONNECTIONS: usize = 4;
/// Connections for everything else.
const DATA_CONNECTIONS: usize = 8;
/// Functions belong to the newest migration: a new migration takes them over.
const HISTORY: MigrationHistory = MigrationHistory {
    table: "switchboard_migration",
    migrations: &[
        migration(1, "ground", include_str!("migrations/0001_ground.sql")),
        migration(2, "connectors", include_str!("migrations/0002_connectors.sql")),
        migration(3, "clock", include_str!("migrations/0003_clock.sql")),
        migration(4, "cursors", include_str!("migrations/0004_cursors.sql")),
        migration(5, "heartbeats", include_str!("migrations/0005_heartbeats.sql")),
        migration(6, "fences", include_str!("migrations/0006_fences.sql")),
        migration(7, "channels", include_str!("migrations/0007_channels.sql")),
        migration(8, "tokens", include_str!("migrations/0008_tokens.sql")),
        migration(9, "beats", include_str!("migrations/0009_beats.sql")),
        migration(10, "fields", include_str!("migrations/0010_fields.sql")),
        // Only functions, which are now in the newest migration.
        migration(
            11,
            "levels",
            concat!(
                sql!("routine/isolation"),
                sql!("routine/switchboard_clock"),
                sql!("routine/token_ended"),
                sql!("routine/ingest_gate"),
                sql!("routine/inbox_jump"),
                sql!("routine/ingest_commit"),
                sql!("routine/inbox_endpoint"),
                sql!("routine/inbox_prune"),
                sql!("routine/fence_reset"),
                sql!("routine/letter_post"),
                sql!("routine/token_revoke"),
                sql!("routine/usage_add"),
                sql!("routine/connector_beat_apply"),
                sql!("routine/connector_delete"),
                sql!("routine/connector_bound"),
                sql!("routine/connector_count"),
                sql!("routine/connector_roll_up"),
                sql!("routine/connector_recount"),
                sql!("routine/connector_days"),
                sql!("routine/outcome_report"),
            ),
        ),
    ],
    swaps: SWAPS,
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

/// Returns the script that creates tables and functions, for an administrator.
pub fn script(schema: &str) -> StorageResult<String> {
    check_name(schema)?;
    Ok(write_script(schema, &HISTORY, RIGHTS))
}

/// Switchboard storage in a PostgreSQL schema.
pub struct PostgresStorage {
    commits: PostgresPool,
    beats: PostgresPool,
    data: PostgresPool,
    schema: String,
    statements: FrequentStatements,
    connector_locks: Vec<Mutex<()>>,
}

impl fmt::Debug for PostgresStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PostgresStorage");
        shown.field("schema", &self.schema).field("direct", &self.data.is_direct());
        shown.finish_non_exhaustive()
    }
}

/// Connects, inspects the server, and updates the tables.
pub async fn open(url: &str, schema: &str, if_absent: IfAbsent) -> StorageResult<PostgresStorage> {
    check_name(schema)?;
    let mut server = server_from_url(url).await?;
    let named = is_direct(&server).await;
    if named {
        prefer_index_plans(&mut server);
    }
    // The first connection accepts any server, to report what is wrong with it; the others accept
    // only a primary, also after a failover.
    let mut client = PostgresPool::new(&server, 1, false)?.client().await?;
    let rows = with_timeout(client.query_typed(sql!("server/inspect"), &[])).await?;
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
    migrate(&mut client, schema, &HISTORY, if_absent).await?;
    drop(client);
    primary_only(&mut server);
    let postgres = PostgresStorage {
        commits: PostgresPool::new(&server, COMMIT_CONNECTIONS, named)?,
        beats: PostgresPool::new(&server, BEAT_CONNECTIONS, named)?,
        data: PostgresPool::new(&server, DATA_CONNECTIONS, named)?,
        schema: schema.to_owned(),
        statements: FrequentStatements::new(schema),
        connector_locks: connector_locks(),
    };
    // Heartbeats are stored even without a partition; retention tries again every minute.
    let _ = postgres.make_days(TimeSource::Now).await;
    // A server that hides its timeline is accepted. If it is known, each commit checks it again.
    let _ = postgres.query(sql!("inbox/recognise"), &[]).await;
    Ok(postgres)
}

impl PostgresStorage {
    async fn query(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> StorageResult<Vec<Row>> {
        let sql = in_schema(Swap::apply(SWAPS, sql), &self.schema);
        Ok(self.data.query(&sql, parameters).await?)
    }

    /// Reads the rows of a statement.
    async fn all<T: FromRow>(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> StorageResult<Vec<T>> {
        self.query(sql, parameters).await?.iter().map(|row| from_row(row, 0)).collect()
    }

    /// Reads the only row of a statement.
    async fn one<T: FromRow>(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> StorageResult<T> {
        first(&self.query(sql, parameters).await?)
    }

    /// Reads the only row of a change. Its first column is why the token has ended, or NULL.
    async fn permitted<T: FromRow>(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Permitted<T> {
        let rows = self.query(sql, parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        match refusal(row, 0)? {
            Some(ended) => Ok(Err(ended)),
            None => from_row(row, 1).map(Ok),
        }
    }
}
