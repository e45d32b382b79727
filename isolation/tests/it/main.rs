//! The main pairs at all levels, planted races, and the known races with their fixes taken out.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and shows what happened"
)]

mod mutants;
mod planted;

use std::sync::Arc;

use tenure_core::Mutant;
use tenure_isolation::{IsolationOptions, IsolationReport, PreparedServer, operations, run};

/// Pairs that run in the test command: `cargo xtask isolation` runs all.
const MAIN_PAIRS: &[(&str, &str)] = &[
    // The races that were found once.
    ("commit-fence-7", "announce-8"),
    ("commit-token", "revoke"),
    ("commit-copy", "prune-keys"),
    ("prune-keys", "commit-copy"),
    // Races that this tester found.
    ("claim-new-b", "close-b"),
    ("evict-a", "adopt-store"),
    ("archive-token", "revoke"),
    // Events and tokens.
    ("commit-new", "commit-new-too"),
    ("commit-mixed", "commit-new"),
    ("announce-8", "commit-fence-7"),
    ("report-token", "revoke"),
    ("beat-connector", "beat-connector-too"),
    ("beat", "roll-up"),
    // Leases.
    ("claim-new-a", "claim-new-b"),
    ("claim-expired-b", "keep-c"),
    ("claim-free", "forget-free"),
    ("claim-new-a", "close-a"),
    ("checkpoint-next", "evict-a"),
    ("result-many", "evict-a"),
    ("result-lapsing", "claim-lapsed"),
    ("effect", "evict-a"),
    ("effect", "release-one"),
    ("checkpoint-lapsing", "claim-lapsed"),
    ("checkpoint-expired", "claim-expired-b"),
    ("keep-a", "evict-a"),
    ("open-new", "evict-unknown"),
];

fn pair(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

/// Runs pairs on a server of their own.
async fn run_pairs(options: &IsolationOptions) -> IsolationReport {
    if let Ok(name) = std::env::var(Mutant::VARIABLE) {
        Mutant::turn_on(&name).unwrap();
    }
    let server = Arc::new(PreparedServer::start().await.unwrap());
    run(server, &operations::all(), options, |_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_main_pairs_are_as_in_a_serial_order() {
    let pairs = MAIN_PAIRS.iter().map(|(a, b)| pair(a, b)).collect();
    let report = run_pairs(&IsolationOptions { pairs, ..IsolationOptions::default() }).await;
    println!("{report}");
    assert!(report.findings.is_empty(), "{report}");
    assert!(report.schedules > 500 && report.waited > 100, "{report}");
}
