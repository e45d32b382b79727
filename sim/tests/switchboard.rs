//! The switchboard in virtual time; `cargo xtask sim --world switchboard` runs more seeds.

use std::thread;

use tenure_sim::Coverage;
use tenure_sim::switchboard::{differs, run};

const SEEDS: u64 = 200;
const THREADS: u64 = 2;

#[test]
fn two_hundred_seeds() {
    let one = |first: u64| {
        let (mut coverage, mut failed) = (Coverage::default(), Vec::new());
        for seed in (first..SEEDS).step_by(THREADS as usize) {
            let outcome = run(seed, false);
            coverage.add(&outcome.coverage);
            let replay = format!("cargo xtask sim --seed {seed} --world switchboard");
            let told = |finding| format!("seed {seed}: {finding}; {replay}");
            failed.extend(outcome.findings.iter().map(told));
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
    assert!(failed.is_empty(), "{} findings:\n{}", failed.len(), failed.join("\n"));
    for outcome in ["stored", "fenced", "diverged", "gap-told", "rolled-fenced"] {
        assert!(coverage.of("outcome", outcome) > 0, "never {outcome}:\n{coverage}");
    }
}

#[test]
fn a_seed_of_the_switchboard_replays_to_the_byte() {
    for seed in 0..10 {
        assert_eq!(differs(seed), None, "seed {seed}");
    }
}
