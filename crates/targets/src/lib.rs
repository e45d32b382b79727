//! Lists of targets that come and go, behind [`tenure_core::Targets`].
//!
//! | URL | target | cargo feature |
//! |---|---|---|
//! | `redis://...?pattern=session:*`, `?set=NAME` | a key, a member | `redis` |
//! | `postgres://...?query=SELECT ...` | a row | `postgres` |
//! | `sqlite:PATH?query=SELECT ...` | a row | `sqlite` |
//! | `http://...`, `https://...` | an entry of a JSON list | `http` |
//! | `file:PATH` | a line, or an entry of a JSON list | always built in |
//! | `list:a,b,c` | a word | always built in |
//!
//! Encrypted connections need the feature `tls`. A listing is either complete or an error. Every
//! listing opens a new connection and keeps nothing open.

mod collect;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod columns;
mod error;
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

pub use error::TargetsError;
pub use file::FileTargets;
pub use url::{StaticTargets, TIMEOUT, TOKEN, TargetsUrl};

use error::{bad, late};

async fn within<T>(
    limit: std::time::Duration,
    listing: impl Future<Output = Result<T, TargetsError>>,
) -> Result<T, TargetsError> {
    tokio::time::timeout(limit, listing).await.map_err(|_| late(limit))?
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, TargetsError> + Send + 'static,
) -> Result<T, TargetsError> {
    let reading = tokio::task::spawn_blocking(read);
    reading.await.unwrap_or_else(|_| Err(bad("reading the list was aborted")))
}
