//! Health of the store, as `/ready` tells it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Clock, Code, LocalInstant};
use tenure_store::BootClock;

/// A store that refused to store something for want of room is not ready for so long, though it
/// answers: a small write may still fit where an event does not.
const FULL_FOR: Duration = Duration::from_secs(5);

/// What is known of the store.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Known>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    trouble: Option<Code>,
    /// When it last refused something for want of room.
    full: Option<LocalInstant>,
}

impl Health {
    /// What is wrong with the store, if something is.
    pub(crate) fn trouble(&self) -> Option<Code> {
        self.known().trouble
    }

    /// It refused to store something; whether that is news.
    pub(crate) fn refused(&self, code: Code) -> bool {
        let mut known = self.known();
        known.full = Some(BootClock.now());
        known.trouble.replace(code) != Some(code)
    }

    /// It was asked how it is. Gives what was wrong before, and what is now.
    pub(crate) fn looked(&self, answer: Option<Code>) -> (Option<Code>, Option<Code>) {
        let mut known = self.known();
        let full = known.full.filter(|full| BootClock.now().since(*full) < FULL_FOR);
        let before = known.trouble;
        known.trouble = answer.or(full.map(|_| Code::Full));
        (before, known.trouble)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
