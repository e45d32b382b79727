//! The store on one Redis server.
//!
//! # Keys
//!
//! `P` is the prefix, `G` the group, `I` the instance, `D` the duty id, each percent-escaped where
//! needed. The first two are those of the poll lease layout, exactly, for the group `poll` and an
//! empty prefix: in that group, which foreign instances may share, they have `I` and `D` as they
//! are. Versions up to schema 2 escaped them there, too; what such members hold is theirs, and
//! while one lives, a lease whose two names differ is written under both.
//!
//! | key | type | TTL | holds |
//! |---|---|---|---|
//! | `PG:node:I` | string | session | `1`: the heartbeat |
//! | `PG:lease:D` | string | session | the instance id as it is |
//! | `PG:session:I` | hash | session | nonce, note, ttl, evicted, mark, plain |
//! | `PG:fence:D` | string | none | the newest epoch |
//! | `PG:grants` | hash | none | `D` to nonce, `held` or `free`, and instance of the last grant |
//! | `PG:members` | set | none | an index of `I`; what has expired goes when it is read |
//! | `PG:checkpoint:D` | hash | none | version, epoch, instance, document, unix_ms |
//! | `PG:history:D` | list | none | the last checkpoints, newest first |
//! | `PG:floor` | string | none | the newest epoch of the duties that were forgotten |
//! | `PG:document` | hash | none | version, document |
//! | `PG:audit` | stream | none | kind, instance, duty, epoch, reason, unix_ms |
//! | `PG:spent:N` | string | 7 days | `1`: the nonce `N` was used for a session |
//! | `PG:barred:I` | string | 7 days | `1`: the instance was evicted |
//! | `Ptenure:groups` | set | none | an index of `G` |
//! | `Ptenure:store` | hash | none | the marker: incarnation, base, run_id, schema, breaking |
//!
//! The marker also has `history_slots` and `audit_kept`, where they were set.
//!
//! Hints go through the channel `PG:changes`.
//!
//! # A hold stands
//!
//! exactly when the marker is the one that was opened, the session's record has the hold's nonce,
//! the lease has its instance, and the fence has its epoch. Each script looks at all of that in the
//! same atomic step that acts on it.
//!
//! # When the server loses its state
//!
//! `FLUSHALL` leaves the server's run id as it is, and a restart with its file keeps the marker: so
//! there are two signs. A missing or different marker is a new store: everything of before is lost,
//! callers are told [`Code::Reset`], and the next call works with the new one. A different run id
//! means that the last second of grants may be missing. In both cases epochs go on above the
//! server's microseconds, which is above everything that was ever granted, unless its clock was set
//! back; then above every epoch that the handle has seen.
//!
//! Why: docs/decisions/0002-only-sessions-have-a-ttl.md
//! Why: docs/decisions/0024-redis-epochs-start-from-the-clock.md

mod checkpoint;
mod client;
mod connect;
mod error;
mod foreign;
mod group;
mod hold;
mod reply;
mod script;
mod session;
mod survey;
mod upkeep;
mod watch;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use redis::{Cmd, Value};
use tenure_core::guarantee::Survey;
use tenure_core::store::{
    Abilities, Adopt, Adopted, AuditEntry, AuditRange, Checkpoint, ClaimRequest, Claimed, Closed,
    Commit, Committed, Evict, Evicted, Forgotten, GroupDocument, Holder, KeptAlive, Member,
    OpenSession, Opened, Released, Replaced, Retention, Watch,
};
use tenure_core::{
    Code, Document, DutyKey, Epoch, GroupName, Hold, InstanceId, Note, Reason, Session, Store,
    StoreError, Version,
};

use crate::{IfAbsent, SHARED_GROUP};
use client::{CommandResult, RedisClient, settle};
pub(crate) use connect::{DrivenConnection, RedisConnector};
use foreign::Foreign;
use reply::RedisReply;
use script::Script;

/// The newest layout of keys that this version knows: leases and heartbeats of the group that
/// foreign instances may share have plain names.
const SCHEMA_VERSION: u64 = 3;

/// The first layout that has floors of forgotten duties.
const FLOORS_SCHEMA: u64 = 2;

/// Up to so many items go into one script, which nobody interrupts (R8).
const MAX_SCRIPT_ITEMS: usize = 500;

/// Time for which ended sessions and evictions are remembered: seven days, in milliseconds.
const REMEMBERED_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Settings of a [`Redis`] store.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://[user:password@]host:port/number`, or `rediss://` with `cacert`, `cert` and `key`.
    pub url: String,
    /// Put before every key; empty for the names of the poll lease layout.
    pub prefix: String,
    /// 128 random bits of this handle: they name a store that it creates.
    pub entropy: u128,
    /// Whether to make a store where there is none.
    pub if_absent: IfAbsent,
}

/// The URL may hold a password.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A handle on the store.
pub struct Redis {
    connector: Arc<RedisConnector>,
    address: String,
    prefix: String,
    entropy: u128,
    /// For sessions and holds: a keep-alive never waits behind documents (R7).
    control: RedisClient,
    /// For everything else.
    data: RedisClient,
    /// The store that this handle works with; `None` after it was found to be another one.
    incarnation: Mutex<Option<Arc<str>>>,
    /// Number of stores that this handle has offered to create.
    offered: AtomicU64,
    /// The largest epoch that this handle has ever seen.
    seen: AtomicU64,
    foreign: Foreign,
    /// As it was when this handle last heard of it; the scripts read the store's own.
    history_slots: AtomicUsize,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({} {:?})", self.address, self.prefix)
    }
}

impl Redis {
    /// Connects, looks at what kind of server this is, and finds or creates the store there.
    pub async fn open(settings: RedisSettings) -> Result<Self, StoreError> {
        let connector = Arc::new(RedisConnector::new(&settings.url).await?);
        let client = || RedisClient::new(connector.clone());
        let store = Self {
            control: client(),
            data: client(),
            address: connector.address().to_owned(),
            connector,
            prefix: settings.prefix,
            entropy: settings.entropy,
            incarnation: Mutex::default(),
            offered: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            foreign: Foreign::default(),
            history_slots: AtomicUsize::new(Retention::default().history_slots),
        };
        store.look_at_server().await?;
        if settings.if_absent == IfAbsent::Refuse {
            store.look_for_marker().await?;
        }
        store.incarnation(&store.control).await?;
        Ok(store)
    }

    /// Refuses a server that cannot keep the contract.
    async fn look_at_server(&self) -> Result<(), StoreError> {
        let Some(cluster) = self.info(&self.control, "cluster").await? else {
            return Ok(());
        };
        if cluster.lines().any(|line| line.trim() == "cluster_enabled:1") {
            let detail = format!("{} runs in cluster mode", self.address);
            return Err(StoreError::refused(Code::Cluster, detail));
        }
        Ok(())
    }

    /// Refuses a place that holds no store, before anything is written there.
    async fn look_for_marker(&self) -> Result<(), StoreError> {
        let mut command = redis::cmd("EXISTS");
        command.arg(self.marker());
        match settle(self.control.send(&[command]).await?)?.pop() {
            Some(Value::Int(0)) => {
                let detail = format!("no key {} on {}", self.marker(), self.address);
                Err(StoreError::refused(Code::Absent, detail))
            }
            _ => Ok(()),
        }
    }

    /// A section of the server's own account; `None` when this user may not read it.
    async fn info(
        &self,
        client: &RedisClient,
        section: &str,
    ) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("INFO");
        command.arg(section);
        let answer = client.send(&[command]).await?.pop();
        match answer.unwrap_or(Ok(Value::Nil)) {
            Ok(Value::BulkString(bytes)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Ok(_) => Ok(None),
            Err(StoreError::Refused(problem)) if problem.code == Code::Denied => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.incarnation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store to work with, found or created when this handle has none.
    async fn incarnation(&self, client: &RedisClient) -> Result<Arc<str>, StoreError> {
        if let Some(known) = self.known().clone() {
            return Ok(known);
        }
        let info = self.info(client, "server").await?.unwrap_or_default();
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let offer = self.offered.fetch_add(1, Ordering::Relaxed);
        let mut command = Script::StoreOpen.call(1);
        command
            .arg(self.marker())
            .arg(format!("{:032x}-{offer}", self.entropy))
            .arg("")
            .arg(SCHEMA_VERSION)
            .arg(self.seen.load(Ordering::Relaxed))
            .arg(run_id.unwrap_or_default().trim());
        let value = settle(client.send(&[command]).await?)?.pop();
        let mut found = RedisReply::of(value.unwrap_or(Value::Nil))?;
        let (found, slots): (Arc<str>, _) = (found.text()?.into(), found.number()?);
        self.history_slots.store(slots as usize, Ordering::Relaxed);
        *self.known() = Some(found.clone());
        Ok(found)
    }

    /// Runs scripts, with one answer for each. A store that is another one now is forgotten, so
    /// that the next call looks again.
    async fn call(
        &self,
        client: &RedisClient,
        build: impl FnOnce(&str) -> Vec<Cmd>,
    ) -> Result<Vec<CommandResult>, StoreError> {
        let incarnation = self.incarnation(client).await?;
        let answers = client.send(&build(&incarnation)).await?;
        if answers.iter().any(is_reset) {
            let mut known = self.known();
            if known.as_ref() == Some(&incarnation) {
                *known = None;
            }
        }
        Ok(answers)
    }

    /// Runs one script.
    async fn call_one(
        &self,
        client: &RedisClient,
        build: impl FnOnce(&str) -> Cmd,
    ) -> Result<Value, StoreError> {
        let answers = self.call(client, |incarnation| vec![build(incarnation)]);
        let mut values = settle(answers.await?)?;
        values.pop().ok_or_else(|| error::unexpected("none"))
    }

    fn saw(&self, epoch: Epoch) {
        self.seen.fetch_max(epoch.get(), Ordering::Relaxed);
    }

    fn marker(&self) -> String {
        format!("{}tenure:store", self.prefix)
    }

    fn groups_key(&self) -> String {
        format!("{}tenure:groups", self.prefix)
    }

    fn root(&self, group: &GroupName) -> String {
        format!("{}{}:", self.prefix, group.escaped())
    }

    /// The key of a duty's lease.
    fn lease_key(&self, root: &str, duty: &DutyKey) -> String {
        let id = match is_shared(&duty.group) {
            true => duty.id.as_str().into(),
            false => duty.id.escaped(),
        };
        [root, "lease:", &id].concat()
    }

    /// The beginning of a call that works on one group.
    fn script(&self, script: Script, incarnation: &str, group: &GroupName) -> Cmd {
        let mut command = script.call(1);
        command.arg(self.marker()).arg(incarnation).arg(self.root(group));
        command
    }

    /// The same for a script that also keeps the index of groups.
    fn script_with_index(&self, script: Script, incarnation: &str, group: &GroupName) -> Cmd {
        let mut command = script.call(2);
        command.arg(self.marker()).arg(self.groups_key());
        command.arg(incarnation).arg(self.root(group));
        command.arg(&*group.escaped());
        command
    }
}

fn is_reset(answer: &CommandResult) -> bool {
    answer.as_ref().is_err_and(|error| error.code() == Code::Reset)
}

fn is_shared(group: &GroupName) -> bool {
    group.as_str() == SHARED_GROUP
}

/// Whether the lease of a duty has a name of its own for older versions.
fn has_two_names(duty: &DutyKey) -> bool {
    is_shared(&duty.group) && *duty.id.escaped() != *duty.id.as_str()
}

#[async_trait]
impl Store for Redis {
    fn abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: false,
            durable: true,
            atomic_batch: MAX_SCRIPT_ITEMS,
            history_slots: self.history_slots.load(Ordering::Relaxed),
            exclusive_effects: false,
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
        let channel = format!("{}changes", self.root(group));
        let listener = watch::RedisWatch::start(self.connector.clone(), channel).await?;
        Ok(Box::new(listener))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_do_not_show_the_password() {
        let settings = RedisSettings {
            url: "redis://:hunter2@h".to_owned(),
            prefix: "p:".to_owned(),
            entropy: 7,
            if_absent: IfAbsent::Create,
        };
        assert_eq!(format!("{settings:?}"), "RedisSettings { prefix: \"p:\", .. }");
    }
}
