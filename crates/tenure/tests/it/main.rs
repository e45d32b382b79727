//! Members of groups on real stores, as user code sees them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and shows what happened"
)]

mod examples;
mod fixed;
mod handover;
mod outage;
mod player;
mod rolling;
mod start;
mod targets;
mod work;
