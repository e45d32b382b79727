//! `tenure bucket next --duty`: a rotation that several workers share.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;

use rustix::process::Signal;
use tenure_core::store::Commit;
use tenure_core::{Document, Version};
use testkit::{TEST_POSTGRES, service};

use super::next::{DUTY, FILES, id, next, put, rotation, run};
use crate::running::STAY;
use crate::stores::name;
use crate::tenure::{Ran, Tenure, claim, join, release, with_store};

/// Six workers with separate folders take the steps of one rotation concurrently.
fn workers_never_get_the_same_bucket(store: &str) {
    let workers: Vec<Tenure> = (0..6).map(|_| rotation(24)).collect();
    let steps = |tenure: &Tenure| -> Vec<u32> {
        let options = [&DUTY[..], &["--store", store]].concat();
        (0..4).map(|_| id(tenure, &options)).collect()
    };
    let chosen = std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.iter().map(|tenure| scope.spawn(move || steps(tenure))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let different: BTreeSet<u32> = chosen.iter().copied().collect();
    assert_eq!(different, (1..=24).collect(), "{chosen:?}");
    let kept = workers[0].run(&["checkpoint", "get", "sync/rotation", "--store", store]).ok();
    assert!(kept.contains("\"last_executed_bucket_id\":24"), "{kept}");
}

#[test]
fn workers_share_a_rotation_in_sqlite() {
    let tenure = Tenure::new();
    workers_never_get_the_same_bucket(&tenure.sqlite("shared.db"));
}

#[test]
fn workers_share_a_rotation_in_postgres() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    workers_never_get_the_same_bucket(&format!("{server}?schema={}", name()));
}

#[test]
fn one_run_of_a_rotation_at_a_time() {
    let tenure = rotation(2);
    let script = "test -p gate || mkfifo gate; echo begin $TENURE_BUCKET_ID >> ran
                  read line < gate; echo end >> ran";
    let words = [&FILES[..], &DUTY, &["--commit", "on-success", "--", "sh", "-c", script]].concat();
    let mut first = tenure.start("first", &words);
    tenure.lines("ran", 1);
    let ran = next(&tenure, &[&DUTY[..], &["--no-wait"]].concat());
    ran.refused("ST025");
    // A bad config is refused before the duty is claimed.
    let config = tenure.text("config.json");
    put(&tenure, "config.json", "{\"bucket_total\":0}");
    next(&tenure, &[&DUTY[..], &["--no-wait"]].concat()).refused("BK001");
    put(&tenure, "config.json", &config);
    let mut second = tenure.start("second", &words);
    tenure.said(&second, "standby");
    assert_eq!(tenure.text("ran"), "begin 1\n");
    // Each run waits for a line.
    put(&tenure, "gate", "go\n");
    assert!(first.wait().success());
    tenure.lines("ran", 3);
    put(&tenure, "gate", "go\n");
    assert!(second.wait().success());
    assert_eq!(tenure.text("ran"), "begin 1\nend\nbegin 2\nend\n");
    assert!(!tenure.path("state.json").exists(), "nobody wanted that");
}

/// A run that ends by this signal is repeated with the same bucket.
fn a_run_that_is_ended_comes_again(signal: Signal) {
    let tenure = rotation(3);
    let script = format!("trap 'exit 0' INT TERM; echo $TENURE_BUCKET_ID >> ran; {STAY}");
    let options = ["--ttl", "3s", "--commit", "on-success"];
    let words = [&FILES[..], &DUTY, &options, &["--", "sh", "-c", &script]].concat();
    let mut running = tenure.start("run", &words);
    tenure.lines("ran", 1);
    running.signal(signal);
    let ended = running.wait();
    assert_eq!(ended.success(), signal != Signal::KILL, "{ended:?}");
    run(&tenure, &options, "echo $TENURE_BUCKET_ID >> ran").ok();
    assert_eq!(tenure.text("ran"), "1\n1\n");
}

#[test]
fn a_run_that_is_killed_comes_again() {
    a_run_that_is_ended_comes_again(Signal::KILL);
}

/// The run exits with 0, but only because a signal told it to stop.
#[test]
fn a_run_that_is_asked_to_end_comes_again() {
    a_run_that_is_ended_comes_again(Signal::TERM);
    a_run_that_is_ended_comes_again(Signal::INT);
}

/// A worker that loses its hold during the step does not run the command.
#[test]
fn a_step_that_is_too_late_is_not_run() {
    let tenure = rotation(3);
    let config = tenure.text("config.json");
    fs::remove_file(tenure.path("config.json")).unwrap();
    assert!(tenure.command_of("mkfifo", &["config.json"]).status().unwrap().success());
    let options = ["--ttl", "6s", "--", "touch", "ran"];
    let mut running = tenure.start("run", &[&FILES[..], &DUTY, &options].concat());
    // The config is read before the duty is claimed, and again under the hold.
    let pipe = || File::options().write(true).open(tenure.path("config.json")).unwrap();
    pipe().write_all(config.as_bytes()).unwrap();
    tenure.said(&running, "\"event\":\"acquired\"");
    let mut under_hold = pipe();
    let seen = tenure.run(&["ls", "sync", "--json"]).json();
    let holder = &seen["groups"][0]["duties"][0]["holder"];
    tenure.evict("sync", holder.as_str().unwrap());
    under_hold.write_all(config.as_bytes()).unwrap();
    drop(under_hold);
    assert_eq!(running.wait().code(), Some(125), "{}", tenure.text("run.err"));
    assert!(!tenure.path("ran").exists());
    let kept = tenure.run(&["checkpoint", "get", "sync/rotation"]);
    assert!(!kept.stdout.contains("last_executed"), "{kept:?}");
}

/// Stores this checkpoint for the rotation.
fn keep(tenure: &Tenure, text: &str) {
    with_store(&tenure.sqlite("tenure.db"), async |store| {
        let session = join(&*store, "sync", "other", "").await;
        let hold = claim(&*store, &session, "rotation").await;
        let document = Document::new(text).unwrap();
        let commit = Commit { hold: hold.clone(), expected: Version::ZERO, document };
        store.commit(&session, &[commit]).await.unwrap();
        release(&*store, &session, hold).await;
    });
}

#[test]
fn what_else_a_record_has_stays() {
    let tenure = rotation(3);
    keep(
        &tenure,
        "{\"by\": \"us\", \"__bucket_execution_state\": {\"last_executed_bucket_id\":1}}",
    );
    assert_eq!(id(&tenure, &DUTY), 2);
    run(&tenure, &["--commit", "on-success"], "true").ok();
    assert_eq!(
        tenure.run(&["checkpoint", "get", "sync/rotation"]).ok().trim_end(),
        "{\"by\": \"us\", \"__bucket_execution_state\": {\"last_executed_bucket_id\":3}, \
         \"__tenure_bucket_state\": {\"bucket_total\":3}}"
    );
}

#[test]
fn a_checkpoint_of_something_else_is_left_alone() {
    let tenure = rotation(3);
    let cursor = "{\"history_id\": \"7\"}";
    keep(&tenure, cursor);
    for command in [&[][..], &["--", "touch", "ran"]] {
        let ran = next(&tenure, &[&DUTY[..], &["--write"], command].concat());
        assert!(ran.stderr.contains("BK003"), "{ran:?}");
        assert!(ran.stderr.contains("the checkpoint of sync/rotation"), "{ran:?}");
        assert_ne!(ran.code, Some(0));
    }
    let kept = tenure.run(&["checkpoint", "get", "sync/rotation"]).ok();
    assert_eq!(kept.trim_end(), cursor);
    assert!(!tenure.path("ran").exists() && !tenure.path("state.json").exists());
}

/// The record of a rotation is a checkpoint: it is signed and verified like any other.
#[test]
fn a_rotation_is_signed_and_verified() {
    let tenure = rotation(5);
    let keys = format!("k1 sign {}", "5e".repeat(32));
    let signed = |words: &[&str]| {
        let mut command = tenure.command(words);
        command.env("TENURE_SIGNING", "require").env("TENURE_SIGNING_KEYS", &keys);
        Ran::of(command.output().unwrap())
    };
    let step = || signed(&[&FILES[..], &DUTY, &["--print", "id"]].concat());
    for bucket in 1..=3 {
        assert_eq!(step().ok().trim(), bucket.to_string());
    }
    signed(&["checkpoint", "verify"]).ok();
    // A step without keys reads the signed record and writes an unsigned one.
    assert_eq!(id(&tenure, &DUTY), 4);
    step().refused("ST022");
    let rewind = |to: &str| signed(&["checkpoint", "rewind", "sync/rotation", "--to", to]).ok();
    rewind("3");
    assert_eq!(step().ok().trim(), "4");
    // An older record is restored between two runs.
    let pen = rusqlite::Connection::open(tenure.path("tenure.db")).unwrap();
    pen.execute_batch(
        "UPDATE checkpoint SET version = h.version, epoch = h.epoch, document = h.document
         FROM history h WHERE h.version = 2",
    )
    .unwrap();
    step().refused("ST023");
    let ran = signed(&[&FILES[..], &DUTY, &["--", "touch", "ran"]].concat());
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("ST023") && !tenure.path("ran").exists(), "{ran:?}");
    rewind("6");
    assert_eq!(step().ok().trim(), "5");
}
