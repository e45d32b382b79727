//! Every case of the suite on every backend and wrapper: `backend::topic::case`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod fixtures;

use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use tenure_core::Mutant;
use tenure_store::conformance::{self, Kit, StoreFixture};

fn main() {
    if let Ok(name) = std::env::var(Mutant::VARIABLE) {
        Mutant::turn_on(&name).unwrap();
    }
    let runtime = Arc::new(tokio::runtime::Runtime::new().unwrap());
    let mut trials = Vec::new();
    for (backend, place) in runtime.block_on(fixtures::under_test()) {
        trials.extend(conformance::all().map(|case| {
            let (runtime, place): (_, Arc<dyn StoreFixture>) = (runtime.clone(), place.clone());
            Trial::test(format!("{backend}::{}::{}", case.topic, case.name), move || {
                runtime.block_on(async { (case.run)(Kit::new(place).await).await });
                Ok(())
            })
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
