//! Runs any program under a duty, and ends it in time.
//!
//! - [`run`] waits for one duty and runs a command while this process holds it.
//! - [`poll`] runs a command once per target and interval, each target on one instance.
//! - [`schedule`] runs the command once per period, or at the times of a cron expression.
//! - [`guard`] is the small process between this one and a command: it knows the deadline of the
//!   hold and ends the command on its own.
//! - [`api`] is what a program under a hold talks to: its checkpoint, and how long it may work.
//! - [`state`] stores the state file of a program as its checkpoint.
//! - [`observe`] reports about an instance: log lines, metrics, health.
//!
//! The guard is the running binary itself, started as `tenure guard ...`. A program that uses this
//! crate passes the arguments of that command to [`guard::main`] before it does anything else.
//!
//! ```no_run
//! use std::time::Duration;
//! use tenure_core::Ttl;
//! use tenure_store::StoreUrl;
//! use tenure_supervise::member::{SupervisorSettings, StoreSettings};
//! use tenure_supervise::run::{RunSettings, run};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = StoreSettings::new(StoreUrl::parse("sqlite:tenure.db")?);
//! let member = SupervisorSettings::new(store, Ttl::new(Duration::from_secs(30))?);
//! let command = ["./ingest", "--all"].map(Into::into).to_vec();
//! let exit_code = run(RunSettings::new("mail/inbox".parse()?, member, command), None).await?;
//! # Ok(())
//! # }
//! ```

pub mod api;
mod caller;
mod command;
mod deadline_file;
mod error;
pub mod guard;
pub mod member;
pub mod observe;
mod output;
pub mod poll;
mod pool;
mod process_tree;
pub mod run;
pub mod schedule;
mod scratch;
mod signals;
pub mod state;
mod terminal;

pub use caller::Caller;
pub use command::Variables;
pub use error::SuperviseError;
pub use output::OutputForm;
pub use rustix::process::Signal;
pub use signals::{Signals, is_stop};
