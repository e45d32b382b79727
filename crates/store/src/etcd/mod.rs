//! The store on etcd.
//!
//! # Keys
//!
//! `P` is the prefix, `G` the group, `I` the instance, `D` the duty id, each percent-escaped where
//! needed.
//!
//! | key | lease | holds |
//! |---|---|---|
//! | `Pgroup/G/live/session/I` | session | the nonce; the key's etcd version gives the [`Mark`] |
//! | `Pgroup/G/live/note/I` | session | the note |
//! | `Pgroup/G/live/fence/D` | none | epoch, nonce, `held` or `free`, instance: the last grant |
//! | `Pgroup/G/live/document` | none | the group's document; its etcd version is its version |
//! | `Pgroup/G/kept/checkpoint/D` | none | the checkpoint; its etcd version is its version |
//! | `Pgroup/G/kept/report/D` | none | the newest report, in the form of a checkpoint |
//! | `Pgroup/G/kept/history/D/V` | none | the last checkpoints, by version |
//! | `Pgroup/G/kept/audit/...` | none | kind, time, epoch, duty, instance, reason |
//! | `Pgroup/G/kept/spent/N` | memory | the nonce `N` was used for a session |
//! | `Pgroup/G/kept/barred/I` | memory | the instance was evicted |
//! | `Pgroup/G/kept/floor` | none | no epoch up to this one is granted in the group |
//! | `Pindex/G` | none | an index of groups |
//! | `Pstore` | none | schema, incarnation, floor of the store, retention |
//!
//! Hints come from a watch on `Pgroup/G/live/`.
//!
//! # When a hold is valid
//!
//! A hold is valid exactly when its fence has its epoch, nonce, instance and the word `held`, and
//! the session of that instance has that nonce. Both are compared in the same transaction that
//! acts. No key per hold is attached to the lease. The session's key is enough: ten thousand holds
//! end with it in one step, and a lease that ends has three keys to delete instead of ten thousand.
//!
//! A session's nonce is never used again, so a session once seen ended stays ended: a claim that
//! takes over compares only the fence.
//!
//! # Leases
//!
//! The id of a session's lease is a hash of the session: any process that knows the session can
//! keep it alive, and a grant whose answer was lost can be repeated. Evicting an instance at its
//! TTL moves its session to another lease, which nobody keeps alive, so the session ends whatever
//! the instance does. Keys with the lease "memory" are kept for at least a week: they are attached
//! to a lease of 15 days, of which each handle grants a new one every week if needed.
//!
//! # Transactions
//!
//! etcd accepts 128 operations in one transaction, including those of nested transactions, and each
//! key may be written once. A batch is one outer transaction that compares the session, with one
//! nested transaction per item, so that each item has its own outcome. The compares ensure that a
//! transaction takes effect once, so it is repeated when its answer is lost, on another server if
//! there is one. If the second answer does not show the outcome, the keys are read again.
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
mod report;
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

/// Maximum number of items in one transaction: with the longest names they stay below etcd's 1.5
/// MiB, and room remains for a nested transaction of five operations.
const MAX_TXN_ITEMS: usize = 100;

/// Maximum size of the documents in one transaction, with their copies; etcd accepts 1.5 MiB.
const MAX_TXN_BYTES: usize = 1_150_000;

/// Two documents of the largest size fit into one transaction, with their copies in the history.
const ATOMIC_COMMITS: usize = 2;

/// Maximum number of reads in one transaction.
const MAX_TXN_READS: usize = 100;

/// Maximum number of concurrent transactions of one call.
const MAX_CONCURRENT_TXNS: usize = 8;

/// Number of small values in one page.
const PAGE_KEYS: i64 = 5_000;

/// Settings of an [`Etcd`] store.
#[derive(Clone)]
pub struct EtcdSettings {
    /// `host:port` of each server.
    pub hosts: Vec<String>,
    /// User and password.
    pub user: Option<(String, String)>,
    /// Prefix of every key.
    pub prefix: String,
    /// TLS settings; without them connections are not encrypted.
    pub tls: Option<PemFiles>,
    /// 128 random bits of this handle; they name a store that it creates.
    pub entropy: u128,
    /// Whether to create a missing store.
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

/// A handle to the store.
pub struct Etcd {
    /// For keep-alives only: they never wait behind documents (R7).
    control: EtcdCluster,
    cluster: Arc<EtcdCluster>,
    keys: KeyNames,
    entropy: u128,
    /// A handle that must not create a store does not do so after a reset either.
    if_absent: IfAbsent,
    /// Identifies this handle in the keys it writes.
    number: u64,
    /// Counter that makes keys of this handle unique.
    written: AtomicU64,
    known: Mutex<HandleState>,
    /// The largest epoch that this handle has ever seen, in a request or a response.
    seen: AtomicU64,
    keepers: keep_alive::KeepAliveStreams,
    /// Counts the audit records that this handle has written since it last trimmed the trail.
    records: AtomicU64,
}

/// State of this handle.
#[derive(Default)]
struct HandleState {
    /// `None` after a reset was detected.
    incarnation: Option<String>,
    /// Whether this handle has found a store before.
    had_one: bool,
    retention: Retention,
    /// Number of stores that this handle has offered to create.
    offered: u64,
    /// The lease for short-lived records, and when it was granted.
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

/// Compares that the key was not written since; revision zero means that it does not exist.
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
    /// Connects, and finds or creates the store.
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

    /// Records an epoch, unless it is the largest one, above which nothing can be granted.
    fn saw(&self, epoch: Epoch) {
        if epoch.next().is_ok() {
            self.seen.fetch_max(epoch.get(), Ordering::Relaxed);
        }
    }

    fn saw_holds<'a>(&self, holds: impl Iterator<Item = &'a Hold>) {
        self.saw(holds.map(|hold| hold.epoch).fold(Epoch::ZERO, Epoch::max));
    }

    /// Returns a number that this handle has not used before.
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

/// Runs a call within its time limit.
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
