//! What only one backend promises, each against private servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests"
)]

#[cfg(feature = "redis")]
mod redis;
