//! Stores written by earlier versions, opened by this one.
//!
//! `testkit/tests/formats/v0.1` has a store of each kind with known contents, and the output of
//! read-only commands on it. To make the fixtures of a version, use its binary:
//!
//! ```sh
//! TENURE_REFRESH=fixtures TENURE_TEST_BINARY=/path/to/tenure \
//!     cargo test -p tenure-cli --all-features --test it formats
//! ```
//!
//! Existing fixtures of a version are never replaced.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::old::{self, path};
use testkit::{
    EtcdOptions, EtcdServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};
use testkit::{TEST_POSTGRES, psql, service, wait_until};

use crate::golden::{Case, Golden, timeless};
use crate::running::{LIMIT, STAY};
use crate::switchboard::{Answer, INBOX, INGEST, LETTERS, Place, Server, envelope};
use crate::tenure::{Ran, Tenure};

/// Commands that read a coordination store.
const COORDINATION: &[Case] = &[
    ("ls", "ls"),
    ("explain", "explain poll/a"),
    ("pins", "pin poll"),
    ("get-plain", "checkpoint get telegram/bot-42"),
    ("get-moved", "checkpoint get telegram/bot-43"),
    ("get-signed", "checkpoint get telegram/bot-44 --signing require --signing-keys-file keys"),
    ("get-rewound", "checkpoint get sync/rotation"),
    ("history", "checkpoint history sync/rotation"),
    ("verify", "checkpoint verify --signing-keys-file keys"),
];

const SWITCHBOARD: &[Case] = &[
    ("tokens", "token list"),
    ("audit", "token audit"),
    ("fences", "fence list"),
    ("channels", "channel ls"),
    ("connectors", "connectors ls"),
    ("connector", "connectors show telegram_bot test_bot"),
];

const CURSOR_FILES: &[Case] = &[
    ("ls", "ls"),
    ("get-plain", "checkpoint get telegram/bot-42"),
    ("history", "checkpoint history telegram/bot-42"),
    ("get-moved", "checkpoint get telegram/bot-43 --store file:files/moved.json#telegram/bot-43"),
    ("get-signed", "checkpoint get telegram/bot-44 --store file:files/signed.json#telegram/bot-44"),
    (
        "verify",
        "checkpoint verify --store file:files/signed.json#telegram/bot-44 --signing-keys-file keys",
    ),
];

#[test]
fn sqlite() {
    if making() {
        let place = Place::sqlite();
        make_coordination(&place);
        make_switchboard(&place);
        place.execute("PRAGMA wal_checkpoint(TRUNCATE); VACUUM");
        pack(&place.tenure.path("tenure.db"), "sqlite.db");
        keep_token(&place, "sqlite.token");
    }
    let place = Place::sqlite();
    old::sqlite(&place.tenure.path("tenure.db")).unwrap();
    check_coordination(place, "sqlite", |golden| check_switchboard(golden, "sqlite"));
}

#[test]
fn postgres() {
    if making() {
        let server = PostgresServer::start(PostgresOptions::default()).unwrap();
        let place = Place { tenure: Tenure::new(), url: server.url() };
        make_coordination(&place);
        make_switchboard(&place);
        let words = ["--inserts", "--no-owner", "--no-privileges"];
        let dump = output(Command::new("pg_dump").args(words).arg(server.url()));
        // Drop comments, and commands that only the newest psql knows.
        let text = String::from_utf8(dump).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("--") && !line.starts_with('\\'));
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        let script = place.tenure.path("postgres.sql");
        std::fs::write(&script, lines.join("\n") + "\n").unwrap();
        pack(&script, "postgres.sql");
        keep_token(&place, "postgres.token");
    }
    let Some(server) = service(TEST_POSTGRES) else { return };
    let url = old::postgres(&server).unwrap();
    let place = Place { tenure: Tenure::new(), url: url.clone() };
    check_coordination(place, "postgres", |golden| check_switchboard(golden, "postgres"));
    let (_, database) = url.rsplit_once('/').unwrap();
    psql(&server, &format!("DROP DATABASE {database} WITH (FORCE)")).unwrap();
}

#[test]
fn redis() {
    if making() {
        let server = RedisServer::start(RedisOptions::default()).unwrap();
        make_coordination(&Place { tenure: Tenure::new(), url: server.url() });
        server.cli(&["--rdb", &path("redis.rdb").display().to_string()]).unwrap();
    }
    let server = old::redis().unwrap();
    let place = Place { tenure: Tenure::new(), url: server.url() };
    check_coordination(place, "redis", |_| ());
}

#[test]
fn etcd() {
    if making() {
        let server = EtcdServer::start(EtcdOptions::default()).unwrap();
        make_coordination(&Place { tenure: Tenure::new(), url: server.url() });
        let tenure = Tenure::new();
        let path = tenure.path("snapshot").display().to_string();
        server.etcdctl(&["snapshot", "save", &path]).unwrap();
        pack(&tenure.path("snapshot"), "etcd.snapshot");
    }
    let server = old::etcd().unwrap();
    let place = Place { tenure: Tenure::new(), url: server.url() };
    check_coordination(place, "etcd", |_| ());
}

#[test]
fn cursor_files() {
    if making() {
        let place = Place::sqlite();
        make_cursor_files(&place);
        output(Command::new("cp").arg("-rT").args([&place.tenure.path("files"), &path("files")]));
    }
    let tenure = Tenure::new();
    old::cursor_files(&tenure.path("files")).unwrap();
    write_keys(&tenure);
    let place = Place { tenure, url: "file:files/plain.json#telegram/bot-42".to_owned() };
    let golden = Golden::exact(place, path("file"));
    golden.compare(CURSOR_FILES);
    check_next_epoch(&golden);
}

fn making() -> bool {
    let making = std::env::var("TENURE_REFRESH").is_ok_and(|value| value == "fixtures");
    if making {
        std::fs::create_dir_all(path("")).unwrap();
    }
    making
}

/// Runs a command; returns its standard output.
fn output(command: &mut Command) -> Vec<u8> {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {done:?}");
    done.stdout
}

/// Stores a file as a compressed fixture.
fn pack(file: &Path, name: &str) {
    let packed = output(Command::new("gzip").args(["-9", "-n", "-c"]).arg(file));
    std::fs::write(path(&format!("{name}.gz")), packed).unwrap();
}

fn write_keys(tenure: &Tenure) {
    let keys = format!("k1 sign {}", "5e".repeat(32));
    std::fs::write(tenure.path("keys"), keys).unwrap();
}

/// Creates a plain cursor file, a signed one, and one whose checkpoint was moved away.
fn make_cursor_files(place: &Place) {
    write_keys(&place.tenure);
    std::fs::create_dir(place.tenure.path("files")).unwrap();
    std::fs::write(place.tenure.path("files/moved.json"), "{\"last_update_id\":7}").unwrap();
    std::fs::write(place.tenure.path("bot-42.json"), "{\"last_update_id\":12345}").unwrap();
    std::fs::write(place.tenure.path("bot-44.json"), "{\"last_update_id\":99}").unwrap();
    for line in [
        "file:files/moved.json#telegram/bot-43 sqlite:tenure.db",
        "file:bot-42.json#telegram/bot-42 sqlite:tenure.db",
        "file:bot-44.json#telegram/bot-44 sqlite:tenure.db",
        "sqlite:tenure.db file:files/plain.json#telegram/bot-42 telegram/bot-42",
        "sqlite:tenure.db file:files/signed.json#telegram/bot-44 telegram/bot-44 --signing write \
         --signing-keys-file keys",
    ] {
        let words = format!("checkpoint move {line}");
        place.tenure.run(&words.split(' ').collect::<Vec<_>>()).ok();
    }
}

/// Creates checkpoints with history, signed and moved, and a group with pins and pauses whose
/// members were killed.
fn make_coordination(place: &Place) {
    let tenure = |line: &str| {
        let line = line.replace("STORE", &place.url);
        place.tenure(&line.split(' ').collect::<Vec<_>>()).ok()
    };
    tenure("migrate");
    write_keys(&place.tenure);
    let config = json!({ "bucket_total": 3, "round_robin_bucket_execution": true });
    std::fs::write(place.tenure.path("config.json"), config.to_string()).unwrap();
    for (id, update) in [("bot-42", 12345), ("bot-43", 7), ("bot-44", 99)] {
        let cursor = json!({ "last_update_id": update }).to_string();
        std::fs::write(place.tenure.path(&format!("{id}.json")), cursor).unwrap();
    }
    tenure("checkpoint move file:bot-42.json#telegram/bot-42 STORE");
    tenure("checkpoint move file:bot-43.json#telegram/bot-43 STORE");
    tenure(
        "checkpoint move file:bot-44.json#telegram/bot-44 STORE --signing write \
         --signing-keys-file keys",
    );
    for _ in 0..3 {
        tenure(
            "bucket next --config config.json --state state.json --duty sync/rotation --ttl 5s \
             -- true",
        );
    }
    tenure("checkpoint rewind sync/rotation --to 1");
    make_members(place);
    tenure("checkpoint move STORE file:moved.json telegram/bot-43");
}

/// Starts two members, applies every kind of directive to them, and kills them.
fn make_members(place: &Place) {
    let script = format!("echo $TENURE_INSTANCE > $MEMBER; {STAY}");
    let mut members = Vec::new();
    for (id, name, zone) in [("a", "one", "eu"), ("b", "two", "us")] {
        let duty = format!("poll/{id}");
        let words = ["run", "--duty", &duty, "--ttl", "5s", "--name", name, "--zone", zone];
        let command = ["--store", &place.url, "--", "sh", "-c", &script];
        let mut command = place.tenure.command(&[&words[..], &command].concat());
        command.env("MEMBER", name);
        members.push((place.tenure.start_this(&format!("run-{name}"), command), name));
    }
    let instance = |name: &str| place.tenure.lines(name, 1).remove(0);
    for line in [
        "pin poll/a --zone eu".to_owned(),
        "pin poll/b --name two".to_owned(),
        format!("weight poll {} 5", instance("one")),
        format!("cordon poll {}", instance("two")),
        "pause poll/b".to_owned(),
    ] {
        place.tenure(&line.split(' ').collect::<Vec<_>>()).ok();
    }
    for (mut member, _) in members {
        member.signal(Signal::KILL);
        member.wait();
    }
    let gone = || {
        let seen = place.tenure(&["ls", "poll", "--json"]).json();
        let group = &seen["groups"][0];
        let duties = group["duties"].as_array().unwrap();
        group["members"] == json!([]) && duties.iter().all(|duty| duty["holder"].is_null())
    };
    wait_until("the members' leases to end", LIMIT, gone).unwrap();
}

/// Creates events, a duplicate, a dead letter and heartbeats.
fn make_switchboard(place: &Place) {
    let tenure = |line: &str| place.tenure(&line.split(' ').collect::<Vec<_>>()).ok();
    tenure("channel add voice --provider twilio");
    let made = tenure(
        "token create --json --channel telegram --provider telegram --endpoint test_bot \
         --role ingest --role read --role admin --expires-in 3650d",
    );
    std::fs::write(place.tenure.path("token-create.out"), &made).unwrap();
    let other = tenure("token create --json --role read --expires-in 3650d");
    let other: Value = serde_json::from_str(&other).unwrap();
    tenure(&format!("token revoke {} --reason test", other["token_id"].as_str().unwrap()));
    let mut server = place.serve(&["--statistics-every", "1s"]);
    let token: Value = serde_json::from_str(&made).unwrap();
    server.token = token["token"].as_str().map(str::to_owned);
    for event in ["1", "2", "1", "3"] {
        submit(&server, event);
    }
    let letter = json!({
        "source": { "channel": "telegram", "provider": "telegram",
            "endpoint_identity": "test_bot" },
        "error_class": "timeout", "reason": "gave up", "envelope": envelope("4")
    });
    server.post(LETTERS, &letter);
    for (uptime, ingested) in [(60, 5), (120, 9)] {
        let beat = crate::switchboard::heartbeat("test_bot", 7, uptime, ingested);
        server.beat(&beat).is(200);
    }
    let counted = || {
        let shown = place.tenure(&["connectors", "ls", "--json"]).json();
        shown["connectors"][0]["today"]["messages_ingested"] == 9
    };
    wait_until("the heartbeats to be counted", LIMIT, counted).unwrap();
    server.stop();
}

/// Submits an event under a hold.
fn submit(server: &Server, event: &str) -> Value {
    submit_under(server, event, "20").is(202)
}

fn submit_under(server: &Server, event: &str, epoch: &str) -> Answer {
    let headers = [
        ("content-type", "application/json"),
        ("tenure-duty", "telegram/bot-42"),
        ("tenure-epoch", epoch),
        ("tenure-instance", "b"),
    ];
    server.post_with(INGEST, envelope(event).to_string().as_bytes(), &headers)
}

fn keep_token(place: &Place, name: &str) {
    std::fs::copy(place.tenure.path("token-create.out"), path(name)).unwrap();
}

fn check_coordination(place: Place, store: &str, more: impl FnOnce(&Golden)) {
    write_keys(&place.tenure);
    update(&place);
    let golden = Golden::exact(place, path(store));
    golden.compare(COORDINATION);
    more(&golden);
    check_next_epoch(&golden);
}

/// Lets processes of this version update the store at the same time, and one after them.
fn update(place: &Place) {
    let start = || {
        let mut command = place.tenure.command(&["migrate", "--store", &place.url]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for process in [start(), start(), start()] {
        Ran::of(process.wait_with_output().unwrap()).ok();
    }
    place.tenure(&["migrate"]).ok();
}

/// Checks that a duty of the old store is granted under a newer epoch than before.
fn check_next_epoch(golden: &Golden) {
    let text = std::fs::read_to_string(golden.folder.join("get-plain.json")).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    let script = "echo $TENURE_EPOCH";
    let run = ["run", "--duty", "telegram/bot-42", "--", "sh", "-c", script];
    let epoch: u64 = golden.place.tenure(&run).ok().trim().parse().unwrap();
    assert!(epoch > recorded["stdout"]["epoch"].as_u64().unwrap(), "{epoch}: {recorded}");
}

fn check_switchboard(golden: &Golden, store: &str) {
    golden.compare(SWITCHBOARD);
    let token: Value = serde_json::from_str(&old::token(store).unwrap()).unwrap();
    let mut server = golden.place.serve(&[]);
    server.token = token["token"].as_str().map(str::to_owned);
    let inbox = server.get(&format!("{INBOX}?limit=100")).is(200);
    let letters = server.get(LETTERS).is(200);
    let duplicate = submit(&server, "2");
    golden.compare_values([
        ("inbox", timeless("", inbox.clone())),
        ("dead-letters", timeless("", letters)),
        ("duplicate", timeless("", duplicate)),
    ]);
    submit(&server, "5");
    submit_under(&server, "6", "19").refused(409, "fenced");
    // A reader goes on from a cursor that the old version has returned.
    let cursor = inbox["data"][1]["cursor"].as_str().unwrap();
    let rest = server.get(&format!("{INBOX}?after={cursor}&limit=1")).is(200);
    assert_eq!(rest["data"], json!([inbox["data"][2]]));
    let after = server.inbox();
    let position = |message: &Value| message["position"].as_i64().unwrap();
    let last = inbox["data"].as_array().unwrap().last().unwrap();
    assert!(position(after.last().unwrap()) > position(last), "{after:?}");
    assert_eq!(after.len(), 4);
    server.stop();
}
