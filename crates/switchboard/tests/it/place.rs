//! Where a case keeps what it stores: a SQLite file or a PostgreSQL schema of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::storage::{self, Storage};

/// Counts the schemas of this run.
static SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// Schemas that nobody uses any more: making one takes longer than most cases.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

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
/// Days of the history that an earlier case made, all but those that every storage makes.
const OTHER_DAYS: &str = "DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
        WHERE inhparent = 'connector_heartbeat_log'::regclass AND c.relname ~ '_p[0-9]{8}$'
            AND to_date(right(c.relname, 8), 'YYYYMMDD')
                NOT BETWEEN current_date - 1 AND current_date + 4
    LOOP EXECUTE format('DROP TABLE %I', name); END LOOP; END $$";
/// The clock of retention is where the server's is.
const RIGHT_CLOCK: &str = "UPDATE switchboard_clock SET reached = clock_timestamp(), turn = 0";
/// Nothing was counted yet.
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

impl Place {
    pub async fn sqlite() -> Option<Self> {
        Some(Self::new(At::Sqlite(TempDir::new().unwrap())).await)
    }

    /// `None` on a laptop without a server; a failure in CI.
    pub async fn postgres() -> Option<Self> {
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

    async fn new(at: At) -> Self {
        let storage = storage::open(&at.url(), IfAbsent::Create).await.unwrap();
        Self { at, storage }
    }

    /// Another handle, as another process has it.
    pub async fn open(&self) -> Arc<dyn Storage> {
        storage::open(&self.at.url(), IfAbsent::Refuse).await.unwrap()
    }

    /// Forgets everything.
    pub async fn empty(&self) {
        self.execute(EMPTY).await;
        self.execute(UNCOUNTED[usize::from(matches!(self.at, At::Postgres { .. }))]).await;
    }

    /// Runs a statement behind the storage's back and says how many rows it changed, or the number
    /// that it selects.
    pub async fn execute(&self, sql: &str) -> i64 {
        match &self.at {
            At::Sqlite(folder) => {
                let (path, sql) = (file(folder), sql.to_owned());
                tokio::task::spawn_blocking(move || on_sqlite(&path, &sql)).await.unwrap()
            }
            At::Postgres { url, schema } => on_postgres(url, schema, sql).await,
        }
    }

    /// URL and schema, where it is a schema.
    pub fn schema(&self) -> (&str, &str) {
        match &self.at {
            At::Sqlite(_) => panic!("a file has no schema"),
            At::Postgres { url, schema } => (url, schema),
        }
    }

    /// The next beat has a number that is larger by so much.
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
        // What a failed case began may still go on there.
        if let (At::Postgres { schema, .. }, false) = (&self.at, std::thread::panicking()) {
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
