//! Lists of targets that come and go, behind [`tenure_core::Targets`].
//!
//! | URL | what is a target | cargo feature |
//! |---|---|---|
//! | `redis://...?pattern=session:*`, `?set=NAME` | a key, a member | `redis` |
//! | `postgres://...?query=SELECT ...` | a row | `postgres` |
//! | `sqlite:PATH?query=SELECT ...` | a row | `sqlite` |
//! | `http://...`, `https://...` | an entry of a JSON list | `http` |
//! | `file:PATH` | a line, or an entry of a JSON list | always there |
//! | `list:a,b,c` | a word | always there |
//!
//! Encrypted connections are the feature `tls`. A list is whole or it is an error. Every listing
//! connects anew: it meets whatever server is there now, and holds nothing while nobody asks.

mod collect;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod columns;
mod file;
#[cfg(feature = "http")]
mod http;
mod json;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
mod url;

pub use file::FileTargets;
pub use url::{StaticTargets, TIMEOUT, TOKEN, TargetsUrl};

use tenure_core::text::span;
use tenure_core::{Code, StoreError};

/// The list cannot be read, or the URL makes no sense.
fn bad(detail: impl Into<String>) -> StoreError {
    StoreError::refused(Code::BadTargets, detail)
}

/// Converts an error on the way to a server: it concerns the list, not the store.
#[cfg(any(feature = "postgres", feature = "redis", all(feature = "http", feature = "tls")))]
fn of_the_way(error: &StoreError) -> StoreError {
    match error.code() {
        Code::BadTargets | Code::TooManyTargets | Code::NotBuilt => error.clone(),
        _ => bad(error.problem().detail.clone()),
    }
}

/// Ends what takes too long.
async fn within<T>(
    limit: std::time::Duration,
    listing: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(limit, listing).await.map_err(|_| late(limit))?
}

fn late(limit: std::time::Duration) -> StoreError {
    bad(format!("the list did not come within {}", span(limit)))
}
