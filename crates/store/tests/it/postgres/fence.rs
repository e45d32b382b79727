//! Effects in the user's own transaction (R12).

use tenure_core::store::Claimed;
use tenure_core::{Code, DutyKey, Hold, InstanceId, StoreError};
use tenure_store::postgres::fence_in;

use super::Place;
use crate::player::{LONG, Player, or_hang};

async fn with_table(place: &Place) -> tokio_postgres::Client {
    let client = place.client().await;
    let table = place.sql("CREATE TABLE tenure.effect (who text NOT NULL)");
    client.batch_execute(&table).await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_granted_the_duty_while_an_effect_is_under_way() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let (a, b) = (Player::join(&store, "a", LONG).await, Player::join(&store, "b", LONG).await);
    let hold = a.hold("d").await;
    let mut client = with_table(&place).await;
    let effect = client.transaction().await.unwrap();
    fence_in(&effect, &place.schema, &hold).await.unwrap();
    effect.batch_execute(&place.sql("INSERT INTO tenure.effect VALUES ('a')")).await.unwrap();
    place.lapse(&a.session).await;
    assert!(matches!(b.claim("d").await, Claimed::HeldBy(_)));
    // The holder's own keep-alive does not block either.
    or_hang(a.keep_alive(&[])).await;
    effect.commit().await.unwrap();
    assert!(b.hold("d").await.epoch > hold.epoch);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_holder_s_effect_cannot_be_committed() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let (a, b) = (Player::join(&store, "a", LONG).await, Player::join(&store, "b", LONG).await);
    let old = a.hold("d").await;
    place.lapse(&a.session).await;
    b.hold("d").await;
    let mut client = with_table(&place).await;
    let effect = client.transaction().await.unwrap();
    let insert = place.sql("INSERT INTO tenure.effect VALUES ('zombie')");
    effect.batch_execute(&insert).await.unwrap();
    let error = fence_in(&effect, &place.schema, &old).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), Code::Fenced);
    // Even a caller that ignores the error cannot commit its effect.
    let _ = effect.commit().await;
    let rows = client.query(&place.sql("SELECT * FROM tenure.effect"), &[]).await.unwrap();
    assert!(rows.is_empty());
}

/// A client that is paused inside a transaction sends nothing more, and no statement timeout fires
/// while it is idle. The server must end it, or the duty stays blocked forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_paused_in_its_transaction_blocks_no_longer_than_its_ttl() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let ttl = std::time::Duration::from_millis(1_000);
    let a = Player::join(&store, "a", ttl).await;
    let hold = a.hold("d").await;
    let mut client = with_table(&place).await;
    let effect = client.transaction().await.unwrap();
    fence_in(&effect, &place.schema, &hold).await.unwrap();
    effect.batch_execute(&place.sql("INSERT INTO tenure.effect VALUES ('a')")).await.unwrap();
    // From here on the client does nothing: it is paused. No instance claims, so it is the server
    // that closes the connection.
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
    let closed = async {
        while !effect.client().is_closed() {
            tick.tick().await;
        }
    };
    or_hang(closed).await;
    let b = Player::join(&store, "b", LONG).await;
    let taken = or_hang(b.claim_until_granted("d")).await;
    assert!(taken.epoch > hold.epoch);
    assert!(effect.commit().await.is_err(), "the effect of a paused holder came through");
    let client = place.client().await;
    let rows = client.query(&place.sql("SELECT * FROM tenure.effect"), &[]).await.unwrap();
    assert!(rows.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sql_function_reads_escaped_names_and_refuses_wrong_ones() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let odd = "bot/42 100% {x}:🦀";
    let hold = a.hold(odd).await;
    let mut client = place.client().await;
    let transaction = client.transaction().await.unwrap();
    fence_in(&transaction, &place.schema, &hold).await.unwrap();
    let wrong = [
        Hold { epoch: hold.epoch.next().unwrap(), ..hold.clone() },
        Hold { instance: InstanceId::new("somebody-else").unwrap(), ..hold.clone() },
        Hold { duty: DutyKey::new("g", "other").unwrap(), ..hold.clone() },
        Hold { duty: DutyKey::new("other", odd).unwrap(), ..hold.clone() },
    ];
    transaction.rollback().await.unwrap();
    for wrong in wrong {
        let transaction = client.transaction().await.unwrap();
        let error = fence_in(&transaction, &place.schema, &wrong).await.unwrap_err();
        assert_eq!(error.code(), Code::Fenced, "{wrong:?}");
    }
}
