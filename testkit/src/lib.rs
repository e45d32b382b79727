//! Private servers for tests: PostgreSQL, Redis, etcd, PgBouncer, Patroni, and a breakable proxy.
//!
//! Every server listens on a free port of 127.0.0.1 and has its own temporary folder. Server and
//! folder are removed when the owning process ends in any way: by drop, panic, Ctrl-C or `kill -9`.
//! A small shell guard holds the other end of a pipe and cleans up when the pipe closes.
//!
//! Linux only: the guard reads `/proc`, and packages are named as Debian names them.
#![allow(
    clippy::disallowed_methods,
    reason = "a test helper polls foreign servers against the local clock"
)]

mod certs;
mod clock;
mod etcd;
mod guard;
mod haproxy;
pub mod old;
pub mod packages;
mod patroni;
mod pgbouncer;
mod ports;
mod postgres;
mod proxy;
mod redis;
mod service;
mod wait;

pub use certs::{CertificateOptions, Certificates, TestCertificateFiles};
pub use etcd::{EtcdOptions, EtcdServer};
pub use haproxy::Haproxy;
pub use patroni::Patroni;
pub use pgbouncer::Pgbouncer;
pub use postgres::{PostgresOptions, PostgresServer, psql, psql_file};
pub use proxy::Proxy;
pub use redis::{RedisOptions, RedisServer};
pub use service::{
    TEST_CRON, TEST_ETCD, TEST_MCP_1, TEST_MCP_2, TEST_POSTGRES, TEST_REDIS, service,
};
pub use wait::wait_until;
