//! Where the suite runs.

mod memory;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

use tenure_store::conformance::Place;

/// Every backend and wrapper by name.
pub async fn under_test() -> Vec<(&'static str, Arc<dyn Place>)> {
    vec![
        ("memory", Arc::new(memory::Shared::plain())),
        ("flaky", Arc::new(memory::Shared::flaky(0x7e57))),
        ("metered", Arc::new(memory::Shared::metered())),
        #[cfg(feature = "sqlite")]
        ("sqlite", Arc::new(sqlite::Folder::new())),
    ]
}
