//! The servers of the testkit, started for real.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod etcd;
mod owner;
mod postgres;
mod proxy;
mod redis;
