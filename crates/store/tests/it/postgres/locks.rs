//! Keep-alive, takeover and commit never succeed together.

use std::time::Duration;

use tenure_core::store::{ClaimRequest, Claimed, KeptAlive};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::Place;
use crate::player::{LONG, Player, or_hang, sql_files};

/// Waits until a statement of this kind is blocked by a lock.
pub(super) async fn until_waiting(client: &Client, needle: &str) {
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'";
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    let look = async {
        // Without the application name, because a pooler may be in between.
        let count = async || {
            let rows = client.query_typed(waiting, &[(&needle, Type::TEXT)]).await.unwrap();
            rows[0].get::<_, i64>(0)
        };
        while count().await == 0 {
            tick.tick().await;
        }
    };
    or_hang(look).await;
}

/// The double grant: a keep-alive began before the expiry and commits after it; a claim in between
/// reads the old row. It must wait for the lock, read again, and find the session live.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_a_keep_alive_that_began_in_time() {
    let Some(place) = Place::given() else { return };
    claim_waits_for_keep_alive(&place).await;
}

pub(super) async fn claim_waits_for_keep_alive(place: &Place) {
    let store = place.open().await;
    let (a, b) = (Player::join(&store, "a", LONG).await, Player::join(&store, "b", LONG).await);
    let hold = a.hold("d").await;
    let (mut slow, watcher) = (place.client().await, place.client().await);
    let keep_alive = slow.transaction().await.unwrap();
    let extend = place.sql("UPDATE tenure.session SET expires_at = clock_timestamp() + ttl");
    let extend = format!("{extend} WHERE nonce = '{}'", a.session.nonce);
    // The row expires during the keep-alive: other transactions still see the old row.
    place.lapse(&a.session).await;
    keep_alive.batch_execute(&extend).await.unwrap();
    let claiming = {
        let b = b.clone();
        tokio::spawn(async move { b.claim("d").await })
    };
    until_waiting(&watcher, &format!("{}.hold_claim", place.schema)).await;
    keep_alive.commit().await.unwrap();
    let claimed = or_hang(claiming).await.unwrap();
    assert!(matches!(&claimed, Claimed::HeldBy(Some(by)) if by.instance == a.session.instance));
    assert!(a.keeps(&hold).await);
}

/// The reverse order: the takeover has ended the session, so a keep-alive that waited for it must
/// not revive it, whatever the clock is by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_keep_alive_that_waited_for_a_takeover_finds_the_session_ended() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let b = Player::join(&store, "b", LONG).await;
    let hold = a.hold("d").await;
    place.lapse(&a.session).await;
    let (mut slow, watcher) = (place.client().await, place.client().await);
    let takeover = slow.transaction().await.unwrap();
    let claim =
        place.sql("SELECT outcome FROM tenure.hold_claim('g', $1, $2::text::uuid, $3, $4, 'x')");
    let (instance, nonce) = (b.session.instance.as_str(), b.session.nonce.to_string());
    let parameters: [&(dyn ToSql + Sync); 4] = [&instance, &nonce, &vec!["d"], &vec![0_i64]];
    let outcome: String = takeover.query_one(&claim, &parameters).await.unwrap().get(0);
    assert_eq!(outcome, "granted");
    // Other transactions do not see that change yet; this one moves the expiry into the future.
    let keeping = {
        let (a, hold) = (a.clone(), hold.clone());
        tokio::spawn(async move { a.keeps(&hold).await })
    };
    let forward = place.client().await;
    let sql = place.sql("UPDATE tenure.session SET expires_at = clock_timestamp() + ttl");
    let sql = format!("{sql} WHERE nonce = '{}'", a.session.nonce);
    let moving = tokio::spawn(async move { forward.batch_execute(&sql).await });
    until_waiting(&watcher, "SET expires_at = clock_timestamp() + ttl").await;
    takeover.commit().await.unwrap();
    or_hang(moving).await.unwrap().unwrap();
    assert!(!or_hang(keeping).await.unwrap());
    assert!(!a.keeps(&hold).await, "ended is final");
}

/// Expiry is judged when the lock is there, not when the statement began (R4).
#[tokio::test(flavor = "multi_thread")]
async fn a_keep_alive_that_waited_past_the_expiry_finds_the_session_ended() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let (mut slow, watcher) = (place.client().await, place.client().await);
    let locked = slow.transaction().await.unwrap();
    let of_session = format!("WHERE nonce = '{}'", a.session.nonce);
    let lock = place.sql("SELECT FROM tenure.session ") + &of_session + " FOR UPDATE";
    locked.batch_execute(&lock).await.unwrap();
    let keeping = tokio::spawn(async move { a.keep_alive(&[]).await });
    until_waiting(&watcher, &format!("UPDATE {}.session SET expires_at", place.schema)).await;
    let expire = place.sql("UPDATE tenure.session SET expires_at = clock_timestamp() ");
    locked.batch_execute(&(expire + &of_session)).await.unwrap();
    locked.commit().await.unwrap();
    assert_eq!(or_hang(keeping).await.unwrap(), KeptAlive::Ended);
}

/// A claim does not grant a hold that was locked when it looked, even if the hold is released
/// before the claim completes: another instance may have been granted it meanwhile, under a session
/// that the claim's later statements do not see.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_claim_skipped_it_does_not_grant() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let dead = Player::join(&store, "dead", LONG).await;
    let (x, a) = (Player::join(&store, "x", LONG).await, Player::join(&store, "a", LONG).await);
    dead.hold("aa").await;
    let held = x.hold("zz").await;
    place.lapse(&dead.session).await;
    // X slowly releases `zz`; the dead session is locked, so A's claim stops between its reads.
    let (mut releasing, mut blocking) = (place.client().await, place.client().await);
    let release = releasing.transaction().await.unwrap();
    let sql = "SELECT outcome FROM tenure.hold_release('g', $1, $2::text::uuid, $3, $4, 'x')";
    let (instance, nonce) = (x.session.instance.as_str(), x.session.nonce.to_string());
    let parameters: [&(dyn ToSql + Sync); 4] =
        [&instance, &nonce, &vec!["zz"], &vec![held.epoch.as_i64()]];
    let freed = release.query_one(&place.sql(sql), &parameters).await.unwrap();
    assert_eq!(freed.get::<_, &str>(0), "freed");
    let block = blocking.transaction().await.unwrap();
    let lock =
        format!("SELECT FROM tenure.session WHERE nonce = '{}' FOR UPDATE", dead.session.nonce);
    block.batch_execute(&place.sql(&lock)).await.unwrap();
    let claiming = {
        let (a, reason) = (a.clone(), crate::player::reason());
        let wants = ["aa", "zz"].map(|id| ClaimRequest::new(crate::player::duty(id)));
        tokio::spawn(async move { a.store.claim(&a.session, &wants, &reason).await.unwrap() })
    };
    until_waiting(&place.client().await, &format!("{}.hold_claim", place.schema)).await;
    release.commit().await.unwrap();
    block.commit().await.unwrap();
    let claimed = or_hang(claiming).await.unwrap();
    assert!(matches!(&claimed[0], Claimed::Granted(_)), "{claimed:?}");
    assert!(matches!(&claimed[1], Claimed::HeldBy(_)), "{claimed:?}");
    assert!(a.hold("zz").await.epoch > held.epoch);
}

/// Types of a single commit's parameters; without them the server infers others.
const ONE: [Type; 7] =
    [Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::BYTEA, Type::INT8];

/// A commit in progress keeps the duty until it completes; the takeover follows. Tested for the
/// first commit of a duty, later ones, and a batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_does_not_pass_a_commit_that_is_under_way() {
    let Some(place) = Place::given() else { return };
    let sql = |name: &str| {
        let files = sql_files("src/postgres/sql/checkpoint");
        place.sql(&files.into_iter().find(|(file, _)| file == name).unwrap().1)
    };
    let store = place.open().await;
    let mut client = place.client().await;
    for (n, statement) in ["first", "next", "batch"].into_iter().enumerate() {
        let (a, b) = (Player::join(&store, "a", LONG).await, Player::join(&store, "b", LONG).await);
        let id = format!("d{n}");
        let hold = a.hold(&id).await;
        let (instance, nonce) = (a.session.instance.as_str(), a.session.nonce.to_string());
        let (epoch, document) = (hold.epoch.as_i64(), &b"slow"[..]);
        let expected = i64::from(statement == "next");
        let one: [&(dyn ToSql + Sync); 7] =
            [&"g", &instance, &nonce, &id, &epoch, &document, &expected];
        let (ids, epochs, documents) = (vec![id.as_str()], vec![epoch], vec![document]);
        let zero = vec![0_i64];
        let batch: [&(dyn ToSql + Sync); 7] =
            [&"g", &instance, &nonce, &ids, &epochs, &zero, &documents];
        let (file, parameters, types) = match statement {
            "batch" => ("commit.sql", batch, &[][..]),
            _ => ("commit_one.sql", one, &ONE[..]),
        };
        if statement == "next" {
            a.commit(&hold, 0, "first").await;
        }
        let slow = client.transaction().await.unwrap();
        let prepared = slow.prepare_typed(&sql(file), types).await.unwrap();
        let rows = slow.query(&prepared, &parameters).await.unwrap();
        assert_eq!(rows.len(), 1, "{statement}");
        place.lapse(&a.session).await;
        // The commit does not block the takeover: its answer comes at once.
        let claimed = or_hang(b.claim(&id)).await;
        assert!(matches!(claimed, Claimed::HeldBy(_)), "{statement}: {claimed:?}");
        slow.commit().await.unwrap();
        assert!(b.hold(&id).await.epoch > hold.epoch);
        let stored = store.load(std::slice::from_ref(&hold.duty)).await.unwrap().remove(0);
        assert_eq!(stored.unwrap().document.as_bytes(), b"slow");
    }
}
