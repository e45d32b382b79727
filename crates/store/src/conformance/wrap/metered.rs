//! Store wrapper that counts calls and their cost.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::{Clock, Store, StoreError, StoreResult};

use super::Op;
use super::around::{StoreWrapper, pass_on};
use crate::delegate::impl_store;

/// A store that counts its calls, their errors and their time.
#[derive(Debug)]
pub struct Metered {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    stats: Mutex<BTreeMap<Op, OpStats>>,
}

/// Counters of one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpStats {
    /// Calls that returned.
    pub calls: u64,
    /// Of these, calls that certainly did not happen.
    pub refused: u64,
    /// Of these, calls that may have happened.
    pub unknown: u64,
    /// Their total time.
    pub total: Duration,
    /// Time of the slowest call.
    pub slowest: Duration,
}

impl Metered {
    /// Counts the calls to `inner`, timed by `clock`.
    pub fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { inner, clock, stats: Mutex::default() }
    }

    /// Returns the counters by call.
    pub fn stats(&self) -> BTreeMap<Op, OpStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl StoreWrapper for Metered {
    async fn around<T: Send>(
        &self,
        op: Op,
        call: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let before = self.clock.now();
        let answer = call.await;
        let took = self.clock.now().since(before);
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = stats.entry(op).or_default();
        stats.calls += 1;
        stats.total += took;
        stats.slowest = stats.slowest.max(took);
        match &answer {
            Ok(_) => {}
            Err(StoreError::Refused(_)) => stats.refused += 1,
            Err(StoreError::Unknown(_)) => stats.unknown += 1,
        }
        answer
    }
}

impl_store!(Metered by pass_on);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::wrap::{Fault, Flaky};
    use crate::{BootClock, Memory};

    #[tokio::test]
    async fn calls_and_errors_are_counted_by_name() {
        let clock = Arc::new(BootClock);
        let flaky = Flaky::planned(Arc::new(Memory::new(clock.clone())))
            .on(Op::Groups, Fault::Refused)
            .on(Op::Groups, Fault::HappenedButLost);
        let store = Metered::new(Arc::new(flaky), clock);
        for _ in 0..3 {
            let _ = store.groups().await;
        }
        let stats = store.stats();
        assert_eq!(stats.len(), 1);
        let groups = stats[&Op::Groups];
        assert_eq!((groups.calls, groups.refused, groups.unknown), (3, 1, 1));
    }
}
