//! Health of the store, for `/ready`.

use std::sync::Mutex;
use std::time::Duration;

use tenure_core::{Clock, Code, LocalInstant};
use tenure_store::BootClock;

use crate::lock;

/// Time for which a store that ran out of space is reported as full, even though it answers:
/// a small write may fit where an event does not.
const FULL_FOR: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<HealthRecord>);

#[derive(Clone, Copy, Debug, Default)]
struct HealthRecord {
    trouble: Option<Code>,
    /// Time at which it last ran out of space.
    full: Option<LocalInstant>,
}

impl StoreHealth {
    pub(crate) fn trouble(&self) -> Option<Code> {
        lock(&self.0).trouble
    }

    /// Records that the store refused a write; returns whether that is new.
    pub(crate) fn record_failure(&self, code: Code) -> bool {
        let mut known = lock(&self.0);
        known.full = Some(BootClock.now());
        known.trouble.replace(code) != Some(code)
    }

    /// Records the result of a check. Returns the problem before and now.
    pub(crate) fn record_check(&self, answer: Option<Code>) -> (Option<Code>, Option<Code>) {
        let mut known = lock(&self.0);
        let full = known.full.filter(|full| BootClock.now().since(*full) < FULL_FOR);
        let before = known.trouble;
        known.trouble = answer.or(full.map(|_| Code::Full));
        (before, known.trouble)
    }
}
