//! `tenure poll`, with real processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::Signal;
use tenure_core::Clock;
use tenure_store::BootClock;
use testkit::wait_until;

use crate::running::{LIMIT, STAY, all_gone, family};
use crate::tenure::Tenure;

/// Polls every half second, with a shell script that gets the target as its first argument.
fn poll<'a>(targets: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["poll", "--targets", targets, "--every", "500ms", "--list-every", "200ms"];
    let limits = ["--ttl", "6s", "--timeout", "1s", "--grace", "300ms"];
    let after = ["--", "sh", "-c", script, "sh", "{}"];
    [&before[..], &limits, options, &after].concat()
}

/// Script that records target and instance of a poll, and detects overlapping polls. The lock ends
/// with the command, even if a slow machine lets it time out.
const NOTE: &str = "exec 9> lock-$1; flock -n 9 || echo $1 >> overlaps
                    echo $1 $TENURE_TARGET $TENURE_DUTY $TENURE_EPOCH $TENURE_INSTANCE >> polls";

/// Returns the lines of `polls` as target and instance.
fn polls(tenure: &Tenure, count: usize) -> Vec<(String, String)> {
    let lines = tenure.lines("polls", count);
    let read = |line: &String| {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!((words[0], words[2]), (words[1], &*format!("poll/{}", words[0])));
        assert!(words[3].parse::<u64>().unwrap() > 0);
        (words[0].to_owned(), words[4].to_owned())
    };
    lines.iter().map(read).collect()
}

/// Returns the instance that polled each target in its last `rounds` polls. Targets with fewer
/// polls, or with several instances, are left out.
fn owners(tenure: &Tenure, rounds: usize) -> BTreeMap<String, String> {
    let mut newest: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (target, instance) in polls(tenure, 0).into_iter().rev() {
        let instances = newest.entry(target).or_default();
        if instances.len() < rounds {
            instances.push(instance);
        }
    }
    newest.retain(|_, all| all.len() == rounds && all.iter().all(|one| *one == all[0]));
    newest.into_iter().map(|(target, mut instances)| (target, instances.remove(0))).collect()
}

#[test]
fn each_target_is_polled_once_per_interval_by_one_of_two() {
    let tenure = Tenure::new();
    let words = poll("list:a,b,c,d", &[], NOTE);
    let began = BootClock.now();
    let (first, second) = (tenure.start("1", &words), tenure.start("2", &words));
    let shares = || {
        let mut shares: BTreeMap<String, usize> = BTreeMap::new();
        for owner in owners(&tenure, 5).into_values() {
            *shares.entry(owner).or_default() += 1;
        }
        shares.into_values().collect::<Vec<_>>()
    };
    wait_until("each polls its two, and nothing moves", LIMIT, || shares() == [2, 2]).unwrap();
    // Polls may be missed or late on a slow machine, but never more frequent than the interval.
    let all = polls(&tenure, 0);
    let most = BootClock.now().since(began).as_millis() / 500 + 2;
    for target in ["a", "b", "c", "d"] {
        let count = all.iter().filter(|(polled, _)| polled == target).count();
        assert!(count as u128 <= most, "{target}: {count} polls in {most} beats");
    }
    // The second instance takes over the targets of the first.
    first.signal(Signal::TERM);
    first.exits(0);
    let goes_on = || {
        let owners = owners(&tenure, 3);
        owners.len() == 4 && owners.values().collect::<BTreeSet<_>>().len() == 1
    };
    wait_until("the second polls all", LIMIT, goes_on).unwrap();
    assert_eq!(tenure.text("overlaps"), "");
    second.signal(Signal::INT);
    second.exits(0);
}

#[test]
fn a_poll_that_hangs_is_ended_and_the_others_go_on() {
    let tenure = Tenure::new();
    let hang = family("trap \"\" TERM");
    let script = format!("case $1 in good) {NOTE};; hangs) cd hangs; rm -f hold; {hang};; esac");
    std::fs::create_dir(tenure.path("hangs")).unwrap();
    let running = tenure.start("1", &poll("list:good,hangs", &[], &script));
    let pids = tenure.pids("hangs/pids", 3)[..3].to_vec();
    tenure.said(&running, "killed: it took longer than 1s");
    tenure.said(&running, "a poll takes longer than the interval of 500ms");
    assert!(all_gone(&pids));
    // The poll is tried again, and never delayed the other target.
    tenure.pids("hangs/pids", 6);
    polls(&tenure, 4);
    assert_eq!(tenure.text("overlaps"), "");
    running.signal(Signal::TERM);
    running.exits(0);
    assert!(all_gone(&tenure.pids("hangs/pids", 6)));
}

/// The hold is renewed while the poll runs, and its deadline with it.
#[test]
fn a_poll_may_take_longer_than_the_ttl() {
    let tenure = Tenure::new();
    let script = "at() { sed -n s/boottime_ns=//p $TENURE_DEADLINE_FILE; }
                  first=$(at); echo began >> log
                  while [ $(at) -lt $((first + 6000000000)) ]; do :; done; echo ended >> log";
    let words = ["poll", "--targets", "list:a", "--every", "200ms", "--ttl", "3s"];
    let words = [&words[..], &["--timeout", "1h", "--", "sh", "-c", script]].concat();
    let running = tenure.start("1", &words);
    assert_eq!(tenure.lines("log", 2), ["began", "ended"]);
    running.signal(Signal::TERM);
    running.exits(0);
}

#[test]
fn a_target_may_have_an_interval_and_a_timeout_of_its_own() {
    let tenure = Tenure::new();
    let list = r#"[{"id": "often", "every": 0.1}, {"id": "seldom", "every": "30d"},
                   {"id": "hangs", "every": "100ms", "timeout": "250ms"}]"#;
    std::fs::write(tenure.path("targets.json"), list).unwrap();
    let script = format!("{NOTE}; test $1 != hangs || {{ {STAY}; }}");
    let running = tenure.start("1", &poll("file:targets.json", &[], &script));
    tenure.said(&running, "killed: it took longer than 250ms");
    let count =
        |target: &str| polls(&tenure, 0).iter().filter(|(polled, _)| polled == target).count();
    wait_until("it is polled often", LIMIT, || count("often") >= 10).unwrap();
    assert!(count("seldom") <= 1);
    running.signal(Signal::TERM);
    running.exits(0);
}

/// Each line has the target before it, on standard output; the log is apart.
#[test]
fn the_output_of_polls_is_labelled() {
    let tenure = Tenure::new();
    let script = "echo out; echo bad >&2; exit 3";
    let running = tenure.start("1", &poll("list:a/b,c", &[], script));
    for line in ["a%2Fb: out", "a%2Fb: bad", "c: out", "c: bad"] {
        let printed = || tenure.text("1.out").lines().any(|found| found == line);
        wait_until(line, LIMIT, printed).unwrap();
    }
    tenure.said(&running, "\"reason\":\"exit code 3: bad\"");
    running.signal(Signal::TERM);
    running.exits(0);
    assert!(tenure.text("1.err").lines().all(|line| line.starts_with('{')));
}

#[test]
fn a_target_that_is_paused_or_gone_is_not_polled_any_more() {
    let tenure = Tenure::new();
    std::fs::write(tenure.path("targets"), "a\nb\nc\n").unwrap();
    let running = tenure.start("1", &poll("file:targets", &[], NOTE));
    let all = || polls(&tenure, 0).into_iter().map(|(target, _)| target).collect::<BTreeSet<_>>();
    wait_until("all are polled", LIMIT, || all().len() == 3).unwrap();
    let list = r#"[{"id": "a"}, {"id": "b", "paused": true}]"#;
    std::fs::write(tenure.path("new"), list).unwrap();
    std::fs::rename(tenure.path("new"), tenure.path("targets")).unwrap();
    let free = || {
        let groups = tenure.run(&["ls", "poll", "--json"]).json();
        let duties = groups["groups"][0]["duties"].as_array().unwrap().clone();
        let free = duties.iter().filter(|duty| duty["holder"].is_null());
        free.map(|duty| duty["duty"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    wait_until("two are given back", LIMIT, || free() == ["poll/b", "poll/c"]).unwrap();
    let seen = tenure.lines("polls", 0).len();
    let after = polls(&tenure, seen + 3).split_off(seen);
    assert!(after.iter().all(|(target, _)| target == "a"), "{after:?}");
    running.signal(Signal::TERM);
    running.exits(0);
}

#[test]
fn a_poll_that_fails_is_told_and_tried_again() {
    let tenure = Tenure::new();
    let running = tenure.start("1", &poll("list:a", &[], "echo >> tried; exit 3"));
    tenure.lines("tried", 2);
    tenure.said(&running, "\"reason\":\"exit code 3\"");
    running.signal(Signal::TERM);
    running.exits(0);
    let words = ["poll", "--targets", "list:a", "--every", "500ms", "--", "./no-such-program"];
    let running = tenure.start("2", &words);
    tenure.said(&running, "DT006: ./no-such-program cannot be started");
    running.signal(Signal::TERM);
    running.exits(0);
}

#[test]
fn a_running_poll_may_finish_when_tenure_is_asked_to_end() {
    let tenure = Tenure::new();
    let script = "mkfifo go 2> go.err; echo >> began; read line < go; echo >> finished";
    // The timeouts are too long to be reached even on a slow machine.
    let limits = ["--every", "500ms", "--ttl", "3m", "--timeout", "1m", "--drain", "1m"];
    let (targets, command) = (["poll", "--targets", "list:a"], ["--", "sh", "-c", script]);
    let running = tenure.start("1", &[&targets[..], &limits, &command].concat());
    tenure.lines("began", 1);
    running.signal(Signal::TERM);
    tenure.said(&running, "\"event\":\"draining\"");
    std::fs::write(tenure.path("go"), "go\n").unwrap();
    running.exits(0);
    assert_eq!(tenure.lines("finished", 1).len(), 1);
    assert_eq!(tenure.lines("began", 1).len(), 1);
}

#[test]
fn when_tenure_is_killed_nothing_of_its_polls_is_left() {
    let tenure = Tenure::new();
    let mut running = tenure.start("1", &poll("list:a", &[], &family("trap \"\" TERM")));
    let (pids, guard) = (tenure.pids("pids", 3), running.guard());
    running.signal(Signal::KILL);
    running.wait();
    wait_until("everything has ended", LIMIT, || all_gone(&pids) && all_gone(&[guard])).unwrap();
}

#[test]
fn a_guard_that_dies_takes_its_poll_along_and_nothing_else() {
    let tenure = Tenure::new();
    let running = tenure.start("1", &poll("list:a", &[], &family(":")));
    let pids = tenure.pids("pids", 3)[..3].to_vec();
    rustix::process::kill_process(running.guard(), Signal::KILL).unwrap();
    tenure.said(&running, "the guard died; the command was killed");
    assert!(all_gone(&pids));
    // Another guard runs the next poll.
    std::fs::remove_file(tenure.path("hold")).unwrap();
    tenure.pids("pids", 6);
    running.signal(Signal::TERM);
    running.exits(0);
}

#[test]
fn a_guard_that_is_stopped_does_not_save_its_poll() {
    let tenure = Tenure::new();
    let running = tenure.start("1", &poll("list:a", &[], &family(":")));
    let pids = tenure.pids("pids", 3)[..3].to_vec();
    let guard = running.guard();
    rustix::process::kill_process(guard, Signal::STOP).unwrap();
    tenure.said(&running, "the guard did not end the command in time; both were killed");
    assert!(all_gone(&pids));
    wait_until("the guard has ended", LIMIT, || all_gone(&[guard])).unwrap();
    running.signal(Signal::TERM);
    running.exits(0);
}

#[test]
fn a_poll_whose_hold_is_lost_is_ended_at_once() {
    let tenure = Tenure::new();
    let script = format!("echo $TENURE_INSTANCE >> ready; {}", family(":"));
    // The timeout is longer than the time until the next renewal, which detects the loss.
    let limits = ["--ttl", "30s", "--timeout", "12s", "--grace", "1s", "--every", "500ms"];
    let (targets, command) = (["poll", "--targets", "list:a"], ["--", "sh", "-c", &script]);
    let words = [&targets[..], &limits, &command].concat();
    let mut running = tenure.start("1", &words);
    let (pids, me) = (tenure.pids("pids", 3), tenure.lines("ready", 1).remove(0));
    tenure.evict("poll", &me);
    tenure.said(&running, "killed: the hold was lost");
    assert!(all_gone(&pids));
    assert_eq!(running.wait().code(), Some(1));
}

/// During an outage, no poll begins when the time left of the hold is too short.
#[test]
fn no_poll_begins_that_could_outlast_its_hold() {
    let tenure = Tenure::new();
    let running = tenure.start("1", &poll("list:a", &[], "echo >> began"));
    tenure.lines("began", 1);
    // This transaction blocks all other writers.
    let writer = rusqlite::Connection::open(tenure.path("tenure.db")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    tenure.said(&running, "too little time is left: ");
    tenure.said(&running, "logged once per outage");
    let begun = tenure.lines("began", 1).len();
    tenure.said(&running, "\"event\":\"expired\"");
    assert_eq!(tenure.lines("began", 1).len(), begun);
    // Polls resume when the store is available again.
    writer.execute_batch("COMMIT").unwrap();
    tenure.lines("began", begun + 1);
    tenure.said(&running, r#""event":"poll_resumed""#);
    let said = tenure.text("1.err");
    assert_eq!(said.matches("poll_skipped").count(), 1, "{said}");
    running.signal(Signal::TERM);
    running.exits(0);
}

/// While `tenure` is stopped, its guard ends the poll. That report takes precedence over the timer
/// of `tenure`.
#[test]
fn a_poll_that_was_ended_while_tenure_was_stopped_is_not_taken_for_lost() {
    let tenure = Tenure::new();
    let running = tenure.start("1", &poll("list:a", &[], &family(":")));
    let pids = tenure.pids("pids", 3)[..3].to_vec();
    running.signal(Signal::STOP);
    let late = BootClock.now().plus(Duration::from_secs(2));
    let over = || all_gone(&pids) && BootClock.now() > late;
    wait_until("the guard has ended the poll", LIMIT, over).unwrap();
    running.signal(Signal::CONT);
    tenure.said(&running, "killed: it took longer than 1s");
    let said = tenure.text("1.err");
    assert!(!said.contains("did not end the command in time"), "{said}");
    running.signal(Signal::TERM);
    running.exits(0);
}

/// Returns the holder of each target.
fn holders(tenure: &Tenure) -> Vec<Option<String>> {
    let groups = tenure.run(&["ls", "poll", "--json"]).json();
    let duties = groups["groups"][0]["duties"].as_array().cloned().unwrap_or_default();
    duties.iter().map(|duty| duty["holder"].as_str().map(str::to_owned)).collect()
}

#[test]
fn an_instance_that_cannot_start_its_command_gives_its_targets_away() {
    let tenure = Tenure::new();
    let limits = ["--ttl", "6s", "--timeout", "1s", "--grace", "300ms", "--every", "500ms"];
    let targets = ["poll", "--targets", "list:a,b,c,d", "--list-every", "200ms"];
    let words = [&targets[..], &limits, &["--", "./no-such-program", "{}"]].concat();
    let failing = tenure.start("1", &words);
    tenure.said(&failing, "DT006: ./no-such-program cannot be started");
    let able = tenure.start("2", &poll("list:a,b,c,d", &[], NOTE));
    let (mut polled, all) = (BTreeSet::new(), BTreeSet::from(["a", "b", "c", "d"]));
    wait_until("all are polled", LIMIT, || {
        polled = polls(&tenure, 0).into_iter().map(|(target, _)| target).collect();
        polled.iter().map(String::as_str).collect::<BTreeSet<_>>() == all
    })
    .unwrap();
    tenure.said(&failing, "DT017: 3 polls in a row could not be started");
    tenure.said(&failing, r#""reason":"failing""#);
    let me = polls(&tenure, 1).remove(0).1;
    wait_until("the other one has all", LIMIT, || {
        holders(&tenure).iter().all(|holder| holder.as_ref() == Some(&me))
    })
    .unwrap();
    for (running, code) in [(failing, 0), (able, 0)] {
        running.signal(Signal::TERM);
        running.exits(code);
    }
}

#[test]
fn the_last_member_keeps_what_fails_and_tries_again_after_a_rest() {
    let tenure = Tenure::new();
    let script = "echo >> tried; test -e repaired";
    let running = tenure.start("1", &poll("list:a,b", &["--listen", "0"], script));
    tenure.said(&running, "DT017: ");
    assert!(tenure.lines("tried", 3).len() < 6);
    assert!(holders(&tenure).iter().all(Option::is_some));
    let text = tenure.run(&["ls", "poll"]).ok();
    assert!(text.lines().any(|line| line.ends_with(" failing")), "{text}");
    std::fs::write(tenure.path("repaired"), "").unwrap();
    tenure.said(&running, r#""event":"fit""#);
    running.signal(Signal::TERM);
    running.exits(0);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let tenure = Tenure::new();
    let words = ["poll", "--targets", "list:a", "--state", "cursor.json", "--", "true"];
    let ran = tenure.run(&words);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("put {} into its name"), "{ran:?}");
    let ran = tenure.run(&["poll", "--targets", "nowhere:me:s3cret@h", "--", "true"]);
    ran.refused_with("DT005", 2);
    ran.hides("s3cret");
    assert!(!tenure.path("tenure.db").exists());
}
