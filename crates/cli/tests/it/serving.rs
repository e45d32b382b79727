//! `tenure serve`: errors at the start.

use std::net::TcpListener;
use std::process::Command;

use crate::tenure::{Ran, Tenure};

/// Returns the command; `timeout` ends it if it starts after all.
fn command(tenure: &Tenure, words: &[&str]) -> Command {
    let limited = ["30", env!("CARGO_BIN_EXE_tenure"), "serve"];
    tenure.command_of("timeout", &[&limited, words].concat())
}

fn serve(tenure: &Tenure, words: &[&str]) -> Ran {
    Ran::of(command(tenure, words).output().unwrap())
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let tenure = Tenure::new();
    let help = serve(&tenure, &["--help"]).ok();
    for word in ["--listen", "127.0.0.1:8420", "--tls-cert", "--keep-keys", "TENURE_LISTEN"] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
    for (words, says) in [
        (&["--listen", "host:80"][..], "ADDRESS:PORT"),
        (&["--listen", ""], "ADDRESS:PORT"),
        (&["--tls-cert", "a.pem"], "--tls-key"),
        (&["--tls-key", "a.pem"], "--tls-cert"),
        (&["--keep-bodies", "30d", "--keep-keys", "29d"], "shorter than --keep-bodies"),
        (&["--keep-bodies", "1s"], "--keep-bodies"),
        (&["--keep-keys", "45"], "90d"),
        (&["--trusted-proxies", "99"], "--trusted-proxies"),
        (&["--auth-failures", "0"], "--auth-failures"),
        (&["--auth-window", "0s"], "--auth-window"),
        (&["--max-connections", "0"], "--max-connections"),
        (&["--memory-budget", "1MiB"], "--memory-budget"),
        (&["--memory-budget", "lots"], "32MiB"),
        (&["--client-timeout", "0s"], "--client-timeout"),
        (&["--drain", "2h"], "--drain"),
        (&["extra"], "unexpected"),
    ] {
        let ran = serve(&tenure, words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{words:?} should say {says}: {ran:?}");
    }
    // A bad value of a variable is refused, too, and not repeated.
    let mut command = command(&tenure, &[]);
    let ran = Ran::of(command.env("TENURE_LISTEN", "me:s3cret@h").output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    ran.hides("s3cret");
    for store in ["redis://:s3cret@127.0.0.1:1/0", "file:cursor.json"] {
        let ran = serve(&tenure, &["--store", store]);
        ran.refused("ST001");
        ran.hides("s3cret");
        assert!(ran.stderr.contains("this store has no tables"), "{ran:?}");
    }
    assert_eq!(std::fs::read_dir(tenure.path(".")).unwrap().count(), 0);
}

#[test]
fn without_a_token_others_are_kept_out() {
    let tenure = Tenure::new();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let ran = serve(&tenure, &["--listen", listen]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        for words in ["SW001: ", "kept: the server was not started", "tenure token create"] {
            assert!(ran.stderr.contains(words), "{words}: {ran:?}");
        }
    }
}

#[test]
fn a_store_that_promises_too_little_is_refused() {
    let tenure = Tenure::new();
    let ran = serve(&tenure, &["--listen", "0", "--require", "exclusive-effects"]);
    ran.refused("ST027");
    let says = "exclusive-effects is required, the store gives fenced";
    assert!(ran.stderr.contains(says), "{ran:?}");
    let ran = serve(&tenure, &["--require", "perfect"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    // The level of the store is enough, so the next check fails.
    let ran = serve(&tenure, &["--listen", "0.0.0.0:0", "--require", "fenced"]);
    assert!(ran.stderr.contains("SW001: "), "{ran:?}");
}

#[test]
fn an_address_that_is_taken_is_named() {
    let tenure = Tenure::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let ran = serve(&tenure, &["--listen", &at]);
    ran.refused("DT009");
    assert!(ran.stderr.contains(&format!("cannot listen on {at}")), "{ran:?}");
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let tenure = Tenure::new();
    std::fs::write(tenure.path("text.pem"), "no certificate\n").unwrap();
    for (certificate, key) in [("none.pem", "text.pem"), ("text.pem", "text.pem")] {
        let words = ["--listen", "0", "--tls-cert", certificate, "--tls-key", key];
        let ran = serve(&tenure, &words);
        ran.refused("DT009");
        assert!(ran.stderr.contains(certificate), "{ran:?}");
    }
}
