//! Instances that sign with their own keys, and a store into which somebody writes.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::Signal;
use tenure_core::Reason;

use crate::api::{held, shared_stores};
use crate::checkpoint::write;
use crate::tenure::{Tenure, claim, join, release, with_store};

/// Creates keys for two hosts that trust each other, and for a stranger.
fn keys(tenure: &Tenure) {
    let mut trusted = String::new();
    for name in ["one", "two", "stranger"] {
        let line = tenure.run(&["identity", "new", &format!("{name}.pem"), "--name", name]).ok();
        assert!(line.starts_with(&format!("{name} ")), "{line}");
        if name != "stranger" {
            trusted += &line;
        }
    }
    std::fs::write(tenure.path("trusted"), trusted).unwrap();
}

/// Options of a process with this key.
fn options(key: &str) -> [&str; 4] {
    ["--identity-key", key, "--trusted-identities", "trusted"]
}

/// Takes the duty without a key, and writes a checkpoint.
fn attack(store: &str) {
    with_store(store, async |bare| {
        let session = join(&*bare, "g", "attacker", "").await;
        let hold = claim(&*bare, &session, "d").await;
        write(&*bare, &session, &hold, &["9000"]).await;
        release(&*bare, &session, hold).await;
        bare.close_session(&session, &Reason::new("done").unwrap()).await.unwrap();
    });
}

#[test]
fn nothing_continues_from_what_somebody_wrote_into_the_store() {
    for store in shared_stores(&Tenure::new()) {
        let tenure = Tenure::new();
        keys(&tenure);
        let store = match store.starts_with("sqlite:") {
            true => tenure.sqlite("tenure.db"),
            false => store,
        };
        let run = |words: &[&str]| tenure.run(&[words, &["--store", &store]].concat());
        let (running, api) = held(&tenure, "a", &store, &options("one.pem"));
        assert_eq!(api.put(&[], "1").result(), (200, "stored".to_owned()));
        // The id of the holder ends in the first digits of its key.
        let public = tenure.run(&["identity", "show", "one.pem", "--name", "x", "--json"]).json();
        let public = public["key"].as_str().unwrap().to_owned();
        let listed = run(&["ls", "--json", "--trusted-identities", "trusted"]).json();
        let holder = listed["groups"][0]["duties"][0]["holder"].as_str().unwrap();
        assert!(holder.ends_with(&format!("-{}", &public[..8])), "{holder}: {public}");
        assert_eq!(listed["groups"][0]["members"][0]["identity"], "one");
        let note = listed["groups"][0]["members"][0]["note"].as_str().unwrap();
        assert!(note.starts_with("tenure=1") && !note.contains("identity"), "{note}");
        // Somebody with access to the store, and without a key, joins and takes the duty.
        with_store(&store, async |bare| {
            join(&*bare, "g", "forged-1-00000000", "tenure=1\nweight=1\nroom=0").await;
        });
        tenure.said(&running, "untrusted_member");
        let table = run(&["ls", "--trusted-identities", "trusted"]).ok();
        assert!(table.contains(" untrusted: its session has no signature"), "{table}");
        let report = run(&["doctor", "--json", "--trusted-identities", "trusted"]).json();
        assert_eq!(report["untrusted_members"][0]["instance"], "forged-1-00000000");
        assert_eq!(report["untrusted_members"].as_array().unwrap().len(), 1, "{report}");
        let text = run(&["doctor", "--trusted-identities", "trusted"]).ok();
        assert!(text.contains("UNTRUSTED_MEMBER"), "{text}");
        running.signal(Signal::TERM);
        running.exits(128 + 15);
        attack(&store);
        // The other host neither continues from it nor replaces it.
        let two = options("two.pem");
        let start = ["run", "--store", &store, "--duty", "g/d", "--ttl", "6s"];
        let work = ["--state", "state.json", "--", "touch", "ran"];
        let ran = tenure.run(&[&start[..], &two, &work].concat());
        assert!(ran.code == Some(125) && ran.stderr.contains("ST033"), "{store}: {ran:?}");
        assert!(!tenure.path("ran").exists());
        let with_two = |words: &[&str]| run(&[words, &two].concat());
        let ran = with_two(&["checkpoint", "get", "g/d"]);
        assert!(
            ran.stderr.contains("version 2 of g/d by attacker: it has no signature"),
            "{ran:?}"
        );
        ran.refused("ST033");
        std::fs::write(tenure.path("file"), "3").unwrap();
        with_two(&["checkpoint", "put", "g/d", "file"]).refused("ST033");
        let ran = with_two(&["checkpoint", "verify"]);
        assert!(ran.code == Some(1) && ran.stderr.contains("ST033"), "{ran:?}");
        // A key that is not trusted does not help; without the list, everything is read.
        let signed = ["checkpoint", "put", "g/d", "file", "--identity-key", "stranger.pem"];
        run(&signed).ok();
        with_two(&["checkpoint", "get", "g/d"]).refused("ST033");
        assert_eq!(run(&["checkpoint", "get", "g/d"]).ok(), "3");
        with_two(&["checkpoint", "rewind", "g/d", "--to", "2"]).refused_with("ST011", 2);
        with_two(&["checkpoint", "rewind", "g/d", "--to", "1"]).ok();
        assert_eq!(with_two(&["checkpoint", "get", "g/d"]).ok(), "1");
        // The first host continues from what the other one wrote.
        let one = [&["checkpoint", "get", "g/d"][..], &options("one.pem")].concat();
        assert_eq!(run(&one).ok(), "1");
    }
}

/// Only one process at a time can open a cursor file, and it only once.
#[test]
fn a_cursor_file_has_its_writer() {
    let tenure = Tenure::new();
    keys(&tenure);
    let store = ["--store", "file:place.json#g/d"];
    let run = ["run", "--duty", "g/d", "--state", "state.json"];
    let script = ["--", "sh", "-c", "echo '{}' > new; mv new state.json"];
    tenure.run(&[&run[..], &options("one.pem"), &store, &script].concat()).ok();
    assert!(tenure.text("place.json").contains("\"by\":"));
    let get = ["checkpoint", "get", "g/d"];
    assert_eq!(tenure.run(&[&get[..], &options("two.pem"), &store].concat()).ok(), "{}\n");
    for command in ["doctor", "ls"] {
        let words = [command, "--trusted-identities", "trusted"];
        tenure.run(&[&words[..], &store].concat()).ok();
    }
}

#[test]
fn nothing_starts_with_an_identity_that_cannot_be_used() {
    let tenure = Tenure::new();
    keys(&tenure);
    std::fs::write(tenure.path("bad.pem"), "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n").unwrap();
    std::fs::write(tenure.path("bad.list"), "one\n").unwrap();
    let private = |name| {
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(tenure.path(name), mode).unwrap();
    };
    private("bad.pem");
    std::fs::copy(tenure.path("one.pem"), tenure.path("open.pem")).unwrap();
    let open = std::fs::Permissions::from_mode(0o604);
    std::fs::set_permissions(tenure.path("open.pem"), open).unwrap();
    for (given, says) in [
        (["--identity-key", "bad.pem"], "is not an Ed25519 private key"),
        (["--identity-key", "open.pem"], "every user has access to open.pem"),
        (["--identity-key", "no.pem"], "cannot read no.pem"),
        (["--trusted-identities", "bad.list"], "trusted identity 1: expected `NAME KEY`"),
        (["--trusted-identities", "no.list"], "cannot read no.list"),
    ] {
        for command in [&["run", "--duty", "g/d"][..], &["poll", "--targets", "list:a"]] {
            let ran = tenure.run(&[command, &given, &["--", "touch", "ran"]].concat());
            assert!(ran.code == Some(2) && ran.stderr.starts_with("ST024: "), "{ran:?}");
            assert!(ran.stderr.contains(says), "{ran:?}");
            ran.hides("c2VjcmV0");
        }
    }
    // Its own checkpoints would be refused.
    let ran = tenure
        .run(&[&["run", "--duty", "g/d"][..], &options("stranger.pem"), &["--", "true"]].concat());
    assert!(ran.code == Some(2) && ran.stderr.contains("is not among the trusted ones"), "{ran:?}");
    assert!(!tenure.path("ran").exists() && !tenure.path("tenure.db").exists());
    let mode = std::fs::metadata(tenure.path("one.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn keys_are_created_and_shown_with_care() {
    let tenure = Tenure::new();
    keys(&tenure);
    // An existing key is not replaced, and a bad name writes none.
    let before = tenure.text("one.pem");
    let ran = tenure.run(&["identity", "new", "one.pem"]);
    assert!(ran.stderr.contains("one.pem exists, and is kept"), "{ran:?}");
    assert!(ran.stderr.contains("hint: name another file;"), "{ran:?}");
    ran.refused("ST024");
    assert_eq!(tenure.text("one.pem"), before);
    for name in ["a b", "#x", ""] {
        let ran = tenure.run(&["identity", "new", "new.pem", "--name", name]);
        assert!(
            ran.code == Some(2) && ran.stderr.contains("--name takes 1 to 64 characters"),
            "{ran:?}"
        );
    }
    // The mode matters only for a file with a key.
    for given in [
        &["identity", "show", "trusted"][..],
        &["checkpoint", "get", "g/d", "--identity-key", "trusted"],
    ] {
        let ran = tenure.run(given);
        assert!(ran.code == Some(2) && !ran.stderr.contains("chmod"), "{ran:?}");
    }
    let open = std::fs::Permissions::from_mode(0o604);
    std::fs::set_permissions(tenure.path("one.pem"), open).unwrap();
    let ran = tenure.run(&["identity", "show", "one.pem"]);
    assert!(ran.stderr.contains("run chmod o= one.pem"), "{ran:?}");
    assert!(!tenure.path("new.pem").exists());
}

/// Its own checkpoints would be refused; it may still read.
#[test]
fn an_instance_with_a_list_needs_a_key_to_write() {
    let tenure = Tenure::new();
    keys(&tenure);
    let list = ["--trusted-identities", "trusted"];
    let key = ["--identity-key", "one.pem"];
    std::fs::write(tenure.path("file"), "1").unwrap();
    tenure.run(&["migrate"]).ok();
    tenure.run(&[&["checkpoint", "put", "g/d", "file"][..], &key].concat()).ok();
    for command in [
        &["checkpoint", "put", "g/d", "file"][..],
        &["checkpoint", "rewind", "g/d", "--to", "1"],
        &["checkpoint", "move", "sqlite:tenure.db", "sqlite:other.db"],
        &["run", "--duty", "g/d", "--", "touch", "ran"],
        &["poll", "--targets", "list:a", "--", "touch", "ran"],
    ] {
        let (words, rest) = command.split_at(1);
        let ran = tenure.run(&[words, &list, rest].concat());
        assert!(ran.stderr.contains("needs a key of its own"), "{command:?}: {ran:?}");
        assert!(ran.stderr.contains("ST024"), "{ran:?}");
    }
    assert!(!tenure.path("ran").exists());
    for command in ["get", "history", "verify"] {
        tenure.run(&[&["checkpoint", command, "g/d"][..], &list].concat()).ok();
    }
    assert_eq!(tenure.run(&["ls", "--json"]).json()["groups"][0]["duties"][0]["epoch"], 1);
}

#[test]
fn keys_of_openssl_are_used_as_they_are() {
    let tenure = Tenure::new();
    let openssl = |words: &[&str]| {
        let mut command: Command = tenure.command_of("openssl", words);
        command.output().unwrap().stdout
    };
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", "key.pem"]);
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(tenure.path("key.pem"), mode).unwrap();
    tenure.run(&["identity", "new", "ours.pem"]).ok();
    for file in ["key.pem", "ours.pem"] {
        let public = openssl(&["pkey", "-in", file, "-pubout", "-outform", "DER"]);
        let public: String = public[12..].iter().map(|byte| format!("{byte:02x}")).collect();
        let line = tenure.run(&["identity", "show", file, "--name", "host"]).ok();
        assert_eq!(line, format!("host {public}\n"));
    }
}
