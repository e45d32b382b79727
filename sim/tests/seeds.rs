//! A thousand seeds in the normal test command; `cargo xtask sim` runs more.

use std::thread;

use tenure_sim::{Coverage, differs, run};

const SEEDS: u64 = 1000;
const THREADS: u64 = 2;

/// Every seed passes, and together they reach every store, every fault and every kind of record.
#[test]
fn a_thousand_seeds() {
    let one = |first: u64| {
        let (mut coverage, mut failed) = (Coverage::default(), Vec::new());
        for seed in (first..SEEDS).step_by(THREADS as usize) {
            let outcome = run(seed, false);
            coverage.add(&outcome.coverage);
            for finding in outcome.findings {
                failed.push(format!("seed {seed}: {finding}; cargo xtask sim --seed {seed}"));
            }
        }
        (coverage, failed)
    };
    let (mut coverage, mut failed) = (Coverage::default(), Vec::new());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || one(first))).collect();
        for thread in threads {
            let (reached, broken) = thread.join().unwrap();
            coverage.add(&reached);
            failed.extend(broken);
        }
    });
    assert!(failed.is_empty(), "{} seeds failed:\n{}", failed.len(), failed.join("\n"));
    assert_eq!(coverage.missing(), Vec::<String>::new(), "never reached in {SEEDS} seeds");
}

#[test]
fn a_seed_replays_to_the_byte() {
    for seed in 0..20 {
        assert_eq!(differs(seed), None, "seed {seed}");
    }
}
