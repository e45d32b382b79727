//! A connector that keeps a plain `cursor.json`, before and after Tenure uses the file.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tenure_core::store::Committed;
use tenure_core::{Epoch, GroupName, Version};

use super::{load, look, names, open};
use crate::player::{LONG, Player, duty};

const TELEGRAM: &str = "{\"last_update_id\": 12345, \"last_updated_at\": \"2026-02-15T10:00:00Z\"}";
const GMAIL: &str =
    "{\n  \"history_id\": \"123\",\n  \"last_updated_at\": \"2026-02-15T10:00:00Z\"\n}\n";

/// Writes as the connector does: to another file, which is then renamed.
fn v1_writes(folder: &Path, name: &str, text: &str) {
    let temp = folder.join("cursor.json.tmp");
    fs::write(&temp, text).unwrap();
    fs::rename(temp, folder.join(name)).unwrap();
}

/// Reads as the connector does: it reads its own key and ignores others.
fn v1_reads(folder: &Path, name: &str, key: &str) -> Value {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[key].clone()
}

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_at_a_plain_file_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    v1_writes(folder.path(), "cursor.json", TELEGRAM);
    v1_writes(folder.path(), "cursor.json.partition-2", GMAIL);
    let store = look(folder.path()).await.unwrap();
    for _ in 0..2 {
        let seen = load(&store, "main").await.unwrap();
        assert_eq!(
            (seen.version.get(), seen.epoch, seen.instance.as_str()),
            (1, Epoch::ZERO, "v1")
        );
        assert_eq!(seen.document.as_bytes(), TELEGRAM.as_bytes());
    }
    assert_eq!(store.history(&duty("main")).await.unwrap().len(), 1);
    assert_eq!(store.groups().await.unwrap(), [group()]);
    let holders = store.holders(&group()).await.unwrap();
    let seen: Vec<_> =
        holders.iter().map(|h| (h.duty.id.as_str(), h.epoch, h.holder.is_none())).collect();
    assert_eq!(seen, [("2", Some(Epoch::ZERO), true), ("main", Some(Epoch::ZERO), true)]);
    assert_eq!(names(folder.path()), ["cursor.json", "cursor.json.partition-2"]);
    // The first change turns it into a Tenure store.
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("main").await;
    assert_eq!(hold.epoch.get(), 1);
    assert_eq!(player.commit(&hold, 1, "{}").await, Committed::Saved(Version::new(2).unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn from_the_connector_to_us_and_back_and_again() {
    let folder = tempfile::tempdir().unwrap();
    for (name, id, text, key) in [
        ("cursor.json", "main", TELEGRAM, "last_update_id"),
        ("cursor.json.partition-2", "2", GMAIL, "history_id"),
    ] {
        v1_writes(folder.path(), name, text);
        let store = open(folder.path()).await;
        let player = Player::join(&store, "a", LONG).await;
        let hold = player.hold(id).await;
        let ours = text.replace("123", "777");
        assert_eq!(load(&store, id).await.unwrap().version.get(), 1);
        player.commit(&hold, 1, &ours).await;
        drop((player, store));

        // Back: the connector reads its keys, continues, and writes as before.
        let number = v1_reads(folder.path(), name, key);
        assert!(number == json!(77745) || number == json!("777"), "{number}");
        let theirs = text.replace("123", "888");
        v1_writes(folder.path(), name, &theirs);

        // And again: a newer version under the known epoch, the same at each read.
        for _ in 0..2 {
            let store = open(folder.path()).await;
            let seen = load(&store, id).await.unwrap();
            assert_eq!((seen.version.get(), seen.epoch), (3, hold.epoch));
            assert_eq!(
                (seen.instance.as_str(), seen.document.as_bytes()),
                ("v1", theirs.as_bytes())
            );
        }
        let store = open(folder.path()).await;
        let texts: Vec<_> = store.history(&duty(id)).await.unwrap();
        let texts: Vec<_> = texts.iter().map(|c| c.document.as_bytes()).collect();
        assert_eq!(texts, [theirs.as_bytes(), ours.as_bytes(), text.as_bytes()]);
        let player = Player::join(&store, "b", LONG).await;
        let next = player.hold(id).await;
        assert!(next.epoch > hold.epoch);
        let saved = player.commit(&next, 3, text).await;
        assert_eq!(saved, Committed::Saved(Version::new(4).unwrap()));
        assert_eq!(store.history(&duty(id)).await.unwrap().len(), 4);
    }
}

/// A connector that was left running: the store does not overwrite what it wrote.
#[tokio::test(flavor = "multi_thread")]
async fn a_connector_that_still_writes_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("main").await;
    player.commit(&hold, 0, "{\"last_update_id\": 1}").await;
    v1_writes(folder.path(), "cursor.json", TELEGRAM);
    let stored = Version::new(2).unwrap();
    let committed = player.commit(&hold, 1, "{\"last_update_id\": 2}").await;
    assert_eq!(committed, Committed::Conflict { stored });
    v1_writes(folder.path(), "cursor.json", GMAIL);
    assert_eq!(load(&store, "main").await.unwrap().version.get(), 3);
    assert_eq!(load(&store, "main").await.unwrap().version.get(), 3);
}

/// The file has the bytes of the document and one more member.
#[tokio::test(flavor = "multi_thread")]
async fn cutting_our_member_out_gives_the_payload_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("main").await;
    for (version, text) in [TELEGRAM, GMAIL].into_iter().enumerate() {
        player.commit(&hold, version as u64, text).await;
        let file = fs::read_to_string(folder.path().join("cursor.json")).unwrap();
        let start = file.find(",\"_tenure\":").unwrap();
        let end = start + file[start..].find("\"}").unwrap() + 2;
        assert_eq!(format!("{}{}", &file[..start], &file[end..]), text);
    }
}
