//! Chaos in the test command: 20 seconds on each store, side by side, and proof that the checkers
//! can fail.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and shows what happened"
)]

mod planted;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use tenure_chaos::{ChaosOptions, ChaosStore, run, schedule};

/// Seed with which each kind of fault happens on each store; another test verifies that.
const SEED: u64 = 4;
const LENGTH: Duration = Duration::from_secs(20);

fn options(kind: ChaosStore, length: Duration) -> ChaosOptions {
    ChaosOptions::new(PathBuf::from(env!("CARGO_BIN_EXE_tenure-chaos")), kind, SEED, length)
}

#[test]
fn the_schedule_is_the_seeds_and_has_every_fault() {
    for kind in ChaosStore::ALL {
        let ChaosOptions { ttl, instances, .. } = options(kind, LENGTH);
        let of = |seed| schedule(seed, kind, LENGTH, ttl, instances);
        assert_eq!(of(SEED), of(SEED));
        assert_ne!(of(SEED), of(SEED + 1));
        let words: BTreeSet<_> = of(SEED).iter().map(|one| one.fault.word()).collect();
        assert_eq!(
            words.len(),
            if kind == ChaosStore::Sqlite { 5 } else { 10 },
            "{kind}: {words:?}"
        );
    }
}

fn planned(kind: ChaosStore) -> BTreeMap<&'static str, usize> {
    let ChaosOptions { ttl, instances, .. } = options(kind, LENGTH);
    let mut faults = BTreeMap::new();
    for one in schedule(SEED, kind, LENGTH, ttl, instances) {
        *faults.entry(one.fault.word()).or_default() += 1;
    }
    faults
}

/// The stores run concurrently: one after another would take four times as long, mostly waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_overlaps_on_any_store_and_every_duty_is_held_again() {
    let mut running = tokio::task::JoinSet::new();
    for kind in ChaosStore::ALL {
        running.spawn(async move { run(&options(kind, LENGTH)).await });
    }
    let (mut broken, mut refused) = (0, 0);
    while let Some(done) = running.join_next().await {
        let report = done.unwrap().unwrap();
        println!("{report}\n");
        broken += usize::from(!report.is_sound());
        // A run without effects or moves proves nothing.
        assert!(report.effects > 0 && report.moves > 0, "{report}");
        // A run in which a fault did not happen proves less than it claims.
        assert_eq!(report.faults, planned(report.kind), "{report}");
        refused += report.refused;
    }
    assert_eq!(broken, 0);
    // At least one instance was late, so that the fence was needed.
    assert!(refused > 0);
}

/// The same run with instances that check neither guard nor store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_ignore_the_fence_are_caught() {
    let mut options = options(ChaosStore::Sqlite, Duration::from_secs(8));
    options.careless = true;
    let report = run(&options).await.unwrap();
    assert!(report.overlapping > 0, "{report}");
    assert!(report.wrong.iter().any(|wrong| wrong.starts_with("L3")), "{report}");
}
