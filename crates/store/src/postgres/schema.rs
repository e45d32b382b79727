//! Creation and migration of tables and functions.

use std::time::Duration;

use tenure_core::mutant::Swap;
use tenure_core::{Code, StoreError, StoreResult};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel};

use super::connect::with_timeout;
use super::error;
use super::mutants::SWAPS;
use crate::IfAbsent;
use crate::migration::{AppliedMigration, Migration, MigrationHistory, pending};

/// Time limit of a migration, waiting for other starters included.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(120);

const BOOTSTRAP: &str = include_str!("sql/bootstrap.sql");
/// The table of applied migrations, as the files name it.
const DEFAULT_TABLE: &str = "tenure.migration";

/// The functions always belong to the newest migration: each is created or replaced there, so a
/// store of any age gets the current ones. When you add a migration, move them to it.
const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "ground", sql: include_str!("migrations/0001_ground.sql") },
    Migration { number: 2, name: "upkeep", sql: include_str!("migrations/0002_upkeep.sql") },
    // Only functions, which are now in the newest migration.
    Migration { number: 3, name: "guard", sql: "" },
    Migration { number: 4, name: "isolation", sql: "" },
    Migration { number: 5, name: "notices", sql: "" },
    Migration { number: 6, name: "closing", sql: "" },
    Migration {
        number: 7,
        name: "report",
        sql: concat!(
            include_str!("migrations/0007_report.sql"),
            include_str!("sql/routine/isolation.sql"),
            include_str!("sql/routine/session_open.sql"),
            include_str!("sql/routine/session_end.sql"),
            include_str!("sql/routine/hold_claim.sql"),
            include_str!("sql/routine/hold_release.sql"),
            include_str!("sql/routine/checkpoint_commit.sql"),
            include_str!("sql/routine/assert_hold.sql"),
            include_str!("sql/routine/guard_table.sql"),
            include_str!("sql/routine/effect_end.sql"),
            include_str!("sql/routine/duty_forget.sql"),
            include_str!("sql/routine/store_upkeep.sql"),
        ),
    },
];

/// Migrations of the store itself.
pub(super) const HISTORY: MigrationHistory =
    MigrationHistory { table: "migration", migrations: MIGRATIONS, swaps: SWAPS };

/// Returns the statements for the table that must exist before migrations can be counted.
fn bootstrap(history: &MigrationHistory) -> String {
    BOOTSTRAP.replace(DEFAULT_TABLE, &format!("tenure.{}", history.table))
}

/// Rewrites SQL for another schema. The files name the schema `tenure`, so that they can be read
/// and run as they are. A schema's name needs no quotes (see [`check_name`]).
pub fn in_schema(sql: &str, schema: &str) -> String {
    match schema {
        "tenure" => sql.to_owned(),
        _ => sql
            .replace("tenure.", &format!("{schema}."))
            .replace("EXISTS tenure;", &format!("EXISTS {schema};")),
    }
}

/// Checks that a name needs no quotes: it is part of statements, functions and channel names.
pub fn check_name(schema: &str) -> StoreResult<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if schema.len() <= 40 && starts && schema.chars().all(plain) && !schema.starts_with("pg_") {
        return Ok(());
    }
    Err(StoreError::refused(
        Code::BadUrl,
        "a schema name has 1 to 40 characters of a-z, 0-9 and _, and begins neither with a digit \
         nor with pg_",
    ))
}

async fn applied(
    client: &impl GenericClient,
    schema: &str,
    history: &MigrationHistory,
) -> Result<Vec<AppliedMigration>, tokio_postgres::Error> {
    let exists = include_str!("sql/migration/exists.sql");
    let table = format!("{schema}.{}", history.table);
    if !client.query_typed(exists, &[(&table, Type::TEXT)]).await?[0].get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let list = include_str!("sql/migration/list.sql").replace(DEFAULT_TABLE, &table);
    let rows = client.query_typed(&list, &[]).await?;
    let read = |row: &tokio_postgres::Row| AppliedMigration {
        number: row.get(0),
        name: row.get(1),
        breaking: row.get(2),
    };
    Ok(rows.iter().map(read).collect())
}

fn record(migration: &Migration, table: &str) -> String {
    let Migration { number, name, .. } = migration;
    let breaking = migration.breaking().replace('\'', "''");
    include_str!("sql/migration/record.sql")
        .replace(DEFAULT_TABLE, &format!("tenure.{table}"))
        .replace("$1", &number.to_string())
        .replace("$2", &format!("'{name}'"))
        .replace("$3", &format!("'{breaking}'"))
}

/// Applies the missing migrations. Starting processes take turns under an advisory lock. Without
/// missing migrations, a process does not take it and needs no rights to create tables.
pub async fn migrate(
    client: &mut Client,
    schema: &str,
    history: &MigrationHistory,
    if_absent: IfAbsent,
) -> StoreResult<()> {
    let known = with_timeout(applied(client, schema, history)).await?;
    if pending(history.migrations, &known)?.is_empty() {
        return Ok(());
    }
    if known.is_empty() && if_absent == IfAbsent::Refuse {
        return Err(StoreError::refused(Code::Absent, format!("schema {schema}")));
    }
    match tokio::time::timeout(MIGRATION_TIMEOUT, run(client, schema, history)).await {
        Err(_) => Err(StoreError::unknown(
            Code::Lost,
            format!("the migration did not finish within {MIGRATION_TIMEOUT:?}"),
        )),
        Ok(done) => done.unwrap_or_else(|error| {
            Err(match error::statement_error(error) {
                StoreError::Refused(problem) if problem.code == Code::Denied => {
                    StoreError::refused(Code::NeedsMigration, problem.detail)
                }
                other => other,
            })
        }),
    }
}

async fn run(
    client: &mut Client,
    schema: &str,
    history: &MigrationHistory,
) -> Result<StoreResult<()>, tokio_postgres::Error> {
    // Starting processes wait for each other, and must see what was created meanwhile.
    let level = IsolationLevel::ReadCommitted;
    let transaction = client.build_transaction().isolation_level(level).start().await?;
    // The tenth process waits for nine others, longer than a lease may wait for a row.
    let patience = format!("SET LOCAL lock_timeout = {}", MIGRATION_TIMEOUT.as_millis());
    transaction.batch_execute(&patience).await?;
    let lock = include_str!("sql/migration/lock.sql");
    transaction.query_typed(lock, &[(&schema, Type::TEXT)]).await?;
    transaction.batch_execute(&in_schema(&bootstrap(history), schema)).await?;
    let known = applied(&transaction, schema, history).await?;
    // A newer version may have migrated the schema while this one waited for the lock.
    let missing = match pending(history.migrations, &known) {
        Ok(missing) => missing,
        Err(newer) => return Ok(Err(newer)),
    };
    for migration in missing {
        let sql = Swap::apply(history.swaps, migration.sql);
        transaction.batch_execute(&in_schema(sql, schema)).await?;
        transaction.batch_execute(&in_schema(&record(migration, history.table), schema)).await?;
    }
    transaction.commit().await.map(Ok)
}

/// Returns the migrations as a script for an administrator. It applies what is missing, however
/// often it is run. `rights` are lines with the grants that each role needs.
pub fn script(schema: &str, history: &MigrationHistory, rights: &str) -> String {
    let table = history.table;
    let mut script = format!("BEGIN ISOLATION LEVEL READ COMMITTED;\n{}", bootstrap(history));
    for migration in history.migrations {
        let Migration { number, name, sql } = migration;
        script.push_str(&format!(
            "\n-- {number:04} {name}\n\
             DO $migration$ BEGIN\n\
             IF NOT EXISTS (SELECT FROM tenure.{table} WHERE number = {number}) THEN\n\
             {sql}{}END IF;\nEND $migration$;\n",
            record(migration, table)
        ));
    }
    script.push_str("COMMIT;\n\n");
    script.push_str(rights);
    in_schema(&script, schema).replace("SCHEMA tenure TO", &format!("SCHEMA {schema} TO"))
}

/// Grants in the store's own script.
pub(super) const RIGHTS: &str = "-- For each role that runs Tenure:\n\
         -- GRANT USAGE ON SCHEMA tenure TO role;\n\
         -- GRANT SELECT ON tenure.migration TO role;\n\
         -- GRANT SELECT, INSERT, UPDATE, DELETE ON tenure.session, tenure.spent, tenure.hold,\n\
         --     tenure.checkpoint, tenure.history, tenure.report, tenure.group_document,\n\
         --     tenure.audit TO role;\n\
         -- GRANT SELECT, INSERT, UPDATE ON tenure.group_floor TO role;\n\
         -- GRANT SELECT, UPDATE ON tenure.store TO role;\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_schema_leaves_nothing_of_the_default_one() {
        let script = script("lease_2", &HISTORY, RIGHTS);
        for left in ["tenure.", "SCHEMA IF NOT EXISTS tenure", "SCHEMA tenure TO"] {
            assert!(!script.contains(left), "{left}");
        }
        assert!(script.contains("lease_2.hold_claim(") && script.contains("'lease_2.changes'"));
    }

    #[test]
    fn a_schema_that_would_need_quotes_is_refused() {
        for bad in ["", "A", "1a", "a b", "a\"b", "a'b", "pg_x", "ü", &"x".repeat(41)] {
            assert_eq!(check_name(bad).unwrap_err().code(), Code::BadUrl, "{bad}");
        }
        assert!(check_name("tenure_2").is_ok());
    }
}
