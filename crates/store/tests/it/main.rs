//! Behaviour of single backends, each test with the trap that it guards against.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod encryption;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(feature = "file", feature = "conformance"))]
mod file;
mod forgotten;
mod identity;
mod player;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod signing;
#[cfg(feature = "sqlite")]
mod sqlite;
mod transfer;
#[cfg(all(
    feature = "etcd",
    feature = "file",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
mod upgrade;
