//! `tenure bucket next`: one step of a rotation.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::{Value, json};

use crate::tenure::{Ran, Tenure};

/// Arguments of every step.
pub(super) const FILES: [&str; 6] =
    ["bucket", "next", "--config", "config.json", "--state", "state.json"];
pub(super) const DUTY: [&str; 2] = ["--duty", "sync/rotation"];

pub(super) fn put(tenure: &Tenure, name: &str, text: &str) {
    fs::write(tenure.path(name), text).unwrap();
}

/// Creates a rotation over `total` buckets in a folder of its own.
pub(super) fn rotation(total: u32) -> Tenure {
    let tenure = Tenure::new();
    let config = json!({ "bucket_total": total, "round_robin_bucket_execution": true });
    put(&tenure, "config.json", &config.to_string());
    tenure
}

pub(super) fn next(tenure: &Tenure, options: &[&str]) -> Ran {
    tenure.run(&[&FILES[..], options].concat())
}

/// Takes a step; returns the bucket.
#[track_caller]
pub(super) fn id(tenure: &Tenure, options: &[&str]) -> u32 {
    next(tenure, &[&["--print", "id"], options].concat()).ok().trim().parse().unwrap()
}

/// Takes a step that runs a shell script.
pub(super) fn run(tenure: &Tenure, options: &[&str], script: &str) -> Ran {
    next(tenure, &[&DUTY[..], options, &["--", "sh", "-c", script]].concat())
}

#[test]
fn a_step_prints_config_and_state_and_keeps_everything_else() {
    let tenure = Tenure::new();
    let config = "{\n  \"token\": \"s3cret\",\n  \"bucket_total\": 3,\n  \
                  \"round_robin_bucket_execution\": true,\n  \"big\": 12345678901234567890123\n}\n";
    put(&tenure, "config.json", config);
    let ran = next(&tenure, &[]);
    assert_eq!(
        ran.stderr,
        "no state in state.json: the rotation begins\n\
         Using round robin bucket execution. Bucket id: 1\n"
    );
    assert_eq!(
        ran.ok(),
        "{\n  \"config\": {\n    \"token\": \"s3cret\",\n    \"bucket_total\": 3,\n    \
         \"round_robin_bucket_execution\": true,\n    \"big\": 12345678901234567890123,\n    \
         \"bucket_id\": 1\n  },\n  \"state\": {\"__bucket_execution_state\":\
         {\"last_executed_bucket_id\":1},\"__tenure_bucket_state\":{\"bucket_total\":3}}\n}\n"
    );
    // The state is only printed: without --write no file is written.
    assert!(!tenure.path("state.json").exists());
    let config = config.replace("23\n}", "23,\n  \"bucket_id\": 1\n}");
    assert_eq!(next(&tenure, &["--print", "config"]).ok(), config);
    let notices = next(&tenure, &["--json"]);
    assert_eq!(notices.stderr, "");
    let notices = notices.json()["notices"].clone();
    assert_eq!(notices[1]["text"], "Using round robin bucket execution. Bucket id: 1");
    assert_eq!(notices[1]["warning"], false);
    // Without a rotation, config and state are printed unchanged.
    put(&tenure, "config.json", "{\"bucket_total\": 3,\"bucket_id\": 2}");
    let ran = next(&tenure, &["--write"]);
    assert_eq!(
        ran.stdout,
        "{\n  \"config\": {\"bucket_total\": 3,\"bucket_id\": 2},\n  \"state\": null\n}\n"
    );
    assert_eq!(ran.stderr, "no rotation in config.json: always bucket 2\n");
    assert!(!tenure.path("state.json").exists());
}

#[test]
fn a_state_file_is_replaced_whole() {
    let tenure = rotation(3);
    assert_eq!(id(&tenure, &["--write"]), 1);
    assert!(tenure.text("state.json").ends_with("}}\n"));
    let state = "{ \"stream\": {\"cursor\": 7.50},\n  \"__bucket_execution_state\": \
                 {\"last_executed_bucket_id\": 1} }\n";
    put(&tenure, "state.json", state);
    let file = tenure.path("state.json");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let before = file.metadata().unwrap().ino();
    assert_eq!(id(&tenure, &["--write"]), 2);
    let after = state.replace(
        "{\"last_executed_bucket_id\": 1} }",
        "{\"last_executed_bucket_id\":2},\n  \"__tenure_bucket_state\": {\"bucket_total\":3} }",
    );
    assert_eq!(tenure.text("state.json"), after);
    let now = file.metadata().unwrap();
    assert_ne!(now.ino(), before, "written in place: a crash would leave half of it");
    assert_eq!(now.permissions().mode() & 0o777, 0o640);
    assert_eq!([id(&tenure, &["--write"]), id(&tenure, &["--write"])], [3, 1]);
    // Connectors without a state pass `null`.
    put(&tenure, "state.json", "null\n");
    assert_eq!(id(&tenure, &["--write"]), 1);
}

/// Checks that a step with these files is refused and the state is unchanged.
#[track_caller]
fn is_refused(config: &str, state: &str, code: &str, told: &str) {
    let tenure = rotation(3);
    put(&tenure, "config.json", config);
    put(&tenure, "state.json", state);
    for options in [&["--write"][..], &["--write", "--duty", "sync/bad"]] {
        let ran = next(&tenure, options);
        ran.refused(code);
        assert!(ran.stderr.contains(told), "{config} {state} {ran:?}");
        assert_eq!(tenure.text("state.json"), state);
    }
}

#[test]
fn a_bad_setting_is_named_with_its_value_and_what_is_allowed() {
    let bad = |config: &str, told: &str| {
        is_refused(config, r#"{"__bucket_execution_state":{}}"#, "BK001", told);
    };
    let positive = "bucket_total must be a positive integer (bucket_total is ";
    bad(r#"{"bucket_total":0}"#, &format!("{positive}0; allowed is a whole number from 1 to 1000"));
    bad(r#"{"bucket_total":2.5}"#, &format!("{positive}2.5; "));
    bad(r#"{"bucket_total":1000001}"#, &format!("{positive}1000001; "));
    bad(
        r#"{"bucket_total":3,"bucket_id":4}"#,
        "bucket_id must be between 1 and 3 (bucket_id is 4; allowed is a whole number from 1 to 3",
    );
    bad(
        r#"{"round_robin_bucket_execution":"yes"}"#,
        "(round_robin_bucket_execution is \"yes\"; allowed is true or false)",
    );
    for (ranges, told) in [
        (r#""3abc""#, "Invalid number in range: 3abc (bucket_ranges is \"3abc\"; allowed is num"),
        (r#"["1-99999"]"#, "Invalid bucket range 1-99999: values must be between 1 and 10 (bucket"),
        ("[]", "bucket_ranges cannot be empty (bucket_ranges is []; allowed is numbers and ran"),
        (r#"" ,""#, "bucket_ranges cannot be empty (bucket_ranges is \" ,\"; allowed is"),
        ("7", "bucket_ranges must be text or a list of texts (bucket_ranges is 7; allowed is"),
    ] {
        let on = r#""bucket_total":10,"round_robin_bucket_execution":true"#;
        bad(&format!(r#"{{{on},"bucket_ranges":{ranges}}}"#), told);
    }
}

#[test]
fn a_file_that_is_no_object_is_named() {
    let on = r#"{"round_robin_bucket_execution":true}"#;
    for (config, state, told) in [
        ("{\"a\":3", "{}", "config.json: it is truncated (line 1, column 6)"),
        ("[]", "{}", "config.json: it is not a JSON object"),
        ("null", "{}", "config.json: it is not a JSON object"),
        (on, "", "state.json: it is empty"),
        (on, "[1]", "state.json: it is not a JSON object"),
        (on, "{\"a\":tru}", "state.json: it is not valid JSON (line 1, column 9)"),
    ] {
        is_refused(config, state, "BK002", told);
    }
    let tenure = rotation(3);
    fs::write(tenure.path("config.json"), b"{\"a\":\"\xff\"}").unwrap();
    let ran = next(&tenure, &[]);
    ran.refused("BK002");
    assert!(ran.stderr.contains("config.json: it is not UTF-8"), "{ran:?}");
    File::create(tenure.path("config.json")).unwrap().set_len((64 << 20) + 1).unwrap();
    let ran = next(&tenure, &[]);
    ran.refused("BK002");
    assert!(ran.stderr.contains("config.json: it is larger than 64 MiB"), "{ran:?}");
    fs::remove_file(tenure.path("config.json")).unwrap();
    let ran = next(&tenure, &[]);
    ran.refused("BK002");
    assert!(ran.stderr.contains("config.json: it does not exist"), "{ran:?}");
}

#[test]
fn a_state_that_cannot_be_written_is_noticed_before_anything_runs() {
    let tenure = rotation(3);
    let words =
        ["bucket", "next", "--config", "config.json", "--state", "no/state.json", "--write"];
    let ran = tenure.run(&words);
    assert!(
        ran.stderr.contains("DT009") && ran.stderr.contains("kept: nothing was run;"),
        "{ran:?}"
    );
    let ran = tenure.run(&[&words[..], &DUTY, &["--", "touch", "ran"]].concat());
    assert_eq!((ran.code, tenure.path("ran").exists()), (Some(125), false), "{ran:?}");
    // No bucket was recorded in the store either.
    assert_eq!(id(&tenure, &DUTY), 1);
}

#[test]
fn files_that_would_be_spoilt_are_refused() {
    let tenure = rotation(3);
    let config = tenure.text("config.json");
    std::os::unix::fs::symlink("config.json", tenure.path("link")).unwrap();
    for state in ["config.json", "./config.json", "link", "-", ""] {
        let ran =
            tenure.run(&["bucket", "next", "--config=config.json", "--state", state, "--write"]);
        assert_eq!(ran.code, Some(2), "{state} {ran:?}");
    }
    assert_eq!(tenure.text("config.json"), config);
    let words = ["bucket", "next", "--config=config.json", "--state=.", "--write"];
    let ran = tenure.run(&words);
    assert!(ran.stderr.contains("BK002") && ran.stderr.contains("not a regular file"), "{ran:?}");
}

#[test]
fn a_step_that_cannot_be_shown_says_that_it_was_made() {
    let tenure = rotation(3);
    let full = |options: &[&str]| {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = tenure.command(&[&FILES[..], options].concat());
        let ran = Ran::of(command.stdout(full).output().unwrap());
        assert_eq!(ran.code, Some(1), "{ran:?}");
        ran.stderr
    };
    assert!(full(&[]).contains("kept: nothing was changed"));
    assert!(full(&["--write"]).contains("kept: the bucket counts as executed but was not printed"));
    assert_eq!(id(&tenure, &["--write"]), 2);
    assert!(full(&DUTY).contains("kept: the bucket counts as executed"));
    assert_eq!(id(&tenure, &DUTY), 1);
}

#[test]
fn what_says_nothing_without_a_duty_is_refused() {
    let tenure = rotation(3);
    for (options, word) in [
        (&["--store", "sqlite:tenure.db"][..], "--store"),
        (&["--ttl", "5s"], "--ttl"),
        (&["--grace", "1s"], "--grace"),
        (&["--drain", "1s"], "--drain"),
        (&["--require", "fenced"], "--require"),
        (&["--zone", "a"], "--zone"),
        (&["--name", "a"], "--name"),
        (&["--revision", "a"], "--revision"),
        (&["--weight", "2"], "--weight"),
        (&["--", "true"], "a command"),
    ] {
        let ran = next(&tenure, options);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(&format!("{word} needs --duty GROUP/NAME")), "{ran:?}");
    }
    let in_environment = tenure
        .command(&[&FILES[..], &["--print", "id"]].concat())
        .env("TENURE_STORE", "sqlite:tenure.db")
        .output();
    assert_eq!(Ran::of(in_environment.unwrap()).ok(), "1\n");
    let ran = next(&tenure, &[&DUTY[..], &["--commit", "on-success"]].concat());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("needs the command of the run"), "{ran:?}");
    for options in [&["--no-wait"][..], &["--duty", "no-group", "--", "true"]] {
        let ran = next(&tenure, options);
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
    assert!(!tenure.path("tenure.db").exists());
}

#[test]
fn a_damaged_state_and_another_total_are_said() {
    let tenure = rotation(4);
    for last in ["-1", "0", "9", "1.5", "\"x\"", "null"] {
        let within = format!("{{\"last_executed_bucket_id\":{last}}}");
        put(&tenure, "state.json", &format!("{{\"__bucket_execution_state\":{within}}}"));
        let ran = next(&tenure, &["--print", "id"]);
        let warning =
            format!("warning: __bucket_execution_state is {within}, which is not a bucket from 1");
        assert!(ran.stderr.starts_with(&warning), "{ran:?}");
        assert_eq!(ran.ok(), "1\n");
    }
    put(&tenure, "state.json", "{}");
    assert_eq!(id(&tenure, &["--write"]), 1);
    put(&tenure, "config.json", &tenure.text("config.json").replace('4', "5"));
    let ran = next(&tenure, &["--print", "id", "--write"]);
    assert!(ran.stderr.starts_with("warning: bucket_total was 4 and is 5: "), "{ran:?}");
    assert_eq!(ran.ok(), "2\n");
    assert!(!next(&tenure, &[]).stderr.contains("warning"));
    // Control characters are escaped.
    put(&tenure, "config.json", "{\"bucket_ranges\":\"\\u001b[31m\"}");
    let ran = next(&tenure, &[]);
    assert!(ran.stderr.contains("bucket_ranges \\u{1b}[31m ignored because"), "{ran:?}");
    assert!(ran.stderr.contains("warning: bucket_ranges would be refused"), "{ran:?}");
}

#[test]
fn on_success_keeps_the_state_until_the_run_has_succeeded() {
    let tenure = rotation(3);
    let state = "{\"__bucket_execution_state\":{\"last_executed_bucket_id\":1},\"x\":1}";
    put(&tenure, "state.json", state);
    let on_success = ["--commit", "on-success", "--write"];
    for _ in 0..2 {
        let shown = next(&tenure, &on_success);
        assert!(shown.stderr.contains("warning: --write leaves the state unchanged"), "{shown:?}");
        let shown = shown.json();
        assert_eq!(shown["config"]["bucket_id"], 2);
        assert_eq!(shown["state"], serde_json::from_str::<Value>(state).unwrap());
        let later = &shown["state_on_success"];
        assert_eq!(later["__bucket_execution_state"]["last_executed_bucket_id"], 2);
        assert_eq!(later["x"], 1);
        assert_eq!(tenure.text("state.json"), state);
    }
    // A run that fails is repeated, and members that a run adds to the state are kept.
    let script = |end: &str| format!("echo $TENURE_BUCKET_ID >> ran; {end}");
    let ran = run(&tenure, &on_success, &script("exit 7"));
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stderr.contains("the run did not succeed: its bucket is next again"), "{ran:?}");
    assert_eq!(tenure.text("state.json"), state);
    run(&tenure, &on_success, &script("echo '{\"x\":2, \"y\":[]}' > state.json")).ok();
    assert_eq!(
        tenure.text("state.json"),
        "{\"x\":2, \"y\":[], \"__bucket_execution_state\":{\"last_executed_bucket_id\":2}, \
         \"__tenure_bucket_state\":{\"bucket_total\":3}}\n"
    );
    run(&tenure, &on_success, &script("true")).ok();
    // If the success cannot be recorded, the run fails and the state file is unchanged.
    let ran = run(&tenure, &on_success, &script("echo oops > state.json"));
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(
        ran.stderr.contains("kept: the run succeeded and is recorded in the store;"),
        "{ran:?}"
    );
    assert_eq!(
        (tenure.text("ran"), tenure.text("state.json")),
        ("2\n2\n3\n1\n".to_owned(), "oops\n".to_owned())
    );
}

#[test]
fn at_start_a_run_that_fails_skips_its_bucket() {
    let tenure = rotation(3);
    let script = "echo $TENURE_BUCKET_ID >> ran; exit 9";
    for _ in 0..4 {
        assert_eq!(run(&tenure, &["--write"], script).code, Some(9));
    }
    assert_eq!(tenure.text("ran"), "1\n2\n3\n1\n");
    let state: Value = serde_json::from_str(&tenure.text("state.json")).unwrap();
    assert_eq!(state["__bucket_execution_state"]["last_executed_bucket_id"], 1);
}

#[test]
fn a_command_finds_its_bucket_and_filters_by_it() {
    let tenure = rotation(3);
    put(&tenure, "state.json", "{\"x\":1}");
    let script = "cat $TENURE_BUCKET_CONFIG $TENURE_BUCKET_STATE
                  stat -c %a $TENURE_BUCKET_CONFIG $TENURE_BUCKET_STATE
                  echo $TENURE_BUCKET_ID $TENURE_BUCKET_TOTAL
                  printf 'alpha\\nbeta\\n' | $0 bucket filter --key farosai/test";
    let words = [&FILES[..], &DUTY, &["--", "sh", "-c", script, env!("CARGO_BIN_EXE_tenure")]];
    let ran = tenure.run(&words.concat());
    let said = "Using round robin bucket execution. Bucket id: 1";
    assert!(ran.stderr.contains(said), "{ran:?}");
    assert_eq!(
        ran.ok(),
        "{\"bucket_total\":3,\"round_robin_bucket_execution\":true,\"bucket_id\":1}\
         {\"x\":1,\"__bucket_execution_state\":{\"last_executed_bucket_id\":1},\
         \"__tenure_bucket_state\":{\"bucket_total\":3}}600\n600\n1 3\nalpha\n"
    );
    let missing = next(&tenure, &[&DUTY[..], &["--", "no-such-program"]].concat());
    assert_eq!(missing.code, Some(127), "{missing:?}");
    assert!(missing.stderr.contains("nothing was run, and the bucket counts as"), "{missing:?}");
}

#[test]
fn a_million_ranges_take_no_room() {
    let tenure = rotation(3);
    let ranges = format!("[{}\"7\"]", "\"1-1000000\",".repeat(999_999));
    let config = format!(
        "{{\"bucket_total\":1000000,\"round_robin_bucket_execution\":true,\
         \"bucket_ranges\":{ranges}}}"
    );
    put(&tenure, "config.json", &config);
    let script = format!("ulimit -v 262144; exec $0 {} --print id", FILES.join(" "));
    let words = ["-c", &script, env!("CARGO_BIN_EXE_tenure")];
    let ran = Ran::of(tenure.command_of("sh", &words).output().unwrap());
    assert_eq!(ran.ok(), "1\n");
}
