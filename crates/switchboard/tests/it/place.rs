//! Storage of a test case: a SQLite file or a PostgreSQL schema of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::Mutant;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::storage::{self, Storage};
use testkit::old;

/// Number of schemas created in this run.
static SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// Unused schemas, kept because creating one takes longer than most cases.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The schema of version 0.1, in a database of its own.
const OLD_SCHEMA: &str = "tenure";

const EMPTY: &str = "DELETE FROM message_inbox; DELETE FROM ingest_dedupe;
    DELETE FROM ingest_fence; DELETE FROM dead_letter; DELETE FROM connector_tokens;
    DELETE FROM token_audit_log; DELETE FROM token_usage; DELETE FROM auth_failure;
    UPDATE inbox_position
        SET last = 0, trimmed = 0, floor = 0, last_id = NULL, trimmed_id = NULL;
    DELETE FROM connector_registry; DELETE FROM connector_instances;
    DELETE FROM connector_heartbeat_log; DELETE FROM connector_stats_hourly;
    DELETE FROM connector_stats_daily; DELETE FROM connector_fanout_daily;
    DELETE FROM connector_stats_window; DELETE FROM inbox_outcome;
    DELETE FROM switchboard_replica;
    DELETE FROM ingest_channel WHERE channel NOT IN ('telegram', 'slack', 'email', 'api', 'mcp')";
/// Drop of the history's partitions from earlier cases, except those that every storage creates.
const OTHER_DAYS: &str = "DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
        WHERE inhparent = 'connector_heartbeat_log'::regclass AND c.relname ~ '_p[0-9]{8}$'
            AND to_date(right(c.relname, 8), 'YYYYMMDD')
                NOT BETWEEN current_date - 1 AND current_date + 4
    LOOP EXECUTE format('DROP TABLE %I', name); END LOOP; END $$";
/// Reset of the clock of retention to the server's.
const RIGHT_CLOCK: &str = "UPDATE switchboard_clock SET reached = clock_timestamp(), turn = 0";
/// Reset of the counting progress.
const UNCOUNTED: [&str; 2] = [
    "UPDATE connector_stats_progress SET epoch = 0, since_24h = 0, since_7d = 0, since_30d = 0,
        beats_since = 0,
        counted_beat = (SELECT coalesce(max(seq), 0) FROM sqlite_sequence
            WHERE name = 'connector_heartbeat_log'), counted_ack = last_ack",
    "UPDATE connector_stats_progress SET epoch = 0, since_24h = 'epoch', since_7d = 'epoch',
        since_30d = 'epoch', beats_since = 'epoch',
        counted_id = nextval('connector_heartbeat_log_id_seq')",
];

pub struct Place {
    at: At,
    pub storage: Arc<dyn Storage>,
}

enum At {
    Sqlite(TempDir),
    Postgres { url: String, schema: String },
}

impl At {
    fn url(&self) -> StoreUrl {
        let text = match self {
            Self::Sqlite(folder) => format!("sqlite:{}", file(folder).display()),
            Self::Postgres { url, schema } => format!("{url}?schema={schema}"),
        };
        StoreUrl::parse(&text).unwrap()
    }
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("tenure.db")
}

/// Turns on the mutant that the kill table names.
pub fn turn_on_mutant() {
    if let Ok(name) = std::env::var(Mutant::VARIABLE) {
        Mutant::turn_on(&name).unwrap();
    }
}

impl Place {
    pub async fn sqlite() -> Option<Self> {
        turn_on_mutant();
        Some(Self::new(At::Sqlite(TempDir::new().unwrap())).await)
    }

    /// Returns `None` on a laptop without a server; fails in CI.
    pub async fn postgres() -> Option<Self> {
        turn_on_mutant();
        let url = testkit::service(testkit::TEST_POSTGRES)?;
        let free = FREE.lock().unwrap().pop();
        let schema = match free {
            Some(schema) => {
                on_postgres(&url, &schema, EMPTY).await;
                on_postgres(&url, &schema, UNCOUNTED[1]).await;
                on_postgres(&url, &schema, OTHER_DAYS).await;
                on_postgres(&url, &schema, RIGHT_CLOCK).await;
                schema
            }
            None => {
                let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
                format!("switchboard_{}_{number}", std::process::id())
            }
        };
        Some(Self::new(At::Postgres { url, schema }).await)
    }

    /// Returns the file of version 0.1 with the tables of this one, and without its data.
    pub async fn sqlite_v0_1() -> Option<Self> {
        let place = Self::old_sqlite().await;
        place.empty().await;
        let now = i64::try_from(tenure_duty::process::unix_micros()).unwrap();
        place.set_clock(now).await;
        Some(place)
    }

    /// Returns the file of version 0.1 with its data.
    pub async fn old_sqlite() -> Self {
        let folder = TempDir::new().unwrap();
        old::sqlite(&file(&folder)).unwrap();
        Self::updated(At::Sqlite(folder)).await
    }

    /// Returns the schema of version 0.1 with its data.
    pub async fn old_postgres() -> Option<Self> {
        let url = testkit::service(testkit::TEST_POSTGRES)?;
        let (url, schema) = (old::postgres(&url).unwrap(), OLD_SCHEMA.to_owned());
        Some(Self::updated(At::Postgres { url, schema }).await)
    }

    /// Lets replicas of this version bring an older storage up to date at the same time.
    async fn updated(at: At) -> Self {
        let url = at.url();
        let open = || async { storage::open(&url, IfAbsent::Refuse).await.map(drop).unwrap() };
        tokio::join!(open(), open(), open());
        Self::new(at).await
    }

    async fn new(at: At) -> Self {
        let storage = storage::open(&at.url(), IfAbsent::Create).await.unwrap();
        Self { at, storage }
    }

    /// Opens another handle, as another process would.
    pub async fn open(&self) -> Arc<dyn Storage> {
        storage::open(&self.at.url(), IfAbsent::Refuse).await.unwrap()
    }

    /// Deletes all data.
    pub async fn empty(&self) {
        self.execute(EMPTY).await;
        self.execute(UNCOUNTED[usize::from(matches!(self.at, At::Postgres { .. }))]).await;
    }

    /// Runs a statement that bypasses the storage; returns the number of changed rows, or the
    /// selected number.
    pub async fn execute(&self, sql: &str) -> i64 {
        match &self.at {
            At::Sqlite(folder) => {
                let (path, sql) = (file(folder), sql.to_owned());
                tokio::task::spawn_blocking(move || on_sqlite(&path, &sql)).await.unwrap()
            }
            At::Postgres { url, schema } => on_postgres(url, schema, sql).await,
        }
    }

    /// Returns URL and schema of a PostgreSQL place.
    pub fn schema(&self) -> (&str, &str) {
        match &self.at {
            At::Sqlite(_) => panic!("a file has no schema"),
            At::Postgres { url, schema } => (url, schema),
        }
    }

    /// Increases the number of the next heartbeat.
    pub async fn skip_numbers(&self, by: i64) {
        self.execute(&match &self.at {
            At::Sqlite(_) => format!("UPDATE sqlite_sequence SET seq = seq + {by}"),
            At::Postgres { .. } => {
                let sequence = "'connector_heartbeat_log_id_seq'";
                format!("SELECT setval({sequence}, nextval({sequence}) + {by})")
            }
        })
        .await;
    }

    /// Makes every insert into the history of heartbeats fail, until [`Self::mend_history`].
    pub async fn break_history(&self) {
        let table = "connector_heartbeat_log";
        self.execute(&match &self.at {
            At::Sqlite(_) => format!(
                "CREATE TRIGGER broken BEFORE INSERT ON {table}
                BEGIN SELECT RAISE(ABORT, 'broken'); END"
            ),
            At::Postgres { .. } => {
                format!("ALTER TABLE {table} ADD CONSTRAINT broken CHECK (false) NOT VALID")
            }
        })
        .await;
    }

    pub async fn mend_history(&self) {
        self.execute(match &self.at {
            At::Sqlite(_) => "DROP TRIGGER broken",
            At::Postgres { .. } => "ALTER TABLE connector_heartbeat_log DROP CONSTRAINT broken",
        })
        .await;
    }

    /// Sets the clock of retention, as if it had been running until then.
    pub async fn set_clock(&self, micros: i64) {
        let at = match &self.at {
            At::Sqlite(_) => micros.to_string(),
            At::Postgres { .. } => format!("to_timestamp({micros} / 1000000.0)"),
        };
        self.execute(&format!("UPDATE switchboard_clock SET reached = {at}")).await;
    }

    /// Makes the times in a column of some rows older.
    pub async fn age(&self, table: &str, column: &str, by: Duration, rows: &str) {
        let micros = by.as_micros();
        let by = match &self.at {
            At::Sqlite(_) => micros.to_string(),
            At::Postgres { .. } => format!("interval '{micros} microseconds'"),
        };
        let sql = format!("UPDATE {table} SET {column} = {column} - {by} WHERE {rows}");
        assert!(self.execute(&sql).await > 0, "{sql}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // After a failure, the schema may still be in use.
        if let (At::Postgres { schema, .. }, false) = (&self.at, std::thread::panicking())
            && schema != OLD_SCHEMA
        {
            FREE.lock().unwrap().push(schema.clone());
        }
    }
}

fn on_sqlite(path: &PathBuf, sql: &str) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    if sql.starts_with("SELECT") {
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    } else if sql == EMPTY {
        connection.execute_batch(sql).map(|()| 0).unwrap()
    } else {
        connection.execute(sql, []).unwrap() as i64
    }
}

async fn on_postgres(url: &str, schema: &str, sql: &str) -> i64 {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let running = tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path TO {schema}")).await.unwrap();
    let answer = if sql.starts_with("SELECT") {
        client.query_one(sql, &[]).await.unwrap().get(0)
    } else if sql == EMPTY {
        client.batch_execute(sql).await.map(|()| 0).unwrap()
    } else {
        client.execute(sql, &[]).await.unwrap() as i64
    };
    drop(client);
    running.await.unwrap().unwrap();
    answer
}
