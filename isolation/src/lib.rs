//! Isolation tester for PostgreSQL: pairs of operations, one stopped at each lock that it takes,
//! at each isolation level.
//!
//! The outcome of a schedule must be that of one of the two serial orders, or a refusal without
//! effect. Where the contract says that an operation is final once it was answered, it must be that
//! of the order in which it comes first.

mod bench;
mod contract;
mod discover;
mod judge;
mod level;
pub mod operations;
mod prepare;
mod run;
mod server;
mod state;
#[cfg(test)]
mod statements;
mod stop;
mod view;

pub use level::{ConnectionPath, IsolationLevel};
pub use run::{IsolationFinding, IsolationOptions, IsolationReport, run};
pub use server::{Handles, PreparedServer};
