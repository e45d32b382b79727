//! A disk that is full or read-only.

use std::path::Path;
use std::process::Command;

use tenure_core::Code;
use tenure_core::store::Claimed;

use super::{load, open, refused, try_open};
use crate::player::{LONG, Player, duty};

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
    let store = open(folder.path()).await;
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("main").await;
    let large = format!("{{\"x\": \"{}\"}}", "x".repeat(200 * 1024));
    let mut version = 0;
    let error = loop {
        match player.try_commit(&hold, version, &large).await {
            Ok(_) => version += 1,
            Err(error) => break error,
        }
        assert!(version < 100, "the disk never filled");
    };
    refused(&error, Code::Full);
    assert_eq!(load(&store, "main").await.unwrap().version.get(), version);
    assert!(player.keeps(&hold).await, "a keep-alive needs no disk");
    drop((player, store));
    let store = open(folder.path()).await;
    assert_eq!(load(&store, "main").await.unwrap().version.get(), version);
    assert_eq!(store.history(&duty("main")).await.unwrap().len() as u64, version);
    let player = Player::join(&store, "b", LONG).await;
    assert!(matches!(player.claim("main").await, Claimed::Granted(_)));
    drop((player, store));
    drop(mount);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::new(folder.path()) else { return };
    let store = open(folder.path()).await;
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("main").await;
    player.commit(&hold, 0, "{}").await;
    drop((player, store));
    assert!(run("mount", &["-o", "remount,ro"], folder.path()));
    refused(&try_open(folder.path()).await.unwrap_err(), Code::ReadOnly);
    drop(mount);
}
