//! Failover to a standby that lacks commits.

use std::sync::Arc;

use tenure_store::IfAbsent;
use tenure_switchboard::storage::{InboxQuery, Storage, postgres};
use tenure_wire::ingest::InboxCursor;
use testkit::{PostgresOptions, PostgresServer, wait_until};
use tokio::task::JoinSet;

use super::LIMIT;
use crate::place::Place;
use crate::storage::kit::{commit_one, diverged, inbox, named, positions, read_page};

fn from(after: impl Into<InboxCursor>) -> InboxQuery {
    InboxQuery { after: after.into(), limit: 9, ..InboxQuery::default() }
}

/// A replica runs through the failover; readers have seen messages that are then lost.
#[tokio::test(flavor = "multi_thread")]
async fn readers_skip_nothing_after_a_failover_that_lost_commits() {
    let (primary, standby) = tokio::task::spawn_blocking(|| {
        let primary = PostgresServer::start(PostgresOptions::default()).unwrap();
        let standby = PostgresServer::standby_of(&primary).unwrap();
        (primary, standby)
    })
    .await
    .unwrap();
    let (one, other) =
        (format!("127.0.0.1:{}", primary.port()), format!("127.0.0.1:{}", standby.port()));
    let both = primary.url().replace(&one, &format!("{one},{other}"));
    let storage = postgres::open(&both, "tenure", IfAbsent::Create).await.unwrap();
    let storage: Arc<dyn Storage> = Arc::new(storage);
    commit_one(&storage, named(&["a", "b", "c"])).await;
    let third = read_page(&storage, &from(0)).await.next_after;
    let seen = "SELECT count(*) FROM tenure.message_inbox";
    let (primary, standby) = tokio::task::spawn_blocking(move || {
        let has = || standby.sql(seen).is_ok_and(|count| count.trim() == "3");
        wait_until("the standby has three", LIMIT, has).unwrap();
        // Stops replication.
        standby.sql("ALTER SYSTEM SET primary_conninfo = ''").unwrap();
        standby.sql("SELECT pg_reload_conf()").unwrap();
        let gone = || standby.sql("SELECT FROM pg_stat_wal_receiver").is_ok_and(|it| it.is_empty());
        wait_until("the stream has ended", LIMIT, gone).unwrap();
        (primary, standby)
    })
    .await
    .unwrap();
    commit_one(&storage, named(&["d", "e"])).await;
    let fifth = read_page(&storage, &from(third)).await.next_after;
    assert_eq!(fifth.position, 5);
    let servers = tokio::task::spawn_blocking(move || {
        primary.kill().unwrap();
        standby.promote().unwrap();
        (primary, standby)
    })
    .await
    .unwrap();

    // Every old connection is broken and fails once.
    let again = async { while storage.inbox(&from(0)).await.is_err() {} };
    tokio::time::timeout(LIMIT, again).await.unwrap();
    let lost = diverged(&storage, &from(fifth)).await;
    assert_eq!((lost.last, lost.trimmed), (3, 0));
    let commit = async { while storage.commit(&[named(&["x", "y", "z"])]).await.is_err() {} };
    tokio::time::timeout(LIMIT, commit).await.unwrap();
    // A reader with a bare position gets all new messages, too.
    for after in [third, 5.into()] {
        let new = positions(&read_page(&storage, &from(after)).await.messages);
        assert!(new.len() == 3 && new[0] > 1_577_836_800_000_000, "{new:?}");
    }
    diverged(&storage, &from(fifth)).await;
    let trail = storage.audit(Some("inbox"), 9).await.unwrap();
    assert!(trail.len() == 1 && trail[0].reason.starts_with("PostgreSQL "), "{trail:?}");
    drop(servers);
}

/// The first commit that detects another server starts the new incarnation; no other one does.
#[tokio::test(flavor = "multi_thread")]
async fn another_server_is_noticed_once() {
    let Some(place) = Place::postgres().await else { return };
    let from_elsewhere = "UPDATE inbox_position SET lineage = '1/00000001'";
    let jumps = async || place.storage.audit(Some("inbox"), 9).await.unwrap().len();
    commit_one(&place.storage, named(&["a"])).await;
    assert_eq!(jumps().await, 0);
    place.execute(from_elsewhere).await;
    let mut committing = JoinSet::new();
    for number in 0..4 {
        let storage = place.open().await;
        committing.spawn(async move {
            commit_one(&storage, named(&[&number.to_string()])).await;
        });
    }
    committing.join_all().await;
    assert_eq!(jumps().await, 1);
    place.execute(from_elsewhere).await;
    let mut committing = JoinSet::new();
    for storage in [place.storage.clone(), place.storage.clone()] {
        committing.spawn(async move {
            commit_one(&storage, named(&["b", "c"])).await;
        });
    }
    committing.join_all().await;
    assert_eq!(jumps().await, 2);
    let found = positions(&inbox(&place.storage).await);
    let steps: Vec<i64> = found.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps[0] > 1_000_000 && steps[4] >= 1_000_000 - 4, "{steps:?}");
    assert_eq!([&steps[1..4], &steps[5..]].concat(), [1; 4]);
    // A server with an unknown timeline is accepted.
    place.execute("UPDATE inbox_position SET lineage = NULL").await;
    commit_one(&place.storage, named(&["d"])).await;
    assert_eq!(jumps().await, 2);
}
