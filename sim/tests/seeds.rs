//! A thousand seeds in the normal test command; `cargo xtask sim` runs more.

use std::thread;

use tenure_core::Mutant;
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

/// Rules that are switched off are noticed soon; `cargo xtask kill-table` tries all of them.
#[cfg(feature = "mutants")]
#[test]
fn a_broken_rule_is_noticed() {
    for (name, checker) in [("r2-forget", "L2"), ("r5-margin", "deadline"), ("r20-views", "views")]
    {
        let mut sim = std::process::Command::new(env!("CARGO_BIN_EXE_tenure-sim"));
        let done = sim.args(["--mutant", name, "--seeds", "100"]).output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success() && said.contains(checker), "{name}: {said}");
    }
}

/// The table in the documentation has a line for every rule, and one for every mutant there is.
#[test]
fn the_kill_table_has_every_rule_and_mutant() {
    let text = include_str!("../../docs/guarantees.md");
    let (_, rest) = text.split_once("<!-- kill-table:begin -->").unwrap();
    let (table, _) = rest.split_once("<!-- kill-table:end -->").unwrap();
    for rule in 1..=26 {
        assert!(table.contains(&format!("\n| R{rule} | ")), "R{rule} has no line");
    }
    let names = table.lines().filter_map(|line| Some(line.split_once("| `")?.1.split_once('`')?.0));
    let known = Mutant::ALL.iter().map(|mutant| mutant.as_str());
    assert_eq!(names.collect::<Vec<_>>(), known.collect::<Vec<_>>(), "run cargo xtask kill-table");
}
