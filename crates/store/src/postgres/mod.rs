//! PostgreSQL: many hosts, and effects that share the lease's own transaction.
//!
//! Each change is one statement that commits by itself: a client that is paused between two
//! statements could block a takeover for ever. What needs several steps is a function in the
//! database, so it still is one round trip. Locks are taken in one order everywhere: holds by key,
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

use async_trait::async_trait;
use tenure_core::guarantee::Survey;
use tenure_core::store::{
    Abilities, Adopt, Adopted, AuditEntry, AuditRange, Checkpoint, ClaimRequest, Claimed, Closed,
    Commit, Committed, Evict, Evicted, Forgotten, GroupDocument, Holder, KeptAlive, Member,
    OpenSession, Opened, Released, Replaced, Retention, Watch,
};
use tenure_core::text::counted;
use tenure_core::{
    Code, Document, DutyKey, GroupName, Hold, InstanceId, Note, Reason, Session, Store, StoreError,
    Version,
};
use tokio::sync::OnceCell;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::IfAbsent;
pub(crate) use connect::connect_once;
use connect::{Parameter, PostgresConnectConfig, PostgresPool};
use rows::column;
use statements::Statements;
use watch::NotificationListener;

pub use fence::{fence, fence_in};

/// Connections for everything but keep-alives.
const DATA_CONNECTIONS: usize = 8;
/// Connections for keep-alives alone: one that works, one while the other is being replaced (R7).
const KEEP_ALIVE_CONNECTIONS: usize = 2;

/// Settings of a PostgreSQL store.
#[derive(Clone)]
pub struct PostgresSettings {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`; several hosts by commas.
    pub url: String,
    /// The schema that holds the tables.
    pub schema: String,
    /// Whether to make the schema.
    pub if_absent: IfAbsent,
}

/// The URL may carry a password.
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
    /// As it was when this handle last heard of it; the statements read the store's own.
    history_slots: AtomicUsize,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Postgres");
        shown.field("schema", &self.schema).field("direct", &self.data.is_direct());
        shown.finish_non_exhaustive()
    }
}

/// The schema as a script.
pub(crate) fn script(settings: &PostgresSettings) -> Result<String, StoreError> {
    schema::check_name(&settings.schema)?;
    Ok(schema::script(&settings.schema, &schema::HISTORY, schema::RIGHTS))
}

impl Postgres {
    /// Connects, looks at the server, and brings the schema up to date.
    pub async fn open(settings: PostgresSettings) -> Result<Self, StoreError> {
        schema::check_name(&settings.schema)?;
        let mut target = connect::server_from_url(&settings.url).await?;
        let named = connect::is_direct(&target).await;
        if named {
            connect::prefer_index_plans(&mut target);
        }
        // The first connection takes any server, to say what is wrong with it; the others take a
        // primary only, also after a failover.
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

    async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, StoreError> {
        self.data.query(sql, parameters).await
    }

    /// The single value of a statement that always answers one row.
    async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<T, StoreError> {
        let rows = self.query(sql, parameters).await?;
        let row = rows.first().ok_or_else(|| StoreError::unknown(Code::Failed, "no answer row"))?;
        column(row, 0)
    }
}

/// A session as the first three parameters of most statements.
struct SessionKey<'a> {
    group: &'a str,
    instance: &'a str,
    nonce: String,
}

impl<'a> SessionKey<'a> {
    fn of(session: &'a Session) -> Self {
        let (group, instance) = (session.group.as_str(), session.instance.as_str());
        Self { group, instance, nonce: session.nonce.to_string() }
    }

    fn parameters(&self) -> [Parameter<'_>; 3] {
        [(&self.group, Type::TEXT), (&self.instance, Type::TEXT), (&self.nonce, Type::TEXT)]
    }
}

/// The epoch to ask under: a hold of somebody else is asked for under one that was never granted.
fn epoch_for(session: &Session, hold: &Hold) -> i64 {
    if hold.is_of(session) { hold.epoch.as_i64() } else { -1 }
}

/// One answer per item: a batch that came back short is not an answer.
fn complete<T>(answers: Vec<T>, expected: usize) -> Result<Vec<T>, StoreError> {
    if answers.len() == expected {
        return Ok(answers);
    }
    let answers = counted(answers.len(), "answer", "answers");
    let detail = format!("{answers} to {}", counted(expected, "item", "items"));
    Err(StoreError::unknown(Code::Failed, detail))
}

#[async_trait]
impl Store for Postgres {
    fn abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: true,
            durable: true,
            atomic_batch: usize::MAX,
            history_slots: self.history_slots.load(Ordering::Relaxed),
            exclusive_effects: true,
            shared: true,
        }
    }

    async fn open_session(&self, open: &OpenSession) -> Result<Opened, StoreError> {
        self.session_open(open).await
    }

    async fn close_session(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> Result<Closed, StoreError> {
        self.session_close(session, reason).await
    }

    async fn keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError> {
        self.session_keep_alive(session, note, holds).await
    }

    // Why: docs/decisions/0018-postgres-claim-locking.md
    async fn claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.hold_claim(session, wants, reason).await
    }

    async fn release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> Result<Vec<Released>, StoreError> {
        self.hold_release(session, holds, reason).await
    }

    async fn evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> Result<Evicted, StoreError> {
        self.session_evict(group, instance, when, reason).await
    }

    async fn groups(&self) -> Result<Vec<GroupName>, StoreError> {
        self.group_list().await
    }

    async fn members(&self, group: &GroupName) -> Result<Vec<Member>, StoreError> {
        self.group_members(group).await
    }

    async fn holders(&self, group: &GroupName) -> Result<Vec<Holder>, StoreError> {
        self.group_holders(group).await
    }

    async fn load(&self, duties: &[DutyKey]) -> Result<Vec<Option<Checkpoint>>, StoreError> {
        self.checkpoint_load(duties).await
    }

    async fn commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> Result<Vec<Committed>, StoreError> {
        self.checkpoint_commit(session, commits).await
    }

    async fn history(&self, duty: &DutyKey) -> Result<Vec<Checkpoint>, StoreError> {
        self.checkpoint_history(duty).await
    }

    async fn group_document(&self, group: &GroupName) -> Result<GroupDocument, StoreError> {
        self.document_read(group).await
    }

    async fn replace_group_document(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> Result<Replaced, StoreError> {
        self.document_replace(group, expected, document).await
    }

    async fn watch(&self, group: &GroupName) -> Result<Box<dyn Watch>, StoreError> {
        let start = || async {
            let channel = format!("{}.changes", self.schema);
            NotificationListener::start(self.target.clone(), channel).await.map(Arc::new)
        };
        Ok(self.listener.get_or_try_init(start).await?.watch(group))
    }

    async fn audit(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        self.audit_read(group, range).await
    }

    async fn forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> Result<Vec<Forgotten>, StoreError> {
        self.duty_forget(duties, reason).await
    }

    async fn adopt(&self, adopt: &Adopt) -> Result<Adopted, StoreError> {
        self.store_adopt(adopt).await
    }

    async fn retain(&self, retention: Retention) -> Result<(), StoreError> {
        self.store_retain(retention).await
    }

    async fn retention(&self) -> Result<Retention, StoreError> {
        self.store_retention().await
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        self.store_survey().await
    }
}
