//! The side of a store that is in memory.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tenure_core::{Clock, LocalInstant};

use crate::hints::Hints;
use crate::state::StoreState;

/// Sessions, and what is known of duties. Its lock is held for no longer than one step, never while
/// the disk is at work, so that a keep-alive does not wait for it (R7).
pub(super) struct LiveState {
    clock: Arc<dyn Clock>,
    state: Mutex<StoreState>,
    pub(super) hints: Hints,
}

impl fmt::Debug for LiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveState")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the times of checkpoints and audit entries are for people; no expiry is judged by it"
)]
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Milliseconds fit 64 bits for longer than there will be clocks.
    since.as_millis() as u64
}

impl LiveState {
    pub(super) fn new(clock: Arc<dyn Clock>, state: StoreState) -> Self {
        Self { clock, state: Mutex::new(state), hints: Hints::default() }
    }

    /// Runs one atomic step. A poisoned lock is taken over: each step decides before it writes.
    pub(super) fn step<T>(&self, step: impl FnOnce(&mut StoreState, LocalInstant) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unix_ms = Some(unix_ms());
        // Read under the lock, so that time does not go back from one step to the next.
        let now = self.clock.now();
        step(&mut state, now)
    }
}
