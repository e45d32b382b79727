//! Lists in files.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::{MOST, list, listed, refused, too_many};

fn url(folder: &TempDir, name: &str) -> String {
    format!("file:{}", folder.path().join(name).display())
}

fn write(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    fs::write(folder.path().join(name), content).unwrap();
    url(folder, name)
}

#[tokio::test]
async fn each_form_is_read() {
    let folder = TempDir::new().unwrap();
    for (name, content, expected) in [
        ("t", "b\n# no target\n\n  a \r\nc d", &["a", "b", "c d"][..]),
        ("t", "# nothing\n", &[]),
        ("t", "[]", &[]),
        ("t", "\n [\"a\", {\"id\": \"b\", \"zone\": \"eu\", \"paused\": true}]", &["a", "b@eu!"]),
        ("t.json", "{\"targets\": [\"a\"]}", &["a"]),
    ] {
        let url = write(&folder, name, content);
        assert_eq!(listed(&url).await, expected, "{content}");
    }
    let again = list(&write(&folder, "t", "a\nb\na\n")).await.unwrap();
    assert_eq!((again.targets().len(), again.repeated()), (2, 1));
}

#[tokio::test]
async fn what_cannot_be_read_completely_is_an_error() {
    let folder = TempDir::new().unwrap();
    refused(&url(&folder, "absent"), "No such file").await;
    refused(&format!("file:{}", folder.path().display()), "is not a file").await;
    refused(&write(&folder, "t", ""), "is empty").await;
    refused(&write(&folder, "t.json", ""), "is empty").await;
    refused(&write(&folder, "t.json", "[\"a\", \"b"), "EOF").await;
    refused(&write(&folder, "t.json", "a\nb\n"), "JSON").await;
    refused(&write(&folder, "t", b"a\n\xff\n"), "line 2 is not UTF-8").await;
    refused(&write(&folder, "t", "a\n\nb\0c\n"), "line 3: entry 2: a duty id contains").await;
    refused(&write(&folder, "t", format!("{}\n", "x".repeat(513))), "513 bytes").await;
    refused(&write(&folder, "t", "x".repeat(5000)), "line 1 is longer").await;
    // Opening a pipe without a writer would block.
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refused(&url(&folder, "pipe"), "is not a file").await;
}

#[tokio::test]
async fn a_million_lines_are_refused() {
    let folder = TempDir::new().unwrap();
    let numbers = || (0..1_000_000).map(|n| n.to_string());
    let lines: Vec<String> = numbers().collect();
    too_many(&write(&folder, "t", lines.join("\n")), MOST).await;
    too_many(&write(&folder, "t.json", format!("[{}]", lines.join(","))), MOST).await;
    // A list of exactly the maximum length is accepted.
    let url = write(&folder, "t", lines[..MOST].join("\n"));
    assert_eq!(list(&url).await.unwrap().targets().len(), MOST);
}

/// Each listing reads the file's current content.
#[tokio::test]
async fn each_listing_reads_the_file_that_is_there_now() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t");
    let targets = tenure_targets::FileTargets::new(&path);
    for name in ["a", "b"] {
        replace(&path, name);
        let listing = tenure_core::Targets::list(&targets, 1).await.unwrap();
        assert_eq!(crate::short(&listing), [name]);
    }
}

fn replace(path: &Path, content: &str) {
    let next = path.with_extension("next");
    fs::write(&next, content).unwrap();
    fs::rename(next, path).unwrap();
}
