//! Results of `tenure poll` in the store: read by other commands and by the next holder.

use rustix::process::Signal;
use serde_json::Value;
use testkit::wait_until;

use crate::listen::{address, get, metrics};
use crate::running::LIMIT;
use crate::tenure::Tenure;

const LIMITS: [&str; 6] = ["--ttl", "3s", "--timeout", "1s", "--list-every", "200ms"];

/// Polls with a shell script that gets the target as its first argument.
fn poll<'a>(targets: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let after = ["--", "sh", "-c", script, "sh", "{}"];
    [&["poll", "--targets", targets][..], &LIMITS, options, &after].concat()
}

/// Result of a target, as another process sees it; null if there is none.
fn result(tenure: &Tenure, target: &str) -> Value {
    let listed = tenure.run(&["ls", "poll", "--json"]);
    if listed.code != Some(0) {
        // There is no store yet.
        return Value::Null;
    }
    let listed = listed.json();
    let duties = listed["groups"][0]["duties"].as_array().cloned().unwrap_or_default();
    let named = |duty: &&Value| duty["duty"] == format!("poll/{target}");
    duties.iter().find(named).map_or(Value::Null, |duty| duty["poll"].clone())
}

#[track_caller]
fn shows(tenure: &Tenure, target: &str, what: &str, so: impl Fn(&Value) -> bool) -> Value {
    let shown = wait_until(what, LIMIT, || so(&result(tenure, target)));
    assert!(shown.is_ok(), "{what}: {:#}", result(tenure, target));
    result(tenure, target)
}

#[test]
fn an_overdue_target_is_polled_at_once_by_the_next_holder() {
    let tenure = Tenure::new();
    let often = poll("list:a", &["--every", "500ms"], "echo >> polled; exit 3");
    let mut first = tenure.start("1", &often);
    let seen = shows(&tenure, "a", "it fails", |poll| poll["failures"].as_u64() >= Some(1));
    first.signal(Signal::KILL);
    first.wait();
    // The last holder is dead, and its result is still there.
    let left = shows(&tenure, "a", "the result stays", |poll| poll["result"] == "failed");
    assert_eq!((&left["epoch"], &left["instance"]), (&seen["epoch"], &seen["instance"]));
    assert_eq!(left["last_failure"], "exit code 3");

    // With this interval, its own slot is days away.
    let seldom = poll("list:a", &["--every", "300d"], "echo >> polled; exit 4");
    let second = tenure.start("2", &seldom);
    let now = shows(&tenure, "a", "the next one polled", |poll| poll["epoch"] != seen["epoch"]);
    assert_eq!(now["last_failure"], "exit code 4");
    assert!(now["failures"].as_u64() > left["failures"].as_u64(), "carried over: {now:#}");
    assert!(now["next_unix_ms"].as_u64() > left["next_unix_ms"].as_u64());
    second.signal(Signal::TERM);
    second.exits(0);
}

#[test]
fn missed_polls_may_be_left_out() {
    let tenure = Tenure::new();
    let mut first = tenure.start("1", &poll("list:a", &["--every", "500ms"], "echo >> polled"));
    shows(&tenure, "a", "it is polled", |poll| poll["result"] == "succeeded");
    first.signal(Signal::KILL);
    first.wait();
    let count = tenure.lines("polled", 1).len();
    let options = ["--every", "300d", "--missed", "skip", "--log-level", "debug"];
    let second = tenure.start("2", &poll("list:a", &options, "echo >> polled"));
    tenure.said(&second, "polled at its next time; 1 poll was skipped");
    second.signal(Signal::TERM);
    second.exits(0);
    assert_eq!(tenure.lines("polled", 1).len(), count);
}

/// A target that moves in time is not polled before its slot, however long its interval is.
#[test]
fn a_target_that_is_given_back_goes_on_at_its_slot() {
    let tenure = Tenure::new();
    let mut first = tenure.start("1", &poll("list:a", &["--every", "500ms"], "echo >> polled"));
    shows(&tenure, "a", "it is polled", |poll| poll["result"] == "succeeded");
    first.signal(Signal::KILL);
    first.wait();
    // Polls once at once, because the target is overdue; then not for months.
    let options = ["--every", "300d", "--log-level", "debug"];
    let second = tenure.start("2", &poll("list:a", &options, "echo >> polled"));
    tenure.said(&second, "and polled now");
    tenure.said(&second, r#""event":"polled""#);
    let count = tenure.lines("polled", 1).len();
    // It is asked to end at once: the result is written before the hold is given back.
    second.signal(Signal::TERM);
    second.exits(0);
    let third = tenure.start("3", &poll("list:a", &options, "echo >> polled"));
    tenure.said(&third, r#""event":"acquired""#);
    third.signal(Signal::TERM);
    third.exits(0);
    assert!(!tenure.text("3.err").contains("poll_overdue"), "{}", tenure.text("3.err"));
    assert_eq!(tenure.lines("polled", 1).len(), count);
}

#[test]
fn a_failing_target_is_named_by_every_process() {
    let tenure = Tenure::new();
    // 900 bytes of two each, after a control character.
    let script = r#"test $1 != bad || { printf '\033%0450d' 0 | sed s/0/é/g >&2; exit 7; }"#;
    let options = ["--every", "500ms"];
    let polling = tenure.start("1", &poll("list:bad,good", &options, script));
    let bad = shows(&tenure, "bad", "it fails", |poll| poll["result"] == "failed");
    let reason = bad["last_failure"].as_str().unwrap();
    assert!(reason.starts_with("exit code 7: \u{1b}éé"), "{reason}");
    assert!((498..=500).contains(&reason.len()), "{}", reason.len());
    assert_eq!(bad["last_success_unix_ms"], Value::Null);
    let good = shows(&tenure, "good", "it succeeds", |poll| poll["result"] == "succeeded");
    assert!(good["last_success_unix_ms"].as_u64() >= good["due_unix_ms"].as_u64(), "{good:#}");

    // This one never polls.
    let options = ["--every", "500ms", "--weight", "0", "--listen", "0"];
    let other = tenure.start("2", &poll("list:bad,good", &options, "echo >> polled-2"));
    let at = address(&tenure, "2.err");
    let health = || serde_json::from_str::<Value>(&get(at, "/health").1).unwrap();
    let degraded = wait_until("degraded", LIMIT, || health()["status"] == "degraded");
    assert!(degraded.is_ok(), "{:#}", health());
    assert_eq!(get(at, "/health").0, "HTTP/1.1 200 OK");
    let targets = &health()["targets"];
    assert_eq!((&targets["failing"], &targets["succeeding"]), (&1.into(), &1.into()));
    assert_eq!(targets["worst"]["target"], "bad");
    let shown = metrics(at);
    assert_eq!(shown[r#"tenure_poll_targets{result="failing"}"#], "1");
    assert!(shown.contains_key(r#"tenure_poll_failures{target="bad"}"#), "{shown:#?}");
    assert!(shown.contains_key("tenure_poll_oldest_success_age_seconds"), "{shown:#?}");
    assert!(!tenure.path("polled-2").exists());

    let top = tenure.run(&["top", "poll", "--once"]).ok();
    assert!(top.contains("polls: 1 succeeding, 1 failing, worst bad ("), "{top}");
    let top = tenure.run(&["top", "poll", "--once", "--json"]).json();
    assert_eq!(top["groups"][0]["polls"]["worst"][0]["target"], "bad");
    let listed = tenure.run(&["ls", "poll"]).ok();
    assert!(listed.contains("LAST") && listed.contains(" in a row: exit code 7: \\u{1b}é"));
    let explained = tenure.run(&["explain", "poll/bad"]).ok();
    assert!(explained.contains("last poll  ") && explained.contains("\\u{1b}é"), "{explained}");
    assert!(!explained.contains('\u{1b}'), "{explained}");
    for running in [polling, other] {
        running.signal(Signal::TERM);
        running.exits(0);
    }
}

#[test]
fn a_forgotten_target_leaves_no_result() {
    let tenure = Tenure::new();
    let polling = tenure.start("1", &poll("list:a", &["--every", "500ms"], "exit 1"));
    shows(&tenure, "a", "it fails", |poll| poll["result"] == "failed");
    polling.signal(Signal::TERM);
    polling.exits(0);
    tenure.run(&["forget", "poll/a"]).ok();
    assert_eq!(result(&tenure, "a"), Value::Null);
}

/// Retries belong to their interval, not to the outage.
#[test]
fn a_failing_target_is_retried_in_each_interval() {
    let tenure = Tenure::new();
    let script = "[ $1 = good ] || { date +%s%3N >> tries; exit 1; }";
    let words = ["poll", "--targets", "list:good,bad", "--every", "3s", "--retries", "1"];
    let words = [&words[..], &["--retry-delay", "10ms", "--", "sh", "-c", script, "sh", "{}"]];
    let running = tenure.start("a", &words.concat());
    let tries = tenure.lines("tries", 6);
    let tries: Vec<u64> = tries.iter().map(|at| at.parse().unwrap()).collect();
    let retries = tries.windows(2).filter(|two| two[1] - two[0] < 1_500).count();
    assert!(retries >= 2, "{tries:?}");
    running.signal(Signal::TERM);
    running.exits(0);
}
