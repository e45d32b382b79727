//! Store wrapper that simulates a process killed in the middle of its work.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tenure_core::{Store, StoreResult};
use tokio::sync::Notify;

use super::Op;
use super::around::{StoreWrapper, pass_on};
use crate::delegate::impl_store;

/// Number of calls before a process is killed; stores of the same process share it.
#[derive(Debug)]
pub struct CallBudget {
    left: AtomicU64,
    last_happens: bool,
    killed: Notify,
}

impl CallBudget {
    /// Kills the process at call number `calls`, counted from zero: before that call reaches the
    /// store, or (`last_happens`) before its answer returns.
    pub fn new(calls: u64, last_happens: bool) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(calls), last_happens, killed: Notify::new() })
    }

    /// Runs `work` to completion; `None` if the process was killed first.
    pub async fn live<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.killed.notified() => None,
        }
    }
}

/// A store as seen by a process with a [`CallBudget`].
#[derive(Debug)]
pub struct Mortal {
    inner: Arc<dyn Store>,
    life: Arc<CallBudget>,
}

impl Mortal {
    /// Wraps `inner` for the process that owns `life`.
    pub fn new(inner: Arc<dyn Store>, life: Arc<CallBudget>) -> Self {
        Self { inner, life }
    }
}

#[async_trait]
impl StoreWrapper for Mortal {
    async fn around<T: Send>(
        &self,
        _op: Op,
        call: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let less = |left: u64| left.checked_sub(1);
        if self.life.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return call.await;
        }
        if self.life.last_happens {
            // The call happens, but its answer never arrives.
            drop(call.await);
        }
        self.life.killed.notify_one();
        std::future::pending().await
    }
}

impl_store!(Mortal by pass_on);
