//! Failures around `tenure run` and `tenure poll`.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Signal, kill_process};
use testkit::wait_until;

use crate::running::{LIMIT, STAY, all_gone, children};
use crate::tenure::{Ran, Tenure};

const STANDBY: &str = r#""event":"standby""#;

/// Returns the arguments to run a shell script.
fn shell<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["run", "--duty", "demo/one", "--ttl", "3s"];
    [&before[..], options, &["--", "sh", "-c", script]].concat()
}

#[test]
fn a_guard_that_died_while_its_command_waited_is_replaced() {
    let tenure = Tenure::new();
    let script = format!("echo >> ready; {STAY}");
    let holder = tenure.start("a", &shell(&[], &script));
    tenure.lines("ready", 1);
    let waiting = tenure.start("b", &shell(&[], "cat $TENURE_DEADLINE_FILE > got; exit 4"));
    tenure.said(&waiting, STANDBY);
    let guard = waiting.guard();
    kill_process(guard, Signal::KILL).unwrap();
    wait_until("the guard is gone", LIMIT, || all_gone(&[guard])).unwrap();
    holder.signal(Signal::TERM);
    holder.exits(128 + 15);
    waiting.exits(4);
    assert!(tenure.text("got").contains("state=held"));
    assert!(tenure.text("b.err").contains("guard_replaced"), "{}", tenure.text("b.err"));
}

#[test]
fn a_poll_is_not_given_to_a_guard_that_has_died() {
    let tenure = Tenure::new();
    let before = ["poll", "--targets", "list:a", "--every", "500ms", "--ttl", "6s"];
    let after = ["--timeout", "1s", "--grace", "300ms", "--", "sh", "-c", "echo >> polls"];
    let running = tenure.start("a", &[&before[..], &after].concat());
    for round in 1..=3 {
        let polled = tenure.lines("polls", round).len();
        // Between two polls a guard has no child; kill it before the next poll.
        let idle = || {
            let guards = children(running.pid());
            guards.into_iter().find(|guard| children(*guard).is_empty())
        };
        wait_until("a guard has nothing to do", LIMIT, || idle().is_some()).unwrap();
        if let Some(guard) = idle() {
            kill_process(guard, Signal::KILL).unwrap();
        }
        tenure.lines("polls", polled + 1);
    }
    running.signal(Signal::TERM);
    running.exits(0);
    let said = tenure.text("a.err");
    assert!(!said.contains("before it started the command"), "{said}");
}

#[test]
fn what_was_typed_wrong_is_never_taken_for_a_duty_that_is_held() {
    let tenure = Tenure::new();
    for options in [
        &["--duty", "demo/one", "--ttl", "1ms"][..],
        &["--duty", "demo/one", "--ttl", "999ms"],
        &["--duty", "demo/one", "--ttl", "25h"],
        &["--duty", "ab"],
        &["--duty", "demo/one", "--store", "bogus:x"],
        &["--duty", "demo/one", "--zone", ""],
        &["--duty", "demo/one", "--drain", "25h"],
    ] {
        let words = [&["run", "--no-wait"], options, &["--", "true"]].concat();
        let ran = tenure.run(&words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{options:?}: {ran:?}");
    }
    for options in [
        &["--timeout", "9223372036854775807s"][..],
        &["--timeout", "0s"],
        &["--every", "9223372036854775807s"],
        &["--every", "0s"],
        &["--list-every", "0s"],
        &["--jobs", "18446744073709551615"],
        &["--jobs", "0"],
        &["--ttl", "500ms"],
    ] {
        let words = [&["poll", "--targets", "list:a"], options, &["--", "true"]].concat();
        let ran = tenure.run(&words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{options:?}: {ran:?}");
        assert!(ran.stderr.contains(options[0]), "{ran:?}");
    }
    assert!(!tenure.path("tenure.db").exists());
}

#[test]
fn trouble_with_the_machine_has_a_code_and_says_what_to_do() {
    let tenure = Tenure::new();
    let no_folder = |words: &[&str]| {
        Ran::of(tenure.command(words).env("TMPDIR", tenure.path("none")).output().unwrap())
    };
    let ran = no_folder(&shell(&[], "true"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""), "{ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("DT009: ") && lines[0].contains("private folder"), "{ran:?}");
    assert_eq!(lines[1], "kept: nothing was changed");
    assert!(lines[2].starts_with("hint: "), "{ran:?}");
    let ran = no_folder(&shell(&["--json"], "true"));
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["code"], "DT009");

    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    let ran = tenure.run(&shell(&["--listen", &address], "true"));
    assert_eq!(ran.code, Some(125));
    assert!(ran.stderr.starts_with("DT009: "), "{ran:?}");

    // After a grant, `kept` says that the duty was released.
    let ran = tenure.run(&["run", "--duty", "demo/one", "--", "./none"]);
    assert!(ran.stderr.contains("\nkept: the duty was released\n"), "{ran:?}");
}

/// The server accepts connections and never answers.
#[test]
fn a_signal_is_heard_while_the_store_does_not_answer() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("postgres://me@{}/db", server.local_addr().unwrap());
    let tenure = Tenure::new();
    let run = tenure.start("a", &shell(&["--store", &store], "echo never"));
    let words = ["poll", "--store", &store, "--targets", "list:a", "--", "true"];
    let poll = tenure.start("b", &words);
    // Both commands try to join.
    let connections = [server.accept().unwrap(), server.accept().unwrap()];
    run.signal(Signal::INT);
    poll.signal(Signal::TERM);
    run.exits(128 + 2);
    poll.exits(0);
    // Neither waited until its attempt failed.
    let said = tenure.text("a.err") + &tenure.text("b.err");
    assert!(!said.contains("store_away"), "{said}");
    drop(connections);
}

#[test]
fn a_command_gets_no_secrets_that_are_not_its_own() {
    let tenure = Tenure::new();
    let command = |words: &[&str]| {
        let mut command = tenure.command(words);
        command.env("TENURE_STORE", "sqlite:other.db").env("TENURE_SIGNING_KEYS", "s3cret-1");
        command.env("TENURE_TARGETS_TOKEN", "s3cret-2").env("TENURE_TARGETS", "list:s3cret");
        // An empty variable counts as unset.
        command.env("CONNECTOR_HEALTH_PORT", "");
        command
    };
    let ran = Ran::of(command(&shell(&[], "env")).output().unwrap());
    let environment = ran.ok();
    assert!(!environment.contains("s3cret"), "{environment}");
    // The command keeps the store's URL: it may use the store.
    assert!(environment.contains("TENURE_STORE=sqlite:other.db\n"), "{environment}");

    let words = ["poll", "--every", "200ms", "--", "sh", "-c", "env > env; echo >> polls"];
    let poll = tenure.start_this("a", command(&words));
    tenure.lines("polls", 1);
    poll.signal(Signal::TERM);
    poll.exits(0);
    let environment = tenure.text("env");
    assert!(environment.contains("TENURE_TARGET=s3cret\n"), "{environment}");
    assert!(!environment.contains("s3cret-") && !environment.contains("list:"), "{environment}");
}

/// Copies a program, with the set-user-ID bit of root.
fn as_root(tenure: &Tenure, program: &Path) {
    let copy = tenure.path("as-root");
    std::fs::copy(program, &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o4755)).unwrap();
    std::fs::set_permissions(tenure.path(""), PermissionsExt::from_mode(0o777)).unwrap();
}

/// The command becomes root, so `tenure`, an ordinary user, cannot end it. `tenure` logs that, does
/// not start it again, and exits on TERM. Needs root, to switch users.
#[test]
fn what_cannot_be_ended_is_named_and_keeps_nobody() {
    let tenure = Tenure::new();
    as_root(&tenure, Path::new("/usr/bin/setpriv"));
    let become_root = "echo $$ >> pids; exec ./as-root --reuid 0 sleep 600";
    let nobody = ["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_tenure")];
    for (name, words) in [
        ("run", shell(&["--drain", "500ms"], become_root)),
        ("poll", {
            let before = ["poll", "--targets", "list:a", "--every", "200ms", "--ttl", "6s"];
            let limits = ["--timeout", "500ms", "--grace", "100ms", "--drain", "500ms"];
            [&before[..], &limits, &["--", "sh", "-c", become_root]].concat()
        }),
    ] {
        let _ = std::fs::remove_file(tenure.path("pids"));
        let words = [&nobody[..], &words].concat();
        let running = tenure.start_this(name, tenure.command_of("setpriv", &words));
        let pid = tenure.pids("pids", 1)[0];
        let command = || std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_pid()));
        wait_until("it is root's", LIMIT, || command().unwrap() == "sleep\n").unwrap();
        if name == "run" {
            running.signal(Signal::TERM);
        } else {
            tenure.said(&running, "not_ended");
            running.signal(Signal::TERM);
        }
        running.exits(if name == "run" { 125 } else { 0 });
        let said = tenure.text(&format!("{name}.err"));
        let named = format!("process {} ", pid.as_raw_pid());
        assert_eq!(said.matches("\"not_ended\"").count(), 1, "{said}");
        assert!(said.contains(&named), "{said}");
        assert_eq!(tenure.pids("pids", 1), [pid], "it was started again: {said}");
        assert!(!all_gone(&[pid]));
        kill_process(pid, Signal::KILL).unwrap();
    }
}
