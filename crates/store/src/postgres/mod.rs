//! PostgreSQL store: many hosts, and effects in the same transaction as the check of the hold.
//!
//! Each change is one statement that commits by itself: a client that is paused between two
//! statements could block a takeover for ever. A change of several steps is a function in the
//! database, so it is still one round trip. Locks are taken in one order everywhere: holds by key,
//! sessions by instance, checkpoints by key, floors by group. Time is `clock_timestamp()`.
//!
//! Why: docs/decisions/0017-postgres-one-statement-per-change.md

mod audit;
mod checkpoint;
pub(crate) mod connect;
pub(crate) mod error;
mod fence;
mod group;
mod hold;
mod mutants;
mod report;
mod rows;
pub(crate) mod schema;
mod session;
mod statements;
mod survey;
mod tls;
mod upkeep;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tenure_core::store::Abilities;
use tenure_core::text::counted;
use tenure_core::{Code, Hold, Session, StoreError, StoreResult};
use tokio::sync::OnceCell;
use tokio_postgres::Row;

use crate::IfAbsent;
use crate::delegate::{impl_store, own_method};
pub(crate) use connect::connect_once;
use connect::{Parameter, PostgresConnectConfig, PostgresPool};
use rows::column;
use statements::Statements;
use watch::NotificationListener;

pub use fence::{fence, fence_in};

/// Connections for everything but keep-alives.
const DATA_CONNECTIONS: usize = 8;
/// Connections for keep-alives only: one in use, one while the other is being replaced (R7).
const KEEP_ALIVE_CONNECTIONS: usize = 2;

/// Settings of a PostgreSQL store.
#[derive(Clone)]
pub struct PostgresSettings {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`; several hosts separated by commas.
    pub url: String,
    /// The schema that holds the tables.
    pub schema: String,
    /// Whether to create the schema.
    pub if_absent: IfAbsent,
}

/// Omits the URL, which may contain a password.
impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// A store in a PostgreSQL schema.
pub struct Postgres {
    data: PostgresPool,
    keep_alive_pool: PostgresPool,
    target: PostgresConnectConfig,
    schema: String,
    statements: Statements,
    listener: OnceCell<Arc<NotificationListener>>,
    claims: AtomicU64,
    /// Value that this handle read last; the statements use the one in the store.
    history_slots: AtomicUsize,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Postgres");
        shown.field("schema", &self.schema).field("direct", &self.data.is_direct());
        shown.finish_non_exhaustive()
    }
}

/// Returns the schema as a script.
pub(crate) fn script(settings: &PostgresSettings) -> StoreResult<String> {
    schema::check_name(&settings.schema)?;
    Ok(schema::script(&settings.schema, &schema::HISTORY, schema::RIGHTS))
}

impl Postgres {
    /// Connects, checks the server, and brings the schema up to date.
    pub async fn open(settings: PostgresSettings) -> StoreResult<Self> {
        schema::check_name(&settings.schema)?;
        let mut target = connect::server_from_url(&settings.url).await?;
        let named = connect::is_direct(&target).await;
        if named {
            connect::prefer_index_plans(&mut target);
        }
        // The first connection accepts any server, to report what is wrong with it; the others
        // accept only a primary, also after a failover.
        let mut client = PostgresPool::new(&target, 1, false)?.client().await?;
        let standby = client.query_typed(connect::RECOVERY_SQL, &[]);
        let standby = connect::with_timeout(standby).await?;
        if standby.first().is_some_and(|row| row.get(0)) {
            return Err(StoreError::refused(Code::ReadOnly, "this server is a standby"));
        }
        connect::read_committed(&mut target, &client).await?;
        let PostgresSettings { schema, if_absent, .. } = &settings;
        schema::migrate(&mut client, schema, &schema::HISTORY, *if_absent).await?;
        drop(client);
        connect::primary_only(&mut target);
        let store = Self {
            data: PostgresPool::new(&target, DATA_CONNECTIONS, named)?,
            keep_alive_pool: PostgresPool::new(&target, KEEP_ALIVE_CONNECTIONS, named)?,
            target,
            statements: Statements::new(&settings.schema),
            schema: settings.schema,
            listener: OnceCell::new(),
            claims: AtomicU64::new(0),
            history_slots: AtomicUsize::new(0),
        };
        store.audit_trim().await?;
        store.store_retention().await?;
        Ok(store)
    }

    async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> StoreResult<Vec<Row>> {
        self.data.query(sql, parameters).await
    }

    /// Returns the single value of a statement that always returns one row.
    async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> StoreResult<T> {
        let rows = self.query(sql, parameters).await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::unknown(Code::Failed, "the query returned no row"))?;
        column(row, 0)
    }

    fn store_abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: true,
            durable: true,
            atomic_batch: usize::MAX,
            history_slots: self.history_slots.load(Ordering::Relaxed),
            exclusive_effects: true,
            shared: true,
        }
    }
}

/// Parameters of a statement with their types; `of` puts those of a session first.
macro_rules! parameters {
    (of $session:ident $(, $value:expr => $type:ident)*) => {
        $crate::postgres::parameters![
            $session.group.as_str() => TEXT,
            $session.instance.as_str() => TEXT,
            $session.nonce.to_string() => TEXT
            $(, $value => $type)*
        ]
    };
    ($($value:expr => $type:ident),*) => {
        [$((
            &$value as &(dyn tokio_postgres::types::ToSql + Sync),
            tokio_postgres::types::Type::$type,
        )),*]
    };
}
use parameters;

/// Returns the epoch to send for a hold: for another session's hold, one that is never granted.
fn epoch_for(session: &Session, hold: &Hold) -> i64 {
    if hold.is_of(session) { hold.epoch.as_i64() } else { -1 }
}

/// Checks that there is one answer per item of a batch.
fn complete<T>(answers: Vec<T>, expected: usize) -> StoreResult<Vec<T>> {
    if answers.len() == expected {
        return Ok(answers);
    }
    let answers = counted(answers.len(), "answer", "answers");
    let detail = format!("{answers} for {}", counted(expected, "item", "items"));
    Err(StoreError::unknown(Code::Failed, detail))
}

impl_store!(Postgres by own_method);
