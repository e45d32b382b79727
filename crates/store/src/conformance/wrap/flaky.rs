//! Store wrapper that injects faults: a call may happen or not, and its outcome may be lost.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tenure_core::{Code, Store, StoreError, StoreResult};

use super::Op;
use super::around::{StoreWrapper, pass_on};
use crate::delegate::impl_store;

/// Fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call happens, and its answer is returned.
    None,
    /// The call happens, but its answer is lost.
    HappenedButLost,
    /// The call does not happen, but its outcome is reported as unknown.
    LostBeforeItHappened,
    /// The call does not happen, and is reported as refused.
    Refused,
}

/// A store whose calls fail at random from a seed, or as planned by a test.
#[derive(Debug)]
pub struct Flaky {
    inner: Arc<dyn Store>,
    plan: Mutex<FaultPlan>,
}

#[derive(Debug)]
struct FaultPlan {
    /// State of a SplitMix64 generator; zero faults when `None`.
    random: Option<u64>,
    planned: BTreeMap<Op, VecDeque<Fault>>,
}

impl Flaky {
    /// Makes about every fourth call fail, in one of three ways; the same seed gives the same
    /// faults to the same calls.
    pub fn seeded(inner: Arc<dyn Store>, seed: u64) -> Self {
        Self { inner, plan: Mutex::new(FaultPlan { random: Some(seed), planned: BTreeMap::new() }) }
    }

    /// Makes only the calls fail that [`Flaky::on`] plans.
    pub fn planned(inner: Arc<dyn Store>) -> Self {
        Self { inner, plan: Mutex::new(FaultPlan { random: None, planned: BTreeMap::new() }) }
    }

    /// Plans `fault` for the next call of `op` that has no fault planned yet.
    #[must_use]
    pub fn on(self, op: Op, fault: Fault) -> Self {
        self.lock().planned.entry(op).or_default().push_back(fault);
        self
    }

    /// Returns the inner store, to see what really happened.
    pub fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FaultPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultPlan {
    fn next(&mut self, op: Op) -> Fault {
        if let Some(fault) = self.planned.get_mut(&op).and_then(VecDeque::pop_front) {
            return fault;
        }
        let Some(state) = &mut self.random else {
            return Fault::None;
        };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        match (mixed ^ (mixed >> 31)) % 12 {
            0 => Fault::HappenedButLost,
            1 => Fault::LostBeforeItHappened,
            2 => Fault::Refused,
            _ => Fault::None,
        }
    }
}

#[async_trait]
impl StoreWrapper for Flaky {
    async fn around<T: Send>(
        &self,
        op: Op,
        call: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let fault = self.lock().next(op);
        let lost =
            || StoreError::unknown(Code::Lost, format!("the reply to {} is lost", op.as_str()));
        match fault {
            Fault::None => call.await,
            // A refused call did not happen, so there is no answer to lose.
            Fault::HappenedButLost => call.await.and_then(|_| Err(lost())),
            Fault::LostBeforeItHappened => Err(lost()),
            Fault::Refused => {
                Err(StoreError::refused(Code::Unreachable, format!("no {} today", op.as_str())))
            }
        }
    }
}

impl_store!(Flaky by pass_on);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BootClock, Memory};

    fn faults(seed: u64) -> Vec<Fault> {
        let flaky = Flaky::seeded(Arc::new(Memory::new(Arc::new(BootClock))), seed);
        (0..200).map(|_| flaky.lock().next(Op::Claim)).collect()
    }

    #[test]
    fn a_seed_replays_and_every_fault_comes_up() {
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
        for fault in [Fault::HappenedButLost, Fault::LostBeforeItHappened, Fault::Refused] {
            assert!(faults(7).contains(&fault));
        }
    }
}
