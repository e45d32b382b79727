//! The stores behind Tenure.
//!
//! Each backend implements [`tenure_core::Store`], whose doc comment is the contract; the suite in
//! `conformance` checks every backend and wrapper against it.
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
//! Encrypted connections need the feature `tls`.

#[cfg(all(feature = "file", feature = "sqlite"))]
pub mod backup;
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

/// Number of claims through one handle after which a SQL store trims its audit trail. Opening a
/// store trims it, too.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
const CLAIMS_PER_TRIM: u64 = 256;

/// Decides the fates of holds by their marks alone. Also returns the indices of the holds that must
/// be looked up, which count as lost until then. `common` is the mark that all holds share,
/// computed while the store worked.
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
