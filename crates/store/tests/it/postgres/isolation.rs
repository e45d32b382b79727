//! A role or database whose default isolation level differs from Tenure's.

use tenure_core::{Code, StoreError};
use testkit::{Pgbouncer, PostgresOptions, PostgresServer};
use tokio_postgres::IsolationLevel;

use super::Place;
use super::locks::claim_waits_for_keep_alive;
use crate::player::{LONG, Player, or_hang};

const LEVELS: [&str; 2] = ["repeatable read", "serializable"];

/// With one snapshot for the whole claim, the claim would not see a concurrent keep-alive.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_sees_what_it_waited_for() {
    for isolation in LEVELS {
        let Some(place) = Place::given() else { return };
        claim_waits_for_keep_alive(&Place { isolation, ..place }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn starters_see_what_they_waited_for() {
    let Some(place) = Place::given() else { return };
    let place = Place { isolation: LEVELS[0], ..place };
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let place = place.clone();
        starting.spawn(async move { place.try_open().await.map(drop) });
    }
    let opened = or_hang(starting.join_all()).await;
    assert_eq!(opened.into_iter().collect::<Result<Vec<_>, StoreError>>().map(drop), Ok(()));
}

/// A pooler prevents setting defaults for the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_sees_what_it_waited_for_behind_a_transaction_pooler() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let level = "ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'";
    server.sql(level).unwrap();
    let pooler = Pgbouncer::start(&server).unwrap();
    let place = Place::on(pooler.url());
    claim_waits_for_keep_alive(&place).await;
    let store = place.open().await;
    let player = Player::join(&store, "p", LONG).await;
    let hold = player.hold("pooled").await;
    player.commit(&hold, 0, "x").await;
    // A refusal does not change the connection's settings.
    let client = place.client().await;
    let gone = place.sql("ALTER TABLE tenure.checkpoint RENAME TO gone");
    client.batch_execute(&gone).await.unwrap();
    let error = player.try_commit(&hold, 1, "y").await.unwrap_err();
    assert!(error.code() == Code::NeedsMigration && !error.is_unknown(), "{error}");
    let back = place.sql("ALTER TABLE tenure.gone RENAME TO checkpoint");
    client.batch_execute(&back).await.unwrap();
    player.commit(&hold, 1, "y").await;
    player.release(&hold).await;
}

/// A routine that would use an old snapshot refuses, for any caller.
#[tokio::test(flavor = "multi_thread")]
async fn a_routine_refuses_a_snapshot_that_stands_still() {
    let Some(place) = Place::given() else { return };
    drop(place.open().await);
    let mut client = place.client().await;
    for routine in [
        "session_open(WHO, 1000, '', 0)",
        "session_close(WHO, 'x')",
        "session_evict('g', 'i', true, 'x')",
        "hold_claim(WHO, '{d}', '{0}', 'x')",
        "hold_release(WHO, '{d}', '{1}', 'x')",
        "checkpoint_commit(WHO, '{d}', '{1}', '{0}', '{x}')",
        "duty_forget('{g}', '{d}', 'x')",
        "store_adopt('x', 0)",
        "store_retain(8, 100)",
    ] {
        let call = place.sql(&format!("SELECT * FROM tenure.{routine}"));
        let call = call.replace("WHO", "'g', 'i', '00000000-0000-4000-8000-000000000001'");
        let begin = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        let transaction = begin.start().await.unwrap();
        let error = transaction.batch_execute(&call).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "25000", "{routine}: {error}");
        assert!(error.message().contains("repeatable read"), "{error}");
    }
}
