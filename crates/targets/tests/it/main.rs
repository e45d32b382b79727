//! Lists from real servers and files, and their failures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod file;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
mod url;

use tenure_core::{Code, Listing, StoreError, Target};
use tenure_targets::TargetsUrl;

/// Larger than any test needs.
const MOST: usize = 100_000;

async fn list(url: &str) -> Result<Listing, StoreError> {
    TargetsUrl::parse(url).unwrap().open_with_token(None).list(MOST).await
}

/// Returns the listing in a short form: `id`, `id@zone`, and `!` after paused targets.
fn short(listing: &Listing) -> Vec<String> {
    let short = |target: &Target| {
        let zone = target.zone.as_ref().map_or(String::new(), |zone| format!("@{}", zone.as_str()));
        let paused = if target.paused { "!" } else { "" };
        format!("{}{zone}{paused}", target.id.as_str())
    };
    listing.targets().iter().map(short).collect()
}

async fn listed(url: &str) -> Vec<String> {
    short(&list(url).await.unwrap())
}

/// Asserts that the list cannot be read, and that the error has these words.
async fn refused(url: &str, says: &str) {
    let error = list(url).await.unwrap_err();
    assert_eq!(error.code(), Code::BadTargets, "{error}");
    assert!(error.to_string().contains(says), "{says:?} is not in {error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

async fn too_many(url: &str, most: usize) {
    let error = TargetsUrl::parse(url).unwrap().open().list(most).await.unwrap_err();
    assert_eq!(error.code(), Code::TooManyTargets, "{error}");
    let says = format!("at least {} targets, and the limit is {most}", most + 1);
    assert!(error.to_string().contains(&says), "{error}");
}
