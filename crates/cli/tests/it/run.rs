//! `tenure run`, with real processes.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::engine::GroupConfig;
use tenure_core::{Clock, LocalInstant};
use tenure_store::BootClock;
use testkit::{PostgresOptions, PostgresServer, TEST_POSTGRES, TEST_REDIS, service, wait_until};

use crate::running::{LIMIT, STAY, all_gone, family};
use crate::stores::name;
use crate::tenure::{Ran, Tenure, with_store};

/// Log event of a process that waits for the duty.
const STANDBY: &str = r#""event":"standby""#;

/// Returns the arguments to run a shell script.
fn shell<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["run", "--duty", "demo/one", "--ttl", "3s"];
    [&before[..], options, &["--", "sh", "-c", script]].concat()
}

fn run(tenure: &Tenure, options: &[&str], script: &str) -> Ran {
    let mut running = tenure.start("run", &shell(options, script));
    let code = running.wait().code();
    Ran { code, stdout: tenure.text("run.out"), stderr: tenure.text("run.err") }
}

/// Checks that the duty is free and the group has no members.
#[track_caller]
fn is_free(tenure: &Tenure) {
    let groups = tenure.run(&["ls", "demo", "--json"]).json();
    assert_eq!(groups["groups"][0]["duties"][0]["holder"], serde_json::Value::Null, "{groups}");
    assert_eq!(groups["groups"][0]["members"], serde_json::json!([]));
}

/// Returns the fields of a deadline file.
fn fields(text: &str) -> Vec<(&str, &str)> {
    text.lines().map(|line| line.split_once('=').unwrap()).collect()
}

#[test]
fn a_command_knows_its_duty_and_how_long_it_has() {
    let tenure = Tenure::new();
    let script = "echo $TENURE_DUTY; echo $TENURE_EPOCH; echo $TENURE_INSTANCE; tenure_file=\
                  $TENURE_DEADLINE_FILE; echo $tenure_file; cp -p $tenure_file .; cat; exit 7";
    let before = BootClock.now();
    let ran = run(&tenure, &[], script);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[..2], ["demo/one", "1"]);
    let kept = tenure.text("deadline");
    let fields = fields(&kept);
    let keys: Vec<&str> = fields.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, ["boottime_ns", "unix_ms", "epoch", "state"]);
    assert_eq!((fields[2].1, fields[3].1), ("1", "held"));
    let deadline = LocalInstant::from_nanos(fields[0].1.parse().unwrap());
    assert!(before < deadline && deadline < BootClock.now().plus(Duration::from_secs(3)));
    // The file is removed at the end; it was readable by its owner only.
    assert!(!std::path::Path::new(lines[3]).exists());
    let mode = std::fs::metadata(tenure.path("deadline")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    is_free(&tenure);
}

#[test]
fn the_end_of_the_command_is_passed_on() {
    let tenure = Tenure::new();
    for (script, code) in [("exit 0", 0), ("exit 255", 255), ("kill -USR2 $$", 128 + 12)] {
        assert_eq!(run(&tenure, &[], script).code, Some(code), "{script}");
    }
    is_free(&tenure);
}

#[test]
fn a_command_that_cannot_be_started_gives_the_duty_back() {
    let tenure = Tenure::new();
    std::fs::write(tenure.path("data"), "no program").unwrap();
    for (program, code) in [("./no-such-program", 127), ("./data", 126)] {
        let ran = tenure.run(&["run", "--duty", "demo/one", "--", program]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains("\nDT006: the command cannot be started: "), "{ran:?}");
        assert!(ran.stderr.contains(program), "{ran:?}");
        is_free(&tenure);
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let tenure = Tenure::new();
    for words in [
        &["run", "--duty", "demo/one"][..],
        &["run", "--", "true"],
        &["run", "--duty", "demo/one", "--ttl", "7", "--", "true"],
        &["run", "--duty", "demo/one", "--ttl", "10s", "--grace", "5s", "--", "true"],
    ] {
        let ran = tenure.run(words);
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
    let ran = tenure.run(&["run", "--duty", "demo/one", "--ttl", "1ms", "--", "true"]);
    assert!(ran.stderr.contains("--ttl 1ms is outside the limits: 1s to 1d"), "{ran:?}");
    assert!(!tenure.path("tenure.db").exists());
}

#[test]
fn signals_reach_the_command() {
    let tenure = Tenure::new();
    let script = format!(
        "trap 'echo usr1 >> got' USR1; trap 'echo hup >> got; exit 5' HUP; echo >> ready; {STAY}"
    );
    let running = tenure.start("a", &shell(&[], &script));
    tenure.lines("ready", 1);
    running.signal(Signal::USR1);
    tenure.lines("got", 1);
    running.signal(Signal::HUP);
    running.exits(5);
    assert_eq!(tenure.lines("got", 2), ["usr1", "hup"]);
    is_free(&tenure);
}

#[test]
fn term_asks_for_an_end_and_waits_for_it() {
    let tenure = Tenure::new();
    let script = format!("trap 'cp $TENURE_DEADLINE_FILE .; exit 9' TERM; echo >> ready; {STAY}");
    let running = tenure.start("a", &shell(&[], &script));
    tenure.lines("ready", 1);
    running.signal(Signal::TERM);
    running.exits(9);
    assert_eq!(fields(&tenure.text("deadline"))[3], ("state", "draining"));
    is_free(&tenure);
}

/// The file is replaced, not overwritten: an open descriptor still reads the old content.
#[test]
fn the_deadline_file_is_replaced_when_the_hold_is_renewed() {
    let tenure = Tenure::new();
    let script = "exec 8< $TENURE_DEADLINE_FILE; cat /dev/fd/8 > first
                  while cmp -s first $TENURE_DEADLINE_FILE; do :; done
                  cp $TENURE_DEADLINE_FILE second; cat /dev/fd/8 > again";
    tenure.start("a", &shell(&[], script)).exits(0);
    let [first, second, again] = ["first", "second", "again"].map(|name| tenure.text(name));
    assert_eq!(first, again);
    let deadline = |text: &str| fields(text)[0].1.parse::<u64>().unwrap();
    assert!(deadline(&first) < deadline(&second), "{first} {second}");
    assert_eq!(fields(&second)[3], ("state", "held"));
}

/// The guard gets each renewal: four of them take longer than the first deadline allows.
#[test]
fn a_command_runs_as_long_as_its_hold_is_renewed() {
    let tenure = Tenure::new();
    let script = "echo >> began; file=$TENURE_DEADLINE_FILE; n=0; while test $n -le 4
                  do cmp -s last $file || { cp $file last; n=$((n + 1)); }; done";
    tenure.start("a", &shell(&[], script)).exits(0);
    assert_eq!(tenure.lines("began", 1).len(), 1);
}

/// The next renewal, within a third of the TTL, detects the loss. The guard alone would end the
/// command only at the deadline, which is later than the limit of this test.
#[test]
fn a_command_whose_hold_is_lost_can_read_so_and_is_ended() {
    let tenure = Tenure::new();
    let trap = "trap 'cp $TENURE_DEADLINE_FILE .; exit 0' TERM";
    let script = format!("{trap}; echo $TENURE_INSTANCE >> ready; {STAY}");
    let before = ["run", "--duty", "demo/one", "--ttl", "75s", "--grace", "1s", "--"];
    let running = tenure.start("a", &[&before[..], &["sh", "-c", &script]].concat());
    tenure.evict("demo", &tenure.lines("ready", 1)[0]);
    running.exits(125);
    assert_eq!(fields(&tenure.text("deadline"))[3], ("state", "lost"));
}

#[test]
fn whoever_ignores_term_is_killed_with_all_that_is_theirs() {
    let tenure = Tenure::new();
    let script = family("trap '' TERM".replace('\'', "\"").as_str());
    let running = tenure.start("a", &shell(&["--drain", "300ms"], &script));
    let pids = tenure.pids("pids", 3);
    running.signal(Signal::TERM);
    running.exits(128 + 9);
    assert!(all_gone(&pids));
    is_free(&tenure);
}

#[test]
fn a_process_that_waits_can_be_ended() {
    let tenure = Tenure::new();
    let holder = tenure.start("a", &shell(&[], &format!("echo >> ready; {STAY}")));
    tenure.lines("ready", 1);
    let waiting = tenure.start("b", &shell(&[], "echo >> never"));
    tenure.said(&waiting, STANDBY);
    waiting.signal(Signal::INT);
    waiting.exits(128 + 2);
    assert!(!tenure.path("never").exists());
    holder.signal(Signal::TERM);
    holder.exits(128 + 15);
}

#[test]
fn who_does_not_want_to_wait_is_told_who_holds_the_duty() {
    let tenure = Tenure::new();
    let script = format!("echo $TENURE_INSTANCE >> ready; {STAY}");
    let _holder = tenure.start("a", &shell(&[], &script));
    let holder = tenure.lines("ready", 1).remove(0);
    let ran = run(&tenure, &["--no-wait"], "echo never");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    let said = format!("\nST025: the duty is held by another instance: {holder} holds demo/one\n");
    assert!(ran.stderr.contains(&said), "{ran:?}");
    assert!(ran.stderr.contains("\nhint: start without --no-wait to wait for it; "), "{ran:?}");
    // A free duty is granted without waiting.
    let alone = ["run", "--duty", "demo2/one", "--no-wait", "--", "true"];
    assert_eq!(tenure.run(&alone).code, Some(0));
}

/// A store that refuses a claim is not waited for with `--no-wait`, and is told otherwise.
#[test]
fn a_claim_that_the_store_refuses_is_told() {
    let tenure = Tenure::new();
    tenure.run(&["migrate"]).ok();
    let connection = rusqlite::Connection::open(tenure.path("tenure.db")).unwrap();
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON hold BEGIN SELECT RAISE(ABORT, 'refused'); END";
    connection.execute_batch(refuse).unwrap();
    drop(connection);
    let ran = run(&tenure, &["--no-wait"], "echo never");
    assert_eq!((ran.code, &*ran.stdout), (Some(125), ""), "{ran:?}");
    assert!(ran.stderr.contains("ST029: ") || ran.stderr.contains("ST016: "), "{ran:?}");
    let words = ["run", "--duty", "g/d", "--log-level", "warn", "--", "true"];
    let running = tenure.start("a", &words);
    tenure.said(&running, "\"event\":\"claim_failed\"");
    running.signal(Signal::TERM);
    running.exits(128 + 15);
}

/// A second instance waits for the first, then runs under a larger epoch.
fn the_second_waits_for_the_first(store: &str) {
    let tenure = Tenure::new();
    let options = ["--store", store];
    let script = format!("echo $TENURE_EPOCH >> epochs; {STAY}");
    let first = tenure.start("a", &shell(&options, &script));
    tenure.lines("epochs", 1);
    let script = "echo $TENURE_EPOCH >> epochs; exit 3";
    let second = tenure.start("b", &shell(&options, script));
    tenure.said(&second, STANDBY);
    first.signal(Signal::TERM);
    first.exits(128 + 15);
    second.exits(3);
    let epochs = tenure.lines("epochs", 2);
    let epochs: Vec<u64> = epochs.iter().map(|epoch| epoch.parse().unwrap()).collect();
    assert!(epochs[0] < epochs[1], "{epochs:?}");
    // The first log line says whether only this host can take part.
    let said = tenure.text("a.err");
    let first = said.lines().next().unwrap();
    assert!(first.contains(r#""event":"store""#), "{said}");
    assert_eq!(first.contains("this host only"), store.starts_with("sqlite:"), "{said}");
}

#[test]
fn a_second_one_waits_on_sqlite() {
    the_second_waits_for_the_first("sqlite:tenure.db");
}

#[test]
fn a_second_one_waits_on_postgres() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    the_second_waits_for_the_first(&format!("{server}?schema={}", name()));
}

#[test]
fn a_second_one_waits_on_redis() {
    let Some(server) = service(TEST_REDIS) else { return };
    the_second_waits_for_the_first(&format!("{server}?prefix={}:", name()));
}

/// Three members get another TTL, one after the other, and then the first one again.
fn a_ttl_is_changed_by_a_rolling_restart(store: &str) {
    let tenure = Tenure::new();
    let script = "mkdir held || echo $TENURE_EPOCH >> beside; echo $TENURE_EPOCH >> epochs; \
                  trap 'rmdir held; exit 0' TERM; sleep 1000 & wait";
    let start = |name: &str, ttl| {
        let before = ["run", "--duty", "demo/one", "--store", store, "--ttl", ttl];
        let member = tenure.start(name, &[&before[..], &["--", "sh", "-c", script]].concat());
        tenure.said(&member, r#""event":"joined""#);
        member
    };
    let group = tenure_core::GroupName::new("demo").unwrap();
    let in_document = |seconds| {
        let read = || {
            let url = if store.contains("//") { store } else { &tenure.sqlite("tenure.db") };
            with_store(url, async |store| {
                let document = store.group_document(&group).await.unwrap();
                GroupConfig::read(&document).unwrap().settings.unwrap().0.get()
            })
        };
        wait_until("the TTL is agreed", LIMIT, || read() == Duration::from_secs(seconds)).unwrap();
    };
    let mut members: Vec<_> = ["a0", "b0", "c0"].map(|name| start(name, "4s")).into();
    tenure.lines("epochs", 1);
    for (ttl, agreed) in [("8s", [8, 8, 8]), ("4s", [8, 8, 4])] {
        for (name, agreed) in ["a", "b", "c"].into_iter().zip(agreed) {
            let mut old = members.remove(0);
            old.signal(Signal::TERM);
            old.wait();
            members.push(start(&format!("{name}{ttl}"), ttl));
            in_document(agreed);
        }
    }
    // The duty was held all the time, by one at a time.
    let epochs: Vec<u64> =
        tenure.lines("epochs", 3).iter().map(|epoch| epoch.parse().unwrap()).collect();
    assert!(epochs.is_sorted_by(|one, next| one < next), "{epochs:?}");
    assert_eq!(tenure.text("beside"), "");
    let longer = "the longest TTL of the members is 8s, this instance's is 4s";
    assert!(tenure.text("b0.err").contains(longer), "{}", tenure.text("b0.err"));
    for member in members {
        member.signal(Signal::TERM);
    }
}

#[test]
fn a_ttl_is_changed_by_a_rolling_restart_on_sqlite() {
    a_ttl_is_changed_by_a_rolling_restart("sqlite:tenure.db");
}

#[test]
fn a_ttl_is_changed_by_a_rolling_restart_on_postgres() {
    let Some(server) = service(TEST_POSTGRES) else { return };
    a_ttl_is_changed_by_a_rolling_restart(&format!("{server}?schema={}", name()));
}

#[test]
fn when_tenure_is_killed_nothing_of_the_command_is_left() {
    let tenure = Tenure::new();
    let script = family("echo $TENURE_DEADLINE_FILE >> file");
    let mut running = tenure.start("a", &shell(&[], &script));
    let (pids, guard) = (tenure.pids("pids", 3), running.guard());
    running.signal(Signal::KILL);
    running.wait();
    wait_until("everything has ended", LIMIT, || all_gone(&pids)).unwrap();
    wait_until("the guard has ended", LIMIT, || all_gone(&[guard])).unwrap();
    let file = tenure.lines("file", 1).remove(0);
    assert!(!std::path::Path::new(&file).parent().unwrap().exists(), "{file}");
}

/// When the next holder starts, no process of the previous command runs any more, although its
/// `tenure` is stopped.
#[test]
fn a_stopped_tenure_does_not_keep_its_command_from_being_ended_in_time() {
    let tenure = Tenure::new();
    let script = family("trap \"\" TERM; echo $TENURE_EPOCH >> epochs");
    let stopped = tenure.start("a", &shell(&[], &script));
    let pids = tenure.pids("pids", 3);
    stopped.signal(Signal::STOP);
    let next = "echo $TENURE_EPOCH >> epochs
                for pid in $(cat pids); do kill -0 $pid && echo $pid >> alive; done; exit 0";
    let next = tenure.start("b", &shell(&[], next));
    next.exits(0);
    assert_eq!(tenure.text("alive"), "");
    assert!(all_gone(&pids));

    // Continued, `tenure` has lost the duty: it waits for it and runs the command again.
    stopped.signal(Signal::CONT);
    let epochs = tenure.lines("epochs", 7);
    let epochs: Vec<u64> = epochs.iter().map(|epoch| epoch.parse().unwrap()).collect();
    assert_eq!(epochs, [1, 1, 1, 2, 3, 3, 3]);
    stopped.signal(Signal::KILL);
}

#[test]
fn without_its_guard_tenure_ends_the_command_and_itself() {
    let tenure = Tenure::new();
    let running = tenure.start("a", &shell(&[], &family(":")));
    let pids = tenure.pids("pids", 3);
    rustix::process::kill_process(running.guard(), Signal::KILL).unwrap();
    running.exits(125);
    assert!(all_gone(&pids));
    assert!(
        tenure.text("a.err").contains("the guard died; the command was killed"),
        "{}",
        tenure.text("a.err")
    );
    is_free(&tenure);
}

#[test]
fn a_guard_that_is_stopped_does_not_save_the_command() {
    let tenure = Tenure::new();
    let running = tenure.start("a", &shell(&[], &family(":")));
    let (pids, guard) = (tenure.pids("pids", 3), running.guard());
    rustix::process::kill_process(guard, Signal::STOP).unwrap();
    // After TERM, the stopped guard does not end the command in time.
    running.signal(Signal::TERM);
    running.exits(125);
    assert!(all_gone(&pids) && all_gone(&[guard]));
    let said = tenure.text("a.err");
    assert!(said.contains("the guard did not end the command in time"), "{said}");
}

#[test]
fn a_store_that_is_away_is_waited_for() {
    if service(TEST_POSTGRES).is_none() {
        return;
    }
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    server.stop().unwrap();
    let tenure = Tenure::new();
    let url = server.url();
    let ran = run(&tenure, &["--store", &url, "--no-wait"], "echo never");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""), "{ran:?}");
    assert!(ran.stderr.contains("ST002: the store cannot be reached"), "{ran:?}");

    let waiting = tenure.start("a", &shell(&["--store", &url], "exit 4"));
    tenure.said(&waiting, "ST002: the store cannot be reached");
    tenure.said(&waiting, "retrying; see `tenure errors ST002`");
    server.start_again().unwrap();
    waiting.exits(4);
}

#[test]
fn a_store_that_promises_too_little_is_not_used() {
    let tenure = Tenure::new();
    let ran = run(&tenure, &["--require", "exclusive-effects"], "echo never");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""), "{ran:?}");
    assert!(ran.stderr.contains("ST027: "), "{ran:?}");
}

/// As process 1 of a container, `tenure` reaps orphans, handles TERM and passes on the exit code.
/// Needs the right to create a PID namespace, as root has.
#[test]
fn it_can_be_the_first_process() {
    let tenure = Tenure::new();
    let script = "for i in 1 2 3; do (sh -c 'exit 0' &); (setsid sh -c ':' &); done
                  while ps -A -o stat= | grep -q Z; do :; done
                  ps -A -o pid=,comm= | grep tenure > processes
                  trap 'exit 6' TERM; kill -TERM 1; exec 9<>hold; while :; do read line <&9; done";
    let unshare = ["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_tenure")];
    let script = format!("mkfifo hold; {script}");
    let words = [&unshare[..], &shell(&[], &script)].concat();
    let running = tenure.start_this("a", tenure.command_of("unshare", &words));
    running.exits(6);
    assert!(tenure.lines("processes", 2)[0].trim().starts_with("1 "));
    assert!(tenure.text("a.err").lines().all(|line| !line.contains("/proc")));
    is_free(&tenure);
}
