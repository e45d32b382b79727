//! The published poll lease design, scenario by scenario: real `tenure poll` processes, a real
//! Redis with sessions in it, and nothing to judge by but the keys in Redis and what the polls have
//! written. `docs/explanation/poll-lease.md` has the table of all of them.
//!
//! **Scale.** The design has a TTL of 30 s, renewed every 10 s. Here every time of the design is
//! divided by one factor, which is 10 unless `TENURE_STORY_SCALE` says otherwise; with 1 the
//! stories take as long as in the design. No time is measured: where the design has a bound, the
//! order of events is judged, by the server's clock where there is one, or the beats of another
//! target are counted.

mod balance;
mod edges;
mod failover;
mod foreign;
mod single;
mod stage;
mod work;
