//! Tests for SQLite only.

use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::Code;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::storage;

use crate::storage::{kit, told};

/// A heartbeat that was stored but not counted before the third migration.
const HEARD: &str = "INSERT INTO connector_heartbeat_log VALUES (NULL, 'telegram_bot', 'bot',
    x'00000000000000000000000000000001', 'healthy', NULL, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    1771113000000000, 1771113000000000);";

fn url(path: &Path) -> StoreUrl {
    StoreUrl::parse(&format!("sqlite:{}", path.display())).unwrap()
}

/// A store and a switchboard share a file, whichever was created first.
#[tokio::test]
async fn a_file_may_be_that_of_a_store() {
    for store_first in [true, false] {
        let folder = TempDir::new().unwrap();
        let url = url(&folder.path().join("tenure.db"));
        let open_store = async || url.open(IfAbsent::Create, 1).await.unwrap();
        let store = if store_first { Some(open_store().await) } else { None };
        let storage = storage::open(&url, IfAbsent::Create).await.unwrap();
        let store = match store {
            Some(store) => store,
            None => {
                let absent = url.open(IfAbsent::Refuse, 1).await.unwrap_err();
                assert_eq!(absent.code(), Code::Absent);
                open_store().await
            }
        };
        kit::commit_one(&storage, kit::named(&["a"])).await;
        assert!(store.groups().await.unwrap().is_empty());
        storage::open(&url, IfAbsent::Refuse).await.unwrap();
        url.open(IfAbsent::Refuse, 1).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_or_not_ours() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tenure.db");
    let absent = storage::open(&url(&path), IfAbsent::Refuse).await.unwrap_err();
    assert_eq!(absent.code(), Code::Absent);
    assert!(!path.exists());
    // A file with only a store is not a switchboard.
    url(&path).open(IfAbsent::Create, 1).await.unwrap();
    let absent = storage::open(&url(&path), IfAbsent::Refuse).await.unwrap_err();
    assert_eq!(absent.code(), Code::Absent);
    let foreign = folder.path().join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let refused = storage::open(&url(&foreign), IfAbsent::Create).await.unwrap_err();
    assert_eq!(refused.code(), Code::Damaged);
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 =
        Connection::open(&foreign).unwrap().query_row(tables, [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1, "nothing was added");
}

#[tokio::test]
async fn the_script_makes_the_tables() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tenure.db");
    let script = storage::script(&url(&path)).unwrap();
    Connection::open(&path).unwrap().execute_batch(&script).unwrap();
    let storage = storage::open(&url(&path), IfAbsent::Refuse).await.unwrap();
    kit::commit_one(&storage, kit::named(&["a"])).await;
}

/// During a long write transaction, reads continue and see the previous state.
#[tokio::test]
async fn readers_do_not_wait_for_a_writer() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tenure.db");
    let storage = storage::open(&url(&path), IfAbsent::Create).await.unwrap();
    kit::commit_one(&storage, kit::named(&["a"])).await;
    kit::make_token(&storage, "tok_a").await;
    let writer = Connection::open(&path).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; DELETE FROM message_inbox").unwrap();
    let waiting = tokio::spawn({
        let storage = storage.clone();
        async move { kit::commit_one(&storage, kit::named(&["b"])).await }
    });
    assert_eq!(kit::inbox(&storage).await.len(), 1);
    assert!(storage.has_tokens().await.unwrap());
    let admitted = storage.admit(&kit::attempt("tok_a", "::1")).await.unwrap();
    assert!(matches!(admitted, storage::Admission::Token(_)));
    assert!(!waiting.is_finished());
    writer.execute_batch("ROLLBACK").unwrap();
    kit::stored(&waiting.await.unwrap());
    assert_eq!(kit::inbox(&storage).await.len(), 2);
}

/// A thread checkpoints the log while it grows.
#[tokio::test]
async fn the_log_does_not_grow_for_ever() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tenure.db");
    let storage = storage::open(&url(&path), IfAbsent::Create).await.unwrap();
    let made = std::fs::metadata(&path).unwrap().len();
    let mut number = 0;
    // Until a checkpoint, which no commit does by itself before the log has 64 MiB.
    while std::fs::metadata(&path).unwrap().len() <= made {
        assert!(number < 20_000, "nobody moved the log");
        let names: Vec<String> = (number..number + 200).map(|it| it.to_string()).collect();
        kit::commit_one(&storage, kit::sent(names.iter().map(|name| kit::event(name)))).await;
        number += 200;
    }
}

/// Creates a file as it was before a migration.
fn before(migration: &str, path: &Path) -> Connection {
    let script = storage::sqlite::script();
    let before = script.split(migration).next().unwrap();
    let old = Connection::open(path).unwrap();
    old.execute_batch(&format!("{before} COMMIT")).unwrap();
    old
}

/// A fence stored before fences had sources still rejects a stale holder.
#[tokio::test]
async fn an_update_keeps_every_fence() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tenure.db");
    let old = before("-- 0006 fences", &path);
    let seen = "INSERT INTO ingest_fence VALUES ('telegram/bot', 7, 'new', 1)";
    old.execute_batch(seen).unwrap();
    drop(old);
    let storage = storage::open(&url(&path), IfAbsent::Refuse).await.unwrap();
    let stale = kit::held(kit::fence("bot", 6, "old"), &["a"]);
    kit::is_fenced(&kit::commit_one(&storage, stale).await, 7, "new");
}

/// Ids of counted heartbeats are not assigned again.
#[tokio::test]
async fn an_update_leaves_no_beat_uncounted() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tenure.db");
    let old = before("-- 0003 clock", &path);
    old.execute_batch(&[HEARD; 5].concat()).unwrap();
    drop(old);
    let storage = storage::open(&url(&path), IfAbsent::Refuse).await.unwrap();
    assert_eq!(told::count(&storage, 1, told::MIDNIGHT).await.beats, 5);
    Connection::open(&path).unwrap().execute_batch("DELETE FROM connector_heartbeat_log").unwrap();
    told::hear(&storage, 1, told::MIDNIGHT, 60, 1).await;
    assert_eq!(told::count(&storage, 1, told::MIDNIGHT + told::HOUR).await.beats, 1);
}
