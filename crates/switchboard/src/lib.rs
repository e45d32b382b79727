//! The switchboard: a server that ingests events exactly once and tracks connectors. It rejects
//! submissions under a hold that was replaced.

mod access;
mod address;
mod budget;
mod channels;
pub mod commit;
mod connection;
mod error;
mod health;
mod http;
mod inbox_watch;
mod listener;
pub mod liveness;
mod mcp;
mod metrics;
mod notice;
pub mod replay;
mod server;
mod statistics;
pub mod storage;
#[cfg(test)]
mod tests;
mod tls;
pub mod token;
mod upkeep;
pub mod view;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use access::Limiter;
pub use error::{StorageResult, SwitchboardError};
pub use notice::{ConnectorEvent, NoticeLevel, NoticeSink, ServerNotice, tracing_sink};
pub use server::{ClientTimeouts, ServerHandle, ServerSettings, serve};
pub use tls::CertificateFiles;

/// Locks a mutex. No value of this crate is half-written when a panic poisons its lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
