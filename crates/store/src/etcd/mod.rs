//! The store on etcd.
//!
//! # Keys
//!
//! `P` is the prefix, `G` the group, `I` the instance, `D` the duty id, each percent-escaped where
//! needed.
//!
//! | key | lease | holds |
//! |---|---|---|
//! | `Pgroup/G/live/session/I` | session | the nonce; the key's etcd version is the [`Mark`] |
//! | `Pgroup/G/live/note/I` | session | the note |
//! | `Pgroup/G/live/fence/D` | none | epoch, nonce, `held` or `free`, instance: the last grant |
//! | `Pgroup/G/live/document` | none | the group's document; its etcd version is its version |
//! | `Pgroup/G/kept/checkpoint/D` | none | the checkpoint; its etcd version is its version |
//! | `Pgroup/G/kept/history/D/V` | none | the last checkpoints, by version |
//! | `Pgroup/G/kept/audit/...` | none | kind, time, epoch, duty, instance, reason |
//! | `Pgroup/G/kept/spent/N` | memory | the nonce `N` was used for a session |
//! | `Pgroup/G/kept/barred/I` | memory | the instance was evicted |
//! | `Pgroup/G/kept/floor` | none | no epoch up to this one is granted in the group |
//! | `Pindex/G` | none | an index of groups |
//! | `Pstore` | none | schema, incarnation, floor of the store, how much of the past is kept |
//!
//! Hints are a watch on `Pgroup/G/live/`.
//!
//! # A hold stands
//!
//! exactly when its fence has its epoch, nonce, instance and the word `held`, and the session of
//! that instance has that nonce. Both are compared in the same transaction that acts. There is no
//! key per hold under the lease: the session's key is enough, ten thousand holds end with it in one
//! step, and a lease that dies has three keys to delete instead of ten thousand.
//!
//! A nonce that is gone never comes back, so a session that was once seen dead stays dead: a claim
//! that takes over compares the fence alone.
//!
//! # Leases
//!
//! The number of a session's lease is a hash of the session: whoever has the session can keep it
//! alive, and a grant whose answer was lost is the same grant when it is repeated. Who is evicted
//! until its TTL is moved to another lease, which nobody keeps alive: however often the evicted one
//! goes on asking, it ends. What is remembered for a week hangs on a lease of 15 days that each
//! handle grants when it needs one, and grants anew every week.
//!
//! # Transactions
//!
//! etcd takes 128 operations in one transaction, and nested ones that together with the outer one
//! stay below that; each key may be written once. A batch is one outer transaction that compares
//! the session, with one nested transaction per item: so each item has an outcome of its own. The
//! compares make sure that a transaction takes effect once, so it is repeated when its answer is
//! lost, with another server if there is one; what the second answer cannot tell is read again.
//!
//! Why: docs/decisions/0026-etcd-no-key-per-hold.md

mod audit;
mod call;
mod checkpoint;
mod cluster;
mod connect;
mod error;
mod group;
mod hold;
mod keep_alive;
mod key;
mod lease;
mod read;
mod record;
mod session;
mod survey;
mod upkeep;
mod watch;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::store::{Abilities, Retention};
use tenure_core::{Clock, Epoch, Hold, StoreResult};
use tenure_etcd::{Compare, KeyValue};

use crate::delegate::impl_store;
pub use crate::tls::PemFiles;
use crate::{BootClock, IfAbsent};
use call::EtcdCall;
use cluster::EtcdCluster;
use connect::EtcdConnector;
use key::KeyNames;

/// So many items go into one transaction: with the longest names they stay below etcd's 1.5 MiB,
/// and a nested transaction of five operations is left room for.
const MAX_TXN_ITEMS: usize = 100;

/// Documents of one transaction, with their copies in the history; etcd takes 1.5 MiB.
const MAX_TXN_BYTES: usize = 1_150_000;

/// Two documents of the largest size fit into one transaction, with their copies.
const ATOMIC_COMMITS: usize = 2;

/// So many reads go into one transaction.
const MAX_TXN_READS: usize = 100;

/// So many transactions of one call are under way at the same time.
const MAX_CONCURRENT_TXNS: usize = 8;

/// Small values in one page.
const PAGE_KEYS: i64 = 5_000;

/// Settings of an [`Etcd`] store.
#[derive(Clone)]
pub struct EtcdSettings {
    /// `host:port` of each server that may be asked.
    pub hosts: Vec<String>,
    /// User and password.
    pub user: Option<(String, String)>,
    /// Put before every key.
    pub prefix: String,
    /// TLS settings; without them connections are not encrypted.
    pub tls: Option<PemFiles>,
    /// 128 random bits of this handle: they name a store that it creates.
    pub entropy: u128,
    /// Whether to make a store where there is none.
    pub if_absent: IfAbsent,
}

/// Without the password.
impl fmt::Debug for EtcdSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSettings")
            .field("hosts", &self.hosts)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// A handle on the store.
pub struct Etcd {
    /// For keep-alives alone: they never wait behind documents (R7).
    control: EtcdCluster,
    cluster: Arc<EtcdCluster>,
    keys: KeyNames,
    entropy: u128,
    /// A handle that must not create a store does not create one later either.
    if_absent: IfAbsent,
    /// Names this handle in what it writes.
    number: u64,
    /// Counts what this handle has written.
    written: AtomicU64,
    known: Mutex<HandleState>,
    /// The largest epoch that this handle has ever seen, in an answer or a question.
    seen: AtomicU64,
    keepers: keep_alive::KeepAliveStreams,
    /// Counts the records of the audit trail since this handle has cut it.
    records: AtomicU64,
}

/// State of this handle.
#[derive(Default)]
struct HandleState {
    /// `None` after the store was found to be another one.
    incarnation: Option<String>,
    /// There was a store once.
    had_one: bool,
    retention: Retention,
    /// Number of stores that this handle has offered to create.
    offered: u64,
    /// The lease for memories, and when it was granted.
    memory: Option<(i64, tenure_core::LocalInstant)>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etcd({} {:?})", self.cluster.address(), self.keys)
    }
}

fn equals(key: &str, value: impl Into<Vec<u8>>) -> Compare {
    Compare::value(key, value)
}

/// True while the key has not been written since; revision zero is a key that does not exist.
fn unchanged(key: &str, revision: i64) -> Compare {
    Compare::mod_revision(key, revision)
}

fn absent(key: &str) -> Compare {
    unchanged(key, 0)
}

fn revision_of(found: &[KeyValue]) -> i64 {
    found.first().map_or(0, |found| found.mod_revision)
}

impl Etcd {
    /// Connects, and finds or creates the store there.
    pub async fn open(settings: EtcdSettings) -> StoreResult<Self> {
        let clock = BootClock.now().as_nanos();
        let process = u128::from(std::process::id()) << 64 | u128::from(clock);
        let number = key::handle_number(&[settings.entropy, process]);
        let connector = Arc::new(EtcdConnector::new(settings.tls.as_ref()).await?);
        let store = Self {
            control: EtcdCluster::new(&settings, &connector),
            cluster: Arc::new(EtcdCluster::new(&settings, &connector)),
            keys: KeyNames::new(settings.prefix),
            entropy: settings.entropy,
            if_absent: settings.if_absent,
            number,
            written: AtomicU64::new(0),
            known: Mutex::default(),
            seen: AtomicU64::new(0),
            keepers: keep_alive::KeepAliveStreams::default(),
            records: AtomicU64::new(0),
        };
        let call = EtcdCall::new(&store);
        call.bounded(call.find()).await?;
        call.audit_begin();
        Ok(store)
    }

    fn known(&self) -> MutexGuard<'_, HandleState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retention(&self) -> Retention {
        self.known().retention
    }

    /// One that nothing can be granted above is nobody's.
    fn saw(&self, epoch: Epoch) {
        if epoch.next().is_ok() {
            self.seen.fetch_max(epoch.get(), Ordering::Relaxed);
        }
    }

    fn saw_holds<'a>(&self, holds: impl Iterator<Item = &'a Hold>) {
        self.saw(holds.map(|hold| hold.epoch).fold(Epoch::ZERO, Epoch::max));
    }

    /// A number that this handle has not used before.
    fn next_number(&self) -> u64 {
        self.written.fetch_add(1, Ordering::Relaxed)
    }

    fn store_abilities(&self) -> Abilities {
        Abilities {
            dense_epochs: true,
            durable: true,
            atomic_batch: ATOMIC_COMMITS,
            history_slots: self.retention().history_slots,
            exclusive_effects: false,
            shared: true,
        }
    }
}

/// Runs a call to its end.
macro_rules! bounded_call {
    ($store:ident) => {
        $store.store_abilities()
    };
    ($store:ident $op:ident $method:ident $own:ident $arguments:tt) => {{
        let call = EtcdCall::new($store);
        call.bounded(call.$own $arguments).await
    }};
}
impl_store!(Etcd by bounded_call);
