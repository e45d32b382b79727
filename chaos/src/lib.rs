//! Chaos tests: real instances on real stores, with faults chosen by a seed.
//!
//! Each instance is a process that joins a group through the `tenure` facade, acts under its holds
//! and records its actions. The [`schedule`] kills and stops instances, and breaks the network and
//! the server. Afterwards all files and the store's own records are merged into one [`RunHistory`],
//! which `tenure::invariant` checks.

mod belief;
mod churn;
mod failover;
mod fleet;
mod folder;
mod history;
mod instance;
mod leader;
mod lost;
mod proxy;
mod record;
mod report;
mod rolling;
mod run;
mod schedule;
mod store;

pub use belief::{Belief, measure};
pub use churn::{Churned, churn};
pub use failover::{FailedOver, failover};
pub use history::{FinalState, RunHistory, WrittenVersion};
pub use instance::{InstanceSettings, play};
pub use leader::leader;
pub use lost::{Spared, spare};
pub use record::{CommitResult, InstanceLog, InstanceRecord, Under, now};
pub use report::ChaosReport;
pub use rolling::{RollingReport, rolling};
pub use run::{ChaosOptions, run};
pub use schedule::{ChaosFault, PlannedFault, schedule};
pub use store::{ChaosStore, StoreUnderTest};
