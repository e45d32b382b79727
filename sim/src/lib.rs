//! Simulation of Tenure: the real engine in virtual time.
//!
//! Some processes, each with the real [`tenure_core::engine::Engine`], share the real memory store
//! behind a network and a store that fail as the seed decides. Checkers that know nothing of the
//! engine judge the run. The same seed gives the same trace, byte for byte.
#![allow(clippy::expect_used, clippy::panic, reason = "the simulation panics on internal errors")]

mod backend;
pub mod check;
mod coverage;
mod ends;
mod link;
pub mod model;
mod rng;
mod scenario;
mod sink;
pub mod switchboard;
mod trace;
mod worker;
mod world;

pub use check::CheckFinding;
pub use coverage::Coverage;
pub use scenario::{Fault, Kind, Scenario};

/// Virtual time in nanoseconds since the start of a run.
pub type Nanos = u64;

/// Result of one seed.
#[derive(Debug)]
pub struct SeedReport {
    /// Findings of the checkers.
    pub findings: Vec<CheckFinding>,
    /// Coverage of the run.
    pub coverage: Coverage,
    /// The trace, if it was requested.
    pub trace: Vec<String>,
}

/// Runs one seed.
pub fn run(seed: u64, traced: bool) -> SeedReport {
    world::SimWorld::new(Scenario::draw(seed), traced).run()
}

/// Runs one seed twice: `None` when both traces are the same, else the first difference.
pub fn differs(seed: u64) -> Option<CheckFinding> {
    let (first, second) = (run(seed, true).trace, run(seed, true).trace);
    check::same_trace(&first, &second).err()
}
