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

mod audit;
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

    /// Refuses a place that holds no store, before anything is written there.
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

    /// A section of the server's own account; `None` when this user may not read it.
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

    /// The store to work with, found or created when this handle has none.
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

    /// Runs scripts, with one answer for each. A store that is another one now is forgotten, so
    /// that the next call looks again.
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

    /// Runs a script on up to [`MAX_SCRIPT_ITEMS`] items at a time.
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

    /// Runs one script.
    async fn call_one(
        &self,
        client: &RedisClient,
        build: impl FnOnce(&str) -> ScriptCall,
    ) -> StoreResult<Value> {
        let answers = self.call(client, |incarnation| vec![build(incarnation)]);
        settle(answers.await?)?.pop().ok_or_else(|| error::unexpected("none"))
    }

    /// Runs one script that answers with an array.
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

    /// The key of a duty's lease.
    fn lease_key(&self, root: &str, duty: &DutyKey) -> String {
        let id = if is_shared(&duty.group) { duty.id.as_str().into() } else { duty.id.escaped() };
        [root, "lease:", &id].concat()
    }

    /// The beginning of a call that works on one group.
    fn script(&self, script: Script, incarnation: &str, group: &GroupName) -> ScriptCall {
        script.call(1).arg(self.marker()).arg(incarnation).arg(self.root(group))
    }

    /// The same for a script that also keeps the index of groups.
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

/// Whether the lease of a duty has a name of its own for older versions.
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
