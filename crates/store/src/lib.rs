//! The stores behind Tenure.
//!
//! Each backend implements [`tenure_core::Store`], whose doc comment is the contract; the suite in
//! `conformance` holds all of them, and the wrappers, to every sentence of it.
//!
//! | URL | backend | cargo feature |
//! |---|---|---|
//! | (none: made in code) | [`Memory`] | always there |
//! | `file:PATH` | `file` | `file` |
//! | `sqlite:PATH` | `sqlite` | `sqlite` |
//! | `postgres://...` | `postgres` | `postgres` |
//! | `redis://...`, `rediss://...` | `redis` | `redis` |
//! | `etcd://...` | `etcd` | `etcd` |
//!
//! Encrypted connections are the feature `tls`.

mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(any(feature = "postgres", feature = "redis", feature = "tls"))]
pub mod connect;
mod delegate;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "file")]
pub mod file;
#[cfg(any(feature = "file", feature = "sqlite"))]
mod filesystem;
mod hints;
mod memory;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod migration;
#[cfg(any(feature = "redis", feature = "etcd"))]
mod packed;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod signing;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod state;
mod tls;
pub mod transfer;
mod url;

pub use clock::BootClock;
pub use memory::Memory;
pub use url::{IfAbsent, StoreUrl};

/// The group of the poll lease layout: in Redis, foreign instances may share its keys.
pub const SHARED_GROUP: &str = "poll";

/// After so many claims through one handle the audit trail of a SQL store is cut to what the store
/// keeps of it again; opening a store does it, too.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
const CLAIMS_PER_TRIM: u64 = 256;

/// The fates that the marks of the holds tell by themselves, and which holds must be looked at;
/// those are lost until the look says otherwise. `common` is their common mark, found while the
/// store was at work.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "etcd"))]
fn fates_by_mark(
    session: &tenure_core::Session,
    holds: &[tenure_core::Hold],
    common: Option<tenure_core::Mark>,
    mark: tenure_core::Mark,
) -> (Vec<tenure_core::store::HoldFate>, Vec<usize>) {
    use tenure_core::store::HoldFate;
    if common == Some(mark) {
        return (vec![HoldFate::Kept; holds.len()], Vec::new());
    }
    let mut unsure = Vec::new();
    let fate = |(n, hold): (usize, &tenure_core::Hold)| {
        if !hold.is_of(session) {
            return HoldFate::Lost;
        }
        if hold.mark == mark {
            return HoldFate::Kept;
        }
        unsure.push(n);
        HoldFate::Lost
    };
    (holds.iter().enumerate().map(fate).collect(), unsure)
}
