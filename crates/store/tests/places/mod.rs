//! Where the suite runs.

mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

use tenure_store::conformance::Place;

/// Every backend and wrapper by name. A server that is not there is left out on a laptop and a
/// failure in CI.
pub async fn under_test() -> Vec<(&'static str, Arc<dyn Place>)> {
    #[allow(unused_mut, reason = "without a server nothing is added")]
    let mut places: Vec<(_, Arc<dyn Place>)> = vec![
        ("memory", Arc::new(memory::Shared::plain())),
        ("flaky", Arc::new(memory::Shared::flaky(0x7e57))),
        ("metered", Arc::new(memory::Shared::metered())),
        #[cfg(feature = "sqlite")]
        ("sqlite", Arc::new(sqlite::Folder::new())),
    ];
    #[cfg(feature = "postgres")]
    if let Some(url) = testkit::service(testkit::TEST_POSTGRES) {
        places.push(("postgres", Arc::new(postgres::Schema::new(url))));
    }
    #[cfg(feature = "redis")]
    if let Some(url) = testkit::service(testkit::TEST_REDIS) {
        places.push(("redis", Arc::new(redis::Server::new(url, unique()))));
    }
    places
}

/// A number that no other run gets.
#[cfg(feature = "redis")]
fn unique() -> u128 {
    use tenure_core::Clock;
    let now = tenure_store::BootClock.now().as_nanos();
    u128::from(std::process::id()) << 64 | u128::from(now)
}
