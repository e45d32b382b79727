//! Retention of a session's nonce.

use std::sync::Arc;

use tenure_core::Store;
use tenure_core::store::{Committed, KeptAlive, OpenSession, Opened};

use super::Place;
use crate::player::{LONG, Player, or_hang, reason, wish};

impl Place {
    async fn run(&self, sql: &str) -> u64 {
        self.client().await.execute(&self.sql(sql), &[]).await.unwrap()
    }

    /// Ages every nonce record by more than a week.
    async fn a_week_later(&self) {
        self.run("UPDATE tenure.spent SET used_at = used_at - interval '8 days'").await;
    }

    /// Ends the session of that name more than a day ago.
    async fn end(&self, name: &str) {
        let sql = "UPDATE tenure.session SET expires_at = expires_at - interval '2 days'";
        assert_eq!(self.run(&format!("{sql} WHERE instance LIKE '{name}-%'")).await, 1);
    }

    async fn count(&self, sql: &str) -> i64 {
        self.client().await.query_one(&self.sql(sql), &[]).await.unwrap().get(0)
    }
}

async fn opened(store: &Arc<dyn Store>, wish: &OpenSession) -> Opened {
    store.open_session(wish).await.unwrap()
}

async fn join(store: &Arc<dyn Store>, wish: &OpenSession) -> Player {
    assert_eq!(opened(store, wish).await, Opened::Open(wish.session()));
    Player { store: store.clone(), session: wish.session() }
}

/// The session lived longer than nonces are kept, and its holds were not claimed since. Opening it
/// again with its nonce would make them valid under their old epochs.
#[tokio::test(flavor = "multi_thread")]
async fn the_nonce_of_a_long_session_is_spent_when_it_ends() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let first = wish("a", LONG);
    let a = join(&store, &first).await;
    let hold = a.hold("d").await;
    a.commit(&hold, 0, "first").await;
    place.a_week_later().await;
    Player::join(&store, "other", LONG).await;
    assert_eq!(place.count("SELECT count(*) FROM tenure.spent").await, 2, "while it lives");
    assert!(a.keeps(&hold).await);
    place.end("a").await;
    for others in 0..3 {
        assert_eq!(opened(&store, &first).await, Opened::Spent, "after {others} others");
        assert_eq!(a.keep_alive(std::slice::from_ref(&hold)).await, KeptAlive::Ended);
        let committed = a.commit(&hold, 1, "late").await;
        assert!(matches!(committed, Committed::Fenced { .. }), "{committed:?}");
        // Joining sweeps: first the session, later the nonce that no session row carries any more.
        Player::join(&store, "other", LONG).await;
        place.a_week_later().await;
    }
    let rows = "SELECT count(*) FROM tenure.hold WHERE held";
    assert_eq!(place.count(rows).await, 1);
}

/// The session's row also records the nonce, even if the row in `spent` was lost.
#[tokio::test(flavor = "multi_thread")]
async fn the_nonce_of_a_session_that_is_still_there_is_spent() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let first = wish("a", LONG);
    join(&store, &first).await;
    place.end("a").await;
    assert_eq!(place.run("DELETE FROM tenure.spent").await, 1);
    assert_eq!(opened(&store, &first).await, Opened::Spent);
}

/// A week counts from the end of the session, not from its beginning, whether it is swept or
/// replaced by another session of its instance.
#[tokio::test(flavor = "multi_thread")]
async fn a_nonce_is_remembered_for_a_week_from_when_its_session_goes() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let swept = wish("swept", LONG);
    let followed = wish("followed", LONG);
    join(&store, &swept).await;
    let ended = join(&store, &followed).await;
    place.a_week_later().await;
    place.end("swept").await;
    ended.store.close_session(&ended.session, &reason()).await.unwrap();
    let next = OpenSession { instance: followed.instance.clone(), ..wish("", LONG) };
    join(&store, &next).await;
    Player::join(&store, "other", LONG).await;
    let members = "SELECT count(*) FROM tenure.session";
    assert_eq!(place.count(members).await, 2);
    assert_eq!(opened(&store, &swept).await, Opened::Spent);
    // The instance has another session: for a different instance, only the nonce counts.
    let same = OpenSession { instance: swept.instance.clone(), ..followed };
    assert_eq!(opened(&store, &same).await, Opened::Spent);
    // And no longer, when no session row carries it.
    place.a_week_later().await;
    Player::join(&store, "other", LONG).await;
    let spent = "SELECT count(*) FROM tenure.spent";
    assert_eq!(place.count(spent).await, 3);
}

/// Another transaction has locked the nonce rows: joining skips them, and waits only for its own
/// instance.
#[tokio::test(flavor = "multi_thread")]
async fn sweeping_waits_for_nobody() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let (live, gone) = (wish("live", LONG), wish("gone", LONG));
    join(&store, &live).await;
    join(&store, &gone).await;
    place.run("DELETE FROM tenure.session WHERE instance LIKE 'gone%'").await;
    place.a_week_later().await;
    let mut slow = place.client().await;
    let sweeping = slow.transaction().await.unwrap();
    sweeping.batch_execute(&place.sql("SELECT FROM tenure.spent FOR UPDATE")).await.unwrap();
    or_hang(Player::join(&store, "other", LONG)).await;
    sweeping.rollback().await.unwrap();
    let old = "SELECT count(*) FROM tenure.spent WHERE used_at < now() - interval '7 days'";
    assert_eq!(place.count(old).await, 2);
    or_hang(Player::join(&store, "other", LONG)).await;
    assert_eq!(place.count(old).await, 0);
    assert_eq!(place.count("SELECT count(*) FROM tenure.spent").await, 3);
}
