//! Where the suite runs.

mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::sync::Arc;

use tenure_store::conformance::Place;

/// Every backend and wrapper by name.
pub async fn under_test() -> Vec<(&'static str, Arc<dyn Place>)> {
    #[allow(unused_mut, reason = "with one backend nothing is added")]
    let mut places: Vec<(&'static str, Arc<dyn Place>)> = vec![
        ("memory", Arc::new(memory::Shared::plain())),
        ("flaky", Arc::new(memory::Shared::flaky(0x7e57))),
        ("metered", Arc::new(memory::Shared::metered())),
    ];
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
