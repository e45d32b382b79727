//! Guarantee of a store, judged from its live settings.
//!
//! A store says what its settings are ([`Survey`]); one table says what each of them allows at most
//! ([`TABLE`]); [`judge`] puts both together. `docs/reference/guarantees.md` publishes the table.
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
            "a crash or a failover may take the last grants and checkpoints back: \
             work is not lost, but may be done again"
        Fenced "fenced"
            "what was answered stays, and a stale holder's checkpoints are refused"
        ExclusiveEffects "exclusive-effects"
            "fenced, and effects in the same database can stand or fall with the hold"
    }
}

/// One setting of a store as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its name, as the store's own documentation has it where there is one.
    pub setting: &'static str,
    /// Its value; `None` when it could not be read, which counts as the weakest.
    pub value: Option<String>,
}

impl Fact {
    /// A setting that was read.
    pub fn read(setting: &'static str, value: impl Into<String>) -> Self {
        Self { setting, value: Some(value.into()) }
    }

    /// A setting that may not or cannot be read.
    pub fn unreadable(setting: &'static str) -> Self {
        Self { setting, value: None }
    }
}

/// Facts that a store reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The kind of store: `memory`, `file`, `sqlite`, `postgres`, `redis` or `etcd`.
    pub backend: &'static str,
    /// Its settings, in the order in which they are shown.
    pub facts: Vec<Fact>,
    /// The store's wall clock, in milliseconds since 1970, where it has one.
    pub unix_ms: Option<u64>,
}
