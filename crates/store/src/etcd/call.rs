//! One call of the store contract: its transactions, its time limit, and what it may have changed.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tenure_core::{Code, StoreResult};
use tenure_etcd::{Txn, TxnOp, TxnOutcome, TxnResponse};
use tokio::time::timeout;

use super::cluster::{CALL_TIMEOUT, TxnFailure, TxnResult};
use super::{Etcd, error};

/// A handle to the store for the duration of one call.
pub(super) struct EtcdCall<'a> {
    pub(super) store: &'a Etcd,
    pub(super) changes: CallTracker,
}

/// Counts the requests of a call that may have changed something.
#[derive(Default)]
pub(super) struct CallTracker(AtomicUsize);

impl CallTracker {
    pub(super) fn sends(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Takes back the count of a request that certainly changed nothing.
    pub(super) fn takes_back(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Deref for EtcdCall<'_> {
    type Target = Etcd;

    fn deref(&self) -> &Etcd {
        self.store
    }
}

impl<'a> EtcdCall<'a> {
    pub(super) fn new(store: &'a Etcd) -> Self {
        Self { store, changes: CallTracker::default() }
    }

    /// Limits the duration of the call. Requests without an answer may have happened.
    pub(super) async fn bounded<T>(
        &self,
        work: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let ended = timeout(CALL_TIMEOUT, work).await;
        let ended = ended.unwrap_or_else(|_| Err(error::unreachable(&self.cluster.address())));
        ended.map_err(|error| match self.changes.0.load(Relaxed) > 0 {
            true if error.code() == Code::Unreachable => error::lost(&self.cluster.address()),
            true => error.or_happened(),
            false => error,
        })
    }

    /// Sends a transaction until a server answers. Its compares must make it take effect only once.
    pub(super) async fn guarded(&self, txn: Txn) -> Result<TxnResult, TxnFailure> {
        self.cluster.send(&self.changes, txn, Some).await
    }

    /// Like [`Self::guarded`], for a transaction that names no lease.
    pub(super) async fn commit(&self, txn: Txn) -> StoreResult<TxnResult> {
        self.guarded(txn).await.map_err(TxnFailure::into_error)
    }

    /// Sends a transaction whose writes are all in nested transactions. etcd checks its quota only
    /// against writes of the first level, so such a transaction would pass even when the store is
    /// full. It is therefore wrapped in a transaction without compares, whose `else` branch, never
    /// taken, has a write that etcd counts.
    // Why: docs/decisions/0027-etcd-quota-visibility.md
    pub(super) async fn weighed(&self, txn: Txn) -> StoreResult<TxnResult> {
        let seen = TxnOp::put(self.keys.never(), Vec::new());
        let outer = Txn::new().and_then([TxnOp::txn(txn)]).or_else([seen]);
        let open = |mut response: TxnResponse| match response.responses.pop()?.outcome {
            Some(TxnOutcome::Txn(inner)) => Some(inner),
            _ => None,
        };
        self.cluster.send(&self.changes, outer, open).await.map_err(TxnFailure::into_error)
    }
}
