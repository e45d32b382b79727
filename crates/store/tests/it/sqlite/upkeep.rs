//! Migrations, and statements that SQLite can prepare.

use rusqlite::Connection;
use tenure_core::store::{Forgotten, OpenSession, Opened, Retention};
use tenure_core::{InstanceId, Nonce};

use super::open;
use crate::player::{LONG, Player, duty, reason, sql_files, wish};

#[tokio::test(flavor = "multi_thread")]
async fn a_store_from_before_is_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let file = Connection::open(&path).unwrap();
    file.execute_batch(include_str!("../../../src/sqlite/sql/migration/create.sql")).unwrap();
    file.execute_batch(include_str!("../../../src/sqlite/sql/meta/create.sql")).unwrap();
    file.execute_batch(include_str!("../../../src/sqlite/migrations/0001_ground.sql")).unwrap();
    file.execute_batch(
        "INSERT INTO migration VALUES (1, 'ground', '');
         INSERT INTO hold VALUES ('g', 'd', 7, 'old', '11111111-1111-4111-8111-111111111111', 1);
         INSERT INTO checkpoint VALUES ('g', 'd', 1, 7, 'old', x'00', 0);
         INSERT INTO history VALUES ('g', 'd', 1, 1, 7, 'old', x'00', 0);",
    )
    .unwrap();
    let store = open(&path).await;
    assert_eq!(store.retention().await.unwrap(), Retention::default());
    assert_eq!(store.history(&duty("d")).await.unwrap().len(), 1);
    // The record of its nonce had expired, and its hold was not claimed since.
    let nonce = Nonce::parse("11111111-1111-4111-8111-111111111111").unwrap();
    let again = OpenSession { instance: InstanceId::new("old").unwrap(), nonce, ..wish("", LONG) };
    assert_eq!(store.open_session(&again).await.unwrap(), Opened::Spent);
    let forgotten = store.forget(&[duty("d")], &reason()).await.unwrap();
    assert!(matches!(forgotten[0], Forgotten::Forgotten { floor } if floor.get() == 7));
    let a = Player::join(&store, "a", LONG).await;
    assert_eq!(a.hold("d").await.epoch.get(), 8);
    drop(open(&path).await);
}

/// Every statement can be prepared against the current schema.
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_can_read_every_statement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    drop(open(&path).await);
    let connection = Connection::open(&path).unwrap();
    let files = sql_files("src/sqlite/sql");
    assert!(files.len() > 40);
    for (name, sql) in files {
        let prepared = connection.prepare(&sql);
        assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
    }
}
