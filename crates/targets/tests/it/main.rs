//! Lists from real servers and files, and what becomes of a list when one of them fails.
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

/// More than any test needs.
const MOST: usize = 100_000;

async fn list(url: &str) -> Result<Listing, StoreError> {
    TargetsUrl::parse(url).unwrap().open_with_token(None).list(MOST).await
}

/// The listing in a short form: `id`, `id@zone`, and `!` behind what is paused.
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

/// The list cannot be read, and the error says why.
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
