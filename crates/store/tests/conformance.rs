//! Every case of the suite on every backend and wrapper: `backend::topic::case`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod fixtures;

use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use tenure_core::Mutant;
use tenure_store::conformance::{self, Kit, StoreFixture};

/// Topics that have nothing to do with what a store of an earlier version holds (`adopt` uses fresh
/// stores). They run on such stores in `cargo xtask soak` only.
const UNRELATED: [&str; 6] = ["adopt", "limits", "names", "race", "survey", "watch"];

fn main() {
    if let Ok(name) = std::env::var(Mutant::VARIABLE) {
        Mutant::turn_on(&name).unwrap();
    }
    let runtime = Arc::new(tokio::runtime::Runtime::new().unwrap());
    let mut trials = Vec::new();
    for (backend, place) in runtime.block_on(fixtures::under_test()) {
        let few = backend.ends_with(fixtures::OLD) && !fixtures::is_soak();
        let cases = conformance::all().filter(|case| !few || !UNRELATED.contains(&case.topic));
        trials.extend(cases.map(|case| {
            let (runtime, place): (_, Arc<dyn StoreFixture>) = (runtime.clone(), place.clone());
            Trial::test(format!("{backend}::{}::{}", case.topic, case.name), move || {
                runtime.block_on(async { (case.run)(Kit::new(place).await).await });
                Ok(())
            })
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
