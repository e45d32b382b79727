//! Forgetting, adopting and retention during concurrent calls; and stores of older versions.

use tenure_core::store::{
    Adopt, Claimed, Commit, Committed, Forgotten, KeptAlive, Released, Retention,
};
use tenure_core::{Document, Epoch, Hold, Version};
use tenure_store::StoreUrl;
use tokio_postgres::types::ToSql;

use super::Place;
use super::locks::until_waiting;
use crate::player::{LONG, Player, duty, or_hang, reason};

const FORGET: &str = "SELECT outcome FROM tenure.duty_forget('{g}', '{d}', 'x')";

async fn forget(player: &Player, id: &str) -> Forgotten {
    player.store.forget(&[duty(id)], &reason()).await.unwrap().remove(0)
}

fn committing(player: &Player, hold: &Hold, expected: u64) -> tokio::task::JoinHandle<Committed> {
    let (player, hold) = (player.clone(), hold.clone());
    tokio::spawn(async move { player.commit(&hold, expected, "late").await })
}

/// The duty's row is deleted while a claim reads it: the claim grants nothing, and the next one
/// grants above the floor.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_beside_a_forgetting_gets_no_old_epoch() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let mut last = a.hold("d").await;
    for _ in 0..3 {
        a.release(&last).await;
        last = a.hold("d").await;
    }
    a.release(&last).await;
    let mut slow = place.client().await;
    let forgetting = slow.transaction().await.unwrap();
    let outcome = forgetting.query_one(&place.sql(FORGET), &[]).await.unwrap();
    assert_eq!(outcome.get::<_, &str>(0), "forgotten");
    let claimed = or_hang(a.claim("d")).await;
    assert_eq!(claimed, Claimed::HeldBy(None));
    forgetting.commit().await.unwrap();
    let hold = a.hold("d").await;
    assert!(hold.epoch > last.epoch, "{hold:?}");
}

/// A claim has begun and waits before its first read of the holds; the duty is forgotten meanwhile.
/// The claim creates the row again, and must have read the floor after the forgetting.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waited_for_a_forgetting_reads_the_floor_after_it() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    for _ in 0..3 {
        let hold = a.hold("d").await;
        a.release(&hold).await;
    }
    let (mut slow, watcher) = (place.client().await, place.client().await);
    let forgetting = slow.transaction().await.unwrap();
    let lock = place.sql("LOCK TABLE tenure.hold IN EXCLUSIVE MODE");
    forgetting.batch_execute(&lock).await.unwrap();
    let claiming = {
        let a = a.clone();
        tokio::spawn(async move { a.claim("d").await })
    };
    until_waiting(&watcher, &format!("{}.hold_claim", place.schema)).await;
    forgetting.query_one(&place.sql(FORGET), &[]).await.unwrap();
    forgetting.commit().await.unwrap();
    let claimed = or_hang(claiming).await.unwrap();
    let Claimed::Granted(hold) = claimed else { panic!("{claimed:?}") };
    assert_eq!(hold.epoch.get(), 4);
}

/// The commit read the hold while it was valid, then waited: it must find that the row is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waited_for_a_forgetting_is_fenced() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let (mut slow, watcher) = (place.client().await, place.client().await);
    for first in [true, false] {
        let a = Player::join(&store, "a", LONG).await;
        let hold = a.hold("d").await;
        if !first {
            a.commit(&hold, 0, "first").await;
        }
        // The TTL ends inside this transaction: other transactions still see a live session.
        let forgetting = slow.transaction().await.unwrap();
        let lapse = "UPDATE tenure.session SET expires_at = clock_timestamp() WHERE nonce = ";
        let lapse = format!("{}'{}'", place.sql(lapse), a.session.nonce);
        forgetting.batch_execute(&lapse).await.unwrap();
        let outcome = forgetting.query_one(&place.sql(FORGET), &[]).await.unwrap();
        assert_eq!(outcome.get::<_, &str>(0), "forgotten");
        let late = committing(&a, &hold, u64::from(!first));
        until_waiting(&watcher, &format!("{}.checkpoint", place.schema)).await;
        forgetting.commit().await.unwrap();
        let committed = or_hang(late).await.unwrap();
        assert!(matches!(committed, Committed::Fenced { .. }), "{committed:?}");
        assert_eq!(store.load(&[duty("d")]).await.unwrap(), [None]);
        assert_eq!(store.history(&duty("d")).await.unwrap(), []);
    }
}

/// Forgetting waits for an effect in progress under the hold, and then finds the holder.
#[tokio::test(flavor = "multi_thread")]
async fn forgetting_waits_for_an_effect_and_finds_the_holder() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let hold = a.hold("d").await;
    let (mut client, watcher) = (place.client().await, place.client().await);
    let effect = client.transaction().await.unwrap();
    tenure_store::postgres::fence_in(&effect, &place.schema, &hold).await.unwrap();
    let forgetting = {
        let a = a.clone();
        tokio::spawn(async move { forget(&a, "d").await })
    };
    until_waiting(&watcher, &format!("{}.duty_forget", place.schema)).await;
    effect.commit().await.unwrap();
    let forgotten = or_hang(forgetting).await.unwrap();
    let Forgotten::HeldBy(Some(holder)) = forgotten else { panic!("{forgotten:?}") };
    assert_eq!(holder.instance, a.session.instance);
    assert!(a.keeps(&hold).await);
}

/// A keep-alive began before the expiry and commits after it: forgetting must wait and read again.
#[tokio::test(flavor = "multi_thread")]
async fn forgetting_waits_for_a_keep_alive_that_began_in_time() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let hold = a.hold("d").await;
    let (mut slow, watcher) = (place.client().await, place.client().await);
    place.lapse(&a.session).await;
    let keep_alive = slow.transaction().await.unwrap();
    let extend = place.sql("UPDATE tenure.session SET expires_at = clock_timestamp() + ttl");
    let extend = format!("{extend} WHERE nonce = '{}'", a.session.nonce);
    keep_alive.batch_execute(&extend).await.unwrap();
    let forgetting = {
        let a = a.clone();
        tokio::spawn(async move { forget(&a, "d").await })
    };
    until_waiting(&watcher, &format!("{}.duty_forget", place.schema)).await;
    keep_alive.commit().await.unwrap();
    let forgotten = or_hang(forgetting).await.unwrap();
    assert!(matches!(forgotten, Forgotten::HeldBy(Some(_))), "{forgotten:?}");
    assert!(a.keeps(&hold).await);
}

/// A checkpoint without a hold is not forgotten while a claim on it is in progress.
#[tokio::test(flavor = "multi_thread")]
async fn forgetting_waits_for_a_claim_of_a_checkpoint_without_a_hold() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let hold = a.hold("d").await;
    a.commit(&hold, 0, "kept").await;
    a.release(&hold).await;
    let (mut slow, watcher) = (place.client().await, place.client().await);
    watcher.batch_execute(&place.sql("DELETE FROM tenure.hold")).await.unwrap();
    let claim = slow.transaction().await.unwrap();
    claim_in(&claim, &place, &a).await;
    let forgetting = {
        let a = a.clone();
        tokio::spawn(async move { forget(&a, "d").await })
    };
    until_waiting(&watcher, &format!("{}.duty_forget", place.schema)).await;
    claim.commit().await.unwrap();
    let forgotten = or_hang(forgetting).await.unwrap();
    assert!(matches!(forgotten, Forgotten::HeldBy(Some(_))), "{forgotten:?}");
    assert!(store.load(&[duty("d")]).await.unwrap()[0].is_some());
}

/// Claims `d` in a transaction that stays open; returns the epoch.
async fn claim_in(
    transaction: &tokio_postgres::Transaction<'_>,
    place: &Place,
    player: &Player,
) -> i64 {
    let claim = "SELECT outcome, epoch
        FROM tenure.hold_claim('g', $1, $2::text::uuid, '{d}', '{0}', 'x')";
    let (instance, nonce) = (player.session.instance.as_str(), player.session.nonce.to_string());
    let parameters: [&(dyn ToSql + Sync); 2] = [&instance, &nonce];
    let row = transaction.query_one(&place.sql(claim), &parameters).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "granted");
    row.get(1)
}

/// A claim in progress is granted before the adoption, never concurrently.
#[tokio::test(flavor = "multi_thread")]
async fn adopting_waits_for_a_claim_that_is_under_way() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let (mut slow, watcher) = (place.client().await, place.client().await);
    let claim = slow.transaction().await.unwrap();
    let granted = claim_in(&claim, &place, &a).await;
    let adopting = {
        let store = store.clone();
        let wish = Adopt { entropy: 5, floor: Epoch::ZERO };
        tokio::spawn(async move { store.adopt(&wish).await.unwrap() })
    };
    until_waiting(&watcher, &format!("{}.store_adopt", place.schema)).await;
    claim.commit().await.unwrap();
    let adopted = or_hang(adopting).await.unwrap();
    assert!(adopted.floor.as_i64() >= granted, "{adopted:?}");
    assert_eq!((adopted.sessions, adopted.duties), (1, 1));
    assert_eq!(a.keep_alive(&[]).await, KeptAlive::Ended);
}

/// Effects in users' own transactions end first, too: afterwards none is in progress.
#[tokio::test(flavor = "multi_thread")]
async fn adopting_waits_for_effects() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let hold = a.hold("d").await;
    let (mut client, watcher) = (place.client().await, place.client().await);
    let effect = client.transaction().await.unwrap();
    tenure_store::postgres::fence_in(&effect, &place.schema, &hold).await.unwrap();
    let adopting = {
        let store = store.clone();
        let wish = Adopt { entropy: 5, floor: Epoch::ZERO };
        tokio::spawn(async move { store.adopt(&wish).await.unwrap() })
    };
    until_waiting(&watcher, &format!("{}.store_adopt", place.schema)).await;
    effect.commit().await.unwrap();
    assert_eq!(or_hang(adopting).await.unwrap().sessions, 1);
    let after = client.transaction().await.unwrap();
    let fenced = tenure_store::postgres::fence_in(&after, &place.schema, &hold).await;
    assert_eq!(fenced.unwrap_err().code(), tenure_core::Code::Fenced);
}

/// A commit in progress has written to a slot of the old ring: the new ring is built after it. A
/// commit during the rebuild waits, and uses the new ring.
#[tokio::test(flavor = "multi_thread")]
async fn a_ring_is_laid_anew_between_commits() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let hold = a.hold("d").await;
    for n in 0..4 {
        a.commit(&hold, n, "x").await;
    }
    let (mut slow, watcher) = (place.client().await, place.client().await);
    let commit = slow.transaction().await.unwrap();
    // The call of a program from before migration 0002, with its own number of slots.
    let sql = "SELECT outcome FROM tenure.checkpoint_commit('g', $1, $2::text::uuid, '{d}', $3,
        '{4}', '{x}', 32)";
    let (instance, nonce) = (a.session.instance.as_str(), a.session.nonce.to_string());
    let parameters: [&(dyn ToSql + Sync); 3] = [&instance, &nonce, &vec![hold.epoch.as_i64()]];
    let outcome = commit.query_one(&place.sql(sql), &parameters).await.unwrap();
    assert_eq!(outcome.get::<_, &str>(0), "saved");
    let retaining = {
        let (store, retention) = (store.clone(), Retention::default());
        let retention = Retention { history_slots: 3, ..retention };
        tokio::spawn(async move { store.retain(retention).await.unwrap() })
    };
    until_waiting(&watcher, &format!("{}.store_retain", place.schema)).await;
    commit.commit().await.unwrap();
    or_hang(retaining).await.unwrap();
    let ring = "SELECT slot, version FROM tenure.history ORDER BY version";
    let slots = async || -> Vec<(i32, i64)> {
        let rows = watcher.query(&place.sql(ring), &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    assert_eq!(slots().await, [(0, 3), (1, 4), (2, 5)]);

    let retain = slow.transaction().await.unwrap();
    let sql = "SELECT tenure.store_retain(2, 100000)::text";
    retain.query_one(&place.sql(sql), &[]).await.unwrap();
    let late = committing(&a, &hold, 5);
    until_waiting(&watcher, &format!("{}.checkpoint", place.schema)).await;
    retain.commit().await.unwrap();
    assert_eq!(or_hang(late).await.unwrap(), Committed::Saved(Version::new(6).unwrap()));
    assert_eq!(slots().await, [(1, 5), (0, 6)]);
}

/// A store created before migration 0002 is migrated with its content.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_from_before_is_brought_up_to_date() {
    let Some(place) = Place::given() else { return };
    let mut client = place.client().await;
    let first = place.sql(include_str!("first.sql"));
    let first = first.replace("EXISTS tenure;", &format!("EXISTS {};", place.schema));
    client.batch_execute(&first).await.unwrap();
    let open = "SELECT tenure.session_open('g', 'old', $1::text::uuid, 3600000, '', 1)";
    let nonce = "11111111-1111-4111-8111-111111111111".to_owned();
    client.query_one(&place.sql(open), &[&nonce]).await.unwrap();
    let claim =
        "SELECT epoch FROM tenure.hold_claim('g', 'old', $1::text::uuid, '{d}', '{6}', 'x')";
    let row = client.query_one(&place.sql(claim), &[&nonce]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 7);
    let commit = "SELECT outcome FROM tenure.checkpoint_commit('g', 'old', $1::text::uuid, '{d}',
        '{7}', ARRAY[$2::bigint], '{x}', 32)";
    client.query_one(&place.sql(commit), &[&nonce, &0_i64]).await.unwrap();
    // The session has lived longer than its nonce was kept.
    client.batch_execute(&place.sql("DELETE FROM tenure.spent")).await.unwrap();

    let store = place.open().await;
    assert_eq!(store.retention().await.unwrap(), Retention::default());
    assert_eq!(store.load(&[duty("d")]).await.unwrap()[0].as_ref().unwrap().epoch.get(), 7);
    let spent = place.sql("SELECT nonce::text FROM tenure.spent");
    assert_eq!(client.query_one(&spent, &[]).await.unwrap().get::<_, &str>(0), nonce);
    // The old program continues with the calls that it knows.
    let saved = client.query_one(&place.sql(commit), &[&nonce, &1_i64]).await.unwrap();
    assert_eq!(saved.get::<_, &str>(0), "saved");
    let a = Player::join(&store, "a", LONG).await;
    assert!(matches!(forget(&a, "d").await, Forgotten::HeldBy(Some(_))));
    let close = "SELECT tenure.session_close('g', 'old', $1::text::uuid, 'x')";
    client.query_one(&place.sql(close), &[&nonce]).await.unwrap();
    assert!(matches!(forget(&a, "d").await, Forgotten::Forgotten { floor } if floor.get() == 7));
    // The function that the old program calls must also grant above the floor.
    let transaction = client.transaction().await.unwrap();
    assert_eq!(claim_in(&transaction, &place, &a).await, 8);
    transaction.commit().await.unwrap();
    drop(place.open().await);
}

/// The printed script migrates an older store, and does nothing to a current one.
#[tokio::test(flavor = "multi_thread")]
async fn the_printed_script_brings_a_store_from_before_up_to_date() {
    let Some(place) = Place::given() else { return };
    let client = place.client().await;
    let first = place.sql(include_str!("first.sql"));
    let first = first.replace("EXISTS tenure;", &format!("EXISTS {};", place.schema));
    client.batch_execute(&first).await.unwrap();
    let url = StoreUrl::parse(&format!("postgres://h/db?schema={}", place.schema)).unwrap();
    for _ in 0..2 {
        client.batch_execute(&url.migration_script().unwrap()).await.unwrap();
    }
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let hold = a.hold("d").await;
    a.release(&hold).await;
    assert!(matches!(forget(&a, "d").await, Forgotten::Forgotten { .. }));
}

/// Ten thousand duties are forgotten within the time limit of one call, although tables that were
/// empty a moment ago mislead the planner.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_duties_are_forgotten_at_once() {
    let Some(place) = Place::given() else { return };
    let store = place.open().await;
    let a = Player::join(&store, "a", LONG).await;
    let ids: Vec<String> = (0..10_000).map(|n| format!("d{n:05}")).collect();
    let holds = a.hold_all(&ids).await;
    let commit = |hold: &Hold| Commit {
        hold: hold.clone(),
        expected: Version::ZERO,
        document: Document::new(*b"x").unwrap(),
    };
    let commits: Vec<_> = holds.iter().map(commit).collect();
    store.commit(&a.session, &commits).await.unwrap();
    let released = store.release(&a.session, &holds, &reason()).await.unwrap();
    assert!(released.iter().all(|released| *released == Released::Freed));
    store.retain(Retention { history_slots: 2, ..Retention::default() }).await.unwrap();
    let duties: Vec<_> = holds.iter().map(|hold| hold.duty.clone()).collect();
    let forgotten = store.forget(&duties, &reason()).await.unwrap();
    assert!(forgotten.iter().all(|it| matches!(it, Forgotten::Forgotten { .. })));
    assert_eq!(store.holders(&a.session.group).await.unwrap(), []);
}
