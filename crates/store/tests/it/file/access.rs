//! Permissions of a store's files, and the names under which it may be opened.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use tenure_core::Code;
use tenure_store::file::{FileSettings, FileStore};

use super::{look, open, refused, settings, try_open};
use crate::player::{LONG, Player, duty};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

/// Writes every kind of file.
async fn live(folder: &Path) {
    let store = open(folder).await;
    let player = Player::join(&store, "a", LONG).await;
    let ids: Vec<String> = (0..100).map(|n| format!("d{n}")).collect();
    player.hold_all(&ids).await;
    for id in ["main", "p"] {
        let hold = player.hold(id).await;
        let stored = store.load(&[duty(id)]).await.unwrap().remove(0);
        let version = stored.map_or(0, |stored| stored.version.get());
        for n in 0..2 {
            player.commit(&hold, version + n, "{\"secret\": true}").await;
        }
    }
}

/// Returns all files and folders in a folder, recursively.
fn below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => paths.extend(below(&path)),
            false => paths.push(path),
        }
    }
    paths
}

#[track_caller]
fn is_private(folder: &Path) {
    let paths = below(&folder.join("cursor.json.tenure"));
    for name in ["lock", "store.json", "group-g.json", "audit-g.jsonl", "2.json"] {
        assert!(paths.iter().any(|path| path.ends_with(name)), "{name} is not in {paths:?}");
    }
    for path in paths {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_keeps_who_may_read_it() {
    for kept in [0o600, 0o640, 0o664] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cursor.json");
        fs::write(&path, "{\"last_update_id\": 5}").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(kept)).unwrap();
        // A file left by a crash does not determine the permissions.
        let left = folder.path().join("cursor.json.tenure-tmp");
        fs::write(&left, "{").unwrap();
        fs::set_permissions(&left, Permissions::from_mode(0o666)).unwrap();
        live(folder.path()).await;
        assert_eq!(mode(&path), kept);
        assert_eq!(mode(&folder.path().join("cursor.json.partition-p")), kept);
        is_private(folder.path());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_store_is_private_and_its_cursor_as_files_are() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    fs::write(&other, "").unwrap();
    live(folder.path()).await;
    assert_eq!(mode(&folder.path().join("cursor.json")), mode(&other));
    is_private(folder.path());
}

/// Requires the right to change the owner of a file; skipped without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_keeps_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cursor.json");
    fs::write(&path, "{\"last_update_id\": 5}").unwrap();
    if chown(&path, Some(4711), Some(4712)).is_err() {
        return;
    }
    live(folder.path()).await;
    let mut paths = below(&folder.path().join("cursor.json.tenure"));
    paths.extend([path, folder.path().join("cursor.json.partition-p")]);
    for path in paths {
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), (4711, 4712), "{}", path.display());
    }
}

/// Each name would have a separate lock, and both would grant.
#[tokio::test(flavor = "multi_thread")]
async fn a_hard_link_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    for name in ["cursor.json", "cursor.json.partition-p"] {
        fs::write(one.join(name), "{}").unwrap();
        fs::hard_link(one.join(name), two.join(name)).unwrap();
        for folder in [&one, &two] {
            let error = try_open(folder).await.unwrap_err();
            refused(&error, Code::BadUrl);
            assert!(error.to_string().contains("hard links"), "{error}");
            // Reading is harmless; changes are refused.
            let looking = look(folder).await.unwrap();
            let wish = crate::player::wish("a", LONG);
            refused(&looking.open_session(&wish).await.unwrap_err(), Code::BadUrl);
        }
        fs::remove_file(two.join(name)).unwrap();
    }
    open(&one).await;
}

/// The cursor of another duty is protected by the lock of its store.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_no_store_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cursor.json.partition-p");
    fs::write(&path, "{}").unwrap();
    drop(open(folder.path()).await);
    let before = super::names(folder.path());
    for name in [
        "cursor.json.partition-p",
        "cursor.json.partition-q",
        "cursor.json.partition-a.partition-b",
    ] {
        let settings = FileSettings { path: folder.path().join(name), ..settings(folder.path()) };
        let error = FileStore::open(settings).await.unwrap_err();
        refused(&error, Code::BadUrl);
        assert!(error.to_string().contains("cursor.json.tenure"), "{error}");
    }
    assert_eq!(super::names(folder.path()), before);
    // Without such a store the name has no special meaning.
    let alone = tempfile::tempdir().unwrap();
    let path = alone.path().join("cursor.json.partition-p");
    FileStore::open(FileSettings { path, ..settings(alone.path()) }).await.unwrap();
}
