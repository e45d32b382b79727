//! Where the suite runs.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "file")]
mod file;
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
pub async fn under_test() -> Vec<(String, Arc<dyn Place>)> {
    let mut places: Vec<(String, Arc<dyn Place>)> = vec![
        ("memory".into(), Arc::new(memory::Shared::plain())),
        ("flaky".into(), Arc::new(memory::Shared::flaky(0x7e57))),
        ("metered".into(), Arc::new(memory::Shared::metered())),
        ("sealed".into(), Arc::new(memory::Shared::sealed())),
        #[cfg(feature = "file")]
        ("file".into(), Arc::new(file::Cursor::new().await)),
        #[cfg(feature = "sqlite")]
        ("sqlite".into(), Arc::new(sqlite::Folder::new())),
    ];
    // `cargo xtask soak`: many more seeds.
    if std::env::var_os("TENURE_SOAK").is_some() {
        places.extend((0..200).map(|seed| {
            let flaky: Arc<dyn Place> = Arc::new(memory::Shared::flaky(seed << 32));
            (format!("flaky-{seed}"), flaky)
        }));
    }
    #[cfg(feature = "postgres")]
    if let Some(url) = testkit::service(testkit::TEST_POSTGRES) {
        places.push(("postgres".into(), Arc::new(postgres::Schema::new(url))));
    }
    #[cfg(feature = "redis")]
    if let Some(url) = testkit::service(testkit::TEST_REDIS) {
        places.push(("redis".into(), Arc::new(redis::Server::new(url, unique()))));
    }
    #[cfg(feature = "etcd")]
    if let Some(url) = testkit::service(testkit::TEST_ETCD) {
        places.push(("etcd".into(), Arc::new(etcd::Cluster::new(url, unique()))));
    }
    places
}

/// A number that no other run gets.
#[cfg(any(feature = "redis", feature = "etcd"))]
fn unique() -> u128 {
    use tenure_core::Clock;
    let now = tenure_store::BootClock.now().as_nanos();
    u128::from(std::process::id()) << 64 | u128::from(now)
}
