//! The tests of this crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod commit;
mod place;
mod postgres;
mod sqlite;
mod storage;
mod upgrade;
