//! Guarantee of a store, judged from its live settings.
//!
//! A store reports its settings ([`Survey`]); [`TABLE`] has the highest level that each of them
//! allows; [`judge`] combines both. `docs/reference/guarantees.md` publishes the table.
//!
//! Why: docs/decisions/0012-one-guarantee-table.md

mod judge;
mod table;

pub use judge::{Finding, Verdict, judge};
pub use table::{BACKENDS, Backend, Pattern, SettingRule, TABLE, has_setting};

crate::text_enum! {
    /// Guarantee level, weakest first.
    pub enum Level {
        BestEffort "best-effort" "a crash or a failover may lose or repeat anything"
        AtLeastOnce "at-least-once"
            "a crash or a failover may undo the last grants and checkpoints: \
             no work is lost, but some may be repeated"
        Fenced "fenced"
            "acknowledged writes survive, and a stale holder's checkpoints are refused"
        ExclusiveEffects "exclusive-effects"
            "fenced, and transactions in the same database can commit only under the current hold"
    }
}

/// Current value of one setting of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its name, as in the store's own documentation if it is there.
    pub setting: &'static str,
    /// Its value; `None` when it could not be read, which counts as the weakest.
    pub value: Option<String>,
}

impl Fact {
    /// Creates a fact for a setting that was read.
    pub fn read(setting: &'static str, value: impl Into<String>) -> Self {
        Self { setting, value: Some(value.into()) }
    }

    /// Creates a fact for a setting that may not or cannot be read.
    pub fn unreadable(setting: &'static str) -> Self {
        Self { setting, value: None }
    }
}

/// Facts that a store reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The kind of store: `memory`, `file`, `sqlite`, `postgres`, `redis` or `etcd`.
    pub backend: &'static str,
    /// Its settings, in display order.
    pub facts: Vec<Fact>,
    /// The store's wall clock, in milliseconds since 1970, if it has one.
    pub unix_ms: Option<u64>,
}
