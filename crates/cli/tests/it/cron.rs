//! Scheduled runs: `tenure run --once-per`, `tenure cron` and `tenure cron ls`.

mod clocks;
mod steps;

use std::fs;
use std::process::{Command, Stdio};

use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::Value;
use tenure_duty::process;
use testkit::wait_until;

use crate::api::shared_stores;
use crate::running::{LIMIT, Running, STAY};
use crate::tenure::{Ran, Tenure};

/// Script that notes the occurrence, attempt and instance.
const NOTE: &str = "echo $TENURE_SCHEDULED_AT $TENURE_ATTEMPT $TENURE_INSTANCE >> ledger";

/// Arguments of a run once per period.
fn once<'a>(store: &'a str, period: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let before = ["run", "--store", store, "--duty", "jobs/report", "--ttl", "30s"];
    let command = ["--", "sh", "-c", script];
    [&before[..], &["--once-per", period], options, &command].concat()
}

/// The same with a TTL so short that a test can wait for it.
fn once_for_seconds<'a>(store: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let mut words = once(store, "366d", options, script);
    words[6] = "3s";
    words
}

/// The words of each line of the ledger.
fn ledger(tenure: &Tenure) -> Vec<Vec<String>> {
    let lines = tenure.lines("ledger", 0);
    lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// Checks that nothing was printed and the exit code is 0.
#[track_caller]
fn silent(ran: &Ran) {
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (Some(0), "", ""), "{ran:?}");
}

/// A command whose wall clock is ahead by some seconds. The clock of leases is not faked.
fn skewed(tenure: &Tenure, words: &[&str], seconds: i64) -> Command {
    // The program `faketime` would not pass signals on.
    let libraries = fs::read_dir("/usr/lib").unwrap();
    let mut libraries =
        libraries.map(|folder| folder.unwrap().path().join("faketime/libfaketimeMT.so.1"));
    let library = libraries.find(|library| library.exists()).unwrap();
    let mut command = tenure.command(words);
    command.env("LD_PRELOAD", library).env("FAKETIME", format!("{seconds:+}s"));
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    command
}

#[test]
fn a_period_is_run_once_by_machines_whose_clocks_differ() {
    for store in shared_stores(&Tenure::new()) {
        let tenure = Tenure::new();
        let words = once(&store, "24h", &[], NOTE);
        for _ in 0..2 {
            let machines = [90, 0, -90].map(|seconds| {
                let mut command = skewed(&tenure, &words, seconds);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            });
            for machine in machines {
                silent(&Ran::of(machine.wait_with_output().unwrap()));
            }
        }
        // The clock of a server decides, not that of the machine.
        if ["postgres", "redis"].iter().any(|kind| store.starts_with(kind)) {
            silent(&Ran::of(skewed(&tenure, &words, 400 * 24 * 60 * 60).output().unwrap()));
        }
        // Two if the test runs around midnight.
        let mut times: Vec<String> =
            ledger(&tenure).into_iter().map(|line| line[0].clone()).collect();
        assert!((1..=2).contains(&times.len()), "{store}: {times:?}");
        times.dedup();
        assert_eq!(times.len(), ledger(&tenure).len(), "{store}: {times:?}");
        assert!(times.iter().all(|time| time.ends_with("T00:00:00Z")), "{times:?}");
        let soon = process::unix_ms() + 2 * 24 * 60 * 60 * 1000;
        let at = |time: &String| time.parse::<Timestamp>().unwrap().as_millisecond();
        assert!(times.iter().all(|time| at(time) < soon.cast_signed()), "{store}: {times:?}");
    }
}

/// Number of repetitions: many more in a soak.
fn rounds() -> usize {
    if std::env::var_os("TENURE_SOAK").is_some() { 100 } else { 4 }
}

#[test]
fn short_periods_are_each_run_once_and_in_order() {
    for store in shared_stores(&Tenure::new()) {
        let tenure = Tenure::new();
        let words = once(&store, "1s", &[], NOTE);
        std::thread::scope(|scope| {
            for seconds in [90, 0, -90] {
                let (tenure, words) = (&tenure, &words);
                scope.spawn(move || {
                    for _ in 0..rounds() {
                        // Renewals may be late here, and are logged.
                        let ran = Ran::of(skewed(tenure, words, seconds).output().unwrap());
                        assert_eq!((ran.code, &*ran.stdout), (Some(0), ""), "{ran:?}");
                    }
                });
            }
        });
        let times: Vec<String> = ledger(&tenure).into_iter().map(|line| line[0].clone()).collect();
        assert!(
            !times.is_empty() && times.is_sorted_by(|one, next| one < next),
            "{store}: {times:?}"
        );
    }
}

/// Starts a holder, then a waiter, and kills the holder in the middle of the run.
fn killed_in_the_middle(tenure: &Tenure, interrupted: &str) -> Running {
    let script = format!("{NOTE}; test $TENURE_ATTEMPT = 2 || {{ {STAY}; }}");
    let store = tenure.sqlite("tenure.db");
    let words = once_for_seconds(&store, &["--interrupted", interrupted], &script);
    let first = tenure.start("first", &words);
    tenure.lines("ledger", 1);
    let info = [&words[..7], &["--log-level", "info"], &words[7..]].concat();
    let second = tenure.start("second", &info);
    tenure.said(&second, "\"event\":\"standby\"");
    first.signal(Signal::KILL);
    second
}

#[test]
fn a_run_whose_holder_was_killed_is_run_again_or_skipped() {
    let (rerun, skip) = (Tenure::new(), Tenure::new());
    let again = killed_in_the_middle(&rerun, "rerun");
    let skipped = killed_in_the_middle(&skip, "skip");
    again.exits(0);
    skipped.exits(0);
    let lines = ledger(&rerun);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0][0] == lines[1][0] && lines[0][2] != lines[1][2], "{lines:?}");
    assert_eq!((&*lines[0][1], &*lines[1][1]), ("1", "2"));
    assert_eq!(ledger(&skip).len(), 1);
    assert!(skip.text("second.err").contains("\"occurrence_skipped\""));
    // It stays skipped.
    let store = skip.sqlite("tenure.db");
    silent(&skip.run(&once_for_seconds(&store, &[], NOTE)));
    assert_eq!(ledger(&skip).len(), 1);
}

/// Nothing was started, so there is nothing to skip.
#[test]
fn a_run_that_is_refused_before_its_command_starts_is_not_interrupted() {
    let tenure = Tenure::new();
    let (store, options) =
        (tenure.sqlite("tenure.db"), ["--interrupted", "skip", "--state", "s.json"]);
    fs::write(tenure.path("s.json"), "1").unwrap();
    let ran = tenure.run(&once(&store, "366d", &options, NOTE));
    assert!(ran.code == Some(125) && ran.stderr.contains("DT019: "), "{ran:?}");
    fs::remove_file(tenure.path("s.json")).unwrap();
    tenure.run(&once(&store, "366d", &options, NOTE)).ok();
    assert_eq!(ledger(&tenure).len(), 1);
}

#[test]
fn a_failed_run_is_retried_and_its_exit_code_is_that_of_the_command() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let retries = ["--retries", "2", "--retry-delay", "10ms"];
    let ran = tenure.run(&once(&store, "366d", &retries, &format!("{NOTE}; exit 3")));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(ran.stderr.matches("\"occurrence_failed\"").count(), 3, "{ran:?}");
    let attempts: Vec<String> = ledger(&tenure).into_iter().map(|line| line[1].clone()).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    silent(&tenure.run(&once(&store, "366d", &retries, NOTE)));
    let listed = listed(&tenure, &store);
    assert_eq!(listed["schedule"], "every 366d");
    assert_eq!(
        (&listed["last"]["state"], &listed["last"]["exit_code"]),
        (&"failed".into(), &3.into())
    );
    assert_eq!((&listed["last"]["attempt"], &listed["due"]), (&3.into(), &false.into()));
    assert_eq!(
        tenure.run(&["cron", "ls", "other", "--store", &store]).stderr,
        "there are no schedules yet\n"
    );

    let mut missing = once(&store, "366d", &[], NOTE);
    missing[4] = "jobs/missing";
    let ran = tenure.run(&[&missing[..missing.len() - 3], &["./no-such-program"]].concat());
    assert_eq!(ran.code, Some(127), "{ran:?}");
}

/// The only schedule of a store.
fn listed(tenure: &Tenure, store: &str) -> Value {
    let mut all = tenure.run(&["cron", "ls", "--json", "--store", store]).json();
    assert_eq!(all["schedules"].as_array().map(Vec::len), Some(1), "{all}");
    all["schedules"][0].take()
}

#[test]
fn while_another_is_at_it_there_is_nothing_to_do() {
    let tenure = Tenure::new();
    let store = tenure.sqlite("tenure.db");
    let script = format!("{NOTE}; {STAY}");
    let first = tenure.start("first", &once(&store, "366d", &[], &script));
    tenure.lines("ledger", 1);
    silent(&tenure.run(&once(&store, "366d", &["--no-wait"], NOTE)));
    // A stopped run is not done: TERM leaves it to others.
    first.signal(Signal::TERM);
    first.exits(128 + 15);
    silent(&tenure.run(&once(&store, "366d", &[], NOTE)));
    assert_eq!(ledger(&tenure)[1][1], "2");
}

#[test]
fn a_schedule_and_another_report_do_not_share_a_duty() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    crate::tenure::with_store(&url, async |store| {
        let session = crate::tenure::join(&*store, "jobs", "other", "").await;
        let hold = crate::tenure::claim(&*store, &session, "report").await;
        let document = tenure_core::Document::new(*b"{}").unwrap();
        let report = tenure_core::store::Report { hold: hold.clone(), number: 1, document };
        store.report(&session, &[report]).await.unwrap();
        crate::tenure::release(&*store, &session, hold).await;
        let reason = tenure_core::Reason::new("test").unwrap();
        store.close_session(&session, &reason).await.unwrap();
    });
    let ran = tenure.run(&[
        "run",
        "--store",
        &url,
        "--duty",
        "jobs/report",
        "--once-per",
        "1h",
        "--ttl",
        "10m",
        "--",
        "true",
    ]);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("DT012: ") && ran.stderr.contains("not the record of a schedule"));
}

#[test]
fn a_record_that_cannot_be_read_is_listed() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    silent(&tenure.run(&once(&url, "366d", &[], NOTE)));
    let store = rusqlite::Connection::open(tenure.path("tenure.db")).unwrap();
    for (change, problem) in [
        ("replace(document, '.v1', '.v2')", "record of the format tenure.schedule.v2"),
        ("'garbage'", "damaged record"),
    ] {
        let sql = format!("UPDATE report SET document = CAST({change} AS BLOB)");
        assert_eq!(store.execute(&sql, []).unwrap(), 1);
        let found = listed(&tenure, &url);
        assert_eq!((&found["duty"], &found["problem"]), (&"jobs/report".into(), &problem.into()));
        let table = tenure.run(&["cron", "ls", "--store", &url]).ok();
        assert!(table.contains(&format!("jobs/report  ({problem})")), "{table}");
    }
}

#[test]
fn a_wrong_schedule_is_refused_before_anything_starts() {
    let tenure = Tenure::new();
    let command = ["--duty", "jobs/report", "--", "true"];
    for (words, part) in [
        (&["cron", "61 * * * *"][..], "the field minute, \"61\": "),
        (&["cron", "0 0 * * FUNDAY"], "the field day of week, \"FUNDAY\": "),
        (&["cron", "0", "3", "a", "b", "c", "d", "e"], "put the expression in quotes"),
        (&["cron", "@daily", "--tz", "Europe/Pariss"], "no time zone \"Europe/Pariss\""),
        (&["cron", "@daily", "--tz", "Eu\u{1b}rope"], "no time zone \"Eu\\u{1b}rope\""),
        (&["run", "--once-per", "0s"], "the period 0s is outside the limits: 1s to 366d"),
        (&["run", "--once-per", "1h", "--tz", "Europe/Paris"], "not a whole number of days"),
    ] {
        let ran = tenure.run(&[words, &command].concat());
        ran.refused("SC001");
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
    for words in [
        &["cron", "@daily", "--", "true"][..],
        &["cron", "@daily", "--duty", "jobs/report"],
        &["cron", "@daily", "--next", "3", "--duty", "jobs/report", "--", "true"],
        &["cron", "@daily", "--dry-run", "--from", "tomorrow"],
        &["cron", "@daily", "--dry-run", "--next", "0"],
        &["cron", "@daily", "--deadline", "1ms", "--duty", "jobs/report", "--", "true"],
        &["run", "--retries", "3", "--duty", "jobs/report", "--", "true"],
        &["run", "--once-per", "1h", "--group", "jobs", "--shards", "2", "--", "true"],
    ] {
        let ran = tenure.run(words);
        assert_eq!((ran.code, &*ran.stdout), (Some(2), ""), "{words:?}: {ran:?}");
    }
    assert!(!tenure.path("tenure.db").exists());
}

#[test]
fn a_dry_run_shows_the_changes_of_the_clock() {
    let tenure = Tenure::new();
    let words = ["cron", "30 2 * * *", "--tz", "Europe/Paris", "--dry-run", "--next", "2"];
    let shown = tenure.run(&[&words[..], &["--from", "2026-03-28T12:00:00Z"]].concat()).ok();
    assert_eq!(
        shown,
        "LOCAL                      UTC                   NOTE\n\
         2026-03-29T03:00:00+02:00  2026-03-29T01:00:00Z  the local time does not exist: at the \
         first instant after the gap\n\
         2026-03-30T02:30:00+02:00  2026-03-30T00:30:00Z\n"
    );
    let shown = tenure.run(&[&words[..], &["--from", "2026-10-24T12:00:00Z"]].concat()).ok();
    let first = "2026-10-25T00:30:00Z  the local time comes twice: the first\n";
    assert!(shown.contains(first), "{shown}");
    assert!(!tenure.path("tenure.db").exists());
    assert_eq!(tenure.run(&["cron", "@hourly", "--dry-run"]).ok().lines().count(), 11);
}

/// Waits until the process has run this many occurrences.
#[track_caller]
fn ran(tenure: &Tenure, count: usize) -> Vec<Vec<String>> {
    let seen = wait_until("runs", LIMIT, || ledger(tenure).len() >= count);
    assert!(seen.is_ok(), "{:?}", ledger(tenure));
    ledger(tenure)
}

/// Five occurrences become due while no member runs.
#[test]
fn missed_occurrences_are_run_or_recorded_by_policy() {
    // Half an hour from now, so that no occurrence comes in between.
    let minute = (process::unix_ms() / 60_000 + 30) % 60;
    let expression = format!("{minute} * * * *");
    let script = format!("{NOTE}; exit 7");
    let start = |tenure: &Tenure, name: &str, missed: &str, seconds: i64| {
        let words = ["cron", &expression, "--duty", "jobs/hourly", "--missed", missed];
        let words = [&words[..], &["--ttl", "3s", "--", "sh", "-c", &script]].concat();
        tenure.start_this(name, skewed(tenure, &words, seconds))
    };
    for (missed, runs, recorded) in [
        ("run", 1, Some("4 occurrences until ")),
        ("skip", 0, Some("5 occurrences until ")),
        ("all", 5, None),
    ] {
        let tenure = Tenure::new();
        let store = tenure.sqlite("tenure.db");
        let begin = start(&tenure, "begin", missed, 0);
        tenure.said(&begin, "\"event\":\"acquired\"");
        let known =
            || tenure.run(&["cron", "ls", "--store", &store]).stdout.contains("jobs/hourly");
        wait_until("the schedule is stored", LIMIT, known).unwrap();
        begin.signal(Signal::TERM);
        begin.exits(128 + 15);
        let late = start(&tenure, "late", missed, 5 * 60 * 60);
        if let Some(recorded) = recorded {
            tenure.said(&late, recorded);
        }
        let lines = ran(&tenure, runs);
        assert!(
            lines.len() == runs && lines.is_sorted_by(|one, next| one[0] < next[0]),
            "{lines:?}"
        );
        let state = || listed(&tenure, &store)["last"]["state"].clone();
        let last = if runs == 0 { "missed" } else { "failed" };
        wait_until(last, LIMIT, || state() == last).unwrap();
        // It goes on: a command that fails does not end it.
        late.signal(Signal::TERM);
        late.exits(128 + 15);
        assert_eq!(ledger(&tenure).len(), runs, "{missed}");
    }
}
