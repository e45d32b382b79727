//! Misplaced passwords and keys: errors do not repeat them.

use crate::tenure::{Ran, Tenure};

const KEY: &str = "5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7";

#[test]
fn a_url_in_the_place_of_a_name_is_bad_usage() {
    let tenure = Tenure::new();
    let (from, to) = (tenure.sqlite("from.db"), tenure.sqlite("to.db"));
    tenure.run(&["migrate", "--store", &from]).ok();
    let url = "postgres://me:s3cret@h/db";
    let commands: [&[&str]; 10] = [
        &["errors"],
        &["ls"],
        &["forget"],
        &["forget", "a/b"],
        &["checkpoint", "get"],
        &["checkpoint", "get", "--schema", "shards"],
        &["checkpoint", "history"],
        &["checkpoint", "verify"],
        &["checkpoint", "rewind", "--to", "1"],
        &["checkpoint", "move", &from, &to],
    ];
    for command in commands {
        for secret in [url, "me:s3cret@h", "postgres:me:s3cret@h/db", "g/redis://:s3cret@h/0"] {
            let command = [command, &[secret, "--store", &from]].concat();
            for json in [&[][..], &["--json"]] {
                let ran = tenure.run(&[&command, json].concat());
                assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{command:?}: {ran:?}");
                assert!(ran.stderr.contains("(not shown)"), "{ran:?}");
                ran.hides("s3cret");
            }
        }
    }
    let ran = tenure.run(&["checkpoint", "move", &from, &to, "g/d", "--as", url]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    ran.hides("s3cret");
    assert!(!tenure.path("to.db").exists());
    // A duty's name may be an address.
    tenure.run(&["forget", "mail/gmail:user:a@b", "--store", &from]).ok();
    tenure.run(&["ls", "a:b%40c", "--store", &from]).ok();
}

#[test]
fn keys_in_the_wrong_variable_are_not_shown() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("t.db");
    tenure.run(&["migrate", "--store", &url]).ok();
    let line = format!("k sign {KEY}");
    for (variable, value, code) in [
        ("TENURE_SIGNING_KEYS_FILE", line.as_str(), 2),
        ("TENURE_SIGNING_KEYS_FILE", KEY, 2),
        ("TENURE_SIGNING_KEYS_FILE", "k sign 5ec7e7", 2),
        ("TENURE_SIGNING", &line, 2),
        ("TENURE_SIGNING", KEY, 2),
        ("TENURE_SIGNING", "5ec7e7", 2),
    ] {
        let mut command = tenure.command(&["checkpoint", "verify", "--store", &url]);
        let ran = Ran::of(command.env(variable, value).output().unwrap());
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains("(not shown)"), "{ran:?}");
        ran.hides("5ec7e7");
        if code == 1 {
            ran.refused("ST024");
        }
    }
    // A misspelt path is shown.
    let words = ["checkpoint", "verify", "--store", &url, "--signing-keys-file", "no-such.keys"];
    assert!(tenure.run(&words).stderr.contains("no-such.keys"));
}

/// Without usable signing keys, commands that sign fail before anything starts.
#[test]
fn no_member_starts_without_the_keys_that_it_was_told_to_use() {
    let tenure = Tenure::new();
    std::fs::write(tenure.path("config.json"), "{\"bucket_total\": 2}").unwrap();
    std::fs::write(tenure.path("bad.keys"), "k sign 5ec7e7").unwrap();
    let bucket = ["bucket", "next", "--config", "config.json", "--state", "s", "--duty", "g/d"];
    let touch = ["--", "touch", "ran"];
    let commands: [(&[&str], &[&str]); 4] = [
        (&["run", "--duty", "g/d"], &touch),
        (&["poll", "--targets", "list:a"], &touch),
        (&bucket, &touch),
        (&bucket, &[]),
    ];
    for (command, around) in commands {
        for (keys, says) in [("no-such.keys", "cannot read no-such.keys"), ("bad.keys", "32 bytes")]
        {
            let words = [command, &["--signing", "require", "--signing-keys-file", keys], around];
            let ran = tenure.run(&words.concat());
            assert_eq!(ran.code, Some(2), "{words:?}: {ran:?}");
            assert!(ran.stderr.starts_with("ST024: ") && ran.stderr.contains(says), "{ran:?}");
            ran.hides("5ec7e7");
        }
        let words = [command, &["--signing", "write"], around].concat();
        assert!(tenure.run(&words).stderr.starts_with("ST024: "), "{words:?}");
    }
    assert!(!tenure.path("ran").exists() && !tenure.path("tenure.db").exists());
}
