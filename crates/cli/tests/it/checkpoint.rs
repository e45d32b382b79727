//! `tenure checkpoint` on the command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use serde_json::Value;
use tenure_core::store::{Commit, Committed};
use tenure_core::{Document, Hold, Session, Store, Version};
use testkit::{TEST_ETCD, TEST_POSTGRES, TEST_REDIS, service};
use uuid::Uuid;

use crate::tenure::{Ran, Tenure, claim, join, release, with_store};

/// Writes documents one after the other under a hold.
pub async fn write(store: &dyn Store, session: &Session, hold: &Hold, documents: &[&str]) {
    for document in documents {
        let stored = store.load(std::slice::from_ref(&hold.duty)).await.unwrap().remove(0);
        let expected = stored.map_or(Version::ZERO, |stored| stored.version);
        let document = Document::new(document.as_bytes()).unwrap();
        let commit = Commit { hold: hold.clone(), expected, document };
        let saved = store.commit(session, &[commit]).await.unwrap().remove(0);
        assert!(matches!(saved, Committed::Saved(_)), "{saved:?}");
    }
}

/// Creates a store with these checkpoints in the group `telegram`; the duties are free.
pub fn prepare(url: &str, duties: &[(&str, &[&str])]) {
    with_store(url, async |store| {
        let session = join(&*store, "telegram", "worker", "").await;
        for (id, documents) in duties {
            let hold = claim(&*store, &session, id).await;
            write(&*store, &session, &hold, documents).await;
            release(&*store, &session, hold).await;
        }
        store.close_session(&session, &tenure_core::Reason::new("done").unwrap()).await.unwrap();
    });
}

const CURSORS: [&str; 2] = ["{\"last_update_id\": 1}\n", "{ \"last_update_id\": 12345 }\n"];
const KEYS: &str = "k1 sign 5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

fn signed(command: &mut Command, mode: &str) -> Ran {
    command.env("TENURE_SIGNING", mode).env("TENURE_SIGNING_KEYS", KEYS);
    let ran = Ran::of(command.output().unwrap());
    ran.hides("5e5e5e");
    ran
}

#[test]
fn get_prints_the_newest_one_byte_for_byte() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("t.db");
    prepare(&url, &[("bot-42", &CURSORS)]);
    let get =
        |words: &[&str]| tenure.run(&[&["checkpoint", "get", "--store", &url][..], words].concat());
    let ran = get(&["telegram/bot-42"]);
    assert_eq!(ran.stdout, CURSORS[1]);
    assert!(ran.stderr.starts_with("telegram/bot-42: version 2, epoch 1, by worker at 20"));
    let value = get(&["telegram/bot-42", "--json"]).json();
    assert_eq!(value["document"]["last_update_id"], 12345);
    assert_eq!(value["document_base64"], "eyAibGFzdF91cGRhdGVfaWQiOiAxMjM0NSB9Cg==");
    assert_eq!((&value["version"], &value["epoch"]), (&2.into(), &1.into()));
    get(&["telegram/nobody"]).refused("ST031");
    get(&["telegram"]).refused("ST011");
    tenure.run(&["checkpoint", "get", "g/d", "--store", "sqlite:no.db"]).refused("ST015");
    assert!(!tenure.path("no.db").exists());
}

#[test]
fn documents_of_other_schemas_are_printed_and_read() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("t.db");
    let shard = |n: u64| format!("{{\"last_update_id\": {n}}}");
    let (zero, one) = (shard(1000), shard(1500));
    prepare(&url, &[("0", &[&zero]), ("1", &[&one])]);
    let run = |words: &[&str]| tenure.run(words);
    let shards: Value =
        run(&["checkpoint", "get", "telegram", "--schema", "shards", "--store", &url]).json();
    assert_eq!(shards["global_metadata"]["total_shards"], 2);
    assert_eq!(shards["shards"]["1"]["offset"], 1500);
    assert_eq!(shards["shards"]["1"]["holder_instance_id"], Value::Null);
    let lease: Value =
        run(&["checkpoint", "get", "telegram/0", "--schema", "lease", "--store", &url]).json();
    assert_eq!(lease["checkpoint"]["last_update_id"], 1000);
    assert_eq!(lease["lease"], Value::Null);
    with_store(&url, async |store| {
        let session = join(&*store, "telegram", "holder", "").await;
        claim(&*store, &session, "0").await;
    });
    let lease: Value =
        run(&["checkpoint", "get", "telegram/0", "--schema", "lease", "--store", &url]).json();
    assert_eq!(lease["lease"]["holder_instance_id"], "holder");
    assert!(lease["lease"]["acquired_at"].as_str().unwrap().ends_with('Z'), "{lease}");

    // Read it back: the document is one checkpoint in a store, and its shards move to another.
    let (old, new) = (tenure.sqlite("old.db"), tenure.sqlite("new.db"));
    prepare(&old, &[("all", &[&shards.to_string()]), ("one", &[&lease.to_string()])]);
    let all = ["telegram/all", "--schema", "shards", "--as"];
    let moves = |target: &str, more: &[&str]| {
        run(&[&["checkpoint", "move", &old, &new][..], &all, &[target], more].concat())
    };
    let ran = moves("tg/bot", &[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("is a duty: give its group"), "{ran:?}");
    let ran = moves("tg", &["--json"]);
    assert!(ran.stderr.contains("telegram/all as the shards of tg: moved"), "{ran:?}");
    assert_eq!(ran.json()["moves"][0]["as"], "tg");
    // Shards have the names that members use, and form the same document again.
    let read = run(&["checkpoint", "get", "tg/1", "--store", &new]).ok();
    assert!(read.contains("\"offset\":1500"), "{read}");
    let again = ["checkpoint", "get", "tg", "--schema", "shards", "--store", &new];
    let again = run(&again).json();
    assert_eq!(again["shards"]["0"]["last_updated_at"], shards["shards"]["0"]["last_updated_at"]);
    let offsets = |value: &Value| {
        let shards = value["shards"].as_object().unwrap().iter();
        shards.map(|(id, shard)| (id.clone(), shard["offset"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(offsets(&again), offsets(&shards));
    // The document itself is not a shard: this group has none.
    let telegram = ["checkpoint", "get", "telegram", "--schema", "shards", "--store", &old];
    run(&telegram).refused("ST031");
    run(&["checkpoint", "move", &old, &new, "telegram/one", "--schema", "lease"]).ok();
    let read = run(&["checkpoint", "get", "telegram/one", "--store", &new]).ok();
    assert_eq!(read, zero.replace(' ', ""));
    // A cursor is not a document of shards.
    let ran = run(&["checkpoint", "move", &url, &new, "telegram/1", "--schema", "shards"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("ST011"), "{ran:?}");
    assert_eq!(run(&["checkpoint", "get", "telegram/1", "--store", &url]).ok(), one);
}

#[test]
fn history_and_verify_tell_what_is_signed_and_what_is_not() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("t.db");
    prepare(&url, &[("bot-42", &CURSORS)]);
    let run = |words: &[&str], mode| {
        signed(&mut tenure.command(&[words, &["--store", &url][..]].concat()), mode)
    };
    let table = run(&["checkpoint", "history", "telegram/bot-42"], "off").ok();
    assert_eq!(table.lines().count(), 3);
    assert!(table.lines().nth(1).unwrap().contains("not signed"), "{table}");

    // A missing signature is not a fault with `--signing write`.
    run(&["checkpoint", "verify"], "write").ok();
    let ran = run(&["checkpoint", "verify", "--json"], "require");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("ST022"), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["faults"], 2);
    let ran = run(&["checkpoint", "get", "telegram/bot-42"], "require");
    ran.refused("ST022");

    // A rewind signs what it writes.
    run(&["checkpoint", "rewind", "telegram/bot-42", "--to", "2"], "write").ok();
    assert_eq!(run(&["checkpoint", "get", "telegram/bot-42"], "require").ok(), CURSORS[1]);
    let report = run(&["checkpoint", "verify", "--json"], "write").json();
    assert_eq!(report["newest_by_key"]["k1"], 1);
    assert_eq!(report["checkpoints"][0]["signature"], "good");

    let pen = Connection::open(tenure.path("t.db")).unwrap();
    pen.execute_batch("UPDATE checkpoint SET document = CAST(document || ' ' AS BLOB)").unwrap();
    let ran = run(&["checkpoint", "verify", "telegram"], "require");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("the signature does not fit (k1)"), "{ran:?}");
    let ran = run(&["checkpoint", "get", "telegram/bot-42"], "require");
    ran.refused("ST022");
    assert!(ran.stderr.contains("the newest valid one is version 3"), "{ran:?}");

    tenure.run(&["checkpoint", "verify", "--store", &url]).refused("ST024");
    let file = tenure.path("keys");
    std::fs::write(&file, "k1 sign s3cret").unwrap();
    let path = file.to_str().unwrap();
    let keys = ["--signing", "require", "--signing-keys-file", path, "--store", &url];
    let ran = tenure.run(&[&["checkpoint", "history", "telegram/bot-42"][..], &keys].concat());
    ran.refused("ST024");
    ran.hides("s3cret");
}

#[test]
fn verify_notices_what_is_missing() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("t.db");
    prepare(&url, &[("bot-1", &["1", "2", "3", "4"]), ("bot-2", &["1"])]);
    let verify = |mode, words: &[&str]| {
        let all = [&["checkpoint", "verify", "--store", &url][..], words].concat();
        signed(&mut tenure.command(&all), mode)
    };
    verify("write", &[]).ok();
    let pen = Connection::open(tenure.path("t.db")).unwrap();
    let fault = |sql: &str, says: &str| {
        pen.execute_batch(sql).unwrap();
        let ran = verify("write", &["telegram"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("ST022") && ran.stdout.contains(says), "{ran:?}");
    };
    fault("DELETE FROM history WHERE version = 2", "the version before it is missing");
    fault("DELETE FROM history WHERE version = 4", "the newest one, but not in the history");
    fault("DELETE FROM checkpoint WHERE duty = 'bot-1'", "the newest checkpoint is missing");
    let report: Value = serde_json::from_str(&verify("write", &["--json"]).stdout).unwrap();
    assert_eq!(report["newest_by_key"]["(none)"], 1);
    assert_eq!(report["faults"], 1);
}

#[test]
fn verify_goes_on_after_what_is_damaged() {
    let tenure = Tenure::new();
    let folder = tenure.path("cursors");
    std::fs::create_dir(&folder).unwrap();
    let url = format!("file:{}", folder.join("c.json").display());
    prepare(&url, &[("bot-1", &CURSORS), ("bot-2", &CURSORS), ("bot-3", &CURSORS)]);
    let verify = |words: &[&str]| {
        let all = [&["checkpoint", "verify", "--store", &url][..], words].concat();
        signed(&mut tenure.command(&all), "write")
    };
    verify(&[]).ok();
    // Damage the newest checkpoint of one duty, and an older version of another.
    let paths = all_files(&folder);
    let find = |id: &str, older: bool| {
        let of = |path: &&PathBuf| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let history = path.parent() != Some(&folder);
            text.contains("last_update_id") && text.contains(id) && history == older
        };
        paths.iter().find(of).unwrap()
    };
    std::fs::write(find("bot-1", false), "{").unwrap();
    std::fs::write(find("bot-2", true), "{").unwrap();
    let ran = verify(&["--json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("ST022"), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let unread = report["unreadable"].as_array().unwrap();
    let line = |line: &Value| (line["duty"].to_string(), line["newest"] == true);
    let lines: Vec<_> = unread.iter().map(line).collect();
    let expected = [("\"telegram/bot-1\"", true), ("\"telegram/bot-2\"", false)];
    assert_eq!(lines, expected.map(|(duty, newest)| (duty.to_owned(), newest)));
    assert_eq!((&report["faults"], &unread[0]["code"]), (&2.into(), &"ST014".into()));
    assert_eq!(report["newest_by_key"]["(none)"], 2);
    let table = verify(&[]).stdout;
    assert!(table.lines().any(|line| line.starts_with("telegram/bot-3        2")), "{table}");
    assert!(table.lines().any(|line| line.starts_with("telegram/bot-1        -")), "{table}");
}

fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(all_files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn a_key_s_id_reaches_no_terminal_as_it_is() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("t.db");
    let (mac, id) = ("00".repeat(32), "%1B%5B31mred");
    prepare(&url, &[("bot-1", &["1"])]);
    let pen = Connection::open(tenure.path("t.db")).unwrap();
    let seal = format!("tenure-seal:1 key={id} mac={mac} prev={mac}\n1");
    for table in ["checkpoint", "history"] {
        let sql = format!("UPDATE {table} SET document = ?1");
        pen.execute(&sql, [seal.as_bytes()]).unwrap();
    }
    let ran = signed(&mut tenure.command(&["checkpoint", "verify", "--store", &url]), "require");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("newest checkpoints by key \\u{1b}[31mred: 1"), "{ran:?}");
    ran.hides("\u{1b}");
}

#[test]
fn rewind_asks_before_it_takes_and_can_be_tried_first() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("t.db");
    prepare(&url, &[("bot-42", &CURSORS)]);
    let rewind = |words: &[&str]| {
        let command = ["checkpoint", "rewind", "telegram/bot-42", "--store", &url, "--to"];
        tenure.run(&[&command[..], words].concat())
    };
    let newest = || tenure.run(&["checkpoint", "get", "telegram/bot-42", "--store", &url]).ok();
    let says = rewind(&["1", "--dry-run"]).ok();
    assert_eq!(says, "would restore version 1 of telegram/bot-42 over version 2\n");
    assert_eq!(newest(), CURSORS[1]);
    rewind(&["9", "--dry-run"]).refused("ST011");
    rewind(&["9"]).refused("ST011");
    with_store(&url, async |store| {
        let session = join(&*store, "telegram", "holder", "").await;
        claim(&*store, &session, "bot-42").await;
    });
    let ran = rewind(&["1"]);
    ran.refused("ST025");
    assert!(ran.stderr.contains("telegram/bot-42 is held by holder for another "), "{ran:?}");
    let done = rewind(&["1", "--force", "--json"]).json();
    assert_eq!((&done["before"], &done["version"]), (&2.into(), &3.into()));
    assert_eq!(newest(), CURSORS[0]);
    assert_eq!(rewind(&["x"]).code, Some(2));
}

#[test]
fn a_move_is_tried_run_and_run_again() {
    let tenure = Tenure::new();
    let (from, to) = (tenure.sqlite("from.db"), tenure.sqlite("to.db"));
    prepare(&from, &[("bot-1", &CURSORS), ("bot-2", &CURSORS)]);
    let run =
        |words: &[&str]| tenure.run(&[&["checkpoint", "move", &from, &to][..], words].concat());
    run(&["--dry-run"]).refused("ST015");
    let ran = run(&[]);
    assert_eq!(ran.stdout, format!("2 of 2 moved from {from} to {to}\n"));
    let progress = "1 of 2: telegram/bot-1: moved\n2 of 2: telegram/bot-2: moved\n";
    assert!(ran.stderr.ends_with(progress), "{ran:?}");
    let get = |url: &str| tenure.run(&["checkpoint", "get", "telegram/bot-1", "--store", url]);
    assert_eq!(get(&to).ok(), CURSORS[1]);
    let ran = get(&from);
    ran.refused("ST026");
    assert!(ran.stderr.contains(&format!("was moved to {to}")), "{ran:?}");
    let again = run(&["--json"]).json();
    assert_eq!(again["moves"][0]["outcome"], "already moved");
    // Repeating the move added no version to the new store.
    let ring = tenure.run(&["checkpoint", "history", "telegram/bot-1", "--store", &to, "--json"]);
    assert_eq!(ring.json()["checkpoints"].as_array().unwrap().len(), 1);

    // A held duty is refused; the others are moved.
    let back = tenure.sqlite("back.db");
    with_store(&to, async |store| {
        let session = join(&*store, "telegram", "holder", "").await;
        claim(&*store, &session, "bot-1").await;
    });
    let ran = tenure.run(&["checkpoint", "move", &to, &back, "telegram", "--json"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("ST025"), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["moves"][0]["error"]["code"], "ST025");
    assert_eq!(report["moves"][1]["outcome"], "moved");
    assert!(ran.stderr.contains("see above for the others"), "{ran:?}");
    tenure.run(&["checkpoint", "move", &to, &back, "telegram/bot-1", "--force"]).ok();
}

#[test]
fn shards_become_one_cursor_by_their_least() {
    let tenure = Tenure::new();
    let (from, to) = (tenure.sqlite("from.db"), tenure.sqlite("to.db"));
    let cursor = |n: u64| format!("{{\"last_update_id\": {n}}}");
    let (a, b, c) = (cursor(1200), cursor(999), cursor(1000));
    prepare(&from, &[("0", &[&a]), ("1", &[&b]), ("2", &[&c])]);
    let run =
        |words: &[&str]| tenure.run(&[&["checkpoint", "move", &from, &to][..], words].concat());
    let ran = run(&["--as", "telegram/all"]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(run(&["--merge"]).code, Some(2));
    let ran = run(&["telegram", "--merge", "--as", "telegram/all"]);
    assert_eq!(ran.stdout, format!("1 of 1 moved from {from} to {to}\n"));
    let get = |id: &str, url: &str| tenure.run(&["checkpoint", "get", id, "--store", url]);
    assert_eq!(get("telegram/all", &to).ok(), b);
    for id in ["telegram/0", "telegram/1", "telegram/2"] {
        get(id, &from).refused("ST026");
    }
}

#[test]
fn a_move_with_nonsense_changes_nothing() {
    let tenure = Tenure::new();
    let from = tenure.sqlite("from.db");
    prepare(&from, &[("bot-1", &CURSORS)]);
    let run = |words: &[&str]| tenure.run(&[&["checkpoint", "move"][..], words].concat());
    assert_eq!(run(&[]).code, Some(2));
    assert_eq!(run(&[&from]).code, Some(2));
    assert_eq!(run(&[&from, &from]).code, Some(2));
    let to = tenure.sqlite("to.db");
    assert_eq!(run(&[&from, &to, "--schema", "no"]).code, Some(2));
    run(&[&from, "mysql://me:s3cret@h/db"]).refused("ST001");
    run(&["sqlite:no.db", &to]).refused("ST015");
    let ran = run(&[&from, "postgres://me:s3cret@127.0.0.1:1/db"]);
    ran.refused("ST002");
    ran.hides("s3cret");
    assert_eq!(run(&[&from, &to, "telegram/none/x%"]).code, Some(2));
    // A misspelt name is an error.
    run(&[&from, &to, "telegram/none"]).refused("DT010");
    run(&[&from, &to, "telegramm"]).refused("DT010");
    let empty = tenure.sqlite("empty.db");
    tenure.run(&["migrate", "--store", &empty]).ok();
    run(&[&empty, &to, "--merge", "--as", "g/x"]).refused("DT010");
    assert!(!tenure.path("to.db").exists());
    let ran = run(&[&from, &to, "--require", "exclusive-effects"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("ST027") && ran.stderr.contains("an empty store was created"));
    let get = tenure.run(&["checkpoint", "get", "telegram/bot-1", "--store", &from]);
    assert_eq!(get.ok(), CURSORS[1]);
}

/// Moves a cursor from a file through every kind of store into another file.
#[test]
fn a_cursor_goes_through_every_store_and_comes_back_as_it_was() {
    let servers = [TEST_POSTGRES, TEST_REDIS, TEST_ETCD].map(service);
    let [Some(postgres), Some(redis), Some(etcd)] = servers else { return };
    let (tenure, name) = (Tenure::new(), format!("trip_{}", Uuid::new_v4().simple()));
    let cursors = [
        "{\"last_update_id\": 12345, \"last_updated_at\": \"2026-02-15T10:00:00Z\"}\n",
        "{\n  \"history_id\": \"987\",\n  \"x\": [1.50, \"\\u00e9\"]\n}",
    ];
    for (n, cursor) in cursors.iter().enumerate() {
        let (first, last) =
            (tenure.path(&format!("{n}.json")), tenure.path(&format!("{n}-b.json")));
        std::fs::write(&first, cursor).unwrap();
        let duty = format!("telegram/bot-{n}");
        let trip = [
            format!("file:{}#{duty}", first.display()),
            format!("{postgres}?schema={name}"),
            format!("{redis}?prefix={name}:"),
            format!("{etcd}?prefix={name}/"),
            tenure.sqlite("trip.db"),
            format!("file:{}#{duty}", last.display()),
        ];
        for step in trip.windows(2) {
            let words = ["checkpoint", "move", &step[0], &step[1], &duty];
            let ran = signed(&mut tenure.command(&words), "write");
            assert_eq!(ran.code, Some(0), "{ran:?}");
        }
        let get = ["checkpoint", "get", &duty, "--store", &trip[5]];
        let ran = signed(&mut tenure.command(&get), "require");
        assert_eq!(&ran.stdout, cursor, "{ran:?}");
        // A program that reads the file without Tenure finds the same members.
        let plain: Value = serde_json::from_slice(&std::fs::read(&last).unwrap()).unwrap();
        let before: Value = serde_json::from_str(cursor).unwrap();
        for (key, value) in before.as_object().unwrap() {
            assert_eq!(&plain[key], value);
        }
        // The cursor is valid in no other store.
        for left in &trip[..5] {
            tenure.run(&["checkpoint", "get", &duty, "--store", left]).refused("ST026");
        }
    }
}
