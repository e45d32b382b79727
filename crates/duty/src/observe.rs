//! For those who watch: logs and metrics.

use std::fmt::Debug;
use std::time::Duration;

use tenure_core::{DutyId, Epoch, GroupName, Record};

/// What the store was asked, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A session was opened or closed.
    Session,
    /// Duties were claimed.
    Acquire,
    /// The session was kept alive.
    Renew,
    /// Duties were given back.
    Release,
    /// Members, holders and the group's document were read, or the document was replaced.
    Look,
}

/// A hold as it stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDuty {
    /// The duty.
    pub duty: DutyId,
    /// Its epoch.
    pub epoch: Epoch,
}

/// Sees everything that a member of a group does. It is called on the thread that renews: it
/// returns at once, and never waits for anybody.
pub trait Observer: Debug + Send + Sync + 'static {
    /// A transition. `unix_ms` is the wall clock beside the record's own.
    fn recorded(&self, _group: &GroupName, _record: &Record, _unix_ms: u64) {}

    /// A request to the store has ended.
    fn asked(&self, _group: &GroupName, _operation: Operation, _took: Duration, _ok: bool) {}

    /// A keep-alive was confirmed when so much was left until the deadline: the early warning.
    fn renewed(&self, _group: &GroupName, _margin_left: Duration) {}

    /// What is held now, after it changed.
    fn holding(&self, _group: &GroupName, _holds: &[HeldDuty]) {}

    /// A resource or the store refused a write under an older epoch.
    fn fenced(&self, _group: &GroupName, _duty: &DutyId) {}

    /// The work on a duty ended with this error; called where the work ran.
    fn work_failed(&self, _group: &GroupName, _duty: &DutyId, _epoch: Epoch, _error: &str) {}
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingObserver;

impl Observer for TracingObserver {}
