//! Guarantee of a store, judged from its live settings.
//!
//! A store says what its settings are ([`Survey`]); one table says what each of them allows at most
//! ([`TABLE`]); [`judge`] puts both together. `docs/reference/guarantees.md` publishes the table.
//!
//! Why: docs/decisions/0012-one-guarantee-table.md

mod judge;
mod table;

use std::fmt;

pub use judge::{Finding, Verdict, judge};
pub use table::{BACKENDS, Backend, Pattern, SettingRule, TABLE, has_setting};

/// Guarantee level, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing survives a crash or a failover for sure.
    BestEffort,
    /// No event is lost, but one may take effect again: dedupe where it matters.
    AtLeastOnce,
    /// A stale holder's checkpoints are refused by the store.
    Fenced,
    /// Effects in the same database can stand or fall with the hold.
    ExclusiveEffects,
}

impl Level {
    /// Every level, weakest first.
    pub const ALL: [Self; 4] =
        [Self::BestEffort, Self::AtLeastOnce, Self::Fenced, Self::ExclusiveEffects];

    /// The word that is typed and printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::AtLeastOnce => "at-least-once",
            Self::Fenced => "fenced",
            Self::ExclusiveEffects => "exclusive-effects",
        }
    }

    /// One sentence that says what the level means to a user.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::BestEffort => "a crash or a failover may lose or repeat anything",
            Self::AtLeastOnce => {
                "a crash or a failover may take the last grants and checkpoints back: \
                 work is not lost, but may be done again"
            }
            Self::Fenced => "what was answered stays, and a stale holder's checkpoints are refused",
            Self::ExclusiveEffects => {
                "fenced, and effects in the same database can stand or fall with the hold"
            }
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
