//! Encrypted checkpoints, from the option to the bytes of the store.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::Signal;

use crate::api::{held, stores};
use crate::tenure::{Ran, Tenure};

/// First bytes of each key.
const SECRETS: [&str; 2] = ["5ec7e75ec7e7", "0ddba110ddba"];

/// The text that must not be in the store.
const SECRET: &str = "account-4711";

/// Writes a file with keys: HEX and OTHER stand for secrets.
fn write_keys(tenure: &Tenure, name: &str, text: &str) {
    let text = text.replace("HEX", &"5ec7e7".repeat(11)[..64]);
    let text = text.replace("OTHER", &"0ddba1".repeat(11)[..64]);
    std::fs::write(tenure.path(name), text).unwrap();
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(tenure.path(name), private).unwrap();
}

/// Runs a command with these keys; with none for an empty name.
fn with(tenure: &Tenure, keys: &str, words: &[&str]) -> Ran {
    let mut command = tenure.command(words);
    if !keys.is_empty() {
        command.env("TENURE_ENCRYPTION_KEYS_FILE", keys);
    }
    let ran = Ran::of(command.output().unwrap());
    SECRETS.into_iter().for_each(|secret| ran.hides(secret));
    ran
}

/// Returns the names of the files below a folder that contain the secret text.
fn files_with_secret(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(files_with_secret(&path));
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            if bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()) {
                found.push(entry.file_name().into_string().unwrap());
            }
        }
    }
    found.sort();
    found
}

/// State file, local API and operators on every store; without the key nothing is read or changed.
#[test]
fn a_checkpoint_is_encrypted_on_every_store() {
    for store in stores(&Tenure::new()) {
        let (tenure, file) = (Tenure::new(), store.starts_with("file:"));
        let store = match store.split_once(':') {
            Some(("file", _)) => format!("file:{}#g/d", tenure.path("place.json").display()),
            Some(("sqlite", _)) => tenure.sqlite("place.db"),
            _ => store,
        };
        write_keys(&tenure, "keys", "e1 encrypt HEX");
        let state = ["run", "--store", &store, "--duty", "g/d", "--state", "state.json"];
        let script = format!("echo '{{\"id\": \"{SECRET}\"}}' > new; mv new state.json");
        let state = [&state[..], &["--ttl", "3s", "--", "sh", "-c", &script]].concat();
        with(&tenure, "keys", &state).ok();
        let text = format!("{{\"id\": \"{SECRET}\"}}\n");
        let run = |keys: &str, command: &[&str], more: &[&str]| {
            let on = ["g/d", "--store", &store];
            with(&tenure, keys, &[&["checkpoint"], command, &on[..], more].concat())
        };
        assert_eq!(run("keys", &["get"], &[]).ok(), text, "{store}");
        let ran = run("", &["get"], &[]);
        assert!(ran.stderr.contains("version 1 of g/d, encrypted with key e1: no enc"), "{ran:?}");
        ran.refused("ST032");
        run("", &["put"], &["state.json"]).refused("ST032");
        run("", &["rewind", "--to", "1"], &[]).refused("ST032");
        // A program is not started, and the file is left as it is.
        std::fs::write(tenure.path("state.json"), "mine").unwrap();
        let ran = with(&tenure, "", &state);
        assert!(ran.code == Some(125) && ran.stderr.contains("ST032"), "{store}: {ran:?}");
        assert_eq!(tenure.text("state.json"), "mine");
        // The local API sees the document, and stores the next one.
        let option = ["--encryption-keys-file", "keys"];
        let (running, api) = held(&tenure, "a", &store, &option);
        assert_eq!(api.get("/checkpoint").body, text.as_bytes());
        assert_eq!(api.put(&[], &text).result(), (200, "stored".to_owned()));
        running.signal(Signal::TERM);
        running.exits(128 + 15);
        // The history is listed without the key, and its documents are shown with it.
        let history = run("keys", &["history"], &["--json"]).json();
        assert_eq!(history["checkpoints"][1]["document"]["id"], SECRET);
        assert_eq!(history["checkpoints"][1]["encrypted_with"], "e1");
        let history = run("", &["history"], &["--json"]).json();
        assert_eq!(history["checkpoints"][0]["document"], serde_json::Value::Null);
        assert!(run("", &["history"], &[]).ok().contains("not signed, encrypted (e1)"));
        run("keys", &["rewind", "--to", "1"], &[]).ok();
        run("keys", &["put"], &["state.json"]).ok();
        assert_eq!(run("keys", &["get"], &[]).ok(), "mine");
        run("keys", &["verify"], &[]).ok();
        // No version is in the clear, in the place of the newest, in the history or beside them.
        assert_eq!(files_with_secret(tenure.path("").as_path()), [""; 0], "{store}");
        if file {
            let place = std::fs::read(tenure.path("place.json")).unwrap();
            let place: serde_json::Value = serde_json::from_slice(&place).unwrap();
            assert_eq!(place["_tenure"]["enc"], "e1");
        }
    }
}

#[test]
fn keys_are_rotated_and_moves_keep_documents_secret() {
    let tenure = Tenure::new();
    let (here, there) = (tenure.sqlite("here.db"), tenure.sqlite("there.db"));
    write_keys(&tenure, "old", "e1 encrypt OTHER");
    write_keys(&tenure, "both", "# the new key\ne2 encrypt HEX\n\ne1 decrypt OTHER\n");
    write_keys(&tenure, "new", "e2 encrypt HEX");
    for document in ["plain", "cursor"] {
        std::fs::write(tenure.path(document), SECRET).unwrap();
    }
    let checkpoint = |keys: &str, words: &[&str]| {
        with(&tenure, keys, &[&["checkpoint"], words, &["--store", &here]].concat())
    };
    tenure.run(&["migrate", "--store", &here]).ok();
    // A document from before is read, and encrypted when it is written again.
    checkpoint("", &["put", "g/a", "plain"]).ok();
    let files = files_with_secret(tenure.path("").as_path());
    assert!(files.iter().any(|name| name.starts_with("here.db")), "{files:?}");
    assert_eq!(checkpoint("old", &["get", "g/a"]).ok(), SECRET);
    checkpoint("old", &["put", "g/b", "cursor"]).ok();
    checkpoint("both", &["put", "g/c", "cursor"]).ok();
    let ran = checkpoint("both", &["verify"]);
    for line in ["key (none): 1", "key e1: 1", "key e2: 1"] {
        let line = format!("newest checkpoints by encryption {line}\n");
        assert!(ran.stderr.contains(&line), "{ran:?}");
    }
    ran.ok();
    let report = checkpoint("new", &["verify", "--json"]);
    assert!(report.code == Some(1) && report.stderr.contains("ST032"), "{report:?}");
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["unreadable"][0]["duty"], "g/b");
    assert_eq!(report["newest_by_encryption_key"]["e1"], 1);
    for duty in ["g/a", "g/b"] {
        checkpoint("both", &["rewind", duty, "--to", "1"]).ok();
        assert_eq!(checkpoint("new", &["get", duty]).ok(), SECRET);
    }
    // A duty that cannot be read does not stop the others, and stays where it is.
    checkpoint("", &["put", "g/0", "plain"]).ok();
    let move_with = |keys: &str| with(&tenure, keys, &["checkpoint", "move", &here, &there]);
    let ran = move_with("");
    assert!(ran.code == Some(1) && ran.stdout.contains("1 of 4 moved"), "{ran:?}");
    assert!(ran.stderr.contains("2 of 4: g/a: ST032: a checkpoint cannot be"), "{ran:?}");
    assert_eq!(checkpoint("new", &["get", "g/a"]).ok(), SECRET);
    assert!(move_with("new").ok().contains("4 of 4 moved"));
    let get = ["checkpoint", "get", "g/b", "--store", &there];
    assert_eq!(with(&tenure, "new", &get).ok(), SECRET);
    with(&tenure, "old", &get).refused("ST032");
    // Of all duties there, only the one that was moved without keys is in the clear.
    let report = with(&tenure, "new", &["checkpoint", "verify", "--store", &there, "--json"]);
    let counts = serde_json::json!({ "(none)": 1, "e2": 3 });
    assert_eq!(report.json()["newest_by_encryption_key"], counts);
}

#[test]
fn nothing_starts_with_keys_that_cannot_be_used() {
    let tenure = Tenure::new();
    std::fs::write(tenure.path("config.json"), "{\"bucket_total\": 2}").unwrap();
    let bucket = ["bucket", "next", "--config", "config.json", "--state", "s", "--duty", "g/d"];
    let touch = ["--", "touch", "ran"];
    let commands: [(&[&str], &[&str]); 5] = [
        (&["run", "--duty", "g/d"], &touch),
        (&["poll", "--targets", "list:a"], &touch),
        (&bucket, &touch),
        (&bucket, &[]),
        (&["checkpoint", "get", "g/d"], &[]),
    ];
    for (text, says) in [
        ("e1 encrypt OTHER\ne1 decrypt HEX", "encryption key 2: its id appears twice"),
        ("e1 encrypt OTHER\ne2 encrypt HEX", "more than one encryption key is marked encrypt"),
        ("e1 decrypt HEX", "no encryption key is marked encrypt"),
        ("e1 encrypt HEX00", "its secret is not 32 bytes long"),
        ("e1 sign HEX", "expected `ID encrypt|decrypt HEX`"),
    ] {
        write_keys(&tenure, "bad", text);
        for (command, around) in commands {
            let ran = with(&tenure, "bad", &[command, around].concat());
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(ran.stderr.starts_with("ST024: ") && ran.stderr.contains(says), "{ran:?}");
        }
    }
    write_keys(&tenure, "open", "e1 encrypt HEX");
    std::fs::set_permissions(tenure.path("open"), std::fs::Permissions::from_mode(0o644)).unwrap();
    for (file, says) in [
        ("open", "every user has access to open: run chmod o= open"),
        ("no-such.keys", "cannot read no-such.keys"),
        (".", "cannot read .: "),
        // Keys in place of the path are not shown.
        (&*format!("e1 encrypt {}", "5ec7e7".repeat(11)), "cannot read (not shown)"),
        (&*"5ec7e7".repeat(11), "cannot read (not shown)"),
    ] {
        for (command, around) in commands {
            let ran = with(&tenure, file, &[command, around].concat());
            assert!(ran.code == Some(2) && ran.stderr.contains(says), "{ran:?}");
        }
        with(&tenure, file, &["config", "run"]).ok();
    }
    assert!(!tenure.path("ran").exists() && !tenure.path("tenure.db").exists());
    // The option can be in the file, and its value is a path.
    std::fs::write(tenure.path("tenure.toml"), "[run]\nencryption-keys-file = 'open'\n").unwrap();
    let ran = tenure.run(&["run", "--duty", "g/d", "--", "true"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("every user has access"), "{ran:?}");
}
