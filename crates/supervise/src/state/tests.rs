#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::path::Path;

use super::*;

#[test]
fn a_file_is_named_after_its_duty() {
    let file = |pattern: &str, duty: &str| {
        let settings = StateSettings { path: pattern.into(), import: false };
        settings.path_of(&DutyId::new(duty).unwrap())
    };
    assert_eq!(file("cursor.json", "a"), Path::new("cursor.json"));
    assert_eq!(file("cursor-{}.json", "a:b"), Path::new("cursor-a:b.json"));
    // An id cannot lead to another folder.
    assert_eq!(file("state/{}", "../x y"), Path::new("state/..%2Fx%20y"));
    assert_eq!(file("state/{}", ".."), Path::new("state/%2E%2E"));
    assert_eq!(file("state/{}", "."), Path::new("state/%2E"));
}

#[test]
fn one_file_is_told_from_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a"), "").unwrap();
    std::os::unix::fs::symlink("a", path("link")).unwrap();
    assert!(is_same_file(&path("a"), &path("../").join(path("link"))));
    assert!(is_same_file(&path("new"), &path("./new")));
    assert!(!is_same_file(&path("a"), &path("b")));
}
