//! PostgreSQL: many hosts, and effects that share the lease's own transaction.
//!
//! Each change is one statement that commits by itself: a client that is paused between two
//! statements could block a takeover for ever. What needs several steps is a function in the
//! database, so it still is one round trip. Locks are taken in one order everywhere: holds by key,
//! sessions by instance, checkpoints by key, floors by group. Time is `clock_timestamp()`.
//!
//! Why: docs/decisions/0017-postgres-one-statement-per-change.md

mod commit;
pub(crate) mod connect;
pub(crate) mod error;
mod fence;
mod read;
pub(crate) mod schema;
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
    Commit, Committed, Evict, Evicted, Forgotten, GroupDocument, HoldFate, Holder, KeptAlive,
    Member, OpenSession, Opened, Released, Replaced, Retention, Watch, check,
};
use tenure_core::text::counted;
use tenure_core::{
    Code, Document, DutyKey, GroupName, Hold, InstanceId, Mark, Note, Reason, Session, Store,
    StoreError, Version,
};
use tokio::sync::OnceCell;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::{CLAIMS_PER_TRIM, IfAbsent, fates_by_mark};
pub(crate) use connect::connect_once;
use connect::{Parameter, PostgresConnectConfig, PostgresPool};
use read::column;
use statements::Statements;
use watch::NotificationListener;

pub use fence::{fence, fence_in};

/// Connections for everything but keep-alives.
const DATA_CONNECTIONS: usize = 8;
/// Connections for keep-alives alone: one that works, one while the other is being replaced (R7).
const KEEP_ALIVE_CONNECTIONS: usize = 2;

/// How to open a PostgreSQL store.
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
        store.trim_audit().await?;
        store.store_retention().await?;
        Ok(store)
    }

    async fn trim_audit(&self) -> Result<(), StoreError> {
        self.query(&self.statements.audit_trim, &[]).await?;
        Ok(())
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

    /// Which of the holds stand, looking only at those whose mark does not already say so. The
    /// session is extended by now: what cannot be looked at is unknown, not refused.
    async fn look_at(
        &self,
        session: &Session,
        holds: &[Hold],
        common: Option<Mark>,
        mark: Mark,
    ) -> Vec<HoldFate> {
        let (mut fates, unsure) = fates_by_mark(session, holds, common, mark);
        if unsure.is_empty() {
            return fates;
        }
        let who = SessionKey::of(session);
        let duties: Vec<&str> = unsure.iter().map(|n| holds[*n].duty.id.as_str()).collect();
        let epochs: Vec<i64> = unsure.iter().map(|n| holds[*n].epoch.as_i64()).collect();
        let [group, instance, nonce] = who.parameters();
        let (duties, epochs) = ((&duties as _, Type::TEXT_ARRAY), (&epochs as _, Type::INT8_ARRAY));
        let parameters = [group, instance, nonce, duties, epochs];
        let looked = self.keep_alive_pool.query(&self.statements.hold_standing, &parameters).await;
        let standing: Result<Vec<usize>, StoreError> =
            looked.and_then(|rows| rows.iter().map(read::index).collect());
        match standing {
            Ok(standing) => {
                for n in standing.into_iter().filter_map(|position| unsure.get(position)) {
                    fates[*n] = HoldFate::Kept;
                }
            }
            Err(_) => unsure.into_iter().for_each(|n| fates[n] = HoldFate::Unknown),
        }
        fates
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
        let session = open.session();
        let who = SessionKey::of(&session);
        let [group, instance, nonce] = who.parameters();
        let (ttl, note) = (open.ttl.as_millis() as i64, open.note.as_str().as_bytes());
        let mark = Mark::first(open.nonce).0 as i64;
        let (ttl, note) = ((&ttl as _, Type::INT8), (&note as _, Type::BYTEA));
        let parameters = [group, instance, nonce, ttl, note, (&mark, Type::INT8)];
        let outcome: String = self.value(&self.statements.session_open, &parameters).await?;
        match outcome.as_str() {
            "open" => Ok(Opened::Open(open.session())),
            "taken" => Ok(Opened::Taken),
            "spent" => Ok(Opened::Spent),
            "evicted" => Ok(Opened::Evicted),
            other => Err(StoreError::unknown(Code::Damaged, format!("answer {other:?}"))),
        }
    }

    async fn close_session(
        &self,
        session: &Session,
        reason: &Reason,
    ) -> Result<Closed, StoreError> {
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let parameters = [group, instance, nonce, (&reason.as_str(), Type::TEXT)];
        let outcome: String = self.value(&self.statements.session_close, &parameters).await?;
        Ok(if outcome == "closed" { Closed::Closed } else { Closed::AlreadyEnded })
    }

    async fn keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError> {
        check::keep_alive(holds)?;
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let note = note.map(|note| note.as_str().as_bytes());
        let parameters = [group, instance, nonce, (&note, Type::BYTEA)];
        let keeping = self.keep_alive_pool.query(&self.statements.session_keep_alive, &parameters);
        // Found while the server is at work.
        let common = async { Hold::common_mark(holds, session) };
        let (rows, common) = tokio::join!(keeping, common);
        let rows = rows?;
        let Some(row) = rows.first() else {
            return Ok(KeptAlive::Ended);
        };
        let mark = Mark(column::<i64>(row, 0)? as u64);
        Ok(KeptAlive::Kept { mark, holds: self.look_at(session, holds, common, mark).await })
    }

    // Why: docs/decisions/0018-postgres-claim-locking.md
    async fn claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> Result<Vec<Claimed>, StoreError> {
        check::claim(session, wants)?;
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let duties: Vec<&str> = wants.iter().map(|want| want.duty.id.as_str()).collect();
        let floors: Vec<i64> = wants.iter().map(|want| want.floor.as_i64()).collect();
        let (duties, floors) = ((&duties as _, Type::TEXT_ARRAY), (&floors as _, Type::INT8_ARRAY));
        let reason = (&reason.as_str() as _, Type::TEXT);
        let parameters = [group, instance, nonce, duties, floors, reason];
        let rows = self.query(&self.statements.hold_claim, &parameters).await?;
        if self.claims.fetch_add(1, Ordering::Relaxed) % CLAIMS_PER_TRIM == CLAIMS_PER_TRIM - 1 {
            // What is not cut now is cut the next time; the claim has happened.
            let _ = self.trim_audit().await;
        }
        let rows = complete(rows, wants.len())?;
        let read = |(row, want)| read::claimed(row, session, want).map_err(StoreError::or_happened);
        rows.iter().zip(wants).map(read).collect()
    }

    async fn release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> Result<Vec<Released>, StoreError> {
        check::release(session, holds)?;
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let duties: Vec<&str> = holds.iter().map(|hold| hold.duty.id.as_str()).collect();
        let epochs: Vec<i64> = holds.iter().map(|hold| epoch_for(session, hold)).collect();
        let (duties, epochs) = ((&duties as _, Type::TEXT_ARRAY), (&epochs as _, Type::INT8_ARRAY));
        let reason = (&reason.as_str() as _, Type::TEXT);
        let parameters = [group, instance, nonce, duties, epochs, reason];
        let rows = self.query(&self.statements.hold_release, &parameters).await?;
        let read = |row| read::released(row).map_err(StoreError::or_happened);
        complete(rows, holds.len())?.iter().map(read).collect()
    }

    async fn evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> Result<Evicted, StoreError> {
        let now = when == Evict::Now;
        let parameters: [Parameter<'_>; 4] = [
            (&group.as_str(), Type::TEXT),
            (&instance.as_str(), Type::TEXT),
            (&now, Type::BOOL),
            (&reason.as_str(), Type::TEXT),
        ];
        let ended: Option<i64> = self.value(&self.statements.session_evict, &parameters).await?;
        Ok(match ended {
            Some(ended) => Evicted::Evicted { ended: ended as u64 },
            None => Evicted::NotAMember,
        })
    }

    async fn groups(&self) -> Result<Vec<GroupName>, StoreError> {
        let rows = self.query(&self.statements.group_names, &[]).await?;
        rows.iter().map(|row| GroupName::new(column::<String>(row, 0)?)).collect()
    }

    async fn members(&self, group: &GroupName) -> Result<Vec<Member>, StoreError> {
        let group = (&group.as_str() as _, Type::TEXT);
        let rows = self.query(&self.statements.group_members, &[group]).await?;
        rows.iter().map(read::member).collect()
    }

    async fn holders(&self, group: &GroupName) -> Result<Vec<Holder>, StoreError> {
        let parameters: [Parameter<'_>; 1] = [(&group.as_str(), Type::TEXT)];
        let rows = self.query(&self.statements.group_holders, &parameters).await?;
        rows.iter().map(|row| read::holder(row, group)).collect()
    }

    async fn load(&self, duties: &[DutyKey]) -> Result<Vec<Option<Checkpoint>>, StoreError> {
        check::load(duties)?;
        let groups: Vec<&str> = duties.iter().map(|duty| duty.group.as_str()).collect();
        let ids: Vec<&str> = duties.iter().map(|duty| duty.id.as_str()).collect();
        let parameters: [Parameter<'_>; 2] =
            [(&groups, Type::TEXT_ARRAY), (&ids, Type::TEXT_ARRAY)];
        let mut answers = vec![None; duties.len()];
        for row in self.query(&self.statements.checkpoint_load, &parameters).await? {
            if let Some(answer) = answers.get_mut(read::index(&row)?) {
                *answer = Some(read::checkpoint(&row)?);
            }
        }
        Ok(answers)
    }

    async fn commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> Result<Vec<Committed>, StoreError> {
        check::commit(session, commits)?;
        if let [commit] = commits {
            return Ok(vec![self.commit_one(session, commit).await?]);
        }
        let who = SessionKey::of(session);
        let [group, instance, nonce] = who.parameters();
        let duties: Vec<&str> = commits.iter().map(|c| c.hold.duty.id.as_str()).collect();
        let epochs: Vec<i64> = commits.iter().map(|c| epoch_for(session, &c.hold)).collect();
        let expected: Vec<i64> = commits.iter().map(|c| c.expected.as_i64()).collect();
        let documents: Vec<&[u8]> = commits.iter().map(|c| c.document.as_bytes()).collect();
        let parameters = [
            group,
            instance,
            nonce,
            (&duties as _, Type::TEXT_ARRAY),
            (&epochs as _, Type::INT8_ARRAY),
            (&expected as _, Type::INT8_ARRAY),
            (&documents as _, Type::BYTEA_ARRAY),
        ];
        let rows = self.query(&self.statements.checkpoint_commit, &parameters).await?;
        let read = |row| read::committed(row).map_err(StoreError::or_happened);
        complete(rows, commits.len())?.iter().map(read).collect()
    }

    async fn history(&self, duty: &DutyKey) -> Result<Vec<Checkpoint>, StoreError> {
        let parameters: [Parameter<'_>; 2] =
            [(&duty.group.as_str(), Type::TEXT), (&duty.id.as_str(), Type::TEXT)];
        let rows = self.query(&self.statements.checkpoint_history, &parameters).await?;
        rows.iter().map(read::checkpoint).collect()
    }

    async fn group_document(&self, group: &GroupName) -> Result<GroupDocument, StoreError> {
        let parameters: [Parameter<'_>; 1] = [(&group.as_str(), Type::TEXT)];
        let rows = self.query(&self.statements.group_document, &parameters).await?;
        let Some(row) = rows.first() else {
            return Ok(GroupDocument::default());
        };
        let version = Version::from_i64(column(row, 0)?)?;
        Ok(GroupDocument { version, document: Document::new(column::<Vec<u8>>(row, 1)?)? })
    }

    async fn replace_group_document(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> Result<Replaced, StoreError> {
        let parameters: [Parameter<'_>; 3] = [
            (&group.as_str(), Type::TEXT),
            (&expected.as_i64(), Type::INT8),
            (&document.as_bytes(), Type::BYTEA),
        ];
        let rows = self.query(&self.statements.group_replace_document, &parameters).await?;
        match rows.first() {
            Some(row) => Ok(Replaced::Saved(Version::from_i64(column(row, 0)?)?)),
            None => Ok(Replaced::Conflict { stored: self.group_document(group).await?.version }),
        }
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
        let after = i64::try_from(range.after).unwrap_or(i64::MAX);
        let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
        let parameters: [Parameter<'_>; 3] =
            [(&group.as_str(), Type::TEXT), (&after, Type::INT8), (&limit, Type::INT8)];
        let rows = self.query(&self.statements.audit_read, &parameters).await?;
        rows.iter().map(|row| read::audit_entry(row, group)).collect()
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
