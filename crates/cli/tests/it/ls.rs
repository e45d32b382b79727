//! `tenure ls`.

use std::process::Stdio;

use serde_json::Value;

use crate::tenure::{Ran, Tenure, claim, join, release, with_store};

/// Creates two members; `a` is held under epoch 2, `b/c` is free after epoch 1.
pub fn prepare(url: &str) {
    with_store(url, async |store| {
        let one = join(&*store, "poll", "host-1", "weight=1").await;
        join(&*store, "poll", "host-2", "").await;
        let first = claim(&*store, &one, "a").await;
        release(&*store, &one, first).await;
        claim(&*store, &one, "a").await;
        let free = claim(&*store, &one, "b/c").await;
        release(&*store, &one, free).await;
    });
}

/// Returns the keys of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Checks the output of `ls --json` for the store of [`prepare`].
pub fn check_json(document: &Value, dense_epochs: bool) {
    assert_eq!(keys(document), ["groups"]);
    let group = &document["groups"][0];
    assert_eq!(keys(group), ["duties", "group", "in_force", "members", "view"]);
    assert_eq!(group["group"], "poll");
    assert_eq!(group["view"].as_str().unwrap().len(), 16);
    let duties = group["duties"].as_array().unwrap();
    for duty in duties {
        assert_eq!(keys(duty), ["duty", "epoch", "holder", "remaining_ms"]);
    }
    assert_eq!((&duties[0]["duty"], &duties[0]["holder"]), (&"poll/a".into(), &"host-1".into()));
    assert!((1..=600_000).contains(&duties[0]["remaining_ms"].as_u64().unwrap()));
    assert_eq!((&duties[1]["duty"], &duties[1]["holder"]), (&"poll/b%2Fc".into(), &Value::Null));
    assert_eq!(duties[1]["remaining_ms"], Value::Null);
    assert!(duties[1]["epoch"].is_u64());
    if dense_epochs {
        assert_eq!((&duties[0]["epoch"], &duties[1]["epoch"]), (&2.into(), &1.into()));
    }
    let members = group["members"].as_array().unwrap();
    assert_eq!(members.len(), 2);
    let expected = "evicted foreign instance name note remaining_ms revision state weight zone";
    assert_eq!(keys(&members[0]).join(" "), expected);
    assert_eq!(members[0]["instance"], "host-1");
    assert_eq!(members[0]["note"], "weight=1");
    assert_eq!((&members[0]["evicted"], &members[0]["foreign"]), (&false.into(), &false.into()));
    assert!((1..=600_000).contains(&members[0]["remaining_ms"].as_u64().unwrap()));
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let tenure = Tenure::new();
    for words in [&["ls"][..], &["ls", "--store", "sqlite:typo.db"]] {
        tenure.run(words).refused("ST015");
    }
    assert_eq!(std::fs::read_dir(tenure.path(".")).unwrap().count(), 0);
}

#[test]
fn people_see_duties_and_members() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    let text = tenure.run(&["ls", "poll"]).ok();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["group", "poll"]);
    assert_eq!(lines[2], ["DUTY", "HOLDER", "EPOCH", "REMAINING_MS"]);
    assert_eq!(lines[3][..3], ["poll/a", "host-1", "2"]);
    assert!((1..=600_000).contains(&lines[3][3].parse().unwrap()));
    assert_eq!(lines[4], ["poll/b%2Fc", "-", "1", "-"]);
    assert_eq!(lines[6], ["MEMBER", "NAME", "REMAINING_MS", "STATE"]);
    assert_eq!((lines[7][0], lines[7][1], lines[7][3]), ("host-1", "-", "takes-no-part"));
    assert_eq!((lines[8][0], lines[8].len()), ("host-2", 4));
    assert_eq!(lines.len(), 9);
}

#[test]
fn programs_see_the_same() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    prepare(&url);
    check_json(&tenure.run(&["ls", "--json"]).json(), true);
    check_json(&tenure.run(&["--json", "ls", "poll"]).json(), true);
}

#[test]
fn a_group_with_nothing_in_it_is_no_error() {
    let tenure = Tenure::new();
    tenure.run(&["migrate"]).ok();
    let ran = tenure.run(&["ls"]);
    assert_eq!(ran.stderr, "sqlite:tenure.db has no groups yet\n");
    assert_eq!(ran.ok(), "");
    let ran = tenure.run(&["ls", "a%20b"]);
    assert_eq!(ran.stderr, "group a%20b has no duties and no members\n");
    assert!(ran.ok().contains("DUTY  HOLDER  EPOCH  REMAINING_MS\n"));
    assert_eq!(tenure.run(&["ls", "--json"]).json(), serde_json::json!({ "groups": [] }));
    let group = &tenure.run(&["ls", "x", "--json"]).json()["groups"][0];
    assert_eq!(
        (&group["duties"], &group["members"]),
        (&Value::Array(vec![]), &Value::Array(vec![]))
    );
}

#[test]
fn text_of_others_reaches_no_terminal_as_it_is() {
    let tenure = Tenure::new();
    let note = "tenure=1\nname=\u{1b}[2Jred\u{9b}31m\u{7}\nzone=\u{1b}[1m\n";
    with_store(&tenure.sqlite("tenure.db"), async |store| {
        let session = join(&*store, "g\u{e9}", "h \u{202e}1", note).await;
        claim(&*store, &session, "d 1").await;
    });
    let text = tenure.run(&["ls"]).ok();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(text.contains("takes-no-part") && !text.contains("red"), "{text}");
    assert!(text.contains("group g%C3%A9\n") && text.contains("g%C3%A9/d%201"), "{text}");
    assert!(text.contains("h%20%E2%80%AE1"), "{text}");
    // A name is accepted as it is printed; the JSON has the unescaped note.
    let json = tenure.run(&["ls", "g%C3%A9", "--json"]).json();
    assert_eq!(json["groups"][0]["members"][0]["note"], note);
}

#[test]
fn the_store_comes_from_the_option_before_the_environment() {
    let tenure = Tenure::new();
    prepare(&tenure.sqlite("mine.db"));
    let mut command = tenure.command(&["ls", "--json"]);
    check_json(
        &Ran::of(command.env("TENURE_STORE", "sqlite:mine.db").output().unwrap()).json(),
        true,
    );
    let mut command = tenure.command(&["ls", "--json", "--store", "sqlite:mine.db"]);
    check_json(
        &Ran::of(command.env("TENURE_STORE", "sqlite:no.db").output().unwrap()).json(),
        true,
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let tenure = Tenure::new();
    prepare(&tenure.sqlite("tenure.db"));
    for words in [&["ls"][..], &["ls", "--json"], &["errors"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = tenure.command(words);
        let ran = Ran::of(command.stdout(writer).stderr(Stdio::piped()).output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn a_step_of_the_wall_clock_does_not_end_a_hold_in_sqlite() {
    let tenure = Tenure::new();
    prepare(&tenure.sqlite("tenure.db"));
    let program = env!("CARGO_BIN_EXE_tenure");
    // `-m` loads the thread-safe library, and `timeout` ends a deadlock in it.
    let stepped = |step: &str, words: &[&str]| {
        let faketime = ["60", "faketime", "-m", "--exclude-monotonic", "-f", step];
        let words = [&faketime, words].concat();
        Ran::of(tenure.command_of("timeout", &words).output().unwrap())
    };
    let date = |step| stepped(step, &["date", "+%s"]).ok().trim().parse::<i64>().unwrap();
    // Programs do see the step of the wall clock.
    assert!(date("+1h") - date("-1h") > 7_000);
    for step in ["+1h", "-1h"] {
        check_json(&stepped(step, &[program, "ls", "--json"]).json(), true);
    }
}
