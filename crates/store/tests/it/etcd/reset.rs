//! A store that lost its state, and a store that was adopted.

use tenure_core::store::{
    Adopt, ClaimRequest, Claimed, Committed, Forgotten, KeptAlive, Retention,
};
use tenure_core::{Code, Epoch, StoreError};

use super::kit::*;

/// An empty etcd does not know the earlier epochs; the handle does.
#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_store_says_so_and_grants_no_old_epoch() {
    let server = server();
    let store = open(&server).await;
    let a = join(&*store, "a").await;
    let mut last = hold(&*store, &a, "d").await;
    for _ in 0..4 {
        store.release(&a, &[last], &reason()).await.unwrap();
        last = hold(&*store, &a, "d").await;
    }
    server.etcdctl(&["del", "--prefix", ""]).unwrap();
    assert_eq!(keep(&*store, &a, &last).await, KeptAlive::Ended);
    let late = commit(&*store, &a, &last, 0).await.unwrap();
    assert_eq!(late, Committed::Fenced { newest: Epoch::ZERO });
    let wish = wish("b", 3600);
    assert_eq!(refused(store.open_session(&wish).await), Some(Code::Reset));
    store.open_session(&wish).await.unwrap();
    assert!(hold(&*store, &wish.session(), "d").await.epoch > last.epoch);
}

/// Every earlier session ends at once, and every group grants epochs above all earlier ones.
#[tokio::test(flavor = "multi_thread")]
async fn an_adoption_ends_sessions_and_raises_every_epoch() {
    let server = server();
    let (store, other) = (open(&server).await, open(&server).await);
    let a = join(&*other, "a").await;
    let want = ClaimRequest { duty: duty("d"), floor: Epoch::new(41).unwrap() };
    let held = granted(other.claim(&a, &[want], &reason()).await.unwrap().remove(0));
    assert_eq!(commit(&*other, &a, &held, 0).await.unwrap(), saved(1));
    let adopt = Adopt { entropy: 7, floor: Epoch::new(10).unwrap() };
    let adopted = store.adopt(&adopt).await.unwrap();
    assert_eq!((adopted.sessions, adopted.duties, adopted.floor.get()), (1, 1, 42));
    assert_eq!(keep(&*other, &a, &held).await, KeptAlive::Ended);
    let late = commit(&*other, &a, &held, 1).await.unwrap();
    assert_eq!(late, Committed::Fenced { newest: held.epoch });
    assert_eq!(claim(&*other, &a, "d").await, Claimed::SessionEnded);
    let b = join(&*other, "b").await;
    assert_eq!(hold(&*other, &b, "new").await.epoch.get(), 43);
    assert_eq!(load(&*other, "d").await.unwrap().version.get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duty_is_forgotten_whole_and_only_when_it_is_free() {
    let server = server();
    let store = open(&server).await;
    let a = join(&*store, "a").await;
    let held = hold(&*store, &a, "old").await;
    assert_eq!(commit(&*store, &a, &held, 0).await.unwrap(), saved(1));
    let all = [duty("old"), duty("never")];
    let forgotten = store.forget(&all, &reason()).await.unwrap();
    assert!(matches!(&forgotten[0], Forgotten::HeldBy(Some(by)) if by.instance == a.instance));
    assert_eq!(forgotten[1], Forgotten::Absent);
    store.release(&a, std::slice::from_ref(&held), &reason()).await.unwrap();
    let forgotten = store.forget(&all[..1], &reason()).await.unwrap();
    assert_eq!(forgotten, [Forgotten::Forgotten { floor: held.epoch }]);
    assert!(load(&*store, "old").await.is_none());
    assert!(store.history(&duty("old")).await.unwrap().is_empty());
    assert!(store.holders(&group()).await.unwrap().is_empty());
    assert!(hold(&*store, &a, "other").await.epoch > held.epoch);
}

/// A claim that read the floor before a duty was forgotten must not be granted an epoch below it.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_epoch_never_comes_back() {
    let server = server();
    let (store, other) = (open(&server).await, open(&server).await);
    let (a, why) = (join(&*store, "a").await, reason());
    for round in 0..20_u64 {
        let floor = Epoch::new(100 * (round + 1)).unwrap();
        let want = ClaimRequest { duty: duty("old"), floor };
        let held = granted(store.claim(&a, &[want], &why).await.unwrap().remove(0));
        store.release(&a, &[held], &why).await.unwrap();
        let new: Vec<_> = (0..300).map(|n| duty(&format!("n{round}-{n}"))).collect();
        let old = [duty("old")];
        let (forgotten, claimed) =
            tokio::join!(other.forget(&old, &why), claim_all(&*store, &a, &new));
        assert!(matches!(forgotten.unwrap()[..], [Forgotten::Forgotten { .. }]));
        claimed.unwrap();
    }
    // In order of occurrence: no epoch granted after a forgetting is at or below its epoch.
    let range = tenure_core::store::AuditRange::first(100_000);
    let mut floor = Epoch::ZERO;
    for entry in store.audit(&group(), range).await.unwrap() {
        match entry.kind.as_str() {
            "forgotten" => floor = floor.max(entry.epoch.unwrap()),
            "granted" => assert!(entry.epoch.unwrap() > floor, "{entry:?} is not above {floor}"),
            _ => {}
        }
    }
    assert!(floor.get() > 2_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_can_be_changed() {
    let server = server();
    let store = open(&server).await;
    let a = join(&*store, "a").await;
    let held = hold(&*store, &a, "d").await;
    for number in 0..10 {
        commit(&*store, &a, &held, number).await.unwrap();
    }
    let bad = Retention { history_slots: 0, audit_kept: 1_000 };
    assert_eq!(refused(store.retain(bad).await), Some(Code::BadInput));
    store.retain(Retention { history_slots: 3, audit_kept: 1_000 }).await.unwrap();
    let later = open(&server).await;
    assert_eq!(later.abilities().history_slots, 3);
    let versions = |kept: Vec<tenure_core::store::Checkpoint>| -> Vec<u64> {
        kept.iter().map(|checkpoint| checkpoint.version.get()).collect()
    };
    assert_eq!(versions(later.history(&duty("d")).await.unwrap()), [10, 9, 8]);
    assert_eq!(commit(&*later, &a, &held, 10).await.unwrap(), saved(11));
    assert_eq!(versions(store.history(&duty("d")).await.unwrap()), [11, 10, 9]);
    let keys =
        server.etcdctl(&["get", "--prefix", "--keys-only", "tenure/group/poll/kept/history"]);
    assert_eq!(keys.unwrap().lines().filter(|line| !line.is_empty()).count(), 3);
}

/// An untrimmed trail would fill the database.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_trail_is_cut_while_a_store_is_open() {
    let server = server();
    let store = open(&server).await;
    store.retain(Retention { history_slots: 32, audit_kept: 1_000 }).await.unwrap();
    let a = join(&*store, "a").await;
    let first = claim_all(&*store, &a, &duties(3_000)).await.unwrap();
    let holds: Vec<_> = first.into_iter().map(granted).collect();
    store.release(&a, &holds, &reason()).await.unwrap();
    claim_all(&*store, &a, &duties(3_000)).await.unwrap();
    let range = tenure_core::store::AuditRange::first(100_000);
    let entries = store.audit(&group(), range).await.unwrap();
    // The trail is trimmed after the batch that made it due.
    assert!((900..=4_100).contains(&entries.len()), "{}", entries.len());
    // The newest entries are kept: they are all grants of the second round.
    let newest = entries.iter().rev().take(900);
    assert!(newest.clone().all(|entry| entry.epoch.map(Epoch::get) == Some(2)));
    // Setting the retention trims exactly.
    store.retain(Retention { history_slots: 32, audit_kept: 1_000 }).await.unwrap();
    assert_eq!(store.audit(&group(), range).await.unwrap().len(), 1_000);
}

/// Each handle counts for itself, and none of these writes enough to reach the limit from zero.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_trail_of_short_lives_is_cut_too() {
    let server = server();
    let retention = Retention { history_slots: 32, audit_kept: 1_000 };
    open(&server).await.retain(retention).await.unwrap();
    let mut written = 0;
    for _ in 0..20 {
        let store = open(&server).await;
        let a = join(&*store, "a").await;
        written += 2 + 2 * claim_all(&*store, &a, &duties(1_000)).await.unwrap().len();
        store.close_session(&a, &reason()).await.unwrap();
    }
    let range = tenure_core::store::AuditRange::first(100_000);
    let kept = open(&server).await.audit(&group(), range).await.unwrap().len();
    assert!(kept < written / 8, "{kept} of {written}");
}

/// A store of a newer version is not touched.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_store_is_refused() {
    let server = server();
    drop(open(&server).await);
    let record = "schema=9 incarnation=x after= floor=0 history=32 audit=100000";
    server.etcdctl(&["put", "tenure/store", record]).unwrap();
    let error: StoreError = try_open(&server.url()).await.unwrap_err();
    assert_eq!(error.code(), Code::NewerSchema);
}
