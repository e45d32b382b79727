//! Scenarios of the published poll lease design, with real `tenure poll` processes and a real Redis
//! with sessions. They are judged only by the keys in Redis and the output of the polls.
//! `docs/explanation/poll-lease.md` has a table of all scenarios.
//!
//! **Scale.** The design has a TTL of 30 s, renewed every 10 s. All times of the design are divided
//! by `TENURE_STORY_SCALE` (10 by default). No time is measured: where the design has a bound, the
//! tests compare the order of events, by the server's clock if possible, or count the polls of
//! another target.

mod balance;
mod edges;
mod failover;
mod foreign;
mod single;
mod stage;
mod work;
