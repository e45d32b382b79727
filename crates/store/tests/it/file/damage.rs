//! Unreadable files: kept and reported, never treated as empty.

use std::fs;
use std::path::Path;

use tenure_core::store::{Adopt, AuditRange, Claimed, Committed, Forgotten};
use tenure_core::{Code, Epoch, GroupName, StoreError, Version};

use super::{load, look, names, open, refused, try_open};
use crate::player::{LONG, Player, duty, reason};

async fn with_two_versions(folder: &Path) {
    let store = open(folder).await;
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("main").await;
    for version in 0..2 {
        player.commit(&hold, version, &format!("{{\"last_update_id\": {version}}}")).await;
    }
}

fn damages(whole: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let text = String::from_utf8(whole.to_vec()).unwrap();
    vec![
        ("empty", Vec::new()),
        ("truncated", whole[..whole.len() / 2].to_vec()),
        ("zeros", vec![0; whole.len()]),
        ("another kind of file", b"hello".to_vec()),
        ("edited by hand", text.replace("_id\": 1", "_id\": 9").into_bytes()),
        ("huge", vec![b' '; 1 << 20]),
    ]
}

/// The error repeats, in each process, until an operator acts.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_cursor_is_kept_aside_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cursor.json");
    with_two_versions(folder.path()).await;
    let whole = fs::read(&path).unwrap();
    for (n, (what, bytes)) in damages(&whole).into_iter().enumerate() {
        fs::write(&path, &bytes).unwrap();
        let aside = folder.path().join(format!("cursor.json.corrupt-{}", n + 1));
        for _ in 0..2 {
            let store = open(folder.path()).await;
            for _ in 0..2 {
                let error = store.load(&[duty("main")]).await.unwrap_err();
                refused(&error, Code::Damaged);
                let text = error.to_string();
                assert!(text.contains(aside.to_str().unwrap()), "{what}: {text}");
                assert!(text.contains("history/g+main/2.json"), "{what}: {text}");
            }
            assert_eq!(fs::read(&aside).unwrap(), bytes, "{what}");
            assert!(!path.exists());
            // Everything but the cursor works: the duty is listed, its history can be read.
            let group = GroupName::new("g").unwrap();
            assert_eq!(store.holders(&group).await.unwrap().len(), 1);
            assert_eq!(store.history(&duty("main")).await.unwrap().len(), 2);
            let player = Player::join(&store, "b", LONG).await;
            let hold = player.hold("main").await;
            assert!(hold.epoch.get() > 1);
            let error = player.try_commit(&hold, 2, "{}").await.unwrap_err();
            refused(&error, Code::Damaged);
        }
        // The operator restores the newest checkpoint of the history.
        fs::copy(folder.path().join("cursor.json.tenure/history/g+main/2.json"), &path).unwrap();
        let store = open(folder.path()).await;
        let seen = load(&store, "main").await.unwrap();
        assert_eq!(
            (seen.version.get(), seen.document.as_bytes()),
            (2, &b"{\"last_update_id\": 1}"[..])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_edited_by_hand_is_taken_once_our_member_is_cut_out() {
    let folder = tempfile::tempdir().unwrap();
    with_two_versions(folder.path()).await;
    fs::write(folder.path().join("cursor.json"), "{\"last_update_id\": 9}").unwrap();
    let store = open(folder.path()).await;
    let seen = load(&store, "main").await.unwrap();
    assert_eq!(
        (seen.version.get(), seen.document.as_bytes()),
        (3, &b"{\"last_update_id\": 9}"[..])
    );
}

/// A damaged file that Tenure never wrote: reading leaves it in place, opening moves it aside.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_plain_cursor_does_not_start_from_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cursor.json"), "{\"last_update_id\": 12").unwrap();
    let store = look(folder.path()).await.unwrap();
    refused(&store.load(&[duty("main")]).await.unwrap_err(), Code::Damaged);
    assert_eq!(names(folder.path()), ["cursor.json"]);
    drop(store);
    for _ in 0..2 {
        let store = open(folder.path()).await;
        refused(&store.load(&[duty("main")]).await.unwrap_err(), Code::Damaged);
        assert!(folder.path().join("cursor.json.corrupt-1").exists());
        assert!(!folder.path().join("cursor.json.corrupt-2").exists());
    }
    // Giving up the cursor requires `forget`; the damaged file stays.
    let store = open(folder.path()).await;
    let forgotten = store.forget(&[duty("main")], &reason()).await.unwrap();
    assert!(matches!(forgotten[0], Forgotten::Forgotten { .. }), "{forgotten:?}");
    assert_eq!(load(&store, "main").await, None);
    drop(store);
    assert_eq!(load(&open(folder.path()).await, "main").await, None);
    assert!(folder.path().join("cursor.json.corrupt-1").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_was_removed_is_missed() {
    for commits in 1..3 {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        let player = Player::join(&store, "a", LONG).await;
        let hold = player.hold("main").await;
        for version in 0..commits {
            player.commit(&hold, version, "{}").await;
        }
        fs::remove_file(folder.path().join("cursor.json")).unwrap();
        let error = store.load(&[duty("main")]).await.unwrap_err();
        refused(&error, Code::Damaged);
        assert!(error.to_string().contains("is missing"), "{error}");
        drop((player, store));
        let store = open(folder.path()).await;
        refused(&store.load(&[duty("main")]).await.unwrap_err(), Code::Damaged);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cursor_of_another_duty_is_not_ours() {
    let folder = tempfile::tempdir().unwrap();
    with_two_versions(folder.path()).await;
    let other = folder.path().join("cursor.json.partition-x");
    fs::copy(folder.path().join("cursor.json"), &other).unwrap();
    let store = open(folder.path()).await;
    let error = store.load(&[duty("x")]).await.unwrap_err();
    refused(&error, Code::Damaged);
    assert!(error.to_string().contains("the cursor of g/main"), "{error}");
    assert!(other.exists(), "a whole file is not put aside");
}

async fn refuses_all(folder: &Path) -> StoreError {
    let store = open(folder).await;
    let wish = crate::player::wish("b", LONG);
    let error = store.open_session(&wish).await.unwrap_err();
    refused(&error, Code::Damaged);
    error
}

/// If the epochs are lost, nothing is granted until an operator sets a floor.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_state_is_damaged_waits_for_an_operator() {
    for remove in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        with_two_versions(folder.path()).await;
        let path = folder.path().join("cursor.json.tenure/group-g.json");
        match remove {
            true => fs::remove_file(&path).unwrap(),
            false => fs::write(&path, "{").unwrap(),
        }
        for _ in 0..2 {
            let error = refuses_all(folder.path()).await.to_string();
            let named = if remove { "group-g.json is missing" } else { "group-g.json.corrupt-1" };
            assert!(error.contains(named), "{error}");
        }
        let store = open(folder.path()).await;
        assert_eq!(load(&store, "main").await.unwrap().version.get(), 2);
        let floor = Epoch::new(10).unwrap();
        store.adopt(&Adopt { entropy: 1, floor }).await.unwrap();
        let player = Player::join(&store, "b", LONG).await;
        let Claimed::Granted(hold) = player.claim("main").await else { panic!() };
        assert_eq!(hold.epoch.get(), 11);
        player.commit(&hold, 2, "{}").await;
        drop((player, store));
        let store = open(folder.path()).await;
        Player::join(&store, "c", LONG).await;
        assert_eq!(load(&store, "main").await.unwrap().version.get(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_store_file_is_kept_aside_and_named() {
    let folder = tempfile::tempdir().unwrap();
    with_two_versions(folder.path()).await;
    let path = folder.path().join("cursor.json.tenure/store.json");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, "").unwrap();
    for _ in 0..2 {
        let error = try_open(folder.path()).await.unwrap_err();
        refused(&error, Code::Damaged);
        assert!(error.to_string().contains("store.json.corrupt-1"), "{error}");
    }
    fs::write(&path, whole).unwrap();
    assert_eq!(load(&open(folder.path()).await, "main").await.unwrap().version.get(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_audit_trail_is_kept_aside_and_told_once() {
    // It is found by a reader of the trail, or before that by a writer.
    for written in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        let player = Player::join(&store, "a", LONG).await;
        let ids: Vec<String> = (0..100).map(|n| format!("d{n}")).collect();
        player.hold_all(&ids).await;
        player.hold("main").await;
        player.hold("more").await;
        drop((player, store));
        let path = folder.path().join("cursor.json.tenure/audit-g.jsonl");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 200].fill(0);
        fs::write(&path, &bytes).unwrap();
        let store = open(folder.path()).await;
        let aside = folder.path().join("cursor.json.tenure/audit-g.jsonl.corrupt-1");
        if written {
            let player = Player::join(&store, "b", LONG).await;
            let ids: Vec<String> = (0..100).map(|n| format!("e{n}")).collect();
            player.hold_all(&ids).await;
            player.hold("other").await;
            assert!(aside.exists(), "a writer sets it aside");
        }
        let group = GroupName::new("g").unwrap();
        let error = store.audit(&group, AuditRange::first(1000)).await.unwrap_err();
        refused(&error, Code::Damaged);
        assert!(error.to_string().contains("audit-g.jsonl.corrupt-1"), "{error}");
        assert_eq!(fs::read(aside).unwrap(), bytes);
        let left = store.audit(&group, AuditRange::first(1000)).await.unwrap().len();
        assert!(if written { left > 100 && left < 110 } else { left > 0 && left < 10 }, "{left}");
    }
}

/// An operator restores an earlier checkpoint as the cursor: it becomes the newest one, no version
/// is reused, and the history is unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_put_back_is_a_new_version() {
    let text = |n: u64| format!("{{\"last_update_id\": {n}}}");
    for (back, reopened) in [(2, false), (2, true), (3, false), (3, true)] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path()).await;
        let mut player = Player::join(&store, "a", LONG).await;
        let mut hold = player.hold("main").await;
        for version in 0..4 {
            player.commit(&hold, version, &text(version + 1)).await;
        }
        let kept = folder.path().join(format!("cursor.json.tenure/history/g+main/{back}.json"));
        fs::copy(kept, folder.path().join("cursor.json")).unwrap();
        if reopened {
            drop((player, store));
            store = open(folder.path()).await;
            player = Player::join(&store, "b", LONG).await;
            hold = player.hold("main").await;
        }
        let stored = Version::new(5).unwrap();
        assert_eq!(player.commit(&hold, 4, "{}").await, Committed::Conflict { stored });
        assert_eq!(player.commit(&hold, back, "{}").await, Committed::Conflict { stored });
        for _ in 0..2 {
            let seen = load(&store, "main").await.unwrap();
            assert_eq!((seen.version, seen.document.as_bytes()), (stored, text(back).as_bytes()));
        }
        drop((player, store));
        let store = open(folder.path()).await;
        assert_eq!(load(&store, "main").await.unwrap().version, stored);
        let player = Player::join(&store, "c", LONG).await;
        let hold = player.hold("main").await;
        let sixth = Version::new(6).unwrap();
        assert_eq!(player.commit(&hold, 5, &text(6)).await, Committed::Saved(sixth));
        let history = store.history(&duty("main")).await.unwrap();
        let found: Vec<_> = history.iter().map(|c| c.document.as_bytes().to_vec()).collect();
        let expected = [6, back, 4, 3, 2, 1].map(|n| text(n).into_bytes());
        assert_eq!(found, expected, "{back} {reopened}");
    }
}

/// Leftover files of a forgotten duty are not the history of a new duty of the same name.
#[tokio::test(flavor = "multi_thread")]
async fn a_plain_cursor_does_not_inherit_from_a_forgotten_duty() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("p").await;
    for version in 0..3 {
        player.commit(&hold, version, "{}").await;
    }
    player.release(&hold).await;
    // A folder, so it cannot be removed as a file is; it sorts before the others.
    let stuck = folder.path().join("cursor.json.tenure/history/g+p/0");
    fs::create_dir(&stuck).unwrap();
    let error = store.forget(&[duty("p")], &reason()).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    drop((player, store));
    fs::remove_dir(&stuck).unwrap();
    let path = folder.path().join("cursor.json.partition-p");
    assert!(!path.exists());
    fs::write(&path, "{\"last_update_id\": 7}").unwrap();
    for _ in 0..2 {
        let store = open(folder.path()).await;
        let history = store.history(&duty("p")).await.unwrap();
        let found: Vec<_> = history.iter().map(|c| (c.version.get(), &c.document)).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].0, found[0].1.as_bytes()), (1, &b"{\"last_update_id\": 7}"[..]));
    }
}
