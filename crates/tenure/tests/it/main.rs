//! Members of groups on real stores, as user code sees them.

mod examples;
mod fixed;
mod handover;
mod outage;
mod player;
mod start;
mod targets;
mod work;
