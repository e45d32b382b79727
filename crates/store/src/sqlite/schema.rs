//! Making and updating the tables.

use rusqlite::Connection;
use tenure_core::text::counted;
use tenure_core::{Code, StoreError};

use super::worker::{Line, refused, retry};
use crate::migration::{Applied, History, Migration, pending};

const BOOTSTRAP: &str = include_str!("sql/bootstrap.sql");

const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "ground", sql: include_str!("migrations/0001_ground.sql") },
    Migration { number: 2, name: "upkeep", sql: include_str!("migrations/0002_upkeep.sql") },
];

/// The store's own.
pub(super) const HISTORY: History = History { table: "migration", migrations: MIGRATIONS };

fn record(history: &History) -> String {
    format!("INSERT INTO {} (number, name, breaking) VALUES", history.table)
}

/// What must be there before migrations can be counted.
fn bootstrap(history: &History) -> String {
    match history.table {
        "migration" => BOOTSTRAP.to_owned(),
        table => format!(
            "CREATE TABLE IF NOT EXISTS {table} (\n    number INTEGER NOT NULL PRIMARY KEY,\n    \
             name TEXT NOT NULL,\n    breaking TEXT NOT NULL\n) STRICT;\n"
        ),
    }
}

fn applied(connection: &Connection, history: &History) -> Result<Vec<Applied>, StoreError> {
    let query = format!("SELECT number, name, breaking FROM {} ORDER BY number", history.table);
    let mut statement = connection.prepare(&query).map_err(refused)?;
    let rows = statement.query_map([], |row| {
        Ok(Applied { number: row.get(0)?, name: row.get(1)?, breaking: row.get(2)? })
    });
    rows.map_err(refused)?.collect::<Result<_, _>>().map_err(refused)
}

/// Whose tables may be in one file: by the table that remembers their migrations.
const OWNERS: &str = "'migration', 'switchboard_migration'";

/// Whether the file has the tables of this owner; refused when it holds something else.
pub fn is_there(connection: &Connection, history: &History) -> Result<bool, StoreError> {
    let query = format!(
        "SELECT count(*), count(*) FILTER (WHERE name IN ({OWNERS})),
            count(*) FILTER (WHERE name = ?1)
        FROM sqlite_schema WHERE type = 'table'"
    );
    let count = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let tables: (i64, i64, i64) =
        retry(|| connection.query_row(&query, [history.table], count)).map_err(refused)?;
    match tables {
        (0, _, _) => Ok(false),
        (tables, 0, _) => Err(StoreError::refused(
            Code::Damaged,
            format!("a database with {} of something else", counted(tables, "table", "tables")),
        )),
        (_, _, own) => Ok(own > 0),
    }
}

/// Applies what is missing, in one transaction under the write lock: starters take turns.
pub fn migrate(line: &mut Line, history: &History) -> Result<(), StoreError> {
    line.write(|connection, _| {
        connection.execute_batch(&bootstrap(history)).map_err(refused)?;
        for migration in pending(history.migrations, &applied(connection, history)?)? {
            connection.execute_batch(migration.sql).map_err(refused)?;
            let row = (migration.number, migration.name, migration.breaking());
            let record = format!("{} (?1, ?2, ?3)", record(history));
            connection.execute(&record, row).map_err(refused)?;
        }
        Ok(())
    })
}

/// The same as a script.
pub fn script(history: &History) -> String {
    let mut script = format!("BEGIN IMMEDIATE;\n{}", bootstrap(history));
    let record = record(history);
    for migration in history.migrations {
        let Migration { number, name, sql } = migration;
        let breaking = migration.breaking().replace('\'', "''");
        script.push_str(&format!("\n-- {number:04} {name}\n{sql}"));
        script.push_str(&format!("{record} ({number}, '{name}', '{breaking}');\n"));
    }
    script + "COMMIT;\n"
}
