//! The store on one Redis server.
//!
//! # Keys
//!
//! `P` is the prefix, `G` the group, `I` the instance, `D` the duty id, each percent-escaped where
//! needed. With an empty prefix, the first two keys of the group `poll` are exactly those of the
//! poll lease layout. Foreign instances may share that group, so its `I` and `D` are not escaped in
//! these keys. Versions up to schema 2 escaped them; such members still hold leases under the
//! escaped names, and while one lives, a lease whose two names differ is written under both.
//!
//! | key | type | TTL | holds |
//! |---|---|---|---|
//! | `PG:node:I` | string | session | `1`: the heartbeat |
//! | `PG:lease:D` | string | session | the instance id as it is |
//! | `PG:session:I` | hash | session | nonce, note, ttl, evicted, mark, plain |
//! | `PG:fence:D` | string | none | the newest epoch |
//! | `PG:grants` | hash | none | `D` to nonce, `held` or `free`, and instance of the last grant |
//! | `PG:members` | set | none | an index of `I`; a read removes expired entries |
//! | `PG:checkpoint:D` | hash | none | version, epoch, instance, document, unix_ms |
//! | `PG:report:D` | hash | none | epoch, number, instance, document, unix_ms of the newest report |
//! | `PG:history:D` | list | none | the last checkpoints, newest first |
//! | `PG:floor` | string | none | the newest epoch of the forgotten duties |
//! | `PG:document` | hash | none | version, document |
//! | `PG:audit` | stream | none | kind, instance, duty, epoch, reason, unix_ms |
//! | `PG:spent:N` | string | 7 days | `1`: the nonce `N` was used for a session |
//! | `PG:barred:I` | string | 7 days | `1`: the instance was evicted |
//! | `Ptenure:groups` | set | none | an index of `G` |
//! | `Ptenure:store` | hash | none | the marker: incarnation, base, run_id, schema, breaking |
//!
//! The marker also has `history_slots` and `audit_kept` if they were set.
//!
//! Hints are published on the channel `PG:changes`.
//!
//! # When a hold is valid
//!
//! A hold is valid exactly when the marker still names the opened store, the session's record has
//! the hold's nonce, the lease names its instance, and the fence has its epoch. Each script checks
//! all of that in the same atomic step that acts on it.
//!
//! # When the server loses its state
//!
//! Two signs are needed, because `FLUSHALL` leaves the server's run id unchanged, and a restart
//! with its file keeps the marker. A missing or different marker means a new store: all earlier
//! state is lost, callers get [`Code::Reset`], and the next call works with the new store. A
//! different run id means that the last second of grants may be missing. In both cases epochs
//! continue above the server's clock in microseconds, which is above every epoch ever granted. If
//! that clock was set back, they continue above every epoch that the handle has seen.
//!
//! Why: docs/decisions/0002-only-sessions-have-a-ttl.md
//! Why: docs/decisions/0024-redis-epochs-start-from-the-clock.md

mod audit;
mod checkpoint;
mod client;
mod connect;
mod error;
mod foreign;
mod group;
mod hold;
mod mutants;
mod reply;
mod report;
mod script;
mod session;
mod survey;
mod upkeep;
mod watch;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};
use tenure_core::store::{Abilities, Retention};
use tenure_core::{Code, DutyKey, Epoch, GroupName, StoreError, StoreResult};

use crate::delegate::{impl_store, own_method};
use crate::{IfAbsent, SHARED_GROUP};
use client::{CommandResult, RedisClient, settle};
pub(crate) use connect::{DrivenConnection, RedisConnector};
use foreign::Foreign;
use reply::RedisReply;
use script::{Script, ScriptCall, command};

/// The newest key layout that this version knows. It leaves leases and heartbeats unescaped in the
/// group that foreign instances may share.
const SCHEMA_VERSION: u64 = 3;

/// The first layout that stores floors for forgotten duties.
const FLOORS_SCHEMA: u64 = 2;

/// Maximum number of items in one script, which nothing can interrupt (R8).
const MAX_SCRIPT_ITEMS: usize = 500;

/// Retention of ended sessions and evictions: seven days, in milliseconds.
const REMEMBERED_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Settings of a [`Redis`] store.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://[user:password@]host:port/number`, or `rediss://` with `cacert`, `cert` and `key`.
    pub url: String,
    /// Prefix of every key; empty for the names of the poll lease layout.
    pub prefix: String,
    /// 128 random bits of this handle; they name a store that it creates.
    pub entropy: u128,
    /// Whether to create a missing store.
    pub if_absent: IfAbsent,
}

/// Without the URL, which may hold a password.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A handle to the store.
pub struct Redis {
    connector: Arc<RedisConnector>,
    address: String,
    prefix: String,
    entropy: u128,
    /// For sessions and holds: a keep-alive never waits behind documents (R7).
    control: RedisClient,
    /// For everything else.
    data: RedisClient,
    /// The incarnation that this handle works with; `None` after a reset was detected.
    incarnation: Mutex<Option<Arc<str>>>,
    /// Number of stores that this handle has offered to create.
    offered: AtomicU64,
    /// The largest epoch that this handle has ever seen.
    seen: AtomicU64,
    foreign: Foreign,
    /// As last read or set by this handle; the scripts read the store's own value.
    history_slots: AtomicUsize,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({} {:?})", self.address, self.prefix)
    }
}

impl Redis {
    /// Connects, checks the kind of server, and finds or creates the store.
    pub async fn open(settings: RedisSettings) -> StoreResult<Self> {
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
    async fn look_at_server(&self) -> StoreResult<()> {
        let Some(cluster) = self.info(&self.control, "cluster").await? else { return Ok(()) };
        if cluster.lines().any(|line| line.trim() == "cluster_enabled:1") {
            let detail = format!("{} runs in cluster mode", self.address);
            return Err(StoreError::refused(Code::Cluster, detail));
        }
        Ok(())
    }

    /// Refuses a server without a store, before anything is written.
    async fn look_for_marker(&self) -> StoreResult<()> {
        let exists = command(&["EXISTS", &self.marker()]);
        match settle(self.control.send(&[exists]).await?)?.pop() {
            Some(Value::Int(0)) => {
                let detail = format!("no key {} on {}", self.marker(), self.address);
                Err(StoreError::refused(Code::Absent, detail))
            }
            _ => Ok(()),
        }
    }

    /// Returns a section of `INFO`; `None` when this user may not read it.
    async fn info(&self, client: &RedisClient, section: &str) -> StoreResult<Option<String>> {
        let answer = client.send(&[command(&["INFO", section])]).await?.pop();
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

    /// Returns the store's incarnation; finds or creates the store if this handle has none.
    async fn incarnation(&self, client: &RedisClient) -> StoreResult<Arc<str>> {
        if let Some(known) = self.known().clone() {
            return Ok(known);
        }
        let info = self.info(client, "server").await?.unwrap_or_default();
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let offer = self.offered.fetch_add(1, Ordering::Relaxed);
        let open = Script::StoreOpen
            .call(1)
            .arg(self.marker())
            .arg(format!("{:032x}-{offer}", self.entropy))
            .arg("")
            .arg(SCHEMA_VERSION)
            .arg(self.seen.load(Ordering::Relaxed))
            .arg(run_id.unwrap_or_default().trim());
        let value = settle(client.send(&[open.0]).await?)?.pop();
        let mut found = RedisReply::of(value.unwrap_or(Value::Nil))?;
        let (found, slots): (Arc<str>, _) = (found.text()?.into(), found.number()?);
        self.history_slots.store(slots as usize, Ordering::Relaxed);
        *self.known() = Some(found.clone());
        Ok(found)
    }

    /// Runs scripts and returns one result for each. After a reset, this handle forgets the
    /// incarnation, so that the next call reads the marker again.
    async fn call(
        &self,
        client: &RedisClient,
        build: impl FnOnce(&str) -> Vec<ScriptCall>,
    ) -> StoreResult<Vec<CommandResult>> {
        let incarnation = self.incarnation(client).await?;
        let commands: Vec<Cmd> = build(&incarnation).into_iter().map(|call| call.0).collect();
        let answers = client.send(&commands).await?;
        if answers.iter().any(is_reset) {
            let mut known = self.known();
            if known.as_ref() == Some(&incarnation) {
                *known = None;
            }
        }
        Ok(answers)
    }

    /// Runs a script on chunks of at most [`MAX_SCRIPT_ITEMS`] items.
    async fn call_chunks<T>(
        &self,
        client: &RedisClient,
        items: &[T],
        build: impl Fn(&str, &[T]) -> ScriptCall,
    ) -> StoreResult<Vec<Value>> {
        let chunks = items.chunks(MAX_SCRIPT_ITEMS);
        let calls = |incarnation: &str| chunks.map(|chunk| build(incarnation, chunk)).collect();
        settle(self.call(client, calls).await?)
    }

    async fn call_one(
        &self,
        client: &RedisClient,
        build: impl FnOnce(&str) -> ScriptCall,
    ) -> StoreResult<Value> {
        let answers = self.call(client, |incarnation| vec![build(incarnation)]);
        settle(answers.await?)?.pop().ok_or_else(|| error::unexpected("none"))
    }

    /// Runs one script that returns an array.
    async fn ask(
        &self,
        client: &RedisClient,
        build: impl FnOnce(&str) -> ScriptCall,
    ) -> StoreResult<RedisReply> {
        RedisReply::of(self.call_one(client, build).await?)
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

    fn lease_key(&self, root: &str, duty: &DutyKey) -> String {
        let id = if is_shared(&duty.group) { duty.id.as_str().into() } else { duty.id.escaped() };
        [root, "lease:", &id].concat()
    }

    /// Starts a call that works on one group.
    fn script(&self, script: Script, incarnation: &str, group: &GroupName) -> ScriptCall {
        script.call(1).arg(self.marker()).arg(incarnation).arg(self.root(group))
    }

    /// Starts a call on one group that also maintains the index of groups.
    fn script_with_index(&self, script: Script, known: &str, group: &GroupName) -> ScriptCall {
        let call = script.call(2).arg(self.marker()).arg(self.groups_key());
        call.arg(known).arg(self.root(group)).arg(&*group.escaped())
    }

    fn store_abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: false,
            durable: true,
            atomic_batch: MAX_SCRIPT_ITEMS,
            history_slots: self.history_slots.load(Ordering::Relaxed),
            exclusive_effects: false,
            shared: true,
        }
    }
}

fn is_reset(answer: &CommandResult) -> bool {
    answer.as_ref().is_err_and(|error| error.code() == Code::Reset)
}

fn is_shared(group: &GroupName) -> bool {
    group.as_str() == SHARED_GROUP
}

/// Whether older versions know the lease of a duty under another key.
fn has_two_names(duty: &DutyKey) -> bool {
    is_shared(&duty.group) && *duty.id.escaped() != *duty.id.as_str()
}

impl_store!(Redis by own_method);

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
