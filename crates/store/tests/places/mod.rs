//! Where the suite runs.

mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

use tenure_store::conformance::Place;

/// Every backend and wrapper by name.
pub async fn under_test() -> Vec<(&'static str, Arc<dyn Place>)> {
    let mut places: Vec<(_, Arc<dyn Place>)> = vec![
        ("memory", Arc::new(memory::Shared::plain())),
        ("flaky", Arc::new(memory::Shared::flaky(0x7e57))),
        ("metered", Arc::new(memory::Shared::metered())),
        #[cfg(feature = "sqlite")]
        ("sqlite", Arc::new(sqlite::Folder::new())),
    ];
    #[cfg(feature = "postgres")]
    if let Some(url) = service("TENURE_TEST_POSTGRES") {
        places.push(("postgres", Arc::new(postgres::Schema::new(url))));
    }
    places
}

/// The URL of a server for tests; in CI a missing one is a failure, not a skip.
fn service(name: &str) -> Option<String> {
    let url = std::env::var(name).ok();
    assert!(url.is_some() || std::env::var_os("CI").is_none(), "{name} is not set");
    url
}
