//! The memory store, alone and inside the wrappers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::{DutyKey, Session, Store};
use tenure_store::conformance::{Boxed, Place, Settled};
use tenure_store::signing::{Keyring, Sealed, Signing};
use tenure_store::wrap::{Flaky, Metered};
use tenure_store::{BootClock, Memory};

/// One memory store that all clients share, and how each client sees it.
#[derive(Debug)]
pub struct Shared {
    memory: Arc<Memory>,
    seed: AtomicU64,
    wrap: fn(Arc<Memory>, u64) -> Arc<dyn Store>,
}

impl Shared {
    fn new(seed: u64, wrap: fn(Arc<Memory>, u64) -> Arc<dyn Store>) -> Self {
        let memory = Arc::new(Memory::new(Arc::new(BootClock)));
        Self { memory, seed: AtomicU64::new(seed), wrap }
    }

    pub fn plain() -> Self {
        Self::new(0, |memory, _| memory)
    }

    /// A caller that follows the contract, on a store whose calls go wrong.
    pub fn flaky(seed: u64) -> Self {
        Self::new(seed, |memory, seed| {
            Arc::new(Settled::new(Arc::new(Flaky::seeded(memory, seed))))
        })
    }

    /// Every checkpoint signed, and none without a good signature accepted.
    pub fn sealed() -> Self {
        Self::new(0, |memory, _| {
            let keys = Keyring::parse(&format!("suite sign {}", "5e".repeat(32))).unwrap();
            Arc::new(Sealed::new(memory, Signing::Require(keys)))
        })
    }

    pub fn metered() -> Self {
        Self::new(0, |memory, _| Arc::new(Metered::new(memory, Arc::new(BootClock))))
    }
}

impl Place for Shared {
    fn open(&self) -> Boxed<Arc<dyn Store>> {
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let store = (self.wrap)(self.memory.clone(), seed);
        Box::pin(async { store })
    }

    fn lapse(&self, session: Session) -> Boxed<()> {
        self.memory.lapse(&session);
        Box::pin(async {})
    }

    fn lose_epoch(&self, duty: DutyKey) -> Boxed<()> {
        self.memory.lose_epoch(&duty);
        Box::pin(async {})
    }

    fn fresh(&self) -> Boxed<Arc<dyn Place>> {
        let seed = self.seed.fetch_add(1 << 16, Ordering::Relaxed);
        let fresh = Self::new(seed, self.wrap);
        Box::pin(async { Arc::new(fresh) as Arc<dyn Place> })
    }
}
