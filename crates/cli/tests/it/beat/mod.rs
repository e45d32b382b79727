//! `tenure beat`, as used in scripts.

mod every;
mod listener;
mod real;

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use self::listener::{Listener, Reply};
use crate::tenure::{Ran, Tenure};

const TOKEN: &str = "sw_live_s3cretS3CRETs3cretS3CRETs3cret";

/// Variables that `beat` reads besides `TENURE_*`.
const VARIABLES: [&str; 7] = [
    "SWITCHBOARD_API_BASE_URL",
    "SWITCHBOARD_API_TOKEN",
    "CONNECTOR_PROVIDER",
    "CONNECTOR_ENDPOINT_IDENTITY",
    "CONNECTOR_INSTANCE_ID",
    "CONNECTOR_HEARTBEAT_INTERVAL_S",
    "CONNECTOR_HEARTBEAT_ENABLED",
];

/// Returns a command without the variables of the test's environment.
fn bare(tenure: &Tenure, program: &str, words: &[&str]) -> Command {
    let mut command = tenure.command_of(program, words);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
}

/// Returns a `beat` command for `test_bot`.
fn beat(tenure: &Tenure, url: &str, words: &[&str]) -> Command {
    let mut command = bare(tenure, env!("CARGO_BIN_EXE_tenure"), &[&["beat"], words].concat());
    with_bot(&mut command, url);
    command
}

fn with_bot(command: &mut Command, url: &str) {
    command.env("SWITCHBOARD_API_BASE_URL", url).env("CONNECTOR_PROVIDER", "telegram_bot");
    command.env("CONNECTOR_ENDPOINT_IDENTITY", "test_bot");
}

fn run(command: &mut Command) -> Ran {
    Ran::of(command.output().unwrap())
}

/// Runs a command with this standard input.
fn run_with(mut command: Command, input: &str) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Ran::of(child.wait_with_output().unwrap())
}

/// Returns the five counters in the order of the protocol.
fn counters(body: &Value) -> Vec<i64> {
    [
        "messages_ingested",
        "messages_failed",
        "source_api_calls",
        "checkpoint_saves",
        "dedupe_accepted",
    ]
    .map(|name| body["counters"][name].as_i64().unwrap())
    .to_vec()
}

#[test]
fn a_heartbeat_says_what_it_was_told() {
    let (tenure, listener) = (Tenure::new(), Listener::accepting());
    let instance = "0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10";
    let words = [
        "--type",
        "slack",
        "--endpoint",
        "a/b:c@d <i>",
        "--instance",
        instance,
        "--state",
        "error",
        "--message",
        "no route",
        "--version",
        "1.2.3",
        "--uptime",
        "1h",
        "--cursor",
        "17",
        "--cursor-at",
        "2026-02-15T10:30:00Z",
        "--ingested",
        "1",
        "--failed",
        "2",
        "--api-calls",
        "3",
        "--checkpoint-saves",
        "4",
        "--duplicates",
        "5",
    ];
    let mut command = beat(&tenure, "http://127.0.0.1:1", &words);
    command.arg("--url").arg(format!("{}/prefix/", listener.url()));
    let ran = run(command.env("SWITCHBOARD_API_TOKEN", format!(" {TOKEN}\n")));
    ran.hides(TOKEN);
    let text = ran.ok();
    assert!(text.starts_with("accepted: slack a/b:c@d <i> at 20"), "{text}");
    assert!(text.ends_with(&format!(", instance {instance}\n")), "{text}");
    let sent = listener.wait(1);
    assert!(sent.head.starts_with("post /prefix/api/switchboard/heartbeat http/1.1\r\n"));
    for line in [
        format!("authorization: bearer {}", TOKEN.to_lowercase()),
        "content-type: application/json".to_owned(),
        format!("host: {}", listener.at),
    ] {
        assert!(sent.head.contains(&format!("\r\n{line}\r\n")), "{line}: {}", sent.head);
    }
    tenure_wire::heartbeat::read(sent.text.as_bytes()).unwrap();
    let body = sent.body();
    assert_eq!(
        body["connector"],
        json!({
            "connector_type": "slack", "endpoint_identity": "a/b:c@d <i>",
            "instance_id": instance, "version": "1.2.3",
        })
    );
    assert_eq!(body["status"]["state"], "error");
    assert_eq!(body["status"]["error_message"], "no route");
    assert!((3600..3700).contains(&body["status"]["uptime_s"].as_u64().unwrap()), "{body}");
    let checkpoint = json!({ "cursor": "17", "updated_at": "2026-02-15T10:30:00Z" });
    assert_eq!(body["checkpoint"], checkpoint);
    assert_eq!(counters(&body), [1, 2, 3, 4, 5]);
    assert_eq!(listener.sent().len(), 1);
}

#[test]
fn counters_come_from_files_lines_and_standard_input() {
    let (tenure, listener) = (Tenure::new(), Listener::accepting());
    let object = r#"{"messages_ingested": 7, "checkpoint_saves": 8}"#;
    std::fs::write(tenure.path("object.json"), object).unwrap();
    std::fs::write(tenure.path("lines"), "# mine\nmessages_ingested 7\ncheckpoint_saves=8\n")
        .unwrap();
    for (n, (words, input, expected)) in [
        (&[][..], "", [0, 0, 0, 0, 0]),
        (&["--counters", "object.json"], "", [7, 0, 0, 8, 0]),
        (&["--counters", "lines"], "", [7, 0, 0, 8, 0]),
        // An option overrides the file.
        (&["--counters", "lines", "--ingested", "9", "--failed", "1"], "", [9, 1, 0, 8, 0]),
        (&["--counters", "-"], "dedupe_accepted = 3", [0, 0, 0, 0, 3]),
        (&["--counters", "-"], object, [7, 0, 0, 8, 0]),
        (&["--counters", "/dev/stdin"], object, [7, 0, 0, 8, 0]),
    ]
    .into_iter()
    .enumerate()
    {
        run_with(beat(&tenure, &listener.url(), words), input).ok();
        assert_eq!(counters(&listener.wait(n + 1).body()), expected, "{words:?}");
    }
}

#[test]
fn counters_that_are_none_are_refused() {
    let (tenure, listener) = (Tenure::new(), Listener::accepting());
    for (input, says) in [
        (
            "messages 1",
            "standard input: line 1: \"messages\" is not a counter; the counters are messages_in",
        ),
        ("{\"messages\":1}", "unknown field `messages`"),
        ("{\"messages_failed\":-1}", "integer `-1`"),
        ("{\"messages_failed\":1", "EOF"),
        ("messages_failed 1.5", "\"1.5\" is not a whole number"),
        ("messages_failed\u{1b}[31m 1", "\\u{1b}"),
    ] {
        let ran = run_with(beat(&tenure, &listener.url(), &["--counters", "-"]), input);
        ran.refused("SW007");
        assert!(ran.stderr.contains(says), "{says}: {ran:?}");
    }
    std::fs::write(tenure.path("large"), "#".repeat(70_000)).unwrap();
    for (file, says) in [("none", "No such file"), ("large", "more than 65536 bytes")] {
        let ran = run(&mut beat(&tenure, &listener.url(), &["--counters", file]));
        ran.refused("SW007");
        assert!(ran.stderr.contains(&format!("{file}: ")) && ran.stderr.contains(says), "{ran:?}");
    }
    assert_eq!(listener.sent().len(), 0);
}

#[test]
fn an_instance_is_the_script_that_calls() {
    let (tenure, listener) = (Tenure::new(), Listener::accepting());
    let tenure_beat = format!("{} beat", env!("CARGO_BIN_EXE_tenure"));
    let script = format!(
        "{tenure_beat}; timeout 60 {tenure_beat}; x=$({tenure_beat}); ( {tenure_beat}; : )
         echo messages_failed 1 | {tenure_beat} --counters -; : done"
    );
    std::fs::write(tenure.path("script.sh"), script).unwrap();
    let run_script = || {
        let mut command = bare(&tenure, "sh", &["script.sh"]);
        with_bot(&mut command, &listener.url());
        run(&mut command).ok();
    };
    run_script();
    run_script();
    let instances: Vec<String> = listener.sent().iter().map(listener::Sent::instance).collect();
    assert_eq!(instances.len(), 10);
    let (first, second) = instances.split_at(5);
    assert!(first.iter().all(|id| *id == first[0]), "{instances:?}");
    assert!(second.iter().all(|id| *id == second[0]), "{instances:?}");
    assert_ne!(first[0], second[0]);
    // The uptime is that of the script, which has just started.
    assert!(listener.wait(1).body()["status"]["uptime_s"].as_u64().unwrap() < 3600);
    let id = "0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10";
    let mut command = beat(&tenure, &listener.url(), &[]);
    run(command.env("CONNECTOR_INSTANCE_ID", id)).ok();
    assert_eq!(listener.wait(11).instance(), id);
}

#[test]
fn what_makes_no_sense_is_said_before_anything_is_sent() {
    let (tenure, listener) = (Tenure::new(), Listener::accepting());
    std::fs::write(tenure.path("empty"), "\n").unwrap();
    for (words, says) in [
        (&["--url", "127.0.0.1:8420"][..], "http://HOST:PORT"),
        (&["--url", "ftp://h"], "http://HOST:PORT"),
        (&["--url", "http://me:s3cret@h"], "does not accept"),
        (&["--url", ""], "--url is missing: give it, or set SWITCHBOARD_API_BASE_URL"),
        (&["--type", ""], "--type is missing: give it, or set CONNECTOR_PROVIDER"),
        (&["--endpoint", " "], "--endpoint is missing: give it, or set CONNECTOR"),
        (&["--type", "a\tb"], "connector.connector_type: contains a control character"),
        (&["--instance", "s3cret"], "--instance (CONNECTOR_INSTANCE_ID) is not a UUID"),
        (&["--state", "online"], "healthy, degraded, error"),
        (&["--cursor", "1", "--cursor-at", "yesterday"], "checkpoint.updated_at"),
        (&["--cursor-at", "2026-02-15T10:30:00Z"], "--cursor"),
        (&["--ingested", "-1"], "'-1'"),
        (&["--ingested", "1.5"], "1.5"),
        (&["--ingested", "9007199254740992"], "9007199254740991"),
        (&["--uptime", "soon"], "--uptime"),
        (&["--timeout", "0s"], "--timeout"),
        (&["--token-file", TOKEN], "--token-file takes the name of a file"),
        (&["--token-file", "empty"], "empty is empty"),
        (&["--every", "--counters", "-"], "can be read once only"),
        (&["--token", TOKEN], "unexpected argument '--token'"),
    ] {
        let ran = run(&mut beat(&tenure, &listener.url(), words));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{words:?} should say {says}: {ran:?}");
        ran.hides("s3cret");
    }
    // A bad value of a variable is refused, too, and not repeated.
    for name in ["SWITCHBOARD_API_BASE_URL", "CONNECTOR_INSTANCE_ID"] {
        let ran = run(beat(&tenure, &listener.url(), &[]).env(name, "me:s3cret@h"));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        ran.hides("s3cret");
    }
    let ran = run(beat(&tenure, &listener.url(), &[]).env("SWITCHBOARD_API_TOKEN", "s3cret\n2"));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("the token is not one word"), "{ran:?}");
    ran.hides("s3cret");
    run(&mut beat(&tenure, &listener.url(), &["--token-file", "none"])).refused("DT009");
    assert_eq!(listener.sent().len(), 0);
}

#[test]
fn a_switchboard_that_does_not_take_it_is_told_of() {
    let tenure = Tenure::new();
    let echo = format!(r#"{{"error":"unauthorized","message":"no token {TOKEN}\u001b[1m"}}"#);
    for (reply, code, exit, says) in [
        (Reply::Answer(401, echo), "SW006", 1, "401 Unauthorized: no token (not shown)\\u{1b}"),
        (Reply::Answer(404, "gone".into()), "SW006", 1, "404 Not Found without a reason, from"),
        // A redirect is not followed: it would send the token to another server.
        (Reply::Answer(307, String::new()), "SW006", 1, "307 Temporary Redirect"),
        (Reply::Answer(200, "<html>".into()), "SW006", 1, "200 OK without a reason"),
        (Reply::Answer(200, "x".repeat(70_000)), "SW005", 3, "has more than 65536 bytes"),
        (Reply::Answer(503, r#"{"message":"later"}"#.into()), "SW006", 3, "503"),
        (Reply::Nothing, "SW005", 3, "closed before a valid response"),
        (Reply::Silence, "SW005", 3, "no response within 200ms"),
    ] {
        let listener = Listener::start(vec![reply.clone()]);
        let patience = if let Reply::Silence = reply { "200ms" } else { "60s" };
        let mut command = beat(&tenure, &listener.url(), &["--timeout", patience]);
        let ran = run(command.env("SWITCHBOARD_API_TOKEN", TOKEN));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(exit), ""), "{reply:?}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("{code}: ")), "{reply:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{says}: {ran:?}");
        let kept = match exit {
            1 => "kept: nothing was changed\n",
            _ => "kept: it may have been accepted; the next heartbeat repeats all counters\n",
        };
        assert!(ran.stderr.contains(kept), "{ran:?}");
        ran.hides(TOKEN);
        listener.wait(1);
        assert_eq!(listener.sent().len(), 1, "{reply:?}");
    }
    // Nothing listens on this port.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = run(&mut beat(&tenure, &format!("http://{port}"), &[]));
    ran.refused("SW005");
    let ran = run(&mut beat(&tenure, &format!("http://{port}"), &["--json"]));
    let told: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!((ran.code, &told["error"]["code"]), (Some(1), &json!("SW005")), "{ran:?}");
}

#[test]
fn clocks_that_differ_are_warned_of() {
    let tenure = Tenure::new();
    let now = jiff::Timestamp::now();
    let hour = jiff::SignedDuration::from_hours(1);
    let answer = |time: jiff::Timestamp, warnings: Value| {
        let body = json!({ "status": "accepted", "server_time": time.to_string(),
            "warnings": warnings });
        Listener::start(vec![Reply::Answer(200, body.to_string())])
    };
    for (listener, says) in [
        (answer(now + hour, json!([])), Some("s behind the switchboard's")),
        (answer(now - hour, json!([])), Some("s ahead of the switchboard's")),
        (answer(now, json!(["no \u{1b}message"])), Some("warning: no \\u{1b}message\n")),
        // The switchboard's own clock warning is not repeated.
        (
            answer(now + hour, json!(["its clock is behind"])),
            Some("warning: its clock is behind\n"),
        ),
    ] {
        let ran = run(&mut beat(&tenure, &listener.url(), &["--json"]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), usize::from(says.is_some()), "{ran:?}");
        assert!(ran.stderr.contains(says.unwrap_or_default()), "{ran:?}");
        let told: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(told["status"], "accepted");
        assert!(told["drift_ms"].is_i64(), "{told}");
    }
}

#[test]
fn heartbeats_can_be_switched_off() {
    let (tenure, listener) = (Tenure::new(), Listener::accepting());
    for word in ["false", "0", "No", "OFF"] {
        let mut command = beat(&tenure, &listener.url(), &["--every"]);
        let text = run(command.env("CONNECTOR_HEARTBEAT_ENABLED", word)).ok();
        let says = "heartbeats are switched off by CONNECTOR_HEARTBEAT_ENABLED: nothing was sent\n";
        assert_eq!(text, says);
    }
    // Nothing else has to be set.
    let mut command = bare(&tenure, env!("CARGO_BIN_EXE_tenure"), &["beat", "--json"]);
    let told = run(command.env("CONNECTOR_HEARTBEAT_ENABLED", "false")).json();
    assert_eq!(told, json!({ "status": "off" }));
    assert_eq!(listener.sent().len(), 0);
    run(beat(&tenure, &listener.url(), &[]).env("CONNECTOR_HEARTBEAT_ENABLED", "true")).ok();
    assert_eq!(listener.sent().len(), 1);
}
