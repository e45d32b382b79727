//! Contract 22 and 24: forgetting duties, and retention.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::invariant::{self, Step};
use tenure_core::store::{
    AuditKind, AuditRange, Claimed, Committed, Forgotten, HoldFate, KeptAlive, Released, Retention,
};
use tenure_core::{Code, DutyKey, Epoch, Hold, Session};

use super::adopt::{adopt, wish};
use super::kit::{Kit, granted, reason, version};
use super::race::race;

super::cases! { "upkeep":
    a_forgotten_duty_is_gone,
    a_forgotten_epoch_never_comes_back,
    forgetting_is_recorded,
    a_held_duty_is_not_forgotten,
    an_unknown_duty_is_absent,
    a_batch_is_forgotten_item_by_item,
    an_expired_hold_is_forgotten_and_stays_fenced,
    a_checkpoint_without_a_hold_is_forgotten,
    claims_and_forgetting_keep_every_invariant,
    a_commit_is_fenced_or_the_duty_is_held,
    a_smaller_history_drops_the_oldest,
    a_larger_history_mixes_nothing_up,
    commits_under_way_leave_a_sound_history,
    retention_is_for_all_who_open_later,
    retention_outside_the_limits_is_refused,
}

async fn forget(kit: &Kit, duty: &DutyKey) -> Forgotten {
    kit.store.forget(std::slice::from_ref(duty), &reason("gone")).await.unwrap().remove(0)
}

/// Forgets a duty that must exist; returns the floor.
pub(super) async fn forgotten(kit: &Kit, duty: &DutyKey) -> Epoch {
    match forget(kit, duty).await {
        Forgotten::Forgotten { floor } => floor,
        other => panic!("not forgotten but {other:?}"),
    }
}

/// Grants and releases `times` times, with a checkpoint each time; returns the last hold.
pub(super) async fn wear(kit: &Kit, session: &Session, id: &str, times: u64) -> Hold {
    let mut last = None;
    for n in 0..times {
        let hold = kit.hold(session, id).await;
        let committed = kit.commit(session, &hold, n, &format!("v{}", n + 1)).await;
        assert_eq!(committed, Committed::Saved(version(n + 1)));
        assert_eq!(kit.release(session, &hold).await, Released::Freed);
        last = Some(hold);
    }
    last.unwrap()
}

pub(super) async fn versions(kit: &Kit, duty: &DutyKey) -> Vec<u64> {
    let history = kit.store.history(duty).await.unwrap();
    for entry in &history {
        let text = format!("v{}", entry.version);
        assert_eq!(entry.document.as_bytes(), text.as_bytes());
    }
    history.iter().map(|entry| entry.version.get()).collect()
}

async fn is_gone(kit: &Kit, duty: &DutyKey) {
    let holders = kit.store.holders(&kit.group).await.unwrap();
    assert!(holders.iter().all(|holder| &holder.duty != duty), "{holders:?}");
    assert_eq!(kit.load(duty).await, None);
    assert_eq!(kit.store.history(duty).await.unwrap(), []);
}

async fn a_forgotten_duty_is_gone(kit: Kit) {
    let a = kit.join("a").await;
    let last = wear(&kit, &a, "d", 3).await;
    let other = wear(&kit, &a, "other", 1).await;
    assert!(forgotten(&kit, &last.duty).await >= last.epoch);
    is_gone(&kit, &last.duty).await;
    is_gone(&kit.other_client().await, &last.duty).await;
    assert!(kit.load(&other.duty).await.is_some());
    assert_eq!(forget(&kit, &last.duty).await, Forgotten::Absent);
    // The next checkpoint starts at version one.
    let hold = kit.hold(&a, "d").await;
    assert_eq!(kit.commit(&a, &hold, 0, "v1").await, Committed::Saved(version(1)));
    assert_eq!(versions(&kit, &last.duty).await, [1]);
}

async fn a_forgotten_epoch_never_comes_back(kit: Kit) {
    let a = kit.join("a").await;
    let last = wear(&kit, &a, "d", 5).await;
    let floor = forgotten(&kit, &last.duty).await;
    assert!(floor >= last.epoch);
    // Also through later clients, and for duties that were never granted before.
    let later = kit.other_client().await;
    let again = later.hold(&a, "d").await;
    assert!(again.epoch > floor, "{again:?}");
    assert!(later.hold(&a, "new").await.epoch > floor);
    assert!(kit.hold(&a, "newer").await.epoch > floor);
    // Forgetting an older duty does not lower the floor.
    let old = wear(&kit, &a, "old", 1).await;
    kit.release(&a, &again).await;
    assert!(forgotten(&kit, &again.duty).await >= again.epoch.max(floor));
    assert!(forgotten(&kit, &old.duty).await >= again.epoch.max(floor));
    assert!(kit.hold(&a, "newest").await.epoch > again.epoch.max(old.epoch));
}

async fn forgetting_is_recorded(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    wear(&kit, &a, "d", 1).await;
    let hold = kit.hold(&b, "d").await;
    kit.release(&b, &hold).await;
    forgotten(&kit, &hold.duty).await;
    let entries = kit.store.audit(&kit.group, AuditRange::first(100)).await.unwrap();
    let entry = entries.last().unwrap();
    assert_eq!((entry.kind, entry.reason.as_str()), (AuditKind::Forgotten, "gone"));
    assert_eq!(entry.instance, b.instance);
    assert_eq!((&entry.duty, entry.epoch), (&Some(hold.duty), Some(hold.epoch)));
}

async fn a_held_duty_is_not_forgotten(kit: Kit) {
    let a = kit.join("a").await;
    let before = wear(&kit, &a, "d", 1).await;
    let hold = kit.hold(&a, "d").await;
    let Forgotten::HeldBy(Some(holder)) = forget(&kit, &hold.duty).await else {
        panic!("it has a holder");
    };
    assert_eq!(holder.instance, a.instance);
    assert!(!holder.remaining.is_zero() && holder.remaining <= a.ttl.get());
    // Nothing has changed: the hold is valid, and the group has no new floor.
    assert_eq!(kit.fates(&a, &[hold.clone()]).await, [HoldFate::Kept]);
    assert_eq!(versions(&kit, &hold.duty).await, [1]);
    assert_eq!(kit.commit(&a, &hold, 1, "v2").await, Committed::Saved(version(2)));
    let entries = kit.store.audit(&kit.group, AuditRange::first(100)).await.unwrap();
    assert!(entries.iter().all(|entry| entry.kind != AuditKind::Forgotten));
    if kit.store.abilities().dense_epochs {
        assert_eq!(kit.hold(&a, "new").await.epoch, before.epoch);
    }
}

async fn an_unknown_duty_is_absent(kit: Kit) {
    assert_eq!(forget(&kit, &kit.duty("never")).await, Forgotten::Absent);
    let entries = kit.store.audit(&kit.group, AuditRange::first(100)).await.unwrap();
    assert_eq!(entries, []);
    assert_eq!(kit.store.forget(&[], &reason("none")).await.unwrap(), []);
    let twice = [kit.duty("d"), kit.duty("d")];
    let refused = kit.store.forget(&twice, &reason("twice")).await.unwrap_err();
    assert_eq!(refused.code(), Code::BadInput);
}

async fn a_batch_is_forgotten_item_by_item(kit: Kit) {
    // Two groups in one call, in arbitrary order.
    let (one, two) = (kit.clone(), kit.fresh().await);
    let two = Kit { group: two.group, ..kit.clone() };
    let (a, b) = (one.join("a").await, two.join("b").await);
    let held = one.hold(&a, "held").await;
    let (free, far) = (wear(&one, &a, "free", 1).await, wear(&two, &b, "far", 4).await);
    let duties = [far.duty.clone(), one.duty("never"), held.duty, free.duty.clone()];
    let answers = kit.store.forget(&duties, &reason("gone")).await.unwrap();
    let [far_gone, absent, held, free_gone] = answers.try_into().unwrap();
    assert!(matches!(far_gone, Forgotten::Forgotten { floor } if floor >= far.epoch));
    assert_eq!(absent, Forgotten::Absent);
    assert!(matches!(held, Forgotten::HeldBy(Some(by)) if by.instance == a.instance));
    assert!(matches!(free_gone, Forgotten::Forgotten { floor } if floor >= free.epoch));
    is_gone(&one, &free.duty).await;
    is_gone(&two, &far.duty).await;
    // Many duties also fit in one call.
    let many = one.duties(1200);
    let holds = one.hold_all(&a, &many).await;
    one.store.release(&a, &holds, &reason("case")).await.unwrap();
    let answers = one.store.forget(&many, &reason("gone")).await.unwrap();
    assert_eq!(answers.len(), many.len());
    assert!(answers.iter().all(|it| matches!(it, Forgotten::Forgotten { .. })));
    assert_eq!(one.store.holders(&one.group).await.unwrap().len(), 1);
}

async fn an_expired_hold_is_forgotten_and_stays_fenced(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    kit.commit(&a, &hold, 0, "v1").await;
    kit.lapse(&a).await;
    assert!(forgotten(&kit, &hold.duty).await >= hold.epoch);
    assert_eq!(kit.keep_alive(&a, &[hold.clone()]).await, KeptAlive::Ended);
    let committed = kit.commit(&a, &hold, 0, "late").await;
    assert!(matches!(committed, Committed::Fenced { .. }), "{committed:?}");
    assert_ne!(kit.release(&a, &hold).await, Released::Freed);
    is_gone(&kit, &hold.duty).await;
}

/// A restore may have brought a checkpoint without its hold.
async fn a_checkpoint_without_a_hold_is_forgotten(kit: Kit) {
    let a = kit.join("a").await;
    let last = wear(&kit, &a, "d", 3).await;
    kit.place.lose_epoch(last.duty.clone()).await;
    assert!(forgotten(&kit, &last.duty).await >= last.epoch);
    is_gone(&kit, &last.duty).await;
    assert!(kit.hold(&a, "d").await.epoch > last.epoch);
}

/// Holders work while every instance forgets free duties.
async fn claims_and_forgetting_keep_every_invariant(kit: Kit) {
    race(&kit, 6, |kit, racer| async move {
        let session = kit.join(&format!("worker{racer}")).await;
        for round in 0..12 {
            for claimed in kit.claim(&session, &kit.duties(3)).await {
                let Claimed::Granted(hold) = claimed else { continue };
                let stored = kit.load(&hold.duty).await.map_or(0, |c| c.version.get());
                let text = format!("{racer}.{round}");
                // A held duty is not forgotten, so the version read is still current.
                let committed = kit.commit(&session, &hold, stored, &text).await;
                assert!(matches!(committed, Committed::Saved(_)), "{committed:?}");
                assert_eq!(kit.release(&session, &hold).await, Released::Freed);
            }
            let one = &kit.duties(3)[(racer + round) % 3];
            forget(&kit, one).await;
        }
    })
    .await;
    // Nobody holds anything: a deleted row must not look held.
    let last = kit.join("last").await;
    kit.hold_all(&last, &kit.duties(3)).await;
    let mut history = Vec::new();
    let entries = kit.store.audit(&kit.group, AuditRange::first(10_000)).await.unwrap();
    assert!(entries.iter().any(|entry| entry.kind == AuditKind::Forgotten));
    for entry in entries {
        if entry.kind == AuditKind::Granted {
            let (duty, epoch) = (entry.duty.unwrap(), entry.epoch.unwrap());
            history.push(Step::Granted { duty, epoch, instance: entry.instance });
        }
    }
    assert_eq!(invariant::check(&history), Ok(()));
}

/// A holder whose TTL ends commits while another instance forgets: the two are ordered.
async fn a_commit_is_fenced_or_the_duty_is_held(kit: Kit) {
    for round in 0..10 {
        let a = kit.join(&format!("a{round}")).await;
        let hold = kit.hold(&a, &format!("d{round}")).await;
        let (committer, forgetter) = (kit.other_client().await, kit.other_client().await);
        let (session, held) = (a.clone(), hold.clone());
        let committing = tokio::spawn(async move {
            let mut saved = 0;
            for _ in 0..8 {
                match committer.commit(&session, &held, saved, "x").await {
                    Committed::Saved(version) => saved = version.get(),
                    Committed::Fenced { .. } => return,
                    conflict => panic!("nobody else commits: {conflict:?}"),
                }
            }
        });
        let (duty, lapsed) = (hold.duty.clone(), Arc::new(AtomicBool::new(false)));
        let over = lapsed.clone();
        let forgetting = tokio::spawn(async move {
            loop {
                let is_over = over.load(Ordering::SeqCst);
                if !matches!(forget(&forgetter, &duty).await, Forgotten::HeldBy(_)) {
                    return;
                }
                assert!(!is_over, "held by a session that has ended");
                tokio::task::yield_now().await;
            }
        });
        kit.lapse(&a).await;
        lapsed.store(true, Ordering::SeqCst);
        forgetting.await.unwrap();
        committing.await.unwrap();
        is_gone(&kit, &hold.duty).await;
    }
}

async fn retain(kit: &Kit, history_slots: usize) {
    let retention = Retention { history_slots, ..Retention::default() };
    kit.store.retain(retention).await.unwrap();
    assert_eq!(kit.store.abilities().history_slots, history_slots);
    assert_eq!(kit.store.retention().await.unwrap(), retention);
}

/// Commits versions `from` to `to` under one hold.
async fn fill(kit: &Kit, session: &Session, hold: &Hold, from: u64, to: u64) {
    for n in from..to {
        let committed = kit.commit(session, hold, n, &format!("v{}", n + 1)).await;
        assert_eq!(committed, Committed::Saved(version(n + 1)));
    }
}

async fn a_smaller_history_drops_the_oldest(kit: Kit) {
    let kit = kit.fresh().await;
    let other = kit.other_client().await;
    let a = kit.join("a").await;
    let (hold, short) = (kit.hold(&a, "d").await, kit.hold(&a, "short").await);
    fill(&kit, &a, &hold, 0, 40).await;
    fill(&kit, &a, &short, 0, 2).await;
    retain(&kit, 5).await;
    for kit in [&kit, &other] {
        assert_eq!(versions(kit, &hold.duty).await, [40, 39, 38, 37, 36]);
        assert_eq!(versions(kit, &short.duty).await, [2, 1]);
    }
    // A client opened before the change follows it as well.
    fill(&other, &a, &hold, 40, 47).await;
    assert_eq!(versions(&kit, &hold.duty).await, [47, 46, 45, 44, 43]);
    retain(&kit, 1).await;
    assert_eq!(versions(&kit, &hold.duty).await, [47]);
    fill(&other, &a, &hold, 47, 49).await;
    assert_eq!(versions(&kit, &hold.duty).await, [49]);
}

async fn a_larger_history_mixes_nothing_up(kit: Kit) {
    let kit = kit.fresh().await;
    let other = kit.other_client().await;
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    retain(&kit, 3).await;
    fill(&kit, &a, &hold, 0, 8).await;
    assert_eq!(versions(&kit, &hold.duty).await, [8, 7, 6]);
    retain(&kit, 5).await;
    // Dropped versions do not come back.
    assert_eq!(versions(&other, &hold.duty).await, [8, 7, 6]);
    for n in 8..14 {
        fill(&other, &a, &hold, n, n + 1).await;
        let newest: Vec<u64> = (6..=n + 1).rev().take(5).collect();
        assert_eq!(versions(&kit, &hold.duty).await, newest);
    }
}

async fn commits_under_way_leave_a_sound_history(kit: Kit) {
    let kit = kit.fresh().await;
    let a = kit.join("a").await;
    let duties = kit.duties(4);
    let holds = kit.hold_all(&a, &duties).await;
    race(&kit, 5, |kit, racer| {
        let (a, hold) = (a.clone(), holds.get(racer).cloned());
        async move {
            match hold {
                Some(hold) => fill(&kit, &a, &hold, 0, 40).await,
                None => {
                    for slots in [3, 7, 2, 5, 4, 9, 2, 7] {
                        let retention = Retention { history_slots: slots, ..Retention::default() };
                        kit.store.retain(retention).await.unwrap();
                    }
                }
            }
        }
    })
    .await;
    for duty in &duties {
        let kept = versions(&kit, duty).await;
        assert!((2..=7).contains(&kept.len()), "{kept:?}");
        let newest: Vec<u64> = (0..=40).rev().take(kept.len()).collect();
        assert_eq!(kept, newest);
    }
    for (hold, racer) in holds.iter().zip(0..) {
        fill(&kit, &a, hold, 40, 48 + racer).await;
        let newest: Vec<u64> = (0..=48 + racer).rev().take(7).collect();
        assert_eq!(versions(&kit, &hold.duty).await, newest);
    }
}

async fn retention_is_for_all_who_open_later(kit: Kit) {
    let kit = kit.fresh().await;
    assert_eq!(kit.store.retention().await.unwrap(), Retention::default());
    let retention = Retention { history_slots: 2, audit_kept: 2_000 };
    kit.store.retain(retention).await.unwrap();
    let later = kit.other_client().await;
    assert_eq!(later.store.abilities().history_slots, 2);
    assert_eq!(later.store.retention().await.unwrap(), retention);
    let a = later.join("a").await;
    let hold = granted(later.claim(&a, &[later.duty("d")]).await.remove(0));
    fill(&later, &a, &hold, 0, 3).await;
    assert_eq!(versions(&later, &hold.duty).await, [3, 2]);
    // Adopting does not change the retention.
    adopt(&later, wish(5, 0)).await;
    let last = later.other_client().await;
    assert_eq!(last.store.retention().await.unwrap(), retention);
    assert_eq!(versions(&last, &hold.duty).await, [3, 2]);
}

async fn retention_outside_the_limits_is_refused(kit: Kit) {
    let kit = kit.fresh().await;
    let fine = Retention::default();
    for bad in [
        Retention { history_slots: 0, ..fine },
        Retention { history_slots: Retention::MAX_SLOTS + 1, ..fine },
        Retention { audit_kept: 999, ..fine },
        Retention { audit_kept: usize::MAX, ..fine },
    ] {
        let refused = kit.store.retain(bad).await.unwrap_err();
        assert_eq!(refused.code(), Code::BadInput);
    }
    assert_eq!(kit.store.retention().await.unwrap(), fine);
    retain(&kit, Retention::MAX_SLOTS).await;
}
