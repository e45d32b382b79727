//! The state of a store behind a lock, its clock and its watchers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::{Clock, LocalInstant};

use super::StoreState;
use crate::hints::Hints;

/// State shared by the calls of one store. Its lock is held for one step, never during disk I/O, so
/// that a keep-alive does not wait for the disk (R7).
pub(crate) struct LiveState {
    clock: Arc<dyn Clock>,
    /// Reads the wall clock for times shown to people; `None` if they come from `clock`.
    wall: fn() -> Option<u64>,
    state: Mutex<StoreState>,
    pub(crate) hints: Hints,
}

impl fmt::Debug for LiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveState")
    }
}

impl LiveState {
    pub(crate) fn new(clock: Arc<dyn Clock>, wall: fn() -> Option<u64>) -> Self {
        Self { clock, wall, state: Mutex::default(), hints: Hints::default() }
    }

    /// Runs one atomic step. A poisoned lock is taken over: no step leaves the state half changed,
    /// because each one decides before it writes.
    pub(crate) fn step<T>(&self, step: impl FnOnce(&mut StoreState, LocalInstant) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unix_ms = (self.wall)();
        // Read under the lock, so that time does not go back from one step to the next.
        let now = self.clock.now();
        step(&mut state, now)
    }
}
