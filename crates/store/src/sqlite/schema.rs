//! Creation and migration of tables.

use rusqlite::Connection;
use tenure_core::mutant::Swap;
use tenure_core::text::counted;
use tenure_core::{Code, StoreError, StoreResult};

use super::connect::retry;
use super::error::statement_error;
use super::sql;
use super::worker::SqliteConnection;
use crate::migration::{AppliedMigration, Migration, MigrationHistory, pending};

const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "ground", sql: include_str!("migrations/0001_ground.sql") },
    Migration { number: 2, name: "upkeep", sql: include_str!("migrations/0002_upkeep.sql") },
    Migration { number: 3, name: "report", sql: include_str!("migrations/0003_report.sql") },
];

/// Migrations of the store itself.
pub(super) const HISTORY: MigrationHistory =
    MigrationHistory { table: "migration", migrations: MIGRATIONS, swaps: &[] };

/// Rewrites a statement for the table that records this owner's migrations.
fn for_table(sql: &str, history: &MigrationHistory) -> String {
    sql.replacen(HISTORY.table, history.table, 1)
}

/// Returns the statements for the tables that must exist before migrations can be counted.
fn bootstrap(history: &MigrationHistory) -> String {
    let meta = if history.table == HISTORY.table { sql!("meta/create") } else { "" };
    for_table(sql!("migration/create"), history) + meta
}

fn applied(
    connection: &Connection,
    history: &MigrationHistory,
) -> StoreResult<Vec<AppliedMigration>> {
    let query = for_table(sql!("migration/list"), history);
    let mut statement = connection.prepare(&query).map_err(statement_error)?;
    let rows = statement.query_map([], |row| {
        Ok(AppliedMigration { number: row.get(0)?, name: row.get(1)?, breaking: row.get(2)? })
    });
    rows.map_err(statement_error)?.collect::<Result<_, _>>().map_err(statement_error)
}

/// Whether the file has the tables of this owner; refused when it is another program's database.
pub fn is_there(connection: &Connection, history: &MigrationHistory) -> StoreResult<bool> {
    let query = sql!("migration/tables");
    let count = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let tables: (i64, i64, i64) =
        retry(|| connection.query_row(query, [history.table], count)).map_err(statement_error)?;
    match tables {
        (0, _, _) => Ok(false),
        (tables, 0, _) => Err(StoreError::refused(
            Code::Damaged,
            format!(
                "the file is another program's database, with {}",
                counted(tables, "table", "tables")
            ),
        )),
        (_, _, own) => Ok(own > 0),
    }
}

/// Applies the missing migrations in one transaction under the write lock: processes take turns.
pub fn migrate(connection: &mut SqliteConnection, history: &MigrationHistory) -> StoreResult<()> {
    connection.write(|connection, _| {
        connection.execute_batch(&bootstrap(history)).map_err(statement_error)?;
        for migration in pending(history.migrations, &applied(connection, history)?)? {
            let sql = Swap::apply(history.swaps, migration.sql);
            connection.execute_batch(sql).map_err(statement_error)?;
            let row = (migration.number, migration.name, migration.breaking());
            let record = for_table(sql!("migration/record"), history);
            connection.execute(&record, row).map_err(statement_error)?;
        }
        Ok(())
    })
}

/// Refuses a file that a newer version has changed in a way that this one would misread.
#[cfg(feature = "file")]
pub(super) fn check_version(
    connection: &Connection,
    history: &MigrationHistory,
) -> StoreResult<()> {
    pending(history.migrations, &applied(connection, history)?).map(drop)
}

/// Returns the migrations as a script.
pub fn script(history: &MigrationHistory) -> String {
    let mut script = format!("BEGIN IMMEDIATE;\n{}", bootstrap(history));
    for migration in history.migrations {
        let Migration { number, name, sql } = migration;
        let breaking = migration.breaking().replace('\'', "''");
        let record = for_table(sql!("migration/record").trim_end(), history)
            .replace("?1", &number.to_string())
            .replace("?2", &format!("'{name}'"))
            .replace("?3", &format!("'{breaking}'"));
        script.push_str(&format!("\n-- {number:04} {name}\n{sql}{record};\n"));
    }
    script + "COMMIT;\n"
}
