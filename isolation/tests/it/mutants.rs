//! The races that external testing found are found when their fixes are taken out.
#![cfg(feature = "mutants")]

use std::process::Command;

use tenure_core::Mutant;

/// Runs a pair with a fix taken out, and returns what was printed. A mutant is on for a process.
fn found(mutant: &str, pair: &str, level: &str) -> String {
    assert!(Mutant::parse(mutant).is_some(), "{mutant}");
    let done = Command::new(env!("CARGO_BIN_EXE_tenure-isolation"))
        .args(["--pairs", pair, "--level", level])
        .env(Mutant::VARIABLE, mutant)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    println!("{mutant}\n{text}");
    let (a, b) = pair.split_once(',').unwrap();
    let repeat = format!("repeat it: cargo xtask isolation --pairs {pair} --level {level} --stop ");
    assert_eq!(done.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("FOUND {a} stopped at: ")), "{text}");
    assert!(text.contains(&format!("; meanwhile {b}; level {level}")), "{text}");
    assert!(text.contains(&repeat), "{text}");
    text
}

#[test]
fn an_announcement_under_repeatable_read_is_found_without_the_check_of_the_level() {
    let text = found("s3-level", "commit-fence-7,announce-8", "raw-repeatable-read");
    assert!(text.contains("announce-8 was answered while commit-fence-7 was stopped"), "{text}");
}

#[test]
fn a_token_revoked_meanwhile_is_found_without_the_lock() {
    let text = found("s4-meanwhile", "commit-token,revoke", "direct-read-committed");
    assert!(text.contains("revoke was answered while commit-token was stopped"), "{text}");
}

#[test]
fn a_key_pruned_under_a_copy_is_found_without_the_lock() {
    let text = found("s2-prune", "commit-copy,prune-keys", "direct-read-committed");
    assert!(text.contains("ingest_dedupe"), "{text}");
}
