//! Tests of the testkit's servers.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod etcd;
mod owner;
mod postgres;
mod proxy;
mod redis;
