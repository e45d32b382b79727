//! Real instances on real stores, and what goes wrong between them, by seed.
//!
//! Each instance is a process that joins a group through the `tenure` facade, acts under its holds
//! and writes down what it did. The [`schedule`] kills and stops them, breaks the wire and the
//! server. Afterwards all files and the store's own records become one [`History`], which
//! `tenure::invariant` judges.

mod belief;
mod churn;
mod failover;
mod fleet;
mod folder;
mod history;
mod instance;
mod leader;
mod line;
mod place;
mod proxy;
mod report;
mod rolling;
mod run;
mod schedule;
mod spare;

pub use belief::{Belief, measure};
pub use churn::{Churned, churn};
pub use failover::{FailedOver, failover};
pub use history::{History, Stored, Written};
pub use instance::{Settings, play};
pub use leader::leader;
pub use line::{Line, Outcome, Told, Under, now};
pub use place::{Kind, Place};
pub use report::Report;
pub use rolling::{Rolled, rolling};
pub use run::{Options, run};
pub use schedule::{Fault, Planned, schedule};
pub use spare::{Spared, spare};
