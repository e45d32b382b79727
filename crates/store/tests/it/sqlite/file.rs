//! The database file: damaged, newer, full, read-only, locked, opened by many.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;
use tenure_core::store::Claimed;
use tenure_core::{Code, StoreError};
use tenure_store::IfAbsent;
use tenure_store::sqlite::{Sqlite, SqliteSettings};

use super::{open, try_open};
use crate::player::{LONG, Player, duty, or_hang};

fn refused(error: &StoreError, code: Code) {
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), code, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_but_sessions_survives_the_end_of_every_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let first = open(&path).await;
    let player = Player::join(&first, "a", LONG).await;
    let hold = player.hold("d").await;
    player.commit(&hold, 0, "cursor").await;
    player.release(&hold).await;
    drop((player, first));
    let second = open(&path).await;
    let stored = second.load(&[duty("d")]).await.unwrap().remove(0).unwrap();
    assert_eq!((stored.epoch, stored.document.as_bytes()), (hold.epoch, &b"cursor"[..]));
    let next = Player::join(&second, "b", LONG).await.hold("d").await;
    assert_eq!(next.epoch, hold.epoch.next().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_start_at_once_on_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let path = path.clone();
        starting.spawn(async move { try_open(&path).await });
    }
    for opened in or_hang(starting.join_all()).await {
        opened.unwrap();
    }
    let count = "SELECT count(*) FROM migration";
    let file = Connection::open(&path).unwrap();
    assert_eq!(file.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_breaking_schema_is_refused_and_a_harmless_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    drop(open(&path).await);
    let file = Connection::open(&path).unwrap();
    file.execute("INSERT INTO migration VALUES (9001, 'later', '')", []).unwrap();
    drop(open(&path).await);
    let breaking = "INSERT INTO migration VALUES (9002, 'signed', 'cursors are signed')";
    file.execute(breaking, []).unwrap();
    refused(&try_open(&path).await.unwrap_err(), Code::NewerSchema);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    let words = "dear diary, ".repeat(1000);
    std::fs::write(&text, &words).unwrap();
    refused(&try_open(&text).await.unwrap_err(), Code::Damaged);
    assert_eq!(std::fs::read_to_string(&text).unwrap(), words);
    refused(&try_open(folder.path()).await.unwrap_err(), Code::Unreachable);
    let nowhere = folder.path().join("no/such/folder/tenure.db");
    refused(&try_open(&nowhere).await.unwrap_err(), Code::Unreachable);
}

/// A read-only command creates no store, neither in an empty file nor in another program's.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let look = async |name: &str| {
        let path = folder.path().join(name);
        let settings =
            SqliteSettings { path, if_absent: IfAbsent::Refuse, ..SqliteSettings::default() };
        Sqlite::open(settings).await.unwrap_err()
    };
    refused(&look("absent.db").await, Code::Absent);
    assert!(!folder.path().join("absent.db").exists());
    std::fs::write(folder.path().join("empty.db"), "").unwrap();
    refused(&look("empty.db").await, Code::Absent);
    let theirs = folder.path().join("theirs.db");
    let other = Connection::open(&theirs).unwrap();
    other.execute_batch("CREATE TABLE session (theirs TEXT)").unwrap();
    refused(&look("theirs.db").await, Code::Damaged);
    refused(&try_open(&theirs).await.unwrap_err(), Code::Damaged);
    let tables = "SELECT count(*) FROM sqlite_schema";
    assert_eq!(other.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

/// Another program's transaction does not end: the call ends anyway, and nothing happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stays_locked_is_busy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let store = open(&path).await;
    let player = Player::join(&store, "a", LONG).await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    refused(&or_hang(player.try_claim("d")).await.unwrap_err(), Code::Busy);
    other.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(player.claim("d").await, Claimed::Granted(_)));
}

/// A small separate file system, so that it can be filled and made read-only.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    /// Returns `None` without the right to mount, except in CI, where nothing is skipped.
    fn new(at: &'a Path) -> Option<Self> {
        let mounted = run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs"], at);
        assert!(mounted || std::env::var_os("CI").is_none(), "cannot mount a tmpfs");
        mounted.then_some(Self(at))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        run("umount", &["--lazy"], self.0);
    }
}

fn run(program: &str, arguments: &[&str], last: &Path) -> bool {
    Command::new(program).args(arguments).arg(last).status().is_ok_and(|status| status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::new(folder.path()) else { return };
    let path = folder.path().join("tenure.db");
    let store = open(&path).await;
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("d").await;
    player.commit(&hold, 0, "small").await;
    let large = "x".repeat(200 * 1024);
    let mut version = 1;
    let error = loop {
        match player.try_commit(&hold, version, &large).await {
            Ok(_) => version += 1,
            Err(error) => break error,
        }
        assert!(version < 100, "the disk never filled");
    };
    refused(&error, Code::Full);
    let stored = store.load(&[duty("d")]).await.unwrap().remove(0).unwrap();
    assert_eq!(stored.version.get(), version, "what was acknowledged is there, and no more");
    assert_eq!(store.history(&duty("d")).await.unwrap().len() as u64, version);
    drop((player, store));
    drop(mount);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::new(folder.path()) else { return };
    let path = folder.path().join("tenure.db");
    drop(open(&path).await);
    let made_read_only = || run("mount", &["-o", "remount,ro"], folder.path());
    testkit::wait_until("the threads let go", std::time::Duration::from_secs(30), made_read_only)
        .unwrap();
    let error = try_open(&path).await.unwrap_err();
    assert_eq!(error.code(), Code::ReadOnly, "{error}");
    drop(mount);
}

/// The file holds tokens, cursors and messages: new files are readable only by their owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_is_private_and_one_that_is_there_keeps_its_mode() {
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (before, expected) in [(None, 0o600), (Some(0o640), 0o640)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenure.db");
        if let Some(before) = before {
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
        }
        let store = open(&path).await;
        Player::join(&store, "a", LONG).await;
        for kind in ["", "-wal", "-shm"] {
            let path = folder.path().join(format!("tenure.db{kind}"));
            assert_eq!(mode(&path), expected, "{}", path.display());
        }
        assert_eq!(mode(&folder.path().join("tenure.db-boot")), expected);
    }
}
