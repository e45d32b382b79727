//! The switchboard in virtual time: the real SQLite storage, in memory.
//!
//! Replicas form commit groups, holders of duties are replaced, readers follow, connectors send
//! heartbeats, and everything fails as the seed decides. Checkers judge the recorded history.

pub mod check;
mod scenario;
mod story;
mod world;

pub use scenario::{SwitchFault, SwitchScenario};

use crate::SeedReport;
use crate::check::{CheckFinding, same_trace};
use crate::coverage::Coverage;

/// Virtual time in microseconds since the start of a run.
pub type Micros = i64;

const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;
const DAY: Micros = 24 * HOUR;

/// Runs one seed.
pub fn run(seed: u64, traced: bool) -> SeedReport {
    world::SwitchWorld::new(SwitchScenario::draw(seed), traced).run()
}

/// Runs one seed twice: `None` when both traces are the same, else the first difference.
pub fn differs(seed: u64) -> Option<CheckFinding> {
    let (first, second) = (run(seed, true).trace, run(seed, true).trace);
    same_trace(&first, &second).err()
}

/// Kinds of outcome that a thousand seeds must reach.
const OUTCOMES: &[&str] = &[
    "adopted",
    "announced",
    "beat",
    "beat-ended",
    "beat-late",
    "beats-pruned",
    "corrected",
    "diverged",
    "duplicate",
    "fenced",
    "fenced-of-all",
    "gap-told",
    "group",
    "group-refused",
    "keys-pruned",
    "known-hour",
    "messages-pruned",
    "old-gone",
    "page",
    "recounted",
    "reused",
    "rolled",
    "rolled-fenced",
    "stored",
    "token-expired",
    "token-gone",
    "token-revoked",
    "unstorable",
];

/// Returns what a thousand seeds must reach and did not: every fault and kind of outcome.
pub fn missing(coverage: &Coverage) -> Vec<String> {
    let faults = SwitchFault::ALL.iter().map(|fault| ("fault", fault.as_str()));
    coverage.missing_of(faults.chain(OUTCOMES.iter().map(|what| ("outcome", *what))))
}
