//! Lines of the log.

use super::*;

#[test]
fn each_write_of_a_checkpoint_is_one_line() {
    let lines = |level| {
        let bench = bench(LogFormat::Json, level);
        let version = Version::new(3).unwrap();
        bench.observer.committed(&hold(), &Ok(PutOutcome::Stored(version)));
        bench.observer.committed(&hold(), &Ok(PutOutcome::Conflict { newest: version }));
        let log = bench.log();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let parts =
            |line: Value| ["level", "event", "duty", "epoch", "reason"].map(|k| line[k].clone());
        lines.map(parts).collect::<Vec<_>>()
    };
    let line = |level: &str, event: &str, reason: &str| {
        [level.into(), event.into(), "poll/a".into(), 5.into(), Value::from(reason)]
    };
    let refused = line("warn", "commit_refused", "version 3 is stored");
    assert_eq!(lines(LogLevel::Info), std::slice::from_ref(&refused));
    assert_eq!(lines(LogLevel::Debug), [line("debug", "committed", "version 3"), refused]);
}

#[test]
fn a_json_line_has_every_field() {
    let bench = bench(LogFormat::Json, LogLevel::Info);
    bench.observer.recorded(&group(), &record(Change::Acquired, "two\nlines \u{1b}"), NOON);
    let plain = Record { duty: None, epoch: None, other: None, ..record(Change::Joined, "start") };
    bench.observer.recorded(&group(), &plain, NOON);
    let log = bench.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines,
        [
            serde_json::json!({
                "timestamp": "2026-02-15T10:00:00.123Z", "level": "info", "event": "acquired",
                "instance_id": "me-1", "group": "poll", "endpoint_id": "a b",
                "duty": "poll/a%20b", "epoch": 5, "reason": "two\nlines \u{1b}",
                "other": "you-2", "boottime_ns": 77,
            }),
            serde_json::json!({
                "timestamp": "2026-02-15T10:00:00.123Z", "level": "info", "event": "joined",
                "instance_id": "me-1", "group": "poll", "reason": "start", "boottime_ns": 77,
            }),
        ]
    );
    assert!(log.starts_with("{\"timestamp\""), "the time comes first");
}

#[test]
fn a_line_for_people_gives_a_terminal_nothing_to_obey() {
    let bench = bench(LogFormat::Human, LogLevel::Info);
    bench.observer.recorded(&group(), &record(Change::Acquired, "two\nlines \u{1b}"), NOON);
    assert_eq!(
        bench.log(),
        "2026-02-15T10:00:00.123Z info  acquired       poll/a%20b epoch=5 \
         reason=\"two\\nlines \\u{1b}\" other=you-2 instance=me-1\n"
    );
}

/// The bench asks for colours: only levels that need attention have one.
#[test]
fn warnings_and_errors_have_colours() {
    let bench = bench(LogFormat::Human, LogLevel::Info);
    for change in [Change::RenewFailed, Change::Expired] {
        bench.observer.recorded(&group(), &record(change, "x"), NOON);
    }
    let log = bench.log();
    let starts =
        ["Z \u{1b}[33mwarn \u{1b}[0m renew_failed ", "Z \u{1b}[31merror\u{1b}[0m expired "];
    for (line, start) in log.lines().zip(starts) {
        assert!(line.contains(start), "{line:?}");
    }
    assert_eq!(log.matches('\u{1b}').count(), 4, "nothing else has colours: {log:?}");
}

#[test]
fn each_level_logs_what_matters_as_much() {
    let events = |level| {
        let bench = bench(LogFormat::Json, level);
        for change in Change::ALL {
            bench.observer.recorded(&group(), &record(*change, "x"), NOON);
        }
        let log = bench.log();
        let event = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].to_string();
        log.lines().map(event).collect::<BTreeSet<_>>()
    };
    let all = events(LogLevel::Debug);
    assert_eq!(all.len(), Change::ALL.len());
    let info = events(LogLevel::Info);
    assert_eq!(all.difference(&info).collect::<Vec<_>>(), ["\"renewed\""]);
    let (warn, error) = (events(LogLevel::Warn), events(LogLevel::Error));
    assert!(warn.contains("\"renew_failed\"") && !warn.contains("\"acquired\""), "{warn:?}");
    assert!(error.contains("\"expired\"") && !error.contains("\"renew_failed\""), "{error:?}");
}

/// Without a reader no call blocks, and the number of dropped lines is reported.
#[test]
fn a_log_that_nobody_reads_blocks_nobody() {
    const TOLD: u64 = 200_000;
    let bench = bench(LogFormat::Json, LogLevel::Info);
    for _ in 0..TOLD {
        bench.observer.recorded(&group(), &record(Change::Acquired, "x"), NOON);
    }
    assert_eq!(bench.health().0, 200);
    // `finish` does not wait for a reader either.
    bench.handle.finish();
    drop(bench.observer);
    let mut text = String::new();
    let mut log = bench.log;
    log.read_to_string(&mut text).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let dropped: u64 = lines.iter().filter_map(|line| line["dropped"].as_u64()).sum();
    let written = lines.iter().filter(|line| line["event"] == "acquired").count() as u64;
    assert!(dropped > 0 && lines.iter().any(|line| line["event"] == "log_dropped"));
    assert_eq!(written + dropped, TOLD);
}

/// A closed log does not stop the instance.
#[test]
fn a_log_whose_reader_has_gone_is_no_error() {
    let Bench { observer, handle, log, .. } = bench(LogFormat::Human, LogLevel::Info);
    drop(log);
    observer.recorded(&group(), &record(Change::Acquired, "x"), NOON);
    handle.finish();
}

/// Each claim repeats the warning, and other crates use `log`, too.
#[test]
fn a_warning_of_the_database_is_logged_once() {
    use ::log::{Log as _, Record};
    let bench = bench(LogFormat::Json, LogLevel::Info);
    let notices = postgres::PostgresNotices::new(bench.handle.recorder());
    let ours = "WARNUNG: tenure: backend 7 of role app (psql) blocks g/d";
    for (target, text) in [
        ("tenure_store::postgres::connect", ours),
        ("tenure_store::postgres::connect", ours),
        ("tenure_store::postgres::connect", "NOTICE: relation exists, skipping"),
        ("rustls::client", ours),
    ] {
        notices.log(&Record::builder().target(target).args(format_args!("{text}")).build());
    }
    let text = bench.log();
    let line: Value = serde_json::from_str(&text).unwrap();
    let seen = [&line["level"], &line["event"], &line["reason"]];
    assert_eq!(seen, ["warn", "store_notice", "backend 7 of role app (psql) blocks g/d"]);
}
