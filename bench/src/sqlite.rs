//! SQLite: raw statements on a connection with the same settings, in the same kind of file.

use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, params};

use crate::SIZES;
use crate::measure::{KEEP_ALIVES, OperationRow, OperationTimes, rounds, table};
use crate::ours::{DOCUMENT, Ours};

struct RawSqlite {
    db: Connection,
    names: Vec<String>,
}

fn timed(run: impl FnOnce() -> rusqlite::Result<()>) -> Result<Duration> {
    let before = Instant::now();
    run()?;
    Ok(before.elapsed())
}

impl RawSqlite {
    fn new(folder: &std::path::Path, holds: usize) -> Result<Self> {
        let db = Connection::open(folder.join(format!("raw{holds}.db")))?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(
            "CREATE TABLE session (id TEXT PRIMARY KEY, expires INTEGER) WITHOUT ROWID;
             CREATE TABLE hold (duty TEXT PRIMARY KEY, owner TEXT, epoch INTEGER) WITHOUT ROWID;
             CREATE TABLE checkpoint
                 (duty TEXT PRIMARY KEY, epoch INTEGER, version INTEGER, document BLOB);
             INSERT INTO session VALUES ('me', 0)",
        )?;
        let names: Vec<_> = (0..holds).map(|n| format!("duty-{n}")).collect();
        for name in &names {
            db.execute("INSERT INTO checkpoint VALUES (?1, 1, 0, x'')", [name])?;
        }
        Ok(Self { db, names })
    }

    fn keep_alive(&self, round: usize) -> Result<Duration> {
        let sql = "UPDATE session SET expires = ?1 WHERE id = 'me' AND expires < ?1";
        timed(|| self.db.prepare_cached(sql)?.execute([round as i64 + 1]).map(|_| ()))
    }

    /// Runs one transaction with one statement per hold.
    fn each(
        &self,
        sql: &str,
        run: impl Fn(&mut rusqlite::Statement<'_>, &str) -> rusqlite::Result<usize>,
    ) -> Result<Duration> {
        timed(|| {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
            let mut statement = self.db.prepare_cached(sql)?;
            for name in &self.names {
                run(&mut statement, name)?;
            }
            self.db.execute_batch("COMMIT")
        })
    }

    fn claim(&self) -> Result<Duration> {
        let sql = "INSERT INTO hold VALUES (?1, 'me', 1)
            ON CONFLICT (duty) DO UPDATE SET owner = excluded.owner, epoch = epoch + 1";
        self.each(sql, |statement, name| statement.execute([name]))
    }

    fn commit(&self, round: usize) -> Result<Duration> {
        let sql = "UPDATE checkpoint SET version = version + 1, document = ?2
            WHERE duty = ?1 AND epoch = 1 AND version = ?3";
        self.each(sql, |statement, name| statement.execute(params![name, DOCUMENT, round as i64]))
    }
}

pub async fn run() -> Result<Vec<OperationRow>> {
    let folder = tempfile::tempdir()?;
    let mut rows = Vec::new();
    for holds in SIZES {
        let raw = RawSqlite::new(folder.path(), holds)?;
        let url = format!("sqlite:{}", folder.path().join(format!("ours{holds}.db")).display());
        let mut ours = Ours::new(&url, holds).await?;
        let mut times: OperationTimes = Default::default();
        for _ in 0..rounds(holds) {
            times[0].push(raw.claim()?);
            times[1].push(ours.claim().await?);
            times[6].push(ours.keep_alive().await?);
            ours.release().await?;
        }
        ours.claim().await?;
        ours.keep_alive().await?;
        for round in 0..KEEP_ALIVES {
            times[2].push(raw.keep_alive(round)?);
            times[3].push(ours.keep_alive().await?);
        }
        for round in 0..rounds(holds) {
            times[4].push(raw.commit(round)?);
            times[5].push(ours.commit().await?);
        }
        rows.extend(table("sqlite", holds, times, 2.0));
    }
    Ok(rows)
}
