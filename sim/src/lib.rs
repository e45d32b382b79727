//! The real engine of Tenure in virtual time.
//!
//! Some processes, each with the real [`tenure_core::engine::Engine`], share the real memory store
//! behind a network and a store that fail as the seed says. What happened is judged by checkers
//! that know nothing of the engine. A seed decides everything: the same seed gives the same trace,
//! byte for byte.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a simulation that cannot go on ends by panicking"
)]

mod backend;
pub mod check;
mod coverage;
mod ends;
mod link;
pub mod model;
mod rng;
mod scenario;
mod sink;
mod trace;
mod worker;
mod world;

pub use check::Finding;
pub use coverage::Coverage;
pub use scenario::{Fault, Kind, Scenario};

/// Virtual time in nanoseconds since the start of a run.
pub type Nanos = u64;

/// What became of one seed.
#[derive(Debug)]
pub struct Outcome {
    /// What the checkers found.
    pub findings: Vec<Finding>,
    /// What was reached.
    pub coverage: Coverage,
    /// What happened, if it was to be kept.
    pub trace: Vec<String>,
}

/// Runs one seed.
pub fn run(seed: u64, traced: bool) -> Outcome {
    world::World::new(Scenario::draw(seed), traced).run()
}

/// Runs one seed twice: `None` when both traces are the same, else the first line that differs.
pub fn differs(seed: u64) -> Option<Finding> {
    let (first, second) = (run(seed, true).trace, run(seed, true).trace);
    check::same_trace(&first, &second).err()
}
