//! Making and updating the tables.

use rusqlite::Connection;
use tenure_core::{Code, StoreError};

use super::worker::{Line, refused, retry};
use crate::migration::{Applied, Migration, pending};

const BOOTSTRAP: &str = include_str!("sql/bootstrap.sql");

const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "ground", sql: include_str!("migrations/0001_ground.sql") },
    Migration { number: 2, name: "upkeep", sql: include_str!("migrations/0002_upkeep.sql") },
];

const RECORD: &str = "INSERT INTO migration (number, name, breaking) VALUES";

fn applied(connection: &Connection) -> Result<Vec<Applied>, StoreError> {
    let query = "SELECT number, name, breaking FROM migration ORDER BY number";
    let mut statement = connection.prepare(query).map_err(refused)?;
    let rows = statement.query_map([], |row| {
        Ok(Applied { number: row.get(0)?, name: row.get(1)?, breaking: row.get(2)? })
    });
    rows.map_err(refused)?.collect::<Result<_, _>>().map_err(refused)
}

/// Whether the file holds a store of ours; refused when it holds something else.
pub(super) fn is_ours(connection: &Connection) -> Result<bool, StoreError> {
    let query = "SELECT count(*), count(*) FILTER (WHERE name = 'migration')
        FROM sqlite_schema WHERE type = 'table'";
    let tables = retry(|| connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?))));
    let tables: (i64, i64) = tables.map_err(refused)?;
    match tables {
        (0, 0) => Ok(false),
        (_, 1) => Ok(true),
        (tables, _) => Err(StoreError::refused(
            Code::Damaged,
            format!("a database with {tables} tables of something else"),
        )),
    }
}

/// Applies what is missing, in one transaction under the write lock: starters take turns.
pub(super) fn migrate(line: &mut Line) -> Result<(), StoreError> {
    line.write(|connection, _| {
        connection.execute_batch(BOOTSTRAP).map_err(refused)?;
        for migration in pending(MIGRATIONS, &applied(connection)?)? {
            connection.execute_batch(migration.sql).map_err(refused)?;
            let row = (migration.number, migration.name, migration.breaking());
            connection.execute(&format!("{RECORD} (?1, ?2, ?3)"), row).map_err(refused)?;
        }
        Ok(())
    })
}

/// The same as a script.
pub(super) fn script() -> String {
    let mut script = format!("BEGIN IMMEDIATE;\n{BOOTSTRAP}");
    for migration in MIGRATIONS {
        let Migration { number, name, sql } = migration;
        let breaking = migration.breaking().replace('\'', "''");
        script.push_str(&format!("\n-- {number:04} {name}\n{sql}"));
        script.push_str(&format!("{RECORD} ({number}, '{name}', '{breaking}');\n"));
    }
    script + "COMMIT;\n"
}
